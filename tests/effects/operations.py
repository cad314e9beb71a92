"""Operators of a program that say in some way that they do more than compute, and write down that they were called.

An entry of `LOG` is the operator, the number that the program gave the call, and the sum of what it was given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LOG: list[tuple[str, int, float]] = []


def _log(name: str, number: int, x: Tensor) -> None:
    LOG.append((name, number, float(x.detach().double().sum())))


@torch.library.custom_op("stator_effects::note", mutates_args=())
def note(x: Tensor, number: int) -> None:
    """It gives nothing."""
    _log("note", number, x)


@torch.library.custom_op("stator_effects::told", mutates_args=())
def told(x: Tensor, number: int) -> Tensor:
    """It is registered as one with effects."""
    _log("told", number, x)
    return x * 2


@torch.library.custom_op("stator_effects::heard", mutates_args=())
def heard(x: Tensor, number: int) -> Tensor:
    """Its gradient is told, with 1000 more."""
    _log("heard", number, x)
    return x + 1


@torch.library.custom_op("stator_effects::fill", mutates_args=("out",))
def fill(x: Tensor, out: Tensor, number: int) -> None:
    """It writes to an argument."""
    _log("fill", number, x)
    out.copy_(x + number)


@torch.library.custom_op("stator_effects::drawn", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def drawn(x: Tensor, number: int) -> Tensor:
    """It takes random numbers."""
    _log("drawn", number, x)
    return x + torch.rand_like(x)


@torch.library.custom_op("stator_effects::plain", mutates_args=())
def plain(x: Tensor) -> Tensor:
    """It only computes."""
    return x.sin()


@note.register_fake
@fill.register_fake
def _nothing(*args: Any) -> None:
    return None


@told.register_fake
@heard.register_fake
@drawn.register_fake
@plain.register_fake
def _same(x: Tensor, *number: int) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.number = inputs[1]


told.register_autograd(lambda ctx, g: (g * 2, None))
drawn.register_autograd(lambda ctx, g: (g * 1, None))
heard.register_autograd(lambda ctx, g: (told(g, ctx.number + 1000), None), setup_context=_keep)
plain.register_autograd(lambda ctx, g: g * 3)
for operator in (told, heard):
    operator.register_effect(torch.library.EffectType.ORDERED)
