"""What a call costs besides its kernels: microseconds a call of eager, stator and torch.compile, and of stator's parts.

`python -m benchmarks.overhead [case …] [--compilers eager stator] [--device cuda] [--out overhead.json]`. All of a case
is measured in turn in one process: hot (many calls in a row), and flushed (one call at a time, after 64 MiB were
written, so that nothing of the compiler is in the caches). Figures are medians over rounds. On a GPU they are the
host's time until all of a call is queued; the device is idle when the clock starts, and is not waited for. "8 entries"
calls nine shapes in a cycle, which makes each call pass over the eight other entries first. The parts are the check of
the guards, and the runtime wrapper: what calls the compiled graph, with kernels replaced by nothing, less what making
the results takes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import stator
from stator._native import Empty, Plan
from stator.aot.runtime import Bound
from stator.capture.entry import versions_of

COMPILERS = ("eager", "stator", "torch.compile")
FLUSHED_BYTES = 64 << 20
WIDTH = 16

Call = Callable[[], object]
Figures = dict[str, float]


class Block(nn.Module):
    """A residual block, narrow, so that its kernels take next to no time."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner: torch.Tensor = self.down(self.act(self.up(self.norm(x))))
        return x + inner


def blocks(count: int) -> nn.Module:
    """That many residual blocks, one after the other."""
    return nn.Sequential(*[Block() for _ in range(count)]).eval()


def add() -> Callable[[torch.Tensor], torch.Tensor]:
    """A new function that adds a number to a tensor."""

    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return add


def square() -> Callable[[torch.Tensor], torch.Tensor]:
    """A new function whose backward needs its input."""

    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    return square


class Case(NamedTuple):
    """What is called: a program, the inputs that it is called on in turn, and the mode around the calls."""

    program: Callable[[], Any]
    inputs: Callable[[str], list[torch.Tensor]]
    mode: Callable[[], Any]


def ones(*shape: int, grad: bool = False) -> Callable[[str], list[torch.Tensor]]:
    """One input of that shape, on a device."""
    return lambda device: [torch.ones(shape, device=device, requires_grad=grad)]


CASES: dict[str, Case] = {
    "add": Case(add, ones(1), torch.enable_grad),
    "add, requires_grad": Case(add, ones(1, grad=True), torch.enable_grad),
    "add, inference_mode": Case(add, ones(1), torch.inference_mode),
    "square, requires_grad": Case(square, ones(1, grad=True), torch.enable_grad),
    "12 blocks": Case(lambda: blocks(12), ones(1, WIDTH), torch.no_grad),
    "36 blocks": Case(lambda: blocks(36), ones(1, WIDTH), torch.no_grad),
    "8 entries": Case(
        add, lambda device: [torch.ones(size, device=device) for size in range(2, 11)], torch.enable_grad
    ),
}


def compiled(compiler: str, program: Any) -> Any:
    """The program as a compiler makes it, every shape on its own."""
    match compiler:
        case "eager":
            return program
        case "stator":
            return stator.compile(program, dynamic=False, options={"recompile_limit": 16})
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 16  # type: ignore[attr-defined]
    return torch.compile(program, dynamic=False)


def in_turn(function: Any, inputs: list[torch.Tensor]) -> Call:
    """A call on the next of the inputs, each time."""
    if len(inputs) == 1:
        return lambda only=inputs[0]: function(only)  # type: ignore[misc]
    place = -1

    def call() -> object:
        nonlocal place
        place = (place + 1) % len(inputs)
        return function(inputs[place])

    return call


def guards_of(function: Any, inputs: list[torch.Tensor]) -> Call:
    """The guards alone, as a call of the compiled function checks them until one entry matches."""
    dispatcher = getattr(getattr(function, "forward", function), "__func__", None) or function
    bound = getattr(getattr(function, "forward", None), "__self__", None)
    slots = [dispatcher.bind(*([] if bound is None else [bound]), x) for x in inputs]
    trees = [tree for tree, _ in versions_of(function)]
    if len(trees) == 1:
        return lambda check=trees[0].check, given=slots[0]: check(*given)  # type: ignore[misc]
    last = next(given for given in slots if trees[-1].check(*given))
    return lambda: [tree.check(*last) for tree in trees]


