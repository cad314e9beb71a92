"""The database's samples with zeros, infinities, NaN, denormals and the ends of a dtype among their numbers.

Gradients are where formulas that agree on plain numbers differ: a kernel that skips an element and a product with zero,
a choice by comparing and one by a mask. `spoil` puts odd numbers at some places of the tensors of a sample that are
floats, others in every turn. What eager refuses then is no case. `python -m stator.coverage --special` runs them all.
Neighbours: `database.py` has the samples, `judge.py` compares.
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stator.coverage import database
from stator.coverage.database import Sample
from stator.coverage.judge import Stator, judge

#: What is put among the numbers, in turns: together they would hide one another in every sum.
ODD: tuple[tuple[float, ...], ...] = ((0.0, -0.0), (math.inf,), (math.nan,), (-math.inf, 0.0), (1e-40, -0.0, 0.5))
#: How many of the elements.
SHARE = 0.12
#: How many samples of an entry.
SAMPLES = 2


def spoil(sample: Sample, turn: int) -> Sample:
    """The sample with odd numbers in its tensors."""
    generator = torch.Generator().manual_seed(turn)
    return replace(sample, leaves=tuple([_spoilt(leaf, ODD[turn % len(ODD)], generator) for leaf in sample.leaves]))


def _spoilt(leaf: Any, odd: tuple[float, ...], generator: torch.Generator) -> Any:
    if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or leaf.layout is not torch.strided:
        return leaf
    made = leaf.detach().clone()
    draw = torch.rand(made.shape, generator=generator)
    for i, number in enumerate(odd):
        if made.numel():
            made[tuple([int(torch.randint(n, (), generator=generator)) for n in made.shape])] = number
        made[(draw >= i * SHARE / len(odd)) & (draw < (i + 1) * SHARE / len(odd))] = number
    return made.requires_grad_(leaf.requires_grad)


def wrong(name: str, dtype: str, samples: int = SAMPLES) -> list[str]:
    """What differs from eager, for an entry."""
    found = []
    for number, sample in enumerate(database.samples(name, dtype, samples)):
        for turn in range(len(ODD)):
            judged = judge(Stator(), name, spoil(sample, turn))
            if judged.verdict == "fails":
                found.append(f"{name} {dtype}, sample {number}, turn {turn}: {judged.why}")
    return found


def run(match: str = "", dtype: str = "float32") -> int:
    """Every entry that matches, each in a process of its own, as kernels of PyTorch die of NaN among positions."""
    bad = 0
    for name in database.names(dtype, match):
        child = os.fork()
        if not child:
            warnings.simplefilter("ignore")
            found = wrong(name, dtype)
            print("\n".join(found), end="\n" * bool(found), flush=True)
            os._exit(min(len(found), 100))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        bad += max(status, 0)
    print(f"{bad} samples differ")
    return bad
