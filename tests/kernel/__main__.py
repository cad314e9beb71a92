"""Many random kernels: `python -m tests.kernel --programs 1000 --seed 1` (a program has about ten).

Each is made into a function by every strategy, checked, read back from its text, and run against its kernel.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from stator.kernel.blocks import choose
from stator.kernel.decisions import decide
from stator.kernel.strategies import blocks, serial, vectors
from stator.targets import typical
from tests.kernel.programs import Strategy, compare

STRATEGIES: tuple[Strategy, ...] = (
    serial,
    lambda kernel, name: vectors(decide(kernel, typical("cpu")), name),
    lambda kernel, name: vectors(decide(kernel, replace(typical("cpu"), vector_bytes=16)), name),
    lambda kernel, name: blocks(choose(kernel, typical("cuda")), name),
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.programs)
    kernels = sum(compare(seed, strategy) for seed in seeds for strategy in STRATEGIES)
    print(f"{kernels} functions of {given.programs} programs: all do what their kernels say")
