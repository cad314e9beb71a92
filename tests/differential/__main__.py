"""Many random programs: `python -m tests.differential --examples 5000 --seed 1`. Failures are shortened and printed."""

from __future__ import annotations

import argparse
import collections
import random
import re
import time
import traceback
import warnings

import torch

import stator
from stator.base.errors import CaptureError, DataDependent, Unsupported
from stator.coverage.compare import EPSILON, differences, spread_of
from tests.differential.observe import observe
from tests.differential.programs import Program, generate, shorten


def judge(program: Program) -> tuple[str, str]:
    """The verdict on one program: right, refused, wrong or unusable; and why."""
    function = program.function()

    def eager(noise: float = 0.0, wide: bool = False):
        return observe(function, program.inputs, noise=noise, wide=wide)

    want = eager()
    if want.failed is not None:
        return "unusable", str(want.failed)
    stator.reset()
    compiled = stator.compile(program.function(), fullgraph=True, options={"strict": True, "cache": False})
    got = observe(compiled, program.inputs)
    for error in (got.failed, got.backward_failed):
        if isinstance(error, (CaptureError, Unsupported, DataDependent)):
            return "refused", str(error).split("\n")[0]
    coarse = max((EPSILON.get(item.dtype, 1e-7) for item in program.inputs), default=0.0)
    found = differences(got, spread_of(eager, want, coarse))
    return ("wrong", "; ".join(found)) if found else ("right", "")


def kind(why: str) -> str:
    """A message without its numbers, to tell failures apart."""
    return re.sub(r"[-\d.]+|\[.*?\]|\(.*?\)|nan|inf", "#", why.split(";")[0])[:80]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shrink", type=int, default=60, help="tries to shorten a failing program")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    start = time.perf_counter()
    for number in range(arguments.seed, arguments.seed + arguments.examples):
        program = generate(random.Random(number))
        try:
            verdict, why = judge(program)
        except Exception:
            verdict, why = "wrong", traceback.format_exc()[-600:]
        counts[verdict] += 1
        if verdict == "refused":
            refusals[kind(why)] += 1
        if verdict == "wrong":
            what = kind(why)
            program = shorten(program, lambda p, what=what: kind(judge(p)[1]) == what, arguments.shrink)
            print(f"# seed {number}: {why}\n# now: {judge(program)[1]}\n{program}\n", flush=True)
        if (number + 1 - arguments.seed) % 50 == 0:
            print(f"# {dict(counts)} in {time.perf_counter() - start:.0f} s", flush=True)
    print(f"# {dict(counts)}")
    for why, count in refusals.most_common(40):
        print(f"#   {count} refused: {why}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
