"""A program that raises unless an operator does, and handles that: it is no fault of ours that fakes raised nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import TracebackType

import pytest
import torch

import stator
from stator.base import faults

#: What eager refuses for sizes, and for data.
REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "copy_": lambda a, b: a.copy_(b),
    "add_": lambda a, b: a.add_(b),
    "into a view": lambda a, b: a[0].mul_(b),
    "index_add_": lambda a, b: a.index_add_(0, torch.tensor([0]), b),
    "position": lambda a, b: a[[0, 9]],
    "divisor": lambda a, b: a.long() // torch.zeros(3, dtype=torch.int64),
}


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_its_exception_is_handled(name: str) -> None:
    refused = REFUSED[name]

    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            refused(a, b)
        except (RuntimeError, IndexError) as error:
            return a * 10, str(error)
        raise TypeError("nothing was refused")

    before = faults.total()
    compiled = stator.compile(program, backend="aot_eager")
    for _ in range(3):
        a, b = torch.randn(4, 3), torch.randn(5)
        ours, eager = compiled(a, b), program(a, b)
        assert torch.equal(ours[0], eager[0]) and ours[1] == eager[1]
    assert faults.total() == before


# -- wherever the handler is ---------------------------------------------------------------------------------------

Refusing = Callable[[torch.Tensor, torch.Tensor], object]
Program = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, str]]


def _raises(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.sum() > -1e9:  # which a graph asserts
        raise KeyError("always")
    return a


class Swallowing:
    """A context of the program's own that lets no exception out."""

    def __enter__(self) -> Swallowing:
        return self

    def __exit__(self, cls: type | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        return True


def _attempt(refused: Refusing, a: torch.Tensor, b: torch.Tensor) -> str | None:
    """Handles what its argument raises, and is captured as a part of what calls it, or alone."""
    try:
        refused(a, b)
    except Exception as error:
        return str(error)
    return None


def _in_a_called_function(refused: Refusing) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        text = _attempt(refused, a, b)
        if text is None:
            raise TypeError("nothing was refused")
        return a * 10, text

    return program


def _in_a_called_function_behind_a_break(refused: Refusing) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        a = a + 1
        os.getpid()
        open(os.devnull).close()
        text = _attempt(refused, a, b)
        if text is None:
            raise TypeError("nothing was refused")
        return a * 10, text

    return program


def _around_a_break(refused: Refusing) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            open(os.devnull).close()
            refused(a, b)
        except Exception as error:
            return a * 10, str(error)
        raise TypeError("nothing was refused")

    return program


def _behind_a_break(refused: Refusing) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        a = a + 1
        open(os.devnull).close()
        try:
            refused(a, b)
        except Exception as error:
            return a * 10, str(error)
        raise TypeError("nothing was refused")

    return program


def _around_a_frame_with_a_break(refused: Refusing) -> Program:
    def middle(a: torch.Tensor, b: torch.Tensor) -> object:
        b = b + 1
        open(os.devnull).close()
        return refused(a, b)

    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            middle(a, b)
        except Exception as error:
            return a * 10, str(error)
        raise TypeError("nothing was refused")

    return program


def _in_a_context_of_the_library(refused: Refusing) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        with contextlib.suppress(RuntimeError, LookupError):
            refused(a, b)
            raise TypeError("nothing was refused")
        return a * 10, "suppressed"

    return program


def _in_a_context_of_its_own(refused: Refusing) -> Program:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        with Swallowing():
            refused(a, b)
            a = a + 1
        return a * 10, "swallowed"

    return program


HANDLERS = (
    _in_a_called_function, _in_a_called_function_behind_a_break, _around_a_break, _behind_a_break,
    _around_a_frame_with_a_break, _in_a_context_of_the_library, _in_a_context_of_its_own,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.filterwarnings("error::stator.base.errors.FaultWarning")
@pytest.mark.parametrize("refused", [*REFUSED.values(), _raises], ids=[*REFUSED, "raise"])
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__[1:])
def test_a_handler_in_any_frame_is_one(handler: Callable[[Refusing], Program], refused: Refusing) -> None:
    program = handler(refused)
    before = faults.total()
    compiled = stator.compile(program, backend="aot_eager", options={"strict": True})
    for _ in range(3):
        a, b = torch.randn(4, 3), torch.randn(5)
        ours, eager = compiled(a, b), program(a, b)
        assert torch.equal(ours[0], eager[0]) and ours[1] == eager[1]
    assert faults.total() == before
