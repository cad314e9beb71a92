"""Kernels for the tests of the kernel IR: those of random programs, and what each must do to memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

from stator.base.device import Device
from stator.kernel.evaluate import run
from stator.kernel.ir import Function
from stator.kernel.parse import parse
from stator.kernel.strategies import serial
from stator.kernel.text import function_text
from stator.kernel.verify import verify
from stator.loop import evaluate, tables
from stator.loop.kernel import Kernel, Launch
from stator.loop.nest import Program
from stator.loop.schedule import schedule
from stator.targets import typical
from tests.loop.build import close, contents, extern_sum, numbers
from tests.loop.random_programs import make, make_symbolic

Strategy = Callable[[Kernel, str], Function]


def checked(function: Function) -> Function:
    """The function as it is read back from its text; it is the same, and well formed."""
    verify(function)
    text = function_text(function)
    back = parse(text)
    assert back == function and function_text(back) == text, text
    return back


def compare(seed: int, strategy: Strategy = serial, device: Device | None = None) -> int:
    """Run a random program by its kernels and by functions; gives how many kernels there were."""
    with tables.session():
        count = compare_program(make(seed), strategy, device or typical("cpu"), seed)
        for kernel in symbolic_kernels(seed):
            checked(strategy(kernel, "k"))
            count += 1
    return count


def compare_program(program: Program, strategy: Strategy, device: Device, seed: int = 0) -> int:
    """The same for a program that is given, scheduled for a device."""
    count = 0

    def run_function(kernel: Kernel, memories: evaluate.Memories) -> None:
        nonlocal count
        count += 1
        assert run(checked(strategy(kernel, "k")), memories) == 0

    planned, inputs = schedule(program, device), numbers(program, seed)
    expected = contents(program, evaluate.run_schedule(planned, inputs, extern_sum))
    with mock.patch.object(evaluate, "run_kernel", run_function):
        found = contents(program, evaluate.run_schedule(planned, inputs, extern_sum))
    for name, values in expected.items():
        assert close(found[name], values, 1e-4), f"seed {seed}: {name} differs:\n{planned.text()}"
    return count


def symbolic_kernels(seed: int) -> Iterator[Kernel]:
    """The kernels of a random program whose sizes are symbols."""
    for step in schedule(make_symbolic(seed), typical("cpu")).steps:
        if isinstance(step, Launch):
            yield step.kernel
