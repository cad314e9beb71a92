"""A compiled model is the model: state, hooks, copies, files, classes; compiled functions are the functions."""

from __future__ import annotations

import copy
import inspect
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import stator
from stator.capture.entry import versions_of
from tests.models.library import compiled, model_and_inputs


def test_it_is_the_model() -> None:
    model, given = model_and_inputs("gpt2")
    fast = compiled(model)
    assert isinstance(fast, transformers.GPT2LMHeadModel) and isinstance(fast, torch.nn.Module)
    assert fast._orig_mod is model and fast.config is model.config
    assert list(fast.state_dict()) == list(model.state_dict())
    assert [name for name, _ in fast.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert all(a is b for a, b in zip(fast.parameters(), model.parameters(), strict=True))
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in model.named_modules()]
    fast.train()
    assert model.training and model.transformer.h[0].training
    model.eval()
    assert not fast.training
    assert fast.num_parameters() == model.num_parameters() and fast.device == model.device
    assert inspect.signature(fast.forward) == inspect.signature(model.forward)
    fast.extra = 3
    assert model.extra == 3
    assert stator.compile(fast)._orig_mod is model
    with torch.no_grad():
        fast(**given)


def test_hooks() -> None:
    """Hooks on the model and on its parts run at each call, in order, on either object."""
    model, given = model_and_inputs("bert")
    seen: list[str] = []
    fast = compiled(model)
    handles = [
        fast.register_forward_pre_hook(lambda module, args: seen.append("before")),
        model.register_forward_hook(lambda module, args, out: seen.append("after")),
    ]
    with torch.no_grad():
        plain = fast(**given).logits
        fast(**given)
        assert seen == ["before", "after"] * 2
        for handle in handles:
            handle.remove()
        handle = model.classifier.register_forward_hook(lambda module, args, out: out + 1)
        hooked = fast(**given).logits
        torch.testing.assert_close(hooked, plain + 1)
        handle.remove()
        torch.testing.assert_close(fast(**given).logits, plain)
    assert len(seen) == 4


def test_gradient_hooks() -> None:
    model, given = model_and_inputs("bert", train=True)
    weight = model.classifier.weight
    fast = compiled(model)
    fast(**given).loss.backward()
    plain = weight.grad.clone()
    weight.grad = None
    weight.register_hook(lambda grad: grad * 2)
    fast(**given).loss.backward()
    torch.testing.assert_close(weight.grad, plain * 2)


def test_a_deep_copy_is_compiled_and_independent() -> None:
    model, given = model_and_inputs("resnet")
    fast = compiled(model)
    with torch.no_grad():
        before = fast(**given).logits
        other = copy.deepcopy(fast)
        assert type(other) is type(fast) and other._orig_mod is not model
        for parameter in other.parameters():
            parameter.zero_()
        assert torch.equal(other(**given).logits, torch.zeros_like(before))
        assert torch.equal(fast(**given).logits, before)
    assert len(versions_of(other)) == 1


def test_saving_and_loading(tmp_path: Path) -> None:
    model, given = model_and_inputs("bert")
    fast = compiled(model)
    with torch.no_grad():
        want = fast(**given).logits
    stream = io.BytesIO()
    torch.save(fast.state_dict(), stream)
    stream.seek(0)
    fresh = transformers.BertForSequenceClassification(model.config).eval()
    fresh.load_state_dict(torch.load(stream))
    with torch.no_grad():
        assert torch.equal(compiled(fresh)(**given).logits, want)
        stream = io.BytesIO()
        torch.save(fast, stream)
        stream.seek(0)
        whole = torch.load(stream, weights_only=False)
        assert whole._orig_mod is not model and isinstance(whole, transformers.BertForSequenceClassification)
        assert torch.equal(whole(**given).logits, want)
        fast.save_pretrained(tmp_path)
        loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(loaded(**given).logits, want, rtol=1e-4, atol=1e-6)


def test_a_part_of_a_model() -> None:
    """Compiled layers inside an ordinary model, and a compiled model inside a compiled one."""
    model, given = model_and_inputs("gpt2")
    with torch.no_grad():
        want = model(**given).logits
        for i, block in enumerate(model.transformer.h):
            model.transformer.h[i] = compiled(block)
        keys = list(model.state_dict())
        torch.testing.assert_close(model(**given).logits, want, rtol=1e-4, atol=1e-5)
        assert all(versions_of(block) for block in model.transformer.h)
        torch.testing.assert_close(compiled(model)(**given).logits, want, rtol=1e-4, atol=1e-5)
    assert keys == list(model_and_inputs("gpt2")[0].state_dict())


# -- functions -----------------------------------------------------------------------------------------


@stator.compile
def bare(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    """Doubles."""
    return x.relu() * scale


@stator.compile(fullgraph=True, options={"strict": True})
def with_arguments(x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    return x.relu() * scale


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @stator.compile(fullgraph=True)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh()


def test_decorators() -> None:
    x = torch.randn(3, 4)
    for function in (bare, with_arguments):
        assert torch.equal(function(x), x.relu() * 2)
        assert torch.equal(function(x, scale=3.0), x.relu() * 3)
        assert len(versions_of(function)) == 2
    assert bare.__name__ == "bare" and bare.__doc__ == "Doubles." and bare.__module__ == __name__
    assert str(inspect.signature(bare)) == "(x: 'torch.Tensor', scale: 'float' = 2.0) -> 'torch.Tensor'"


def test_a_decorated_forward() -> None:
    layer, other = Layer(), Layer()
    x = torch.randn(3, 4)
    for module in (layer, other, layer):
        got = module(x)
        torch.testing.assert_close(got, module.linear(x).tanh())
        got.sum().backward()
    assert layer.linear.weight.grad is not None


def test_a_method_of_an_object() -> None:
    layer = Layer()
    method = stator.compile(layer.linear.forward, fullgraph=True)
    x = torch.randn(3, 4)
    torch.testing.assert_close(method(x), layer.linear(x))


class Named(torch.nn.Module):
    """Its parameters have the names that a generated program might use for itself."""

    NAMES = ("view", "call", "inputs", "scratch", "torch", "empty", "k0", "aten_mm", "Scratch", "into", "data_0")

    def __init__(self) -> None:
        super().__init__()
        for name in self.NAMES:
            self.register_parameter(name, torch.nn.Parameter(torch.randn(6, 6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.NAMES:
            x = (x @ getattr(self, name)).t().softmax(-1)
            x = x.view(torch.int32).view(torch.float32).new_empty(6, 6).copy_(x) @ getattr(self, name)[1:, :].t().relu()
            x = torch.cat([x, x[:, :1]], 1)
        return x


def test_names_of_parameters_are_free() -> None:
    module = Named()
    x = torch.randn(6, 6)
    torch.testing.assert_close(compiled(module)(x), module(x), rtol=1e-4, atol=1e-4)


def test_in_place_compile_of_a_module() -> None:
    """`disable` and other spellings give back what they got."""
    model: Any = torch.nn.Linear(3, 3)
    assert stator.compile(model, disable=True) is model
    assert stator.compile(disable=True)(bare) is bare


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_other_backends(name: str) -> None:
    model, given = model_and_inputs("t5", train=True)
    eager = copy.deepcopy(model)
    fast = stator.compile(model, fullgraph=True, backend=name)
    fast(**given).loss.backward()
    eager(**given).loss.backward()
    for (key, mine), theirs in zip(model.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(
            mine.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}"
        )
