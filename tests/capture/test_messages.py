"""Exceptions that a program handles: class and text are Python's and torch's, or the program runs uncompiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from tests.capture.changing import compare

#: Expressions that raise; `x` is a tensor of size (2, 3).
RAISING = """
[].append(1, 2) | {}["a"] | [][3] | (1, 2)[5] | None + 1 | "a" + 1 | int("q") | [*5] | float([]) | object().foo | x.nope
len(5) | iter(5) | 5() | {}.popitem() | [].pop() | [1].remove(2) | [1].index(3) | {1, 2}.pop(3) | "%d" % "a"
sorted([1, "a"]) | max([]) | next(iter([])) | dict([1]) | {[]: 1} | torch.ones(2) @ torch.ones(3)
torch.ones(2) + torch.ones(3) | torch.cat([torch.ones(2), torch.ones(2, 2)]) | x.view(7) | x[5] | x[0, 0, 0]
torch.nn.functional.linear(x, x.t()) | x.sum(5) | torch.stack([]) | range(1, 2, 0) | [1, 2][::0] | nonexistent
(lambda a: a)() | (lambda a: a)(1, 2) | (lambda a: a)(b=1) | type(x).nope | torch.nope | len(torch.tensor(1))
bool(torch.ones(2)) | x.t(1) | torch.relu() | torch.relu(x, x) | isinstance(1, 2) | issubclass(1, int)
setattr(1, "a", 2) | 1 / 0 | 1 % 0 | "abc".foo | "abc"[10] | b"a" + "b" | [1] < ["a"] | 1 < "a" | None[0] | None.x
x < "a" | x + None | x @ 5 | -"a" | ~1.5 | [] * 1.5 | divmod(1, 0) | round("a") | abs("a") | chr(-1) | ord("ab")
list(zip([1], [1, 2], strict=True)) | "{}".format() | f"{1:q}"
"""
EXPRESSIONS = [text.strip() for line in RAISING.strip().splitlines() for text in line.split(" | ")]

PROGRAM = """
def fn(x):
    y = x * 2
    try:
        {}
    except Exception as error:
        return type(error).__name__, str(error), error.args, repr(error)
    return y
"""


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_handled(expression: str) -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec(PROGRAM.format(expression), namespace)
    value = torch.ones(2, 3)
    expected = namespace["fn"](value)
    assert type(expected) is tuple
    compare(stator.compile(namespace["fn"], backend="eager", options={"strict": True})(value), expected)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_not_handled(fullgraph: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x @ x

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        stator.compile(fn, backend="eager", fullgraph=fullgraph)(torch.ones(2, 3))


def test_handled_is_no_whole_graph() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x @ x
        except RuntimeError:
            return x

    with pytest.raises(stator.CaptureError, match="may be handled"):
        stator.compile(fn, backend="eager", fullgraph=True)(torch.ones(2, 3))
