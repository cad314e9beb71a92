"""The option `verify`: the loop IR of what is compiled goes through its checkers, and only then."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.base.errors import InternalError
from stator.loop.verify import GrammarError


def refuse(_: object) -> None:
    raise GrammarError("refused")


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("checker, stage", [("verify_program", "lower"), ("verify_schedule", "schedule")])
@pytest.mark.faults
def test_it_runs_the_checkers(checker: str, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"stator.loop.verify.{checker}", refuse)
    x = torch.randn(3)
    options = {"cache": False, "strict": True}
    assert torch.equal(stator.compile(double, options={**options, "verify": False})(x), x * 2)
    with pytest.raises(InternalError, match=f"{stage}.*refused"):
        stator.compile(double, options={**options, "verify": True})(x)


@pytest.mark.parametrize("size", [(0,), (3, 0), (4, 5)])
def test_it_passes_what_is_right(size: tuple[int, ...]) -> None:
    x = torch.randn(size)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.exp() * 2, x.sum(-1)

    checked = stator.compile(program, fullgraph=True, options={"cache": False, "strict": True, "verify": True})
    torch.testing.assert_close(checked(x), program(x))
