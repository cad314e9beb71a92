"""All cases of a seed: `python -m tests.capture.containers --seed 1 --most 8` prints what differs and is refused."""

from __future__ import annotations

import argparse
import collections
import time

from tests.capture.containers.cases import cases
from tests.capture.containers.compare import check
from tests.capture.containers.tables import RECEIVERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=4, help="cases for each attribute of each kind")
    parser.add_argument("--kinds", nargs="*", default=list(RECEIVERS))
    parser.add_argument("--refused", action="store_true", help="print every refusal")
    parser.add_argument("--show", type=int, default=40, help="differences to print")
    arguments = parser.parse_args()
    start = time.perf_counter()
    count = wrong = 0
    refused: collections.Counter[tuple[str, str]] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for case in cases(arguments.seed, arguments.most, tuple(arguments.kinds)):
        count += 1
        differences, refusal = check(case)
        if differences:
            wrong += 1
            if wrong <= arguments.show:
                print(case, *differences, sep="\n    ", flush=True)
        if refusal is not None:
            refused[case.kind, case.what] += 1
            reasons[refusal] += 1
            if arguments.refused:
                print(f"{case}\n    refused: {refusal}", flush=True)
    for reason, times in reasons.most_common(60):
        print(f"{times:5} {reason}")
    seconds = time.perf_counter() - start
    print(f"{count} cases, {wrong} differ, {sum(refused.values())} refused, {seconds:.0f} s")


if __name__ == "__main__":
    main()
