"""One compiled kernel serves all sizes: random programs against the evaluator, traced functions against eager."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator import lowering, runtime
from stator.aot.partition import partition
from stator.aot.runtime import bind
from stator.aot.trace import trace
from stator.base.errors import Unsupported
from stator.base.options import Options
from stator.codegen import cpp, triton
from stator.loop.evaluate import run_program
from stator.loop.kernel import Launch, Schedule
from stator.loop.resize import program_at, schedule_at
from stator.loop.schedule import schedule
from stator.loop.verify import verify_schedule
from stator.plan import module_text
from stator.plan.build import make
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from stator.runtime import Cpp
from stator.runtime.link import load
from stator.sizes import Symbol, evaluate
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read
from tests.aot.test_symbolic import captured
from tests.codegen import hopper
from tests.codegen.harness import DTYPES
from tests.loop.build import close, contents, numbers
from tests.loop.random_programs import KINDS, THREE, TWO, make_symbolic

WITHOUT_CALLS = tuple(kind for kind in KINDS if kind != "extern")


# -- random programs -------------------------------------------------------------------------------


class Built:
    """The kernels of many schedules in one unit."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        kernels = tuple(dict.fromkeys(kernel for made in schedules for kernel in made.kernels))
        self.numbers = {kernel: i for i, kernel in enumerate(kernels)}
        target = read()
        path = Cpp(Options.from_user()).build(cpp.emit(kernels, target), flags(target))
        self.library = ctypes.CDLL(str(path))

    def run(
        self, made: Schedule, inputs: Mapping[str, Sequence[Any]], sizes: Mapping[Symbol, int]
    ) -> dict[str, Tensor]:
        """Every buffer after the steps have run on memory of its own."""
        fixed = schedule_at(made, sizes)
        memory = {name: torch.empty(b.span, dtype=DTYPES[b.dtype]) for name, b in fixed.buffers.items()}
        for name, values in inputs.items():
            memory[name].copy_(torch.tensor(values))
        for step in made.steps:
            assert isinstance(step, Launch)
            moves = [(memory[at.buffer], at.offset) for at in step.args]
            given = [tensor.data_ptr() + by * tensor.itemsize for tensor, by in moves]
            given += [evaluate(size, sizes) for size in step.sizes]
            wrong = self.library[f"k{self.numbers[step.kernel]}"]((ctypes.c_void_p * len(given))(*given))
            assert wrong == 0
        return memory


def test_random_programs_run_for_all_sizes() -> None:
    programs = [make_symbolic(seed, WITHOUT_CALLS) for seed in range(60)]
    split = replace(typical("cpu", 2), min_split=8)
    schedules = [schedule(program, split if i % 3 else typical("cpu")) for i, program in enumerate(programs)]
    built = Built(schedules)
    for program, made in zip(programs, schedules, strict=True):
        assert all(kernel.symbols for kernel in made.kernels if kernel.outer_numel != 1)
        for first, second in ((2, 3), (3, 5), (5, 2)):
            sizes = {TWO: first, THREE: second}
            fixed = program_at(program, sizes)
            inputs = numbers(fixed)
            wanted = contents(fixed, run_program(fixed, inputs))
            memory = built.run(made, inputs, sizes)
            for name, values in wanted.items():
                assert close(memory[name].to(torch.float64).tolist(), values, 1e-2), (
                    f"{name} for {sizes}:\n{made.text()}"
                )


# -- traced functions ------------------------------------------------------------------------------


