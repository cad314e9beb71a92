"""Strings made of tensors: dropped ones cost no break, read ones end the graph before they are made."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import CaptureError, FallbackWarning


def checked(x: torch.Tensor, total: torch.Tensor, limit: int) -> torch.Tensor:
    def check(condition: bool, message: str) -> None:
        assert isinstance(message, str) and not callable(message)
        if not condition:
            raise ValueError(message)

    check(limit > 0, f"total {total}, {total!s} of {limit}")
    return x * total


def test_a_message_that_nobody_reads() -> None:
    x, total = torch.randn(4), torch.tensor(2.5)
    compiled = stator.compile(checked, fullgraph=True)
    torch.testing.assert_close(compiled(x, total, 3), checked(x, total, 3))
    with pytest.raises(ValueError, match=r"total 2.5, 2.5|total 2.5, tensor\(2.5"):
        stator.compile(checked)(x, total, 0)


READ: dict[str, Any] = {
    "given back": lambda x: (x + 1, f"{x * 2}"),
    "compared": lambda x: x + 1 if f"{x}" == "tensor(1.)" else x + 2,
    "a key": lambda x: {f"{x}": 1, f"{x * 2}": 2}.get(str(x)),
    "joined": lambda x: "a " + str(x) + f"{x}",
    "measured": lambda x: (x + 1, len(repr(x)), bool(str(x))),
    "asked": lambda x: (x + 1, f"{x}".startswith("tensor"), "1" in f"{x}", f"{x}"[0], f"{x!r:>20}"),
    "with a form": lambda x: (x + 1, f"{x:.2f}"),
    "kept": lambda x: [(x + 1), [str(x.add_(1)), str(x.add_(1))]],
}


@pytest.mark.parametrize("name", READ)
def test_what_reads_it_ends_the_graph(name: str) -> None:
    function = READ[name]
    with pytest.raises(CaptureError, match=r"text of a tensor|format"):
        stator.compile(function, fullgraph=True)(torch.tensor(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        assert str(stator.compile(function)(torch.tensor(1.0))) == str(function(torch.tensor(1.0)))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_printing_ends_the_graph_where_the_text_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    def talk(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print(f"here {y}")
        return y * 2

    with log.collect() as found:
        got = stator.compile(talk)(torch.tensor(1.0))
    assert got == 4
    assert capsys.readouterr().out == "here 2.0\n"
    assert len(found.of(log.GRAPH)) == 2
