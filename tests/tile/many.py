"""Random programs and cases of tile IR, by number, in all ways or on a GPU: what became of each.

Neighbours: `python -m tests.tile` runs many of them in processes, which import this.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable

from tests.tile.interpret.compare import compare
from tests.tile.nvidia import on_gpu
from tests.tile.test_conformance import CASES, agree


def program_on_gpu(seed: int) -> str:
    on_gpu.agree_on_program(seed)
    return "right"


def case_on_gpu(number: int) -> str:
    if CASES[number].op == "extern":
        return "compared by test_libdevice"
    return "right" if on_gpu.agree(CASES[number]) else "refused"


def program(seed: int) -> str:
    compare(seed)
    return "right"


def case(number: int) -> str:
    agree(CASES[number])
    return "right"


def tried(job: tuple[Callable[[int], str], int]) -> tuple[str, str]:
    """What became of a program or a case, and what went wrong."""
    way, number = job
    try:
        return way(number), ""
    except Exception:
        return "wrong", f"{way.__name__} {number}\n{traceback.format_exc()}"


def report(name: str, found: Iterable[tuple[str, str]]) -> bool:
    """Print how often what came out; whether nothing was wrong."""
    counts: Counter[str] = Counter()
    for verdict, text in found:
        counts[verdict] += 1
        if text:
            print(text, flush=True)
    print(f"{name}: {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}", flush=True)
    return not counts["wrong"]
