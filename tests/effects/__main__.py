"""Many random programs: `python -m tests.effects --programs 1000 --seed 1`."""

from __future__ import annotations

import argparse

import stator
from tests.effects.programs import compare, fail

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    count = 0
    for seed in range(given.seed, given.seed + given.programs):
        count += compare(seed) + compare(seed, "aot_eager")
        fail(seed)
        stator.reset()
    print(f"{count} effects in {given.programs} programs: all as in eager")
