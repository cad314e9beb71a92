"""What `make demo` runs: GPT-2, inference and training step.

First stator against eager, a table for each mode as soon as it is measured; then both again with torch.compile, all
called in turn. `DEMO=quick` leaves the second part out.
"""

from __future__ import annotations

import os
import sys

from benchmarks import harness

MODES = ("inference", "training")
PARTS = ("", "quick")


def main() -> None:
    """Both parts, or the first."""
    part = os.environ.get("DEMO", "")
    if part not in PARTS:
        sys.exit(f"DEMO={part} is no part of the demonstration: DEMO=quick leaves torch.compile out")
    for mode in MODES:
        harness.main(["--models", "gpt2", "--modes", mode, "--compilers", "eager", "stator", "--calls", "7"])
    if part != "quick":
        print("the same beside torch.compile, which takes some minutes (DEMO=quick leaves it out)")
        harness.main(["--models", "gpt2", "--modes", *MODES, "--out", "demo.json"])


if __name__ == "__main__":
    main()