def wrapper_of(function: Any, given: torch.Tensor) -> tuple[Call, Call] | None:
    """The runtime wrapper around kernels that do nothing, and that nothing, which makes the results.

    None where there is no wrapper: a small graph with gradients may run in eager.
    """
    consts = [const for _, entry in versions_of(function) for const in entry.__code__.co_consts]
    plans = [const for const in consts if isinstance(const, Plan)]
    if not plans:
        return None
    bound = plans[0].bound
    with torch.no_grad():
        results = bound.forward([*bound.attributes, given])
    makers = [maker_of(result) for result in results]

    def nothing(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        inputs.clear()
        return tuple([make() for make in makers])

    alone = Bound(bound.metadata, nothing, bound.backward, bound.attributes)
    alone.again = bound.again
    plan = alone.plan()
    return lambda: plan(given), lambda: nothing([given])


def maker_of(result: torch.Tensor) -> Callable[[], torch.Tensor]:
    """What makes tensors of this geometry."""
    size, stride = tuple(result.shape), result.stride()
    if result.device.type == "cpu":
        return Empty(size, stride, result.dtype)
    return partial(torch.empty_strided, size, stride, dtype=result.dtype, device=result.device)


def settle() -> None:
    """Wait until the device is idle, if one is used."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def hot(call: Call, loops: int) -> float:
    """Microseconds a call of many in a row."""
    settle()
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops * 1e6


def flushed(call: Call, memory: torch.Tensor) -> float:
    """Microseconds of one call after as much memory was written as no cache holds."""
    settle()
    memory.add_(1)
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def loops_for(call: Call, seconds: float) -> int:
    """How many calls take about that long."""
    for _ in range(20):
        call()
    return max(3, int(seconds * 1e6 / max(hot(call, 20), 0.01)))


def measure(case: Case, compilers: list[str], rounds: int, device: str = "cpu") -> dict[str, Figures]:
    """The figures of one case: by what is called, hot and flushed."""
    program, inputs = case.program(), case.inputs(device)
    if isinstance(program, nn.Module):
        program = program.to(device)
    memory = torch.zeros(FLUSHED_BYTES // 4)
    calls: dict[str, Call] = {}
    with case.mode():
        for compiler in compilers:
            function = compiled(compiler, program)
            for given in inputs:
                function(given)
            calls[compiler] = in_turn(function, inputs)
            if compiler == "stator":
                calls["guards"] = guards_of(function, inputs)
                if len(inputs) == 1 and (parts := wrapper_of(function, inputs[0])):
                    calls["wrapper"], calls["nothing"] = parts
        loops = {name: loops_for(call, 0.02) for name, call in calls.items()}
        times: dict[str, dict[str, list[float]]] = {name: {"hot": [], "flushed": []} for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                times[name]["hot"].append(hot(call, loops[name]))
                times[name]["flushed"].append(flushed(call, memory))
    stator.reset()
    found = {name: {kind: statistics.median(all_) for kind, all_ in by.items()} for name, by in times.items()}
    if nothing := found.pop("nothing", None):
        found["wrapper"] = {kind: figure - nothing[kind] for kind, figure in found["wrapper"].items()}
    return found


def table(rows: dict[str, dict[str, Figures]], compilers: list[str]) -> Table:
    """The cases side by side; ratios are to eager."""
    shown = Table(title="µs a call")
    shown.add_column("case")
    shown.add_column("")
    for compiler in compilers:
        shown.add_column(compiler, justify="right")
    parts = ("guards", "wrapper")
    for part in parts:
        shown.add_column(f"{part} alone", justify="right")
    for name, figures in rows.items():
        for kind in ("hot", "flushed"):
            base = figures.get("eager", {}).get(kind)
            cells = []
            for compiler in compilers:
                ratio = f" ({figures[compiler][kind] / base:.2f}x)" if base and compiler != "eager" else ""
                cells.append(f"{figures[compiler][kind]:.2f}{ratio}")
            cells += [f"{figures[part][kind]:.2f}" if part in figures else "" for part in parts]
            shown.add_row(name if kind == "hot" else "", kind, *cells)
        shown.add_section()
    return shown


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("cases", nargs="*", help=f"some of: {', '.join(CASES)}")
    made.add_argument("--compilers", nargs="+", default=list(COMPILERS))
    made.add_argument("--rounds", type=int, default=41)
    made.add_argument("--device", default="cpu")
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--out", type=Path, default=None)
    return made


def main(arguments: list[str] | None = None) -> None:
    """Measure what the command line names and print the table."""
    args = parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    console = Console(width=max(Console().width, 120))
    rows = {}
    for name in args.cases or CASES:
        console.print(f"[dim]{name} …[/dim]")
        rows[name] = measure(CASES[name], args.compilers, args.rounds, args.device)
    console.print(table(rows, args.compilers))
    if args.out:
        machine = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        machine["device"] = torch.cuda.get_device_name() if args.device != "cpu" else "cpu"
        args.out.write_text(json.dumps({**machine, "torch": torch.__version__, "rows": rows}, indent=1))
        console.print(f"written: {args.out}")


if __name__ == "__main__":
    main()
