"""Random generators under every backend: eager's numbers and states, with sizes that change, gradients and errors."""

from __future__ import annotations

import pytest
import torch

import stator


def sampled(x: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.randn(x.shape, generator=generator)
    return (x * noise).sum() + torch.rand(x.shape[0], generator=generator).mean(), noise


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_sizes_that_change_and_gradients(backend: str) -> None:
    compiled = stator.compile(sampled, backend=backend, fullgraph=True)
    for size in (4, 5, 6, 1):
        x = torch.randn(size, 3, requires_grad=True)
        found = []
        for function in (sampled, compiled):
            generator = torch.Generator().manual_seed(size)
            total, noise = function(x, generator)
            found.append((total, noise, *torch.autograd.grad(total, x), generator.get_state()))
        torch.testing.assert_close(found[1], found[0])
        assert torch.equal(found[1][1], found[0][1])


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_data_error_leaves_the_generator_as_eager_does(backend: str) -> None:
    def fn(x: torch.Tensor, at: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        noise = torch.randn(3, generator=generator)
        return x[at] + noise

    compiled = stator.compile(fn, backend=backend)
    x, good, bad = torch.randn(4, 3), torch.tensor([1, 2]), torch.tensor([1, 9])
    states = []
    for function in (fn, compiled):
        generator = torch.Generator().manual_seed(1)
        function(x, good, generator)
        with pytest.raises(IndexError):
            function(x, bad, generator)
        states.append(generator.get_state())
    assert torch.equal(*states)


def test_the_default_generator_given_to_code_for_others() -> None:
    compiled = stator.compile(lambda x, g: x + torch.randn(3, generator=g), backend="eager", fullgraph=True)
    x = torch.zeros(3)
    for generator in (torch.Generator().manual_seed(2), torch.default_generator, None):
        torch.manual_seed(2)
        expected = torch.randn(3, generator=torch.Generator().manual_seed(2))
        assert torch.equal(compiled(x, generator), expected)
