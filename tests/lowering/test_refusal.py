"""What lowering refuses is refused where the program has it: the user's line is named, and the graph ends there."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import FallbackWarning, StatorError, Unsupported
from stator.lowering import LOWERINGS


@pytest.fixture(autouse=True)
def _refuse_atan2(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported("aten.atan2", "this test refuses it")

    monkeypatch.setitem(LOWERINGS, torch.ops.aten.atan2.default, refuse)


def program(x: Tensor) -> Tensor:
    y = x.exp() + 0.123
    z = torch.atan2(y, x)
    return z * 2


LINE = program.__code__.co_firstlineno + 2


def test_the_line_is_named() -> None:
    with pytest.raises(StatorError, match=rf"{re.escape(__file__)}:{LINE}"):
        stator.compile(program, fullgraph=True, options={"cache": False})(torch.randn(3))


def test_the_graph_ends_there() -> None:
    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="atan2"):
        result = stator.compile(program)(x)
    torch.testing.assert_close(result, program(x))
