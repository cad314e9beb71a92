"""What launches of kernels need to know, as entries of the dict `LAUNCHES` behind their text.

Types and alignment of pointers, the grid as a number or a program over symbolic sizes, from where on positions need 64
bits, and which sizes a binary of its own takes for multiples of a vector. `targets/cuda/toolchain.py` reads them.
Neighbour: `printer` writes the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType

from stator.codegen.triton.operators import POINTERS
from stator.kernel import ir
from stator.loop.index import Axis, FloorDiv, Index, Mod
from stator.loop.kernel import Param
from stator.loop.magnitude import reach
from stator.sizes import Extent, Size, Symbol
from stator.sizes.writing import postfix

#: Triton's name of the option for a kernel that is begun while the one before it ends.
OVERLAPS = "launch_pdl"
#: What sizes are multiples of in binaries of their own: elements of any dtype in a vector.
ROUND = 16


def launch_text(
    function: ir.Function, warp: int, grid: Extent | None = None, more: Mapping[str, object] = MappingProxyType({})
) -> str:
    """What launches of it need to know, as an entry of a dict: see `targets/cuda/toolchain.py`.

    The grid is that of its parallel loop, where none is given; `more` are options of the compiler.
    """
    numbers = {symbol: i for i, symbol in enumerate(function.symbols)}

    def program(extent: Extent) -> object:
        return postfix(extent, numbers) if isinstance(extent, Size) else extent

    if grid is None:
        grid = prod([loop.axis.size for loop in loops_of(function) if loop.kind == "parallel"]) if function.body else 0
    options: dict[str, object] = {"num_warps": max(function.threads // warp, 1), "enable_fp_fusion": False, **more}
    if function.checks:
        options |= {"debug": True, "sanitize_overflow": False}  # without `debug`, Triton drops assertions
    sizes = tuple([symbol.name for symbol in function.symbols])
    limits = tuple([(program(most), limit) for most, limit in counted(function)]) if function.symbols else ()
    steps = _steps(function) if function.symbols else ()
    rounds = rounded(function.symbols, steps)
    return launch_entry(function.name, function.params, program(grid), options, f"{grid} blocks", sizes, limits, rounds)


def rounded(symbols: Sequence[Symbol], steps: Iterable[Extent]) -> dict[str, object]:
    """Which sizes make steps between rows, and ends of these, multiples of a vector; whether they did so at first.

    Without that, elements are loaded one by one: it is worth a binary of its own.
    """
    found = {symbol for step in steps if type(step) is Size and step % ROUND != 0 for symbol in step.symbols}
    numbers = tuple([i for i, symbol in enumerate(symbols) if symbol in found])
    return {"rounds": numbers, "round": all(symbol.hint % ROUND == 0 for symbol in found)} if numbers else {}


def _steps(function: ir.Function) -> Iterator[Extent]:
    """What positions are multiples of, and the ends of axes along which elements lie side by side."""
    for statement in ir.walk(function.body):
        if isinstance(statement, ir.Load | ir.Store | ir.Position):
            yield from steps_of(statement.index)


def steps_of(index: Index) -> Iterator[Extent]:
    """The same of a position."""
    for atom, coefficient in index.terms:
        yield coefficient
        if isinstance(atom, FloorDiv | Mod):
            yield atom.divisor
            yield from steps_of(atom.inner)
        elif isinstance(atom, Axis) and coefficient == 1:
            yield atom.size


def launch_entry(
    name: str,
    params: Sequence[Param],
    grid: object,
    options: Mapping[str, object],
    remark: str = "",
    sizes: tuple[str, ...] = (),
    limits: tuple[tuple[object, int], ...] = (),
    more: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """An entry of `LAUNCHES`: a grid is a number, or a program over the sizes."""
    launch = {
        "types": tuple([POINTERS[param.dtype] for param in params]),
        # a single element may lie anywhere: its alignment is worth no second binary
        "aligned": tuple([param.numel != 1 or param.role != "in" for param in params]),
        "sizes": sizes,
        "grid": grid,
        "limits": limits,
        "options": options,
        **more,
    }
    lines = [f"        {key!r}: {value!r}," for key, value in launch.items()]
    return "\n".join([f"    {name!r}: {{  # {remark or f'{grid} blocks'}", *lines, "    },"])


def loops_of(function: ir.Function) -> list[ir.Loop]:
    """All of its loops, from the outside in."""
    return [statement for statement in ir.walk(function.body) if isinstance(statement, ir.Loop)]


def counted(function: ir.Function) -> list[tuple[Extent, int]]:
    """What a function counts to that int32 may not hold, and from where on; points are counted past the end."""
    local = {statement.name for statement in ir.walk(function.body) if isinstance(statement, ir.Scratch)}
    ends: list[tuple[Extent, int]] = [(loop.axis.size, 2**30) for loop in loops_of(function) if loop.kind == "lanes"]
    ends += [(param.numel, 2**31) for param in function.params]
    for statement in ir.walk(function.body):
        if isinstance(statement, ir.Load | ir.Store | ir.Position) and getattr(statement, "memory", "") not in local:
            ends.append((reach(statement.index) + 1, 2**31))
    return [(end, limit) for end, limit in dict.fromkeys(ends) if type(end) is Size or end >= limit]
