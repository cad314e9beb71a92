"""Generated C++ kernels alone, against eager: microseconds a call, outputs given, threads as set.

    python -m benchmarks.kernels [--threads 2] [--peer] [name …]

`--peer` adds torch.compile (allocations included on its side and on eager's). Kernels are written here in the loop IR,
as lowering would make them, so this measures code generation and nothing else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from stator._native import load_kernels
from stator.codegen.cpp import emit
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.runtime import Cpp
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read

SIZES = ((128, 768), (128, 3072), (1024, 1024), (2048, 4096))
Case = tuple[str, Kernel, list[torch.Tensor], Callable[..., Any]]


def f(value: float) -> Expr:
    return e.const(value, "f32")


def erf_gelu(x: Expr) -> Expr:
    return e.op("mul", e.op("mul", x, f(0.5)), e.op("add", e.op("erf", e.op("mul", x, f(2**-0.5))), f(1.0)))


def tanh_gelu(x: Expr) -> Expr:
    cubed = e.op("mul", e.op("mul", x, x), x)
    inner = e.op("mul", f(0.7978845608), e.op("add", x, e.op("mul", f(0.044715), cubed)))
    return e.op("mul", e.op("mul", f(0.5), x), e.op("add", f(1.0), e.op("tanh", inner)))


def silu(x: Expr) -> Expr:
    return e.op("div", x, e.op("add", f(1.0), e.op("exp", e.op("neg", x))))


def softmax(x: Expr) -> Expr:
    raised = e.op("exp", e.op("sub", x, e.reduce("max", x)))
    return e.op("div", raised, e.reduce("sum", raised))


def norm(x: Expr, n: int, weight: Expr, bias: Expr) -> tuple[Expr, Expr, Expr]:
    mean = e.op("div", e.reduce("sum", x), f(n))
    centred = e.op("sub", x, mean)
    scale = e.op("rsqrt", e.op("add", e.op("div", e.reduce("sum", e.op("mul", centred, centred)), f(n)), f(1e-5)))
    return e.op("add", e.op("mul", e.op("mul", centred, scale), weight), bias), mean, scale


def cases(rows: int, n: int) -> Iterator[Case]:
    """Name, kernel, its tensors (results last), and what eager does with the inputs."""
    a, b = torch.randn(rows, n), torch.randn(rows, n)
    w, c = torch.randn(n), torch.randn(n)
    big = Param("p0", "f32", "in", rows * n)

    def flat(value: Callable[[Expr], Expr]) -> Kernel:
        x = Axis("x0", rows * n)
        store = Store("p1", Index.of(x), value(e.load("p0", x, "f32")), "outer")
        return kernel((x,), (), (store,), (big, Param("p1", "f32", "out", rows * n)))

    yield "gelu", flat(erf_gelu), [a, torch.empty_like(a)], lambda a: functional.gelu(a)
    yield "gelu-tanh", flat(tanh_gelu), [a, torch.empty_like(a)], lambda a: functional.gelu(a, approximate="tanh")
    yield "silu", flat(silu), [a, torch.empty_like(a)], functional.silu

    x, y, r = Axis("x0", rows), Axis("x1", n), Axis("r0", n)
    here = x.index * n + r
    row, other = e.load("p0", here, "f32"), e.load("p1", here, "f32")
    out = Param("p1", "f32", "out", rows * n)
    made = kernel((x,), (r,), (Store("p1", here, softmax(row), "inner"),), (big, out))
    yield "softmax", made, [a, torch.empty_like(a)], lambda a: a.softmax(-1)

    def vectors(first: int) -> tuple[Param, ...]:
        return Param(f"p{first}", "f32", "in", n), Param(f"p{first + 1}", "f32", "in", n)

    value, mean, scale = norm(row, n, e.load("p1", r, "f32"), e.load("p2", r, "f32"))
    stores = [
        Store("p3", here, value, "inner"),
        Store("p4", Index.of(x), mean, "outer"),
        Store("p5", Index.of(x), scale, "outer"),
    ]
    outs = tuple(Param(f"p{i}", "f32", "out", rows * n if i == 3 else rows) for i in (3, 4, 5))
    made = kernel((x,), (r,), tuple(stores), (big, *vectors(1), *outs))
    results = [torch.empty_like(a), torch.empty(rows), torch.empty(rows)]
    yield "layer_norm", made, [a, w, c, *results], lambda a, w, c: functional.layer_norm(a, (n,), w, c)

    there = x.index * n + y
    value = erf_gelu(e.op("add", e.load("p0", there, "f32"), e.load("p1", y, "f32")))
    made = kernel(
        (x, y), (), (Store("p2", there, value, "outer"),), (big, vectors(1)[0], Param("p2", "f32", "out", rows * n))
    )
    yield "bias+gelu", made, [a, w, torch.empty_like(a)], lambda a, w: functional.gelu(a + w)

    value, _, _ = norm(e.op("add", row, other), n, e.load("p2", r, "f32"), e.load("p3", r, "f32"))
    stores = [Store("p4", here, e.op("add", row, other), "inner"), Store("p5", here, value, "inner")]
    outs = tuple(Param(f"p{i}", "f32", "out", rows * n) for i in (4, 5))
    made = kernel((x,), (r,), tuple(stores), (big, Param("p1", "f32", "in", rows * n), *vectors(2), *outs))
    yield "residual+norm", made, [a, b, w, c, torch.empty_like(a), torch.empty_like(a)], _residual_norm

    down = Axis("r0", rows)
    column = Axis("x0", n)
    body = e.reduce("sum", e.load("p0", down.index * n + column, "f32"))
    made = kernel(
        (column,), (down,), (Store("p1", Index.of(column), body, "outer"),), (big, Param("p1", "f32", "out", n))
    )
    yield "column sum", made, [a, torch.empty(n)], lambda a: a.sum(0)


def moves(rows: int, n: int) -> Iterator[Case]:
    """Reads at computed positions: rows and columns, checked or known to be in range, and steps of -1 and 2."""
    a, x, y = torch.randn(rows, n), Axis("x0", rows), Axis("x1", n)
    out = torch.empty_like(a)

    def reading(at: Callable[[Index], Index], axis: Axis, dtype: str, bound: int) -> Kernel:
        place = e.load("p1", axis, dtype)
        position = e.to_index(e.known(place, 0, bound - 1) if dtype == "i32" else place, bound)
        params = (
            Param("p0", "f32", "in", rows * n),
            Param("p1", dtype, "in", axis.size),
            Param("p2", "f32", "out", rows * n),
        )
        return kernel((x, y), (), (Store("p2", x.index * n + y, e.load("p0", at(position), "f32"), "outer"),), params)

    chosen, columns = torch.randint(rows, (rows,)), torch.randint(n, (n,))
    made = reading(lambda row: row * n + y, x, "i64", rows)
    yield "rows", made, [a, chosen, out], lambda a, i: a.index_select(0, i)
    made = reading(lambda column: x.index * n + column, y, "i64", n)
    yield "columns", made, [a, columns, out], lambda a, i: a.index_select(1, i)
    made = reading(lambda column: x.index * n + column, y, "i32", n)
    yield "known columns", made, [a, columns.int(), out], lambda a, i: a.index_select(1, i)

    def stepping(index: Index, half: Axis) -> Kernel:
        store = Store("p1", x.index * half.size + half, e.load("p0", index, "f32"), "outer")
        return kernel(
            (x, half), (), (store,), (Param("p0", "f32", "in", rows * n), Param("p1", "f32", "out", rows * half.size))
        )

    yield "flip", stepping(x.index * n + (n - 1) - y, y), [a, out], lambda a: a.flip(1)
    half = Axis("x1", n // 2)
    even = stepping(x.index * n + half.index * 2, half)
    yield "every other", even, [a, torch.empty(rows, n // 2)], lambda a: a[:, ::2].contiguous()


def _residual_norm(
    a: torch.Tensor, b: torch.Tensor, w: torch.Tensor, c: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    total = a + b
    return total, functional.layer_norm(total, (total.shape[-1],), w, c)


def microseconds(call: Callable[[], object], seconds: float = 0.12) -> float:
    for _ in range(3):
        call()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6  # the machine is shared: the least disturbed call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    target = read()
    for rows, n in SIZES:
        chosen = [case for case in (*cases(rows, n), *moves(rows, n)) if not options.names or case[0] in options.names]
        start = time.perf_counter()
        source = emit([case[1] for case in chosen], target)
        middle = time.perf_counter()
        library = Cpp().build(source, flags(target))
        built = time.perf_counter()
        print(f"[{rows}, {n}]  emit {middle - start:.3f} s, build {built - middle:.3f} s")
        kernels = load_kernels(str(library), [f"k{i}" for i in range(len(chosen))])
        for (name, made, tensors, eager), run in zip(chosen, kernels, strict=True):
            inputs = tensors[: sum(p.role == "in" for p in made.params)]
            ours = microseconds(lambda: run(*tensors))  # noqa: B023
            line = f"  {name:14} {ours:9.1f}   eager {microseconds(lambda: eager(*inputs)):9.1f}"  # noqa: B023
            if options.peer:
                peer = torch.compile(eager)
                line += f"   torch.compile {microseconds(lambda: peer(*inputs)):9.1f}"  # noqa: B023
            print(line, flush=True)


if __name__ == "__main__":
    main()
