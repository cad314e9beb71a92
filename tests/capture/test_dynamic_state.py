"""What one call leaves for the next one grows: such sizes are symbolic from when they are first met."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator.capture.entry import versions_of
from tests.capture.changing_sizes import rand, same

BACKENDS = ("eager", "inductor")


class Cache:
    """Tensors that are appended to."""

    def __init__(self) -> None:
        self.parts: dict[int, torch.Tensor] = {}

    def grow(self, layer: int, new: torch.Tensor) -> torch.Tensor:
        held = self.parts.get(layer)
        self.parts[layer] = new if held is None else torch.cat([held, new], dim=2)
        return self.parts[layer]


def attend(cache: Cache, x: torch.Tensor) -> torch.Tensor:
    keys, values = cache.grow(0, x * 2), cache.grow(1, x + 1)
    return torch.softmax(x @ keys.transpose(-1, -2), -1) @ values


def run(function: Any, prompt: int, steps: int, heads: int = 2, width: int = 4) -> list[torch.Tensor]:
    torch.manual_seed(prompt)
    cache, found = Cache(), []
    for size in (prompt, *[1] * steps):
        found.append(function(cache, rand(1, heads, size, width)))
    return [*found, *cache.parts.values()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("prompt", (7, 2, 1))
def test_two_versions(backend: str, prompt: int) -> None:
    """One for the prompt, one for all that follows, a first token of length 1 included."""
    compiled = stator.compile(attend, backend=backend, fullgraph=True)
    same(run(compiled, prompt, 6), run(attend, prompt, 6))
    assert len(versions_of(compiled)) == 2


def test_other_prompts() -> None:
    compiled = stator.compile(attend, backend="eager", fullgraph=True)
    for prompt in (7, 5, 11, 3):
        same(run(compiled, prompt, 4), run(attend, prompt, 4))
    assert len(versions_of(compiled)) == 3


def test_a_width_that_is_the_length_by_chance() -> None:
    """The width is taken to change as well, and found to be fixed by the product."""
    compiled = stator.compile(attend, backend="eager", fullgraph=True)
    same(run(compiled, 4, 6), run(attend, 4, 6))
    same(run(compiled, 4, 6, heads=3), run(attend, 4, 6, heads=3))
    assert len(versions_of(compiled)) <= 4


def test_a_size_of_one_that_broadcasts() -> None:
    """Where 1 matters, it stays a version of its own."""

    class Held:
        scale: Any = None

    def f(held: Held, x: torch.Tensor) -> torch.Tensor:
        return x if held.scale is None else x * held.scale

    held = Held()
    compiled = stator.compile(f, backend="eager", fullgraph=True)
    for scale in (None, rand(1, 3), rand(4, 3), rand(1, 1), rand(1, 3)):
        held.scale = scale
        x = rand(4, 3)
        same(compiled(held, x), f(held, x))


def test_never_where_nothing_is_to_be_symbolic() -> None:
    compiled = stator.compile(attend, backend="eager", fullgraph=True, dynamic=False, options={"recompile_limit": 20})
    same(run(compiled, 7, 4), run(attend, 7, 4))
    assert len(versions_of(compiled)) == 5


class MeasuredCache:
    """Keys that grow, and say how long they are."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []

    def __len__(self) -> int:
        return self.keys[0].shape[-2] if self.keys else 0

    def put(self, layer: int, keys: torch.Tensor) -> torch.Tensor:
        if len(self.keys) <= layer:
            self.keys.append(keys)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], keys], -2)
        return self.keys[layer]


def test_the_length_of_an_object_is_a_size() -> None:
    def step(x: torch.Tensor, cache: MeasuredCache) -> torch.Tensor:
        before = len(cache)
        for layer in range(2):
            keys = cache.put(layer, x * 2)
            mask = torch.ones(x.shape[-2], keys.shape[-2], dtype=torch.bool).tril(before)
            x = torch.nn.functional.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)
        return x * len(cache) / max(1, before)

    compiled, ours, theirs = stator.compile(step, fullgraph=True), MeasuredCache(), MeasuredCache()
    with torch.inference_mode():
        for number in range(9):
            x = torch.randn(1, 2, 1 if number else 5, 4)
            torch.testing.assert_close(compiled(x, ours), step(x, theirs))
    assert len(versions_of(compiled)) <= 3


def test_a_length_below_zero_is_an_error() -> None:
    class Short:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def __len__(self) -> int:
            return self.x.shape[0] - 4

    compiled = stator.compile(lambda x, short: x * len(short))
    for rows in (5, 6, 7, 4):
        assert torch.equal(compiled(torch.ones(2), Short(torch.ones(rows))), torch.full((2,), rows - 4.0))
    with pytest.raises(ValueError, match=">= 0"):
        compiled(torch.ones(2), Short(torch.ones(3)))
