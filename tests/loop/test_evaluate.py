"""The reference evaluator against torch."""

from __future__ import annotations

import torch

from stator.loop.evaluate import random, results, run_program
from stator.loop.expr import op, reduce, scan
from stator.prims.random import philox
from tests.loop.build import Build, get, layer_norm, numbers, softmax


def test_layer_norm() -> None:
    b = Build()
    buffers = b.input(3, 8), b.input(8), b.input(8)
    program = b.program(layer_norm(b, *buffers)[0])
    inputs = numbers(program)
    x, weight, bias = (torch.tensor(inputs[buffer.name]).reshape(buffer.size) for buffer in buffers)
    expected = torch.nn.functional.layer_norm(x, (8,), weight, bias)
    found = torch.tensor(results(program.outputs, run_program(program, inputs))[0]).reshape(3, 8)
    torch.testing.assert_close(found, expected)


def test_softmax() -> None:
    b = Build()
    x = b.input(2, 5)
    program = b.program(softmax(b, x))
    inputs = numbers(program)
    expected = torch.tensor(inputs[x.name]).reshape(2, 5).softmax(-1)
    found = torch.tensor(results(program.outputs, run_program(program, inputs))[0]).reshape(2, 5)
    torch.testing.assert_close(found, expected)


def test_nan_wins_minima_maxima_and_positions() -> None:
    nan = float("nan")
    x = torch.tensor([1.0, nan, 3.0, nan])
    b = Build()
    source = b.input(4)
    kinds = ("max", "min", "argmax", "argmin")
    made = [
        b.reduction([], [4], lambda j, k=k: reduce(k, get(source, j)), "i64" if k[0] == "a" else "f32") for k in kinds
    ]
    twice = b.pointwise([4], lambda i: op("maximum", get(source, i), get(source, 0)))
    program = b.program(*made, twice)
    found = results(program.outputs, run_program(program, {source.name: x.tolist()}))
    assert [v[0] != v[0] for v in found[:2]] == [True, True]
    assert [v[0] for v in found[2:4]] == [x.argmax().item(), x.argmin().item()]
    torch.testing.assert_close(torch.tensor(found[4]), torch.maximum(x, x[0]), equal_nan=True)


def test_scans() -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, -2.0, 3.0, 3.0, 0.5], [-inf, 2.0, nan, inf, 1.0]])
    b = Build()
    source = b.input(2, 5)
    kinds = ("sum", "prod", "max", "min", "logsumexp")
    made = [b.scan([2], 5, lambda i, j, k=k: scan(k, get(source, i, j))) for k in kinds]
    down = b.scan([5], 2, lambda i, j: scan("sum", get(source, j, i)), dim=0)
    program = b.program(*made, down)
    found = results(program.outputs, run_program(program, {source.name: x.flatten().tolist()}))
    eager = (x.cumsum(1), x.cumprod(1), x.cummax(1)[0], x.cummin(1)[0], x.logcumsumexp(1), x.cumsum(0))
    for ours, wanted in zip(found, eager, strict=True):
        torch.testing.assert_close(torch.tensor(ours).view(2, 5), wanted, equal_nan=True)


def test_random_is_the_primitive() -> None:
    seed, count = -(2**40) - 12345, 64
    uniform = torch.tensor([random("uniform", seed, k + 2**33) for k in range(count)])
    words = philox(torch.tensor(seed), torch.arange(2**33, 2**33 + count))
    torch.testing.assert_close(uniform, (words[0] >> 8).float() * 2.0**-24, rtol=0, atol=0)
    normal = torch.ops.stator.random(torch.tensor([seed]), 0, [count], kind="normal", dtype=torch.float32, device="cpu")
    torch.testing.assert_close(torch.tensor([random("normal", seed, k) for k in range(count)]), normal)
