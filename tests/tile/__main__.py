"""Many random programs of tile IR: `python -m tests.tile --programs 1000 --seed 1`, and with `--cases` all cases.

Each program is verified, printed and read back, and run as IR and by the eager builder.
"""

from __future__ import annotations

import argparse

from tests.tile.interpret.compare import compare
from tests.tile.test_conformance import CASES, agree

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", action="store_true")
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.programs):
        compare(seed)
    print(f"{given.programs} programs: all ways of running them agree")
    if given.cases:
        for case in CASES:
            agree(case)
        print(f"{len(CASES)} cases: all ways of running them agree")
