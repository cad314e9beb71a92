"""Calls that eager refuses are refused when compiled, with eager's words, each time, and operands are left alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator
from stator.fake.options import CHECKS
from tests.aot.refused_calls import CALLS


def outcome(function: Any) -> tuple[str, list[Any]]:
    """What is raised, and the operands behind it."""
    x, i = torch.arange(9.0).view(3, 3) + 0.5, torch.tensor([[0, 1, 2], [2, 1, 0], [1, 1, 1]])
    torch.manual_seed(0)
    try:
        function(x, i)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    else:
        said = "nothing"
    return said, [(t.tolist(), t.stride(), t.requires_grad, t._version) for t in (x.detach(), i)]


@pytest.mark.filterwarnings("ignore")  # eager's own, about what is deprecated
@pytest.mark.parametrize("text", CALLS)
def test_is_refused(text: str) -> None:
    function = eval(f"lambda x, i: {text}", {"torch": torch, "F": F})
    expected = outcome(function)
    if expected[0] == "nothing":
        pytest.skip("this PyTorch computes it")
    stator.reset()
    compiled = stator.compile(function, options={"cache": False})
    for _ in range(2):
        assert outcome(compiled) == expected


def test_every_check_of_options_has_a_call() -> None:
    text = " ".join(CALLS)
    assert all(name in text for name in CHECKS)
