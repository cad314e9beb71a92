"""Kernels to C++ translation units: what they need of the headers, and the text of each.

`decisions` and a strategy make a function of a kernel, `printer` its text. Long texts are shared among several units,
which compile side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from stator.base import preamble
from stator.base.device import Device
from stator.codegen.cpp.printer import function_text
from stator.kernel.decisions import LoopPlan, decide
from stator.kernel.strategies import vectors
from stator.loop.kernel import Kernel, kernel_name

CIRCULAR = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh")
#: The headers that every unit starts with.
ALWAYS = ("vector.h", "narrow.h", "memory.h", "lanes.h", "loops.h", "math.h")
#: Others, in their order → the operators that need them: others are not read, to save the compiler time.
HEADERS: dict[str, frozenset[str]] = {
    "intervals.h": frozenset(("tanh", "erfc")),
    "doubles.h": frozenset(("exp2", "expm1", "log2", "tanh", "erf", "sigmoid", *CIRCULAR, "random", "lgamma")),
    "circular.h": frozenset((*CIRCULAR, "random", "lgamma")),
    "power.h": frozenset(),  # sizes are divided: all need it
    "random.h": frozenset(("random",)),
    "scan.h": frozenset(("scan",)),
    "lgamma.h": frozenset(("lgamma",)),
}
#: What no operator needs, but how a kernel runs.
OTHERS = ("tile.h", "stream.h", "pairs.h")
# Vectors are explicit, so -O2 makes no kernel faster (measured) and compiles 1.7 times as long. Combining more than two
# instructions changes 0.2% of them, and takes half of the compiler's time where a kernel gathers much (measured).
# Without expensive optimizations gcc leaves the upper halves of vector registers as they are when a kernel returns or
# calls libm, and code without AVX, such as that of libm and Python, then takes up to ten times as long (AMD Zen 3).
# Kernels need libm alone, which the toolchain adds: the other libraries, and what starts and ends C++ programs, take
# the linker 11 ms a unit (of 35 for an empty one).
# Without the last one g++ 12 may leave a whole kernel out that reads backwards (`flip`, `rot90`): where it makes two
# addresses of one, as 8p - 7p, it takes that for an access through a null pointer, behind which nothing runs.
#: What the compiler is told, besides for which processor.
FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv",
    "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fno-semantic-interposition", "-w",
    "-fexpensive-optimizations", "--param=max-combine-insns=2", "-nostdlib", "-fno-delete-null-pointer-checks",
)  # fmt: skip
#: Characters of kernels in a unit; of more there are several, which compile side by side. The compiler takes about a
#: second for so many, and a twentieth of one for what every unit starts with. Fewer are shared among the cores.
UNIT_TEXT, LEAST_TEXT = 80_000, 4_000


def emit(kernels: Sequence[Kernel], device: Device, names: Sequence[str] = ()) -> str:
    """All kernels as one unit. They are called k0, k1, … where they have no names."""
    plans = [decide(kernel, device) for kernel in kernels]
    named = zip(names or map(kernel_name, range(len(plans))), plans, strict=True)
    return _unit(plans, [emit_kernel(made, name) for name, made in named])


def emit_units(kernels: Sequence[Kernel], device: Device, names: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """All kernels in as many units as their length asks for: texts, each with the names of its kernels."""
    plans = [decide(kernel, device) for kernel in kernels]
    texts = [emit_kernel(made, name) for name, made in zip(names, plans, strict=True)]
    return [
        (_unit([plans[i] for i in group], [texts[i] for i in group]), tuple([names[i] for i in group]))
        for group in _shared([len(text) for text in texts], device.cores)
    ]


def _shared(lengths: Sequence[int], cores: int = 1) -> list[list[int]]:
    """Texts of these lengths shared among units of about equal length; the longest are placed first."""
    total = sum(lengths)
    count = max(-(-total // UNIT_TEXT), min(cores, total // LEAST_TEXT), 1)
    groups: list[list[int]] = [[] for _ in range(count)]
    totals = [0] * count
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        shortest = totals.index(min(totals))
        groups[shortest].append(i)
        totals[shortest] += lengths[i]
    return [sorted(group) for group in groups if group]


def _unit(plans: Sequence[LoopPlan], texts: Sequence[str]) -> str:
    operators = {node.op for made in plans for node in made.kernel.nodes}
    needs = {name for name, users in HEADERS.items() if not operators.isdisjoint(users)}
    if any(made.tile is not None for made in plans):
        needs.add("tile.h")
    if any(made.pairs is not None for made in plans):
        needs.add("pairs.h")
    if any(made.streamed for made in plans):
        needs.add("stream.h")
    return "\n".join([header(frozenset(needs)) + preamble.END, *texts])


@cache
def header(needs: frozenset[str] = frozenset()) -> str:
    """The text that every unit starts with: what all need, and those of `HEADERS` and of `OTHERS`."""
    folder = resources.files(__package__)
    texts = []
    for name in (*ALWAYS, *HEADERS, *OTHERS):
        if name in needs or name in (*ALWAYS, "power.h"):
            texts.append((folder / name).read_text(encoding="utf-8"))
    return "\n".join(texts)


def emit_kernel(plan: LoopPlan, name: str) -> str:
    """One kernel, under a line that says what it loops over and how."""
    axes = (*plan.kernel.axes, *plan.kernel.reduce_axes)
    headline = f"// {' '.join(f'{axis.name}:{axis.size}' for axis in axes)}, {plan.shape}\n"
    return headline + function_text(vectors(plan, name))