def compiled(
    function: Callable[..., Any], examples: Sequence[Any], dynamic: set[tuple[int, int]]
) -> Callable[..., Any]:
    """The function compiled once, where the sizes in `dynamic` (input, dim) are symbolic."""
    gm = captured(function, examples, dynamic)
    joint = trace(gm, examples, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    parts = partition(joint)
    assert not gm.meta["sizes"].conditions, "the function was made for some sizes only"
    graphs = [
        linked(graph, number) for number, graph in enumerate((parts.forward, parts.backward)) if graph is not None
    ]
    return bind(parts.metadata, graphs[0], graphs[1] if len(graphs) > 1 else None, joint.attributes)


def linked(gm: torch.fx.GraphModule, number: int) -> Callable[..., Any]:
    program = lowering.lower(gm, f"graph{number}", typical("cpu"))
    made = schedule(program, typical("cpu"))
    verify_schedule(made)
    target, names = read(), made.names
    units = [runtime.Unit(cpp.emit(made.kernels, target, names), names, flags(target))] if names else []
    return runtime.link(runtime.build(make(made), units))


def values_of(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple | list) else [out]


def pointwise_and_rows(x: Tensor, y: Tensor) -> Any:
    rows = F.softmax(x, -1) * F.log_softmax(y, 0)
    return (x * y + 1).relu().sum(-1), rows, F.layer_norm(x, x.shape[1:]) + y, x.var(1) + y.std(0).sum(), x.mean()


def views_and_joins(x: Tensor, y: Tensor) -> Any:
    joined = torch.cat([x, y], 1)[:, 1:-1]
    return joined, x.view(-1) * y.reshape(-1), torch.stack([x, y]).flatten(), x[0] * y[-1], F.pad(x, (1, 2)).flip(0)


def products_and_calls(x: Tensor, y: Tensor) -> Any:
    scores = (x @ y.t()).softmax(-1) @ y
    return scores, x.t().contiguous() * 2, y.cumsum(0) + x, x.topk(2).values, x.sort(1).values * y


def positions(x: Tensor, y: Tensor) -> Any:
    chosen = torch.gather(x, 1, y.argsort(1))
    ranges = torch.arange(y.shape[1]) * y + x.tril()
    return chosen, F.embedding(y.argmax(1), x.t().contiguous()), ranges, F.gelu(x) / y.shape[0] + y.size(1)


def totals(x: Tensor, y: Tensor) -> Any:
    return (x * y).sum(), x.amax(), y.amin(0), (x > 0).sum(0)


@pytest.mark.parametrize("function", [pointwise_and_rows, views_and_joins, products_and_calls, positions, totals])
@pytest.mark.parametrize("first", [(3, 5), (300, 1000)], ids=["small", "large"])
def test_functions_agree_with_eager(function: Callable[..., Any], first: tuple[int, int]) -> None:
    """Compiled for one size, run for many: with tails, with several pieces, and with rows shorter than a vector."""
    torch.manual_seed(3)

    def made(*size: int) -> list[Tensor]:
        return [torch.randn(*size, requires_grad=True) for _ in range(2)]

    call = compiled(function, made(*first), {(0, 0), (0, 1), (1, 0), (1, 1)})
    for size in ((3, 5), (4, 7), (11, 2), (2, 16), (130, 67), (300, 1030)):
        ours = made(*size)
        theirs = [x.detach().clone().requires_grad_() for x in ours]
        for _ in range(2):
            got, expected = values_of(call(*ours)), values_of(function(*theirs))
        losses = [torch.zeros(()), torch.zeros(())]
        for a, b in zip(got, expected, strict=True):
            if not isinstance(b, Tensor):
                assert a == b
                continue
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, atol=2e-4, rtol=2e-4)
            if b.requires_grad:
                weight = torch.randn(b.shape)
                losses = [losses[0] + (a * weight).sum(), losses[1] + (b * weight).sum()]
        for loss in losses:
            loss.backward()
        for x, y in zip(ours, theirs, strict=True):
            torch.testing.assert_close(x.grad, y.grad, atol=2e-3, rtol=2e-3)


def test_a_dim_that_is_symbolic_and_empty() -> None:
    call = compiled(lambda x: (x + 1, x.sum(1)), [torch.randn(4, 6)], {(0, 0)})
    for rows in (0, 1, 9):
        x = torch.randn(rows, 6)
        got = call(x)
        torch.testing.assert_close(got[0], x + 1)
        torch.testing.assert_close(got[1], x.sum(1))


