"""Compilers that are wrong in known ways, for the tests of the judge and of the workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from stator.coverage import workers
from stator.coverage.judge import Call, Run


class Eager:
    """Compiles nothing; `kernels` and `breaks` are what it says it did."""

    layout = True
    kernels: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()

    def run(self, program: Callable[..., Any], call: Call, *, exact_random: bool) -> Run:
        return Run(call(self.compiled(program)), self.breaks, self.kernels)

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        return program


class Products(Eager):
    kernels = ("aten.mm",)


class Extern(Eager):
    kernels = ("aten.mm", "aten.exp")


class Refusing(Eager):
    kernels = ("aten.exp",)
    breaks = ("it is not supported",)


class Off(Eager):
    """Every result is off by a thousandth."""

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: program(*args) * 1.001


class Exact(Eager):
    """What eager gives in float64, rounded."""

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        return lambda args, kwargs: program(tuple(x.double() for x in args), kwargs).float()


class Detached(Eager):
    """No result has a gradient."""

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: program(*args).detach()


class Deadly(Eager):
    """The first sample ends the process, the second hangs, the others are right."""

    def __init__(self) -> None:
        self.calls = 0

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        match _calls():
            case 1:
                os._exit(3)
            case 2:
                time.sleep(1000)
        return program


class Unusable(Eager):
    """The first sample leaves a device behind that refuses everything."""

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        if _calls() == 1:
            workers._broken = lambda device: "RuntimeError: it was left unusable"
        return program


class OutOfRange(Eager):
    """The first sample reads what is not there, on the GPU."""

    def compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        if _calls() == 1:
            here = torch.arange(4, device="cuda")
            here[here + 9]
        return program


def _calls() -> int:
    """How many calls there have been, in all processes."""
    path = os.environ["STATOR_TEST_DEADLY"]
    with open(path, "a", encoding="utf-8") as seen:
        seen.write(".")
    return os.path.getsize(path)
