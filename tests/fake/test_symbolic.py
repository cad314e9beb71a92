"""Fakes of symbolic sizes: with numbers put in, their geometry is that of real tensors, wherever the guards hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from stator.fake import FakeMode, FakeTensor, make
from stator.fake.symbolic import extents, is_symbolic, size_of, symint
from stator.graphs import composite
from stator.sizes import Environment, Extent, Symbol, evaluate

CPU = torch.device("cpu")
Program = Callable[[torch.Tensor, Any, Any], Any]

# Programs over x of size (a, b, 4), and how often a condition may be needed.
PROGRAMS: dict[str, Program] = {
    "add": lambda x, a, b: x + x * 2.5,
    "view": lambda x, a, b: x.view(a * b, 4),
    "view_minus_one": lambda x, a, b: x.view(-1, 4),
    "reshape": lambda x, a, b: x.transpose(0, 1).reshape(-1),
    "transpose": lambda x, a, b: x.transpose(0, 1).contiguous(),
    "permute": lambda x, a, b: torch.relu(x.permute(2, 0, 1)),
    "sum": lambda x, a, b: x.sum(1),
    "softmax": lambda x, a, b: torch.softmax(x, 1),
    "matmul": lambda x, a, b: composite.call(torch.matmul, (x, x.transpose(1, 2)), {}),
    "linear": lambda x, a, b: composite.call(F.linear, (x, torch.ones(7, 4)), {}),
    "cat": lambda x, a, b: torch.cat([x, x], 1),
    "cat_other": lambda x, a, b: torch.cat([x, torch.ones(a, 2, 4)], 1),
    "slice": lambda x, a, b: x[1:, :-1],
    "slice_to": lambda x, a, b: x[: a // 2],
    "select": lambda x, a, b: x[0],
    "expand": lambda x, a, b: x[:1].expand(a, b, 4),
    "unsqueeze": lambda x, a, b: x.unsqueeze(1),
    "arange": lambda x, a, b: torch.arange(a),
    "arange_from": lambda x, a, b: torch.arange(1, a + 3, 2),
    "zeros": lambda x, a, b: torch.zeros(a, b + 1),
    "ones_like": lambda x, a, b: torch.ones_like(x),
    "full": lambda x, a, b: torch.full((a,), b),
    "rand": lambda x, a, b: torch.rand(a, 2),
    "layer_norm": lambda x, a, b: F.layer_norm(x, (4,)),
    "attention": lambda x, a, b: F.scaled_dot_product_attention(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1)),
    "conv": lambda x, a, b: F.conv1d(x.transpose(1, 2).contiguous(), torch.ones(3, 4, 3), padding=1),
    "embedding": lambda x, a, b: F.embedding(torch.zeros(a, b, dtype=torch.long), torch.ones(9, 3)),
    "chunk": lambda x, a, b: x.chunk(2, -1),
    "split": lambda x, a, b: x.split(3, -1),
    "split_sizes": lambda x, a, b: x.split([2, b - 2], 1),
    "unfold": lambda x, a, b: x.unfold(1, 2, 1),
    "flatten": lambda x, a, b: x.flatten(1),
    "stack": lambda x, a, b: torch.stack([x, x], 1),
    "repeat": lambda x, a, b: x.repeat(2, 1, 1),
    "einsum": lambda x, a, b: torch.einsum("abc,abd->acd", x, x),
    "gather": lambda x, a, b: x.gather(2, torch.zeros(a, b, 1, dtype=torch.long)),
    "cross_entropy": lambda x, a, b: F.cross_entropy(x.view(-1, 4), torch.zeros(a * b, dtype=torch.long)),
    "mask": lambda x, a, b: x.masked_fill(torch.ones(a, b, 1, dtype=torch.bool), 0),
    "divided_by_size": lambda x, a, b: x.sum(0) / a,
    "times_size": lambda x, a, b: x * (b + 1),
    "pooled": lambda x, a, b: F.max_pool2d(x.unsqueeze(1), 2),
    "diagonal": lambda x, a, b: x.diagonal(0, 1, 0),
    "eye": lambda x, a, b: torch.eye(a, b),
    "pad": lambda x, a, b: F.pad(x, (0, 1, 2, 3)),
    "pad_less": lambda x, a, b: F.pad(x, (0, 0, -1, 3)),
    "inplace": lambda x, a, b: x.add_(1),
    "tril": lambda x, a, b: torch.ones(b, b).tril(),
    "topk": lambda x, a, b: x.topk(2),
}


def flat(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize("name", PROGRAMS)
def test_geometry_is_eagers_for_all_sizes(name: str) -> None:
    program = PROGRAMS[name]
    env = Environment()
    first, second = env.symbol(8, "a"), env.symbol(6, "b")
    a, b = symint(first.size, env), symint(second.size, env)
    with FakeMode():
        results = flat(program(make((a, b, 4), torch.float32, CPU), a, b))
    assert not env.fixed(), [str(recorded.condition) for recorded in env.conditions]
    tried = 0
    for _ in range(30):
        values = {first: random.randint(2, 12), second: random.randint(2, 12)}
        if all(recorded.condition.evaluate(values) for recorded in env.guards()):
            tried += 1
            reals = flat(program(torch.ones(values[first], values[second], 4), values[first], values[second]))
            assert len(reals) == len(results)
            for fake, real in zip(results, reals, strict=True):
                assert at(fake.shape, values) == tuple(real.shape)
                assert at(fake.stride(), values) == real.stride()
                assert fake.dtype is real.dtype
    assert tried > 5


def at(shape: Any, values: dict[Symbol, int]) -> tuple[int, ...]:
    return tuple(evaluate(extent, values) for extent in extents(shape))


def test_ints_and_back() -> None:
    env = Environment()
    size = env.symbol(8, "a").size
    number = symint(size + 1, env)
    assert isinstance(number, torch.SymInt)
    assert size_of(number) is size + 1
    assert size_of(number - 1) is size
    assert symint(3, env) == 3 and type(symint(3, env)) is int
    assert type(number - number) is int
    assert is_symbolic([1, number]) and not is_symbolic([1, 2])
    assert str(number) == "s0 + 1"


def test_asking_for_the_number_specialises() -> None:
    env = Environment(lambda: "line 3")
    size: Extent = env.symbol(8, "a").size
    number = symint(size, env)
    assert bool(number > 3)
    assert [str(r.condition) for r in env.conditions] == ["s0 > 3"]
    assert int(number) == 8
    assert [str(r.condition) for r in env.conditions] == ["s0 > 3", "s0 == 8"]
    assert env.conditions[1].location == "line 3"
    assert type(symint(size, env)) is int


def test_kernels_that_take_numbers_get_them() -> None:
    env = Environment()
    a = symint(env.symbol(8, "a").size, env)
    with FakeMode():
        result = F.max_pool1d(make((a, 4, 6), torch.float32, CPU).transpose(1, 2), 2)
    assert isinstance(result, FakeTensor)
    values = {symbol: symbol.hint for symbol in env.places}
    assert at(result.shape, values) == (8, 6, 2)


def test_a_wrong_shape_is_an_error_all_the_same() -> None:
    env = Environment()
    a = symint(env.symbol(8, "a").size, env)
    with FakeMode(), pytest.raises(RuntimeError):
        make((a, 4), torch.float32, CPU) + make((a, 3), torch.float32, CPU)


def test_from_real_with_a_geometry() -> None:
    env = Environment()
    a = symint(env.symbol(8, "a").size, env)
    real = torch.ones(8, 4)
    fake = FakeMode().from_real(real, geometry=((a, 4), (4, 1)))
    assert extents(fake.shape) == (size_of(a), 4)
    assert extents((fake.numel(),)) == (4 * size_of(a),)
