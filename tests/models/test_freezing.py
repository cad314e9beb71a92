"""Whole models with frozen parameters: as accurate as eager, also after their parameters have changed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import transformers
from torch import Tensor, nn

import stator

MODELS: dict[str, Callable[[], nn.Module]] = {
    "ResNet": lambda: transformers.ResNetModel(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[2, 1])
    ),
    "MobileNetV2": lambda: transformers.MobileNetV2Model(transformers.MobileNetV2Config(depth_multiplier=0.35)),
    "EfficientNet": lambda: transformers.EfficientNetModel(
        transformers.EfficientNetConfig(
            width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320, num_block_repeats=[1, 1, 1, 1, 1, 1, 1]
        )
    ),
    "BERT": lambda: transformers.BertModel(
        transformers.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
    ),
    "GPT-2": lambda: transformers.GPT2Model(transformers.GPT2Config(n_embd=128, n_layer=2, n_head=4, use_cache=False)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_accurate_as_eager(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for buffer_name, buffer in model.named_buffers():
        if "running_mean" in buffer_name:
            nn.init.normal_(buffer, 0, 0.1)
        elif "running_var" in buffer_name:
            nn.init.uniform_(buffer, 0.5, 1.5)
    words = name in ("BERT", "GPT-2")
    x = torch.randint(0, 1000, (2, 128)) if words else torch.randn(2, 3, 64, 64)
    options = {"freezing": True, "check_speed": "off", "strict": True}
    compiled = stator.compile(model, options=options)
    for _ in range(2):
        with torch.no_grad():
            found, want = compiled(x).last_hidden_state, model(x).last_hidden_state
            exact = copy.deepcopy(model).double()(x if words else x.double()).last_hidden_state
            error, eager = _error(found, exact), _error(want, exact)
            assert 0 < error <= 10 * eager + 1e-6 and found.stride() == want.stride()
            for parameter in model.parameters():
                parameter.mul_(1.0625)
    with torch.no_grad():
        explanation = stator.explain(model, options=options)(x)
    assert sum(facts["kept"] for facts in explanation.memory) > 0


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def test_autocast_gives_the_same_bits() -> None:
    """Weights are converted and packed once; what is rounded in eager is rounded as it was."""
    model = MODELS["BERT"]().eval()
    x = torch.randint(0, 1000, (2, 128))
    results = []
    for freezing in (False, True):
        options = {"freezing": freezing, "check_speed": "off", "strict": True, "cache": False}
        compiled = stator.compile(model, options=options)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            results.append(compiled(x).last_hidden_state)
    assert torch.equal(*results)


@pytest.mark.parametrize("rows", ["fixed", "dynamic"])
def test_packed_weights(rows: str) -> None:
    """Of one memory, turned or not, and computed of parameters."""

    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.gain = nn.Linear(160, 480), nn.Parameter(torch.randn(160))
            self.turned = nn.Parameter(torch.randn(160, 160))

        def forward(self, x: Tensor) -> Tensor:
            w, b = self.qkv.weight, self.qkv.bias
            q, k = x @ w[160:320].t(), nn.functional.linear(x, w[320:] * self.gain, b[320:])
            return q + k + torch.addmm(b[:160], x, self.turned) + self.qkv(x)[:, :160]

    model = Products()
    compiled = stator.compile(model, options={"freezing": True, "strict": True}, dynamic=rows == "dynamic")
    for number in (128, 96, 200):
        x = torch.randn(number, 160)
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
                model.qkv.weight.data[200, 3:7] = 2
                model.turned.mul_(0.5)
