"""Run a function on recipes of inputs and write down what a caller can see, as `stator.coverage.compare` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from stator.coverage.compare import Seen, observe_on
from stator.coverage.ways import WideResults
from tests.differential.inputs import Input


def observe(
    function: Callable[..., Any],
    recipes: Sequence[Input],
    *,
    noise: float = 0.0,
    wide: bool = False,
    backward: bool = True,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Seen:
    """Call the function on fresh inputs, then ask for the gradients of everything."""
    built = [recipe.build(noise, wide) for recipe in recipes]
    tensors, leaves = [b[0] for b in built], [b[1] for b in built]
    return observe_on(function, tensors, leaves, backward=backward, noise=noise, within=WideResults if wide else within)
