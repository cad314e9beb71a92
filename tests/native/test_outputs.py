"""Results that C makes from inputs and values: they hang on what they are made of as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator._native import Outputs, Plan
from stator.aot.runtime import Bound

Tensor = torch.Tensor
Function = Callable[..., Any]

VIEWS: dict[str, Function] = {
    "permute": lambda x: x.permute(1, 0, 2),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "select": lambda x: x[1, :, 2],
    "expand": lambda x: x[:, None].expand(-1, 5, -1, -1),
    "view": lambda x: x.unflatten(-1, (2, 3)),
    "several": lambda x: (x.t(), 3, x, x.select(0, 1), None, x * 2) if x.dim() == 2 else (x.mT, "text", x, x[0], x + 1),
    "of a value": lambda x: (lambda y: (y, y[0], y.mT))(x * 2),
}


def sources() -> dict[str, Function]:
    torch.manual_seed(0)
    return {
        "plain": lambda: torch.randn(3, 4, 6),
        "strided": lambda: torch.randn(6, 4, 6)[::2],
        "shifted": lambda: torch.randn(80)[5:77].view(3, 4, 6),
        "parameter": lambda: torch.nn.Parameter(torch.randn(3, 4, 6)),
        "leaf": lambda: torch.randn(3, 4, 6, requires_grad=True),
    }


def flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def facts(result: Any, source: Tensor) -> Any:
    if not isinstance(result, Tensor):
        return result
    return (
        type(result), result.shape, result.stride(), result.storage_offset(), result.requires_grad, result.is_leaf,
        result is source, result.is_inference(),
        result.data_ptr() - source.data_ptr() if shares(result, source) else None,
        result._base is source if shares(result, source) and result is not source else None,
    )  # fmt: skip


def shares(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


MODES: dict[str, Function] = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", sources())
@pytest.mark.parametrize("name", VIEWS)
def test_results_are_those_of_eager(name: str, kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    general: list[str] = []
    for way in ("call", "call_with_grad"):
        inner = getattr(Bound, way)
        monkeypatch.setattr(Bound, way, lambda *given, inner=inner: (general.append("asked"), inner(*given))[1])
    fn, x = VIEWS[name], sources()[kind]()
    compiled = stator.compile(fn, fullgraph=True, options={"check_speed": "off"})
    with MODES[mode]():
        expected = flat(fn(x))
        for _ in range(2):
            made = flat(compiled(x))
            assert [facts(result, x) for result in made] == [facts(result, x) for result in expected]
            for result, other in zip(made, expected, strict=True):
                assert result is other or not isinstance(result, Tensor) or torch.equal(result, other)
    assert not general


def test_a_write_to_a_view_is_a_write_to_its_source() -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 3, requires_grad=True)
    before = x.clone()
    compiled = stator.compile(lambda x: x.t(), fullgraph=True, options={"check_speed": "off"})
    view, version = compiled(x), x._version
    view.mul_(w)
    assert x._version == version + 1 and x.requires_grad
    x.sum().backward()
    assert w.grad is not None and torch.equal(w.grad, before.t())


def test_a_view_that_autograd_has_not_seen_cannot_be_written_to() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.t()

    x = torch.randn(3, 4, requires_grad=True)
    view = stator.compile(fn, fullgraph=True, options={"check_speed": "off"})(x)
    assert view._is_view() and view._base is x and view.requires_grad is fn(x).requires_grad
    for made in (fn(x), view):
        with pytest.raises(RuntimeError, match="view"):
            made.mul_(2)
    assert torch.is_grad_enabled()


def test_gradients_flow_through_views_to_inputs() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.sin()
        return x[1:].mT, y, y[0]

    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    compiled = stator.compile(fn, fullgraph=True, options={"check_speed": "off"})
    ours, theirs = (sum((part * part).sum() for part in f(x)) for f in (compiled, fn))
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(theirs, x))


def of(*items: Any) -> Function:
    levels: dict[str, Any] = {"_current_level": -1}
    return Plan([], lambda given: given, (), lambda *given: (), levels, lambda x: x, 1, True, outputs=Outputs(items))


def test_mistakes_are_said() -> None:
    view = ("input_view", 0, (2,), (1,), 0, False, None)
    assert of(view)(torch.ones(2))[0]._is_view()
    with pytest.raises(RuntimeError):
        of(("input_view", 0, (9,), (1,), 0, False, None))(torch.ones(2))
    with pytest.raises(ValueError, match="not there"):
        of(("input", 1, (), (), 0, False, None))(torch.ones(2))
    with pytest.raises(ValueError, match="not there"):
        of(("value", 1, (), (), 0, False, None))(torch.ones(2))
    for wrong in (("whole", *view[1:]), ("value", -1, *view[2:]), ("input_view", 0, (2,), (), 0, False, None)):
        with pytest.raises(ValueError, match=r"name|source|strides"):
            Outputs((wrong,))
    with pytest.raises(TypeError, match="Outputs"):
        Plan([], abs, (), abs, {}, abs, 1, True, outputs=())  # type: ignore[arg-type, call-overload]
