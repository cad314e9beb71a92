"""Gradients of the six models against finite differences: every parameter, every float input, in float64.

The models are those of `tests/models`, of a few hundred numbers, with the number of layers and widths as small as the
architecture allows. What they round to float32 (norms, the loss) is done in float64 here, or differences would
measure the rounding. Batch norm normalises by the batch, and its statistics move on at every call, as in training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn import functional as F

import stator
from benchmarks.worker import disable_dropout
from stator.base import log
from tests.models.library import MODELS

VOCABULARY, CLASSES, CHANNELS = 7, 3, 1
_TRANSFORMER = {"hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 6}

#: One model of each kind: its class and its configuration.
MICRO: dict[str, Callable[[], nn.Module]] = {
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(n_layer=2, n_embd=4, n_head=2, vocab_size=VOCABULARY, n_positions=4, eos_token_id=0)
    ),
    "bert": lambda: hf.BertForSequenceClassification(
        hf.BertConfig(**_TRANSFORMER, vocab_size=VOCABULARY, max_position_embeddings=4, num_labels=CLASSES)
    ),
    "llama": lambda: hf.LlamaForCausalLM(
        hf.LlamaConfig(
            **(_TRANSFORMER | {"hidden_size": 8, "num_attention_heads": 4}),
            num_key_value_heads=2,
            vocab_size=VOCABULARY,
        )
    ),
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(num_layers=1, d_model=4, d_ff=6, d_kv=2, num_heads=2, vocab_size=VOCABULARY)
    ),
    "vit": lambda: hf.ViTForImageClassification(
        hf.ViTConfig(**_TRANSFORMER, image_size=4, patch_size=2, num_channels=CHANNELS, num_labels=CLASSES)
    ),
    "resnet": lambda: hf.ResNetForImageClassification(
        hf.ResNetConfig(
            num_channels=CHANNELS,
            embedding_size=3,
            hidden_sizes=[3, 4],
            depths=[1, 1],
            layer_type="basic",
            num_labels=CLASSES,
        )
    ),
}


class Scored(nn.Module):
    """A model with a loss of its own: (scores, loss)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.model(**given).logits
        return scores, F.cross_entropy(scores.flatten(0, -2), labels.flatten())


def micro(name: str) -> tuple[Scored, dict[str, Tensor], Tensor]:
    """The model in float64 with weights that are not tiny, its inputs and labels."""
    torch.manual_seed(3)
    model = MICRO[name]()
    for parent in list(model.modules()):
        for key, child in parent.named_children():
            if type(child).__name__ in ("LlamaRMSNorm", "T5LayerNorm"):
                setattr(parent, key, nn.RMSNorm(tuple(child.weight.shape), eps=1e-6))
    model = model.double().train()
    disable_dropout(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5 + (parameter.dim() == 1))
    # The first word may be one for padding, which has no gradient.
    words, side = torch.randint(1, VOCABULARY, (3, 2, 4)), 4 if name == "vit" else 12
    match name:
        case "gpt2" | "llama":
            return Scored(model), {"input_ids": words[0]}, words[1]
        case "t5":
            return Scored(model), {"input_ids": words[0], "decoder_input_ids": words[1]}, words[2]
        case "bert":
            return Scored(model), {"input_ids": words[0]}, torch.tensor([0, 2])
    image = torch.randn(2, CHANNELS, side, side, dtype=torch.float64).requires_grad_()
    return Scored(model), {"pixel_values": image}, torch.tensor([0, 2])


def differentiated(module: nn.Module, given: dict[str, Tensor]) -> list[Tensor]:
    return [*[t for t in given.values() if t.requires_grad], *module.parameters()]


@pytest.mark.parametrize("name", MODELS)
def test_all_parameters(name: str) -> None:
    module, given, labels = micro(name)
    reference = copy.deepcopy(module)
    with log.collect() as seen:
        call = stator.compile(module, fullgraph=True, options={"strict": True})
        scores, loss = call(given, labels)
        torch.testing.assert_close((scores, loss), reference(given, labels))
        assert type(scores.grad_fn).__name__ == "CompiledFunctionBackward"
        for (key, buffer), expected in zip(module.named_buffers(), reference.buffers(), strict=True):
            torch.testing.assert_close(buffer, expected, msg=key)

        def function(*inputs: Tensor) -> Any:
            assert all(a is b for a, b in zip(inputs, leaves, strict=True))
            return call(given, labels)

        leaves = differentiated(module, given)
        assert 200 < sum(leaf.numel() for leaf in leaves) < 3000
        assert gradcheck(function, leaves)
    assert len(seen.of(log.GUARDS)) == 1 and not seen.of(log.BREAK) and not seen.of(log.RECOMPILE)
