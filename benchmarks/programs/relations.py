"""Graph networks and recommendation: gathers, scatters, embeddings. Neighbours: `program.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.programs.program import program, training


def edges(nodes: int, count: int) -> Tensor:
    return torch.randint(0, nodes, (2, count))


class ConvolvedGraph(nn.Module):
    """Graph convolutions with the symmetric normalisation of degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((64, 64), (64, 64), (64, 8)))

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        source, target = edges
        degree = torch.zeros(len(x), dtype=x.dtype).index_add(0, target, torch.ones(len(target), dtype=x.dtype)) + 1
        scale = degree.rsqrt()
        for i, layer in enumerate(self.layers):
            h = layer(x)
            messages = h[source] * (scale[source] * scale[target]).unsqueeze(-1)
            x = torch.zeros_like(h).index_add(0, target, messages) + h * (scale * scale).unsqueeze(-1)
            x = x.relu() if i < 2 else x
        return F.cross_entropy(x, labels)


def graph(k: int) -> tuple[Any, ...]:
    nodes = 2000 + 500 * k
    return torch.randn(nodes, 64), edges(nodes, 5 * nodes), torch.randint(0, 8, (nodes,))


program(ConvolvedGraph, graph, training)


class AttentiveGraph(nn.Module):
    """Attention over the edges of a graph: a softmax among the edges that end in a node."""

    def __init__(self, heads: int = 4, width: int = 16) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.project = nn.Linear(64, heads * width, bias=False)
        self.ours = nn.Parameter(torch.randn(heads, width) * 0.1)
        self.theirs = nn.Parameter(torch.randn(heads, width) * 0.1)
        self.out = nn.Linear(heads * width, 8)

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        source, target = edges
        h = self.project(x).view(-1, self.heads, self.width)
        score = F.leaky_relu((h * self.ours).sum(-1)[source] + (h * self.theirs).sum(-1)[target], 0.2)
        index = target.unsqueeze(-1).expand_as(score)
        top = torch.full((len(x), self.heads), -torch.inf, dtype=x.dtype)
        top = top.scatter_reduce(0, index, score.detach(), "amax")
        weight = (score - top[target]).exp()
        total = torch.zeros(len(x), self.heads, dtype=x.dtype).index_add(0, target, weight)
        weight = weight / (total[target] + 1e-16)
        x = torch.zeros_like(h).index_add(0, target, h[source] * weight.unsqueeze(-1))
        return F.cross_entropy(self.out(F.elu(x.flatten(1))), labels)


program(AttentiveGraph, graph, training)


class SampledGraph(nn.Module):
    """Mean of the neighbours, joined with the node itself."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))
        self.others = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        source, target = edges
        index = target.unsqueeze(-1).expand(-1, 64)
        for own, others in zip(self.own, self.others, strict=True):
            mean = torch.zeros_like(x).scatter_reduce(0, index, x[source], "mean", include_self=False)
            x = F.normalize((own(x) + others(mean)).relu(), dim=-1)
        return x


program(SampledGraph, graph)


class Recommender(nn.Module):
    """Embedding bags for what is sparse, a small net for what is dense, products of all pairs, a click probability."""

    def __init__(self, tables: int = 8, rows: int = 5000, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("rows", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: Tensor, sparse: Tensor, clicked: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *[table(sparse[:, i]) for i, table in enumerate(self.tables)]], 1)
        products = features @ features.mT
        pairs = products[:, self.rows[0], self.rows[1]]
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([x, pairs], 1)).squeeze(-1), clicked)


def clicks(k: int) -> tuple[Any, ...]:
    batch = 256 + 128 * k
    return torch.randn(batch, 13), torch.randint(0, 5000, (batch, 8, 4)), torch.randint(0, 2, (batch,)).float()


program(Recommender, clicks, training)
