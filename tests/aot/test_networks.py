"""Whole networks of PyTorch and transformers, traced to primitives and run by Python, train as in eager."""

import copy

import pytest
import torch
from torch import fx, nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from stator.aot.reference import reference
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS


class Whole(nn.Module):
    """Calls a network as one node, and picks tensors from its result."""

    def __init__(self, network, names, pick):
        super().__init__()
        self.network, self.names, self.pick = network, names, pick

    def forward(self, *inputs):
        if self.names:
            return self.pick(self.network(**dict(zip(self.names, inputs, strict=True))))
        return self.pick(self.network(*inputs))

    def captured(self, count):
        root = nn.Module()
        root.whole = self
        graph = fx.Graph()
        graph.output(graph.call_module("whole", tuple(graph.placeholder(f"x{i}") for i in range(count))))
        return fx.GraphModule(root, graph)


def train_alike(whole, inputs):
    twin = copy.deepcopy(whole)
    call = reference(
        whole.captured(len(inputs)), inputs, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS
    )
    got, expected = call(*inputs), twin(*inputs)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    got[0].sum().backward()
    expected[0].sum().backward()
    compared = 0
    for a, b in zip(whole.parameters(), twin.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-3)
            compared += 1
    assert compared


NETWORKS = {
    "lstm": lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True),
    "gru": lambda: nn.GRU(4, 5, bidirectional=True),
    "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_torch_layers(name):
    torch.manual_seed(0)

    def pick(out):
        return (out[0] if isinstance(out, tuple) else out,)

    train_alike(Whole(NETWORKS[name](), (), pick), [torch.randn(2, 3, 4)])


@pytest.fixture
def tracing(monkeypatch):
    """Capture makes this answer yes while it runs; `transformers` then asks no question about data."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def test_gpt2(tracing):
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = GPT2Config(
        **sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    tokens = torch.randint(0, 60, (2, 8))
    network = Whole(GPT2LMHeadModel(config), ("input_ids", "labels"), lambda out: (out.loss, out.logits))
    train_alike(network, [tokens, tokens])


def test_bert(tracing):
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(
        **sizes, intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2
    )
    network = Whole(BertForSequenceClassification(config), ("input_ids", "labels"), lambda o: (o.loss, o.logits))
    train_alike(network, [torch.randint(0, 60, (2, 8)), torch.tensor([0, 1])])
