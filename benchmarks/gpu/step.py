"""Steps: a model under one compiler, as a function without arguments, and its results in float64.

Inference: parameters and inputs of bfloat16, under `no_grad`. Training: parameters of float32, forward under autocast
to bfloat16, backward, and a step of fused AdamW, which runs outside of what is compiled, as users have it.
Neighbours: `models.py`, `worker.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.gpu.models import INFERENCE, MODELS, Model, labels, shallow
from benchmarks.worker import disable_dropout, flat_outputs

EAGER, STATOR, FAST, PEER = "eager", "stator", "stator, fast", "torch.compile"
#: `FAST` keeps float32 between the operators of a kernel, as torch.compile does, where stator rounds as eager does.
COMPILERS = (EAGER, STATOR, FAST, PEER)


class Row(NamedTuple):
    """A row of the table: a model, what is done with it, and whether CUDA graphs are asked for."""

    model: str
    task: str
    graphs: bool = False

    def __str__(self) -> str:
        return f"{self.model} {self.task}{' graphs' * self.graphs}"


class Program:
    """A row's model under a compiler; nothing is compiled before the first `step`.

    `exact`: in float64, in eager. `comparable`: without dropout, and in training with few layers, so that results can
    be compared. `scale` divides the batch, for machines without a GPU. `draw` says which random weights and inputs.
    """

    def __init__(
        self,
        row: Row,
        compiler: str,
        device: str,
        *,
        exact: bool = False,
        comparable: bool = False,
        scale: int = 1,
        draw: int = 0,
    ) -> None:
        self.row, self.compiler, self.device, self.exact = row, compiler, device, exact
        self.inference = row.task == INFERENCE
        known = MODELS[row.model]
        self.loss_of = known.loss
        self.module, self.given, self.labels = _built(known, self.inference, device, exact, comparable, scale, draw)
        self.module.train(not self.inference)
        self.called: Any = None
        learn = not self.inference and not comparable
        fused = device != "cpu"
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-5, fused=fused) if learn else None

    def compile(self) -> None:
        """Ask the compiler; it compiles at the first call."""
        self.called = _compiled(self.compiler, self.module, self.row.graphs)

    def take(self, other: Program) -> None:
        """Have another program's weights and inputs, in the module that is compiled."""
        self.module.load_state_dict(other.module.state_dict())
        self.given, self.labels = other.given, other.labels

    def step(self) -> list[Tensor]:
        """One step: the floating results, and in training the loss and, where they are compared, the gradients."""
        if self.row.graphs and self.compiler == PEER:
            torch.compiler.cudagraph_mark_step_begin()
        return self._infer() if self.inference else self._train()

    def _infer(self) -> list[Tensor]:
        with torch.no_grad():
            return _floating(self.called(**self.given))

    def _train(self) -> list[Tensor]:
        with torch.autocast(self.device, torch.bfloat16, enabled=not self.exact):
            if self.loss_of is None:
                loss = self.called(**self.given, labels=self.labels).loss
            else:
                loss = self.loss_of(self.called(**self.given), self.labels)
        loss.backward()
        results = [loss.detach()]
        if self.optimizer is not None:
            self.optimizer.step()
        else:
            results += [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        self.module.zero_grad(set_to_none=True)
        return results


def _built(
    known: Model, inference: bool, device: str, exact: bool, comparable: bool, scale: int, draw: int
) -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    batch = max((known.batch if inference else known.training_batch) // scale, 1)
    torch.manual_seed(draw)
    with torch.device(device):
        module = known.build()
        given = known.inputs(module, batch)
        wanted = labels(known, given, batch)
    module.to(device)  # what was made elsewhere, whatever factories were told
    if comparable:
        disable_dropout(module)
        if not inference:
            shallow(module)
    module.to(torch.bfloat16 if inference else torch.float32)
    given = {name: _rounded(value, torch.bfloat16 if inference else torch.float32) for name, value in given.items()}
    if exact:
        module.double()
        given = {name: _rounded(value, torch.float64) for name, value in given.items()}
    return module, given, wanted


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _compiled(compiler: str, module: nn.Module, graphs: bool) -> Callable[..., Any]:
    mode = "reduce-overhead" if graphs else None
    match compiler:
        case "stator" | "stator, fast":
            import stator  # its import is part of the first call

            options = {"numerics": "fast"} if compiler == FAST else {}
            return stator.compile(module, mode=mode, options=options)  # breaks graphs as the other does
        case "torch.compile":
            return torch.compile(module, mode=mode)
    return module


def _floating(output: Any) -> list[Tensor]:
    return [value for value in flat_outputs(output) if value.is_floating_point()]
