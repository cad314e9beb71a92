"""What `stator.explain` keeps of a compiled graph, to answer later why two of its steps are not one kernel.

A warm start makes these too, so this imports nothing that only compiling needs. Nothing is computed before it is asked.
Neighbours: `driver.py` makes them, `explain.py` asks, `separation.py` answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import field
from importlib import import_module
from typing import Any

import torch
from torch import fx

from stator.aot import casts
from stator.base.options import Options
from stator.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A captured graph, and under which modes of PyTorch it was compiled."""

    gm: fx.GraphModule
    example_inputs: Sequence[Any]
    options: Options
    grad: bool = field(default_factory=torch.is_grad_enabled)
    inference: bool = field(default_factory=torch.is_inference_mode_enabled)
    autocasts: casts.Casts = field(default_factory=casts.active)

    def ask(self, one: str, other: str) -> str:
        """Why two steps are not one kernel; raises `UnknownStep` where the graph has no such step."""
        with ExitStack() as modes:
            modes.enter_context(torch.inference_mode(self.inference))
            modes.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype in self.autocasts:
                modes.enter_context(torch.autocast(kind, getattr(torch, dtype)))
            told: str = import_module("stator.pipeline").why(self.gm, self.example_inputs, self.options, one, other)
        return told
