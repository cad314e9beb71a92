"""Many random kernels: `python -m tests.kernel --programs 1000 --seed 1` (a program has about ten).

Each is made into a function by every strategy, checked, read back from its text, and run against its kernel.
"""

from __future__ import annotations

import argparse

from tests.kernel.programs import compare

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kernels = sum(compare(seed) for seed in range(given.seed, given.seed + given.programs))
    print(f"{kernels} kernels of {given.programs} programs: all the same")
