"""Small programs in the form that capture gives: graph modules over live parameters."""

import math

import torch
import torch.nn.functional as F
from torch import fx, nn


class Block(nn.Module):
    """A GPT-2 block."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.width, self.dropout = heads, width, dropout

    def forward(self, x):
        b, t = x.size(0), x.size(1)
        q, k, v = self.c_attn(self.ln_1(x)).split(self.width, dim=2)
        q, k, v = [y.view(b, t, self.heads, self.width // self.heads).transpose(1, 2) for y in (q, k, v)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(b, t, self.width)
        x = x + F.dropout(self.c_proj(y), self.dropout, self.training)
        h = self.up(self.ln_2(x))
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + F.dropout(self.down(h), self.dropout, self.training)


class GPT(nn.Module):
    """GPT-2 with tied embeddings; gives the logits and the loss."""

    def __init__(self, vocabulary=50257, length=128, width=768, layers=12, heads=12, dropout=0.0):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("positions", torch.arange(length))

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(self.positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Function(nn.Module):
    """A plain function of tensors as a module; with a parameter, that is its last argument."""

    def __init__(self, function, parameter=None):
        super().__init__()
        self.function = function
        if parameter is not None:
            self.w = nn.Parameter(parameter)

    def forward(self, *inputs):
        return self.function(*inputs, self.w) if hasattr(self, "w") else self.function(*inputs)

    def captured(self, count):
        """One node that calls the whole function: the tracer sees its operators all the same."""
        graph = fx.Graph()
        arguments = [graph.placeholder(f"x{i}") for i in range(count)]
        if hasattr(self, "w"):
            arguments.append(graph.get_attr("w"))
        graph.output(graph.call_function(self.function, tuple(arguments)))
        return fx.GraphModule(self, graph)


def captured(module, inputs):
    """The module as capture gives it: parameters by `get_attr`, no submodule calls (of GPT)."""
    if isinstance(module, Function):
        return module.captured(len(inputs))
    if not isinstance(module, GPT):
        return fx.symbolic_trace(module)  # with submodule calls, which other producers of graphs may have

    class Inline(fx.Tracer):
        def is_leaf_module(self, module, name):
            return False

    graph = Inline().trace(module)
    return fx.GraphModule(module, graph)
