"""Many random programs of tile IR: `python -m tests.tile --programs 1000 --seed 1`, and with `--cases` all cases.

Each program is verified, printed and read back, and run as IR and by the eager builder; with `--gpu` its code runs on a
GPU, against the interpreter, in `--jobs` processes. What fails is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from typing import Any

from tests.tile.many import case, case_on_gpu, program, program_on_gpu, report, tried
from tests.tile.test_conformance import CASES


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.programs)
    numbers = range(len(CASES) if given.cases else 0)
    parts: list[tuple[str, Any, range]] = [
        ("programs", program_on_gpu if given.gpu else program, seeds),
        ("cases", case_on_gpu if given.gpu else case, numbers),
    ]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        good = [
            report(name, pool.imap_unordered(tried, [(way, number) for number in some], chunksize=16))
            for name, way, some in parts
            if some
        ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
