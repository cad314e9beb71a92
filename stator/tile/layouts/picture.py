"""Pictures of layouts: for each element who holds it, as warp:lane:register, or where it lies in shared memory.

    8x4                0        1        2        3
       0 |       0:0:0    0:0:1    0:1:0    0:1:1
       1 |       0:2:0    0:2:1    0:3:0    0:3:1      …

Of elements with several holders the first one is shown, and how many there are behind it: `0:4:1 x2`. In shared memory
a cell is `offset/bank` for elements of a size. Tiles of more axes than two are shown slice by slice.
Neighbours: `stator.tile.show_layout` is this; `linear` and `memory` have the layouts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stator.tile.layouts.access import BANK_BYTES, BANKS
from stator.tile.layouts.linear import LANES, Layout, shape_text
from stator.tile.layouts.memory import Shared
from stator.tile.layouts.text import AnyLayout, read

#: The width and height of an element in SVG, in pixels.
_WIDTH, _HEIGHT = 64, 22


@dataclass(frozen=True)
class Cell:
    """What is said of an element, and the number by which it has its colour (of 32)."""

    text: str
    colour: int
    group: int = 0


@dataclass(frozen=True)
class Picture:
    """A layout as text, which `print` shows, and as SVG, which notebooks show."""

    layout: AnyLayout
    text: str
    svg: str

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


def show_layout(layout: AnyLayout | str, rows: int = 32, columns: int = 32, itemsize: int = 4) -> Picture:
    """The picture of a layout, or of the line that is its printed form.

    At most so many rows and columns of each slice are drawn; `itemsize`, in bytes, says which banks of shared memory
    elements are in. LayoutError where a line is no layout.
    """
    found = read(layout) if isinstance(layout, str) else layout
    cells = _held(found) if isinstance(found, Layout) else _placed(found, itemsize)
    slices = list(_slices(found.shape, cells, rows, columns))
    return Picture(found, _text(found, slices), _svg(found, slices))


def _held(layout: Layout) -> list[Cell]:
    """Of each element, row-major: its first holder in the order of warps, lanes, registers."""
    holders: dict[int, list[tuple[int, int, int]]] = {}
    for warp, lane, register in itertools.product(range(layout.warps), range(1 << LANES), range(layout.registers)):
        holders.setdefault(layout.number(register, lane, warp), []).append((warp, lane, register))
    found = []
    for number in range(len(holders)):
        (warp, lane, register), *more = holders[number]
        times = f" x{len(more) + 1}" if more else ""
        found.append(Cell(f"{warp}:{lane}:{register}{times}", lane, warp))
    return found


def _placed(layout: Shared, itemsize: int) -> list[Cell]:
    found = []
    for coordinates in itertools.product(*map(range, layout.shape)):
        place = layout.padded(layout.offset_of(coordinates))
        bank = place * itemsize // BANK_BYTES % BANKS
        found.append(Cell(f"{place}/{bank}", bank))
    return found


@dataclass(frozen=True)
class _Slice:
    """The drawn part of the two last axes at a place of the others."""

    title: str
    cells: Sequence[Sequence[Cell]]
    left_out: str


def _slices(shape: tuple[int, ...], cells: Sequence[Cell], rows: int, columns: int) -> Iterator[_Slice]:
    height, width = (1, *shape)[-2:]
    outer = shape[:-2]
    shown = min(height, rows), min(width, columns)
    left_out = "" if shown == (height, width) else f"{shown[0]} of {height} rows, {shown[1]} of {width} columns"
    for number, place in enumerate(itertools.product(*map(range, outer))):
        start = number * height * width
        drawn = [cells[start + row * width : start + row * width + shown[1]] for row in range(shown[0])]
        yield _Slice(f"[{', '.join(map(str, place))}, …]" if outer else "", drawn, left_out)


def _text(layout: AnyLayout, slices: Sequence[_Slice]) -> str:
    lines = [str(layout)]
    for each in slices:
        width = max([len(cell.text) for row in each.cells for cell in row], default=1) + 2
        lines += ["", each.title] if each.title else [""]
        head = "".join([str(column).rjust(width) for column in range(len(each.cells[0]))])
        lines.append(f"{shape_text(layout.shape):>12} {head}")
        lines += [
            f"{row:>10} | {''.join([c.text.rjust(width) for c in cells])}" for row, cells in enumerate(each.cells)
        ]
        lines += [f"({each.left_out})"] if each.left_out else []
    return "\n".join(lines) + "\n"


def _svg(layout: AnyLayout, slices: Sequence[_Slice]) -> str:
    """Lanes (or banks) have colours, warps are lighter or darker."""
    parts, top, right = [], _HEIGHT + 8, 0
    for each in slices:
        if each.title:
            parts.append(_label(4, top + 14, each.title))
            top += _HEIGHT
        for y, row in enumerate(each.cells):
            for x, cell in enumerate(row):
                parts.append(_box(x * _WIDTH + 4, top + y * _HEIGHT, cell))
        top += len(each.cells) * _HEIGHT + 8
        right = max(right, len(each.cells[0]) * _WIDTH + 8)
        if each.left_out:
            parts.append(_label(4, top + 10, each.left_out))
            top += _HEIGHT
    line = str(layout)
    width = max(right, 7 * len(line) + 8)
    size = f'width="{width}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">'
    return "\n".join([head, _label(4, 16, line), *parts, "</svg>"]) + "\n"


def _label(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}">{text}</text>'


def _box(x: int, y: int, cell: Cell) -> str:
    colour = f"hsl({cell.colour * 360 // 32}, 60%, {88 - 7 * (cell.group % 6)}%)"
    box = f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" fill="{colour}" stroke="#888"/>'
    return box + f'<text x="{x + _WIDTH // 2}" y="{y + 15}" text-anchor="middle">{cell.text}</text>'
