"""Intermediates share one arena: views are kept while it stands, and planned anew for other sizes."""

import random

import torch

from stator.runtime.arena import COMBINATIONS, Scratch, SizedScratch, release


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
    assert len(scratch._made.views) == COMBINATIONS
    assert scratch(1 + 2 * COMBINATIONS) is views[-1]
    again = scratch(2)
    assert again is not views[0] and again[0].data_ptr() == views[0][0].data_ptr()
