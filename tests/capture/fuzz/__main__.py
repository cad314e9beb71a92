"""Many programs: `python -m tests.capture.fuzz --examples 10000 --seed 1`. A failing one is made small and printed."""

from __future__ import annotations

import argparse
import time

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.capture.fuzz.run import Mode
from tests.capture.fuzz.test_fuzz import CALLS, MODES, PROGRAMS, check


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", help="only this one")
    arguments = parser.parse_args()
    modes = MODES
    if arguments.backend:
        modes = st.builds(Mode, st.just(arguments.backend), st.sampled_from([None, None, True]), st.booleans())
    phases = (Phase.generate, Phase.shrink)
    limits = settings(
        max_examples=arguments.examples, deadline=None, database=None, phases=phases,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    start = time.perf_counter()
    seed(arguments.seed)(limits(given(PROGRAMS, CALLS, modes)(check)))()
    print(
        f"{arguments.examples} programs agree with Python, seed {arguments.seed}, {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