def test_windows_of_half_a_symbolic_image_lie_within_it() -> None:
    def pooled(x: Tensor, scale: Tensor) -> Tensor:
        return F.max_pool2d((x * scale[:, None, None]).relu(), 2)

    examples = [torch.randn(2, 3, 18, 22), torch.randn(3)]
    gm = captured(pooled, examples, {(0, 2), (0, 3)})
    joint = trace(gm, examples, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    made = schedule(lowering.lower(partition(joint).forward, "pooled", typical("cpu")), typical("cpu"))
    text = cpp.emit(made.kernels, read())
    kernel = text[text.index("k0_range") :]
    assert "load_even" in kernel and "_if<" not in kernel
    call = stator.compile(pooled, dynamic=True, fullgraph=True)
    for height, width in ((18, 22), (7, 9), (5, 6), (31, 64)):
        x = torch.randn(2, 3, height, width)
        torch.testing.assert_close(call(x, examples[1]), pooled(x, examples[1]))


def test_an_index_out_of_a_symbolic_range_is_an_error() -> None:
    call = compiled(lambda w, i: w[i], [torch.randn(9, 4), torch.tensor([1, 2])], {(0, 0), (1, 0)})
    w = torch.randn(5, 4)
    torch.testing.assert_close(call(w, torch.tensor([4, 0, -1]))[0], w[torch.tensor([4, 0, -1])])
    with pytest.raises((IndexError, RuntimeError), match="index out of range"):
        call(w, torch.tensor([0, 5, 1]))


def test_the_wrapper_is_readable_and_runs_on_its_own(tmp_path: Path) -> None:
    gm = captured(products_and_calls, [torch.randn(3, 5), torch.randn(3, 5)], {(0, 0), (0, 1), (1, 0), (1, 1)})
    joint = trace(gm, [torch.randn(3, 5)] * 2, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    made = schedule(lowering.lower(partition(joint).forward, "alone", typical("cpu")), typical("cpu"))
    target, names = read(), made.names
    text = module_text(make(made), [runtime.Unit(cpp.emit(made.kernels, target, names), names, flags(target))])
    assert "s0 = x0.size(0)" in text and "def plan(s0" in text
    path = tmp_path / "alone.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("alone", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    torch.testing.assert_close(module.call([x, y])[0], products_and_calls(x, y)[0])


def test_a_symbol_that_no_input_tells_is_refused() -> None:
    program = make_symbolic(3, WITHOUT_CALLS)
    made = schedule(program, typical("cpu"))
    unknown = Symbol("s9", hint=5)
    broken = Schedule(
        **{**{f: getattr(made, f) for f in Schedule.__slots__}, "symbols": (unknown,), "outputs": (unknown.size,)}
    )
    with pytest.raises(Unsupported, match="s9"):
        module_text(make(broken))


# -- Triton ----------------------------------------------------------------------------------------


def test_triton_kernels_compile_for_hopper() -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    kernels = {k: None for seed in range(8) for k in schedule(make_symbolic(seed), typical("cuda")).kernels}
    assert any(kernel.symbols for kernel in kernels)
    assert all(stages["cubin"] for stages in hopper.built(tuple(kernels)))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(12))
def test_triton_kernels_run_for_all_sizes(seed: int) -> None:
    """Every launch of a program, one after another on the device, for several sizes."""
    program = make_symbolic(seed, WITHOUT_CALLS)
    made = schedule(program, typical("cuda"))
    text = triton.emit(made.kernels, typical("cuda"), made.names)
    kernels = load([runtime.Unit(text, made.names, (), "triton")], device="cuda")
    numbers_of = dict(zip(made.kernels, made.names, strict=True))
    for first, second in ((2, 3), (3, 5), (5, 2)):
        sizes = {TWO: first, THREE: second}
        fixed = program_at(program, sizes)
        inputs = numbers(fixed)
        wanted = contents(fixed, run_program(fixed, inputs))
        buffers = schedule_at(made, sizes).buffers
        memory = {name: torch.empty(b.span, dtype=DTYPES[b.dtype], device="cuda") for name, b in buffers.items()}
        for name, values in inputs.items():
            memory[name].copy_(torch.tensor(values))
        for step in made.steps:
            assert isinstance(step, Launch)
            tensors = [memory[at.buffer][at.offset :] for at in step.args]
            kernels[numbers_of[step.kernel]](*tensors, *[evaluate(size, sizes) for size in step.sizes])
        for name, values in wanted.items():
            assert close(memory[name].to("cpu", torch.float64).tolist(), values, 1e-2), f"{name} for {sizes}"
