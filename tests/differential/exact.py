"""Short random programs of operators that are exact, or round once: `python -m tests.differential.exact --count 500`.

Of results nothing is measured: an elementwise operator of IEEE 754, an integer, a copy or an extreme has one right
answer, whatever the order, and so has a chain of them as long as every step is rounded. Inputs are NaN, infinities,
zeros of both signs, denormals and the ends of each dtype, among others. Gradients are sums, and measured as elsewhere.
The sign and payload of NaN are free, and the sign of a zero where eager's kernels choose between both: extremes.
Neighbours: `programs.py` writes; `test_rounding.py` has half types one by one; `__main__.py` runs programs of all
operators, and measures.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import stator
from stator.base import faults
from stator.base.errors import CaptureError, DataDependent, Unsupported
from stator.coverage.compare import EPSILON, Seen, judged
from tests.differential import operations
from tests.differential.observe import observe
from tests.differential.programs import Program, _Writer, shorten

REFUSALS = (CaptureError, DataDependent, Unsupported)
HALVES = (torch.bfloat16, torch.float16)
#: What takes one of two zeros.
CHOOSES = re.compile("max|min|clamp|relu|hard|threshold")
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

FLOATING = [
    *[f"torch.{name}({{x:f}})" for name in "abs neg floor ceil trunc round frac sign reciprocal square relu "
      "isnan isinf isfinite signbit logical_not positive nan_to_num isneginf isposinf sgn".split()],
    *[f"torch.{name}({{x:t}}, {{:like@x}})" for name in "add sub mul div maximum minimum fmax fmin eq ne lt le gt ge "
      "logical_and logical_xor floor_divide true_divide add sub mul div".split()],
    *[f"torch.{name}({{x:f}}, {{:like@x}})" for name in "copysign heaviside nextafter hypot".split()[:3]],
    *[f"{{x:t}} {op} {{:s}}" for op in ("+", "-", "*", "/", "==", "<", ">=", "//")],
    *[f"{{:s}} {op} {{x:t}}" for op in ("+", "-", "*", "/")],
    "{x:f} ** 2", "{x:f} ** 1", "{x:f} ** 0", "{x:f} ** -1", "torch.clamp({x:t}, -1, 2)",
    "torch.clamp({x:t}, min={:like@x})", "torch.clamp({x:f}, {:like@x}, {:like@x})", "{x:f}.clamp_max({:s})",
    "torch.where({x:t} > {:s}, {y:t}, {:like@x})", "torch.where({x:b}, {:like@x}, {:s})",
    "torch.masked_fill({x:t}, {:like@x}.bool(), {:n})", "F.relu6({x:f})", "F.leaky_relu({x:f}, 0.1)",
    "F.hardtanh({x:f}, -2.0, 0.5)", "F.threshold({x:f}, 0.1, 0.5)", "F.hardshrink({x:f})",
    "F.prelu({x:f}, torch.full((1,), 0.1))",
    "F.hardswish({x:f})", "F.hardsigmoid({x:f})", "{x:f}.lerp({:same@x}, 0.5)",
    "torch.addcmul({x:f}, {:same@x}, {:same@x})", "torch.add({x:t}, {:like@x}, alpha=2)", "torch.rsub({x:t}, {:n})",
    "torch.addcdiv({x:f}, {:same@x}, {:same@x}, value=0.5)", "torch.div({x:f}, {:like@x}, rounding_mode='trunc')",
    "torch.div({x:f}, {:like@x}, rounding_mode='floor')", "torch.ldexp({x:f}, {y:i})",
    "torch.isclose({x:f}, {:like@x})", "torch.round({x:f}, decimals=2)",
    "torch.frexp({x:f})", "torch.deg2rad({x:f})", "torch.lerp({x:f}, {:same@x}, {:same@x})",
]  # fmt: skip

WHOLE = [
    *[f"torch.{name}({{x:i}}, {{:like@x}})" for name in "bitwise_and bitwise_or bitwise_xor gcd lcm add mul sub "
      "maximum bitwise_left_shift bitwise_right_shift".split()],
    *[f"{{x:i}} {op} {{:n}}" for op in ("+", "*", "-", "<<", ">>", "&", "|", "^", "**", "//", "%")],
    "~{x:i}", "-{x:i}", "{x:i}.abs()", "torch.sign({x:i})", "torch.square({x:i})",
    "{x:i} // 3", "{x:i} % 7", "{x:i} / 3",
    "torch.div({x:i}, 3, rounding_mode='trunc')", "torch.fmod({x:i}, 5)", "torch.clamp({x:i}, 0, 100)", "7 // {x:i}",
    "{x:i}.sum()", "{x:i1}.sum({:dim@x})", "{x:i1}.prod({:dim@x})", "{x:i1}.cumsum({:dim@x})",
    "torch.addcmul({x:i}, {:same@x}, {:same@x}, value=2)",
    "{x:b}.sum()", "{x:b} & {:like@x}", "{x:b}.long().sum()", "{x:b} ^ {:like@x}", "{x:i}.double()",
    "{x:i}.float() + 1",
]  # fmt: skip

REDUCED = [
    *[f"torch.{name}({{x:t1}}, {{:dim@x}}, keepdim={{:k}})"
      for name in "amax amin any all argmax argmin max min".split()],
    *[f"torch.{name}({{x:t}})" for name in "amax amin any all max min argmax".split()],
    "torch.aminmax({x:t1}, dim={:dim@x})", "torch.cummax({x:t1}, {:dim@x})", "torch.count_nonzero({x:t})",
    "torch.sort({x:t1}, {:dim@x}, stable=True)", "F.max_pool1d({x:f=3}, 2)",
    "torch.linalg.vector_norm({x:f1}, float('inf'), {:dim@x})", "torch.diff({x:t1}, dim={:dim@x})",
]  # fmt: skip

#: Writes but for those that are measured.
ROUGH = re.compile("exp_|lerp|sqrt|sin|tanh|sigmoid|cumsum")
EXACT_WRITES = [template for template in operations.IN_PLACE if ROUGH.search(template) is None]

FAMILIES = [
    (40, FLOATING), (14, WHOLE), (10, operations.CASTS), (14, operations.VIEWS), (5, REDUCED),
    (3, EXACT_WRITES),
    (4, ["torch.cat([{x:t1}, {:same@x}], {:dim@x})", "torch.stack([{x:t}, {:same@x}])",
         "torch.flip({x:t1}, ({:dim@x},))", "torch.roll({x:t1}, 1, {:dim@x})", "{x:t1}[{:pick@x}]", "{x:t}.clone()",
         "{x:t}.contiguous()", "torch.tril({x:t2})",
         "F.pad({x:t1}, (1, 2))", "{x:t}.repeat({:wide@x})"]),
]  # fmt: skip


def write(rng: random.Random) -> Program:
    """A short program of such operators at special values."""
    return _Writer(rng, most=8, least=3, families=FAMILIES, numbers=("special", "edges", "special", "normal")).write()


def bits_differ(mine: Any, theirs: Any, zeros: bool = True) -> str:
    """How two results differ, NaN aside, and signs of zeros unless they count; "" if they do not."""
    if not isinstance(mine, Tensor) or not isinstance(theirs, Tensor):
        return "" if type(mine) is type(theirs) else f"{mine} for {theirs}"
    if mine.dtype is not theirs.dtype or mine.shape != theirs.shape:
        return f"{mine.dtype} {tuple(mine.shape)} for {theirs.dtype} {tuple(theirs.shape)}"
    if mine.is_complex():
        mine, theirs = torch.view_as_real(mine.resolve_conj()), torch.view_as_real(theirs.resolve_conj())
    a, b = (
        t.contiguous().view(BITS[t.itemsize]) if t.dim() else t.view(1).view(BITS[t.itemsize]) for t in (mine, theirs)
    )
    wrong = (a != b).view(mine.shape) & ~(mine.isnan() & theirs.isnan())
    if not zeros:
        wrong &= (mine != 0) | (theirs != 0)
    if not bool(wrong.any()):
        return ""
    at = tuple(wrong.nonzero()[0].tolist())
    return (
        f"is {mine[at].item()!r} at {list(at)}, eager's {theirs[at].item()!r} ({int(wrong.sum())} of {wrong.numel()})"
    )


def wrong(program: Program, dynamic: bool | None = None) -> list[str]:
    """What differs in bits; "" if eager refuses the program."""
    want = observe(program.function(), program.inputs)
    if want.failed is not None:
        return []
    stator.reset()
    before = faults.total()
    options = {"strict": True, "verify": True, "cache": False}
    compiled = stator.compile(program.function(), dynamic=dynamic, fullgraph=True, options=options)
    got = observe(compiled, program.inputs)
    if isinstance(got.failed, REFUSALS):
        return []
    found = [*_different(got, want, CHOOSES.search(program.source) is None), *map(str, faults.recent(before))]
    coarse = max(EPSILON.get(item.dtype, 0.0) for item in program.inputs)
    coarse = max([coarse, *[EPSILON[t] for t in HALVES if str(t) in program.source or "half" in program.source]])
    return found or judged(got, lambda **how: observe(program.function(), program.inputs, **how), want, coarse)


def _different(got: Seen, want: Seen, zeros: bool) -> Iterator[str]:
    if got.failed is not None:
        yield f"raises {type(got.failed).__name__}: {got.failed}"
        return
    for what in ("results", "inputs"):
        mine, theirs = getattr(got, what), getattr(want, what)
        if len(mine) != len(theirs):
            yield f"{len(mine)} {what}, eager's {len(theirs)}"
            continue
        for i, pair in enumerate(zip(mine, theirs, strict=True)):
            if why := bits_differ(*pair, zeros):
                yield f"{what} {i} {why}"


def main() -> int:
    """Prints the programs that differ; how many they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    count = 0
    for seed in range(args.seed, args.seed + args.count):
        program = write(random.Random(seed))
        try:
            why = wrong(program)
        except Exception:
            why = [traceback.format_exc()[-800:]]
        if why:
            count += 1
            short = shorten(program, lambda p: bool(wrong(p)), 40)
            print(f"# seed {seed}: {(wrong(short) or why)[:3]}\n{short}\n", flush=True)
    print(f"{args.count} programs, {count} wrong")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
