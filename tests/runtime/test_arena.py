"""Intermediates share one arena: views are kept while it stands, and planned anew for other sizes."""

import random

import pytest
import torch

import stator
from stator.runtime.arena import COMBINATIONS, Scratch, SizedScratch, held, release
from stator.targets.cpu import toolchain


def test_views_are_kept_until_the_arena_grows():
    release()
    small = Scratch(64, [(0, torch.float32, (4,), (1,)), (16, torch.int64, (2, 3), (3, 1))])
    first = small()
    assert [tuple(view.shape) for view in first] == [(4,), (2, 3)]
    assert first[1].data_ptr() - first[0].data_ptr() == 16
    assert small() is first
    Scratch(1 << 20, [])()
    assert small() is not first


def test_plans_follow_the_sizes():
    release()
    plans = []

    def plan(n, m):
        plans.append((n, m))
        return n * m * 8, [(0, torch.float32, (n, m), (m, 1)), (n * m * 4, torch.float32, (m, n), (n, 1))]

    scratch = SizedScratch(plan)
    for _ in range(3):
        n, m = random.randint(2, 500), random.randint(2, 500)
        a, b = scratch(n, m)
        assert a.shape == (n, m) and b.shape == (m, n) and b.data_ptr() - a.data_ptr() == n * m * 4
        a.fill_(1)
        b.fill_(2)
        assert a.sum() == n * m
        count = len(plans)
        assert scratch(n, m) is scratch(n, m) and len(plans) == count


def test_few_combinations_are_kept():
    release()
    scratch = SizedScratch(lambda n: (n * 4, [(0, torch.float32, (n,), (1,))]))
    scratch(10_000)
    views = [scratch(n) for n in range(2, 2 + 2 * COMBINATIONS)]
    (made,) = scratch._made.by_stream.values()
    assert len(made.by_sizes) == COMBINATIONS
    assert scratch(1 + 2 * COMBINATIONS) is views[-1]
    again = scratch(2)
    assert again is not views[0] and again[0].data_ptr() == views[0][0].data_ptr()


class Streams:
    """A device of which calls are queued on a stream, in place of a GPU."""

    current = 0

    def __call__(self, number):
        assert number == 0
        return self.current


@pytest.fixture
def streams(monkeypatch):
    release()
    made = Streams()
    monkeypatch.setattr(toolchain, "current_stream", made)
    yield made
    release()


def addresses(views):
    return {view.data_ptr() for view in views}


def test_each_stream_has_memory_of_its_own(streams):
    scratch = Scratch(64, [(0, torch.float32, (4,), (1,)), (16, torch.float32, (4,), (1,))])
    sized = SizedScratch(lambda n: (n * 4, [(0, torch.float32, (n,), (1,))]))
    found = []
    for streams.current in (0, 7):
        found.append(addresses((*scratch(), *sized(16), *sized(8))))
        assert scratch() is scratch() and sized(16) is sized(16)
    assert found[0].isdisjoint(found[1]) and held() == 2 * 64


def test_growing_on_one_stream_leaves_the_others_alone(streams):
    small, other = (Scratch(64, [(0, torch.float32, (16,), (1,))]) for _ in range(2))
    views = small()
    views[0].fill_(3)
    streams.current = 1
    assert small() is not views
    Scratch(1 << 16, [(0, torch.uint8, (1 << 16,), (1,))])()[0].fill_(0)
    other()[0].fill_(1)
    streams.current = 0
    assert small() is views and bool((views[0] == 3).all()) and held() == 64 + (1 << 16)
    Scratch(1 << 10, [])()
    assert small() is not views


def test_release_lets_go_on_all_streams(streams):
    scratch = Scratch(64, [(0, torch.float32, (16,), (1,))])
    for streams.current in (0, 1, 2):
        scratch()
    assert held() == 3 * 64
    release()
    assert not held() and not scratch._made.by_stream


def through(x):
    y = torch.tanh(x @ x * 0.01)
    z = (y @ x).relu() * 2
    return (z @ y).sum(0)


@pytest.mark.gpu
def test_two_streams_of_one_thread():
    """Both calls are under way at once; the results are read after both, and the second is of other sizes as well."""
    compiled = stator.compile(through, options={"strict": True})
    inputs = [torch.randn(3000, 3000, device="cuda") for _ in range(2)]
    expected = [through(x) for x in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(60):
        results = []
        for stream, x in zip(streams, inputs, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                results.append(compiled(x))
        torch.cuda.synchronize()
        for got, want in zip(results, expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-1)


@pytest.mark.gpu
def test_training_on_two_streams():
    """Backward runs on the stream of its forward, in a thread of autograd's."""
    compiled = stator.compile(through, options={"strict": True})
    inputs = [torch.randn(1000, 1000, device="cuda", requires_grad=True) for _ in range(2)]
    expected = [torch.autograd.grad(through(x).sum(), x)[0] for x in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(20):
        found = []
        for stream, x in zip(streams, inputs, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found += torch.autograd.grad(compiled(x).sum(), x)
        torch.cuda.synchronize()
        for got, want in zip(found, expected, strict=True):
            scale = float(want.abs().max())
            torch.testing.assert_close(got / scale, want / scale, rtol=1e-3, atol=1e-3)
