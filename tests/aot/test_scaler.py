"""`torch.amp.GradScaler` inside of a compiled step: losses that overflow, scales that grow, steps that are left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator.base import log


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [(1.0, 2.0), (float("inf"), 2.0), (1.0, float("nan")), (3e38, 3e38)])
def test_gradients_are_unscaled_and_checked(dtype: torch.dtype, values: tuple[float, float]) -> None:
    def unscale(grads: list[torch.Tensor], found: torch.Tensor, factor: torch.Tensor) -> Any:
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, factor)
        return found * 2

    results = []
    for function in (unscale, stator.compile(unscale, fullgraph=True, options={"strict": True})):
        grads = [torch.tensor(values, dtype=dtype), torch.linspace(0, 1, 3, dtype=dtype)]
        found = torch.zeros(())
        results.append([function(grads, found, torch.tensor(0.7)), grads, found])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("scale", [4.0, 3e38])
@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_the_scale_is_updated(scale: float, steps: int, found: float) -> None:
    def update(scale: torch.Tensor, steps: torch.Tensor, found: torch.Tensor) -> Any:
        return torch._amp_update_scale_(scale, steps, found, 2.1, 0.3, 3)

    results = []
    for function in (update, stator.compile(update, fullgraph=True, options={"strict": True})):
        state = torch.tensor(scale), torch.tensor(steps, dtype=torch.int32)
        function(*state, torch.tensor(found))
        results.append(state)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_steps() -> None:
    """The step asks whether anything was infinite, which ends a graph; no step is compiled for itself."""

    def train(compiling: Any) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        run, seen = compiling(step), []
        for number in range(10):
            x = torch.randn(5, 4)
            x = x * float("inf") if number == 4 else x
            seen.append([run(x), [p.detach().clone() for p in model.parameters()], scaler.get_scale()])
        return seen

    expected = train(lambda step: step)
    with log.collect() as recorder:
        found = train(lambda step: stator.compile(step, options={"strict": True}))
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert [scale for *_, scale in found] == [scale for *_, scale in expected]
    assert len(recorder.of(log.GRAPH)) <= 4
