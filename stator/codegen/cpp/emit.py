"""Kernels to C++ translation units: `extern "C" const char* k<i>(void* const* p)` for each.

Each kernel is a function over a range of its grid (`plan.LoopPlan`), which `parallel` in `vector.h` shares among
threads. Here is the frame: the grid, the loops of every level of reduction with their accumulators, and where stores
go; what happens inside the loops is written by `body.Writer`. The values of symbolic sizes follow the pointers. Inner
stores go into the last loop over the reduce axes, so every load of an iteration comes before them even if the memory
plan put a result over an operand. What a kernel returns is null, or what was wrong with an index that it loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from math import prod

from stator.codegen import gamma
from stator.codegen.cpp import ops
from stator.codegen.cpp.body import Name, Writer
from stator.codegen.cpp.plan import LoopPlan, merges, pieces_of, plan
from stator.codegen.cpp.target import Target, native
from stator.codegen.cpp.tiles import WIDTH, Tile, turned
from stator.loop import special_functions
from stator.loop.expr import Expr
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Store, kernel_name
from stator.loop.scalar import FLOATS
from stator.loop.space import loops
from stator.sizes import Extent, Size

#: Additions into one accumulator before it is added to a total of its own. Eager adds in float64 in places (batch
#: norm); with chains as short as this, float32 comes near it, at no cost that shows.
LONG_CHAIN = 16
CIRCULAR = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh")
#: Headers, in their order → the operators that need them: others are not read, to save the compiler time.
HEADERS: dict[str, frozenset[str]] = {
    "circular.h": special_functions.NAMES | {*CIRCULAR, "random"},
    "power.h": frozenset(),  # sizes are divided: all need it
    "random.h": frozenset(("random",)),
    "scan.h": frozenset(("scan",)),
    "special.h": special_functions.NAMES,
}
#: Characters of kernels in a unit; of more there are several, which compile side by side. The compiler takes about a
#: second for so many, and a tenth of one for what every unit starts with.
UNIT_TEXT = 80_000
#: How long a chain counts as that has a symbolic length.
ANY_LENGTH = 1 << 40


def emit(kernels: Sequence[Kernel], target: Target | None = None, names: Sequence[str] = ()) -> str:
    """All kernels as one unit. They are called k0, k1, … where they have no names."""
    target = target or native()
    plans = [plan(kernel, target) for kernel in kernels]
    named = zip(names or map(kernel_name, range(len(plans))), plans, strict=True)
    return _unit(plans, [emit_kernel(name, made) for name, made in named])


def emit_units(kernels: Sequence[Kernel], target: Target, names: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """All kernels in as many units as their length asks for: texts, each with the names of its kernels."""
    plans = [plan(kernel, target) for kernel in kernels]
    texts = [emit_kernel(name, made) for name, made in zip(names, plans, strict=True)]
    return [
        (_unit([plans[i] for i in group], [texts[i] for i in group]), tuple([names[i] for i in group]))
        for group in _shared([len(text) for text in texts])
    ]


def _shared(lengths: Sequence[int]) -> list[list[int]]:
    """Texts of these lengths shared among units of about equal length; the longest are placed first."""
    count = max(-(-sum(lengths) // UNIT_TEXT), 1)
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
    return "\n".join([header(frozenset(needs)), *texts])


@cache
def header(needs: frozenset[str] = frozenset()) -> str:
    """The text that every unit starts with: what all need, and those of `HEADERS` and `tile.h`."""
    folder = resources.files(__package__)
    texts = []
    for name in ("vector.h", "math.h", *HEADERS, "tile.h"):
        if name in needs or name in ("vector.h", "math.h", "power.h"):
            texts += [gamma.text()] * (name == "special.h") + [(folder / name).read_text(encoding="utf-8")]
    return "\n".join(texts)


def emit_kernel(name: str, made: LoopPlan) -> str:
    """One kernel: its range function and its entry."""
    kernel = made.kernel
    if kernel.outer_numel == 0:
        return f'extern "C" const char* {name}(void* const*) {{ return 0; }}  // no elements\n'
    writer = Writer(made)
    for i, param in enumerate(kernel.params):
        const, storage = "const " if param.role == "in" else "", ops.STORAGE[param.dtype]
        writer.scope.lines.append(f"{const}{storage}* {param.name} = ({storage}*)p[{i}];")
    _grid(writer, made)
    if writer.checks:
        count = len(kernel.params) + len(kernel.symbols)
        writer.scope.lines.insert(0, "int wrong = 0;")
        writer.scope.lines.append(f"if (wrong) __atomic_store_n((int*)p[{count}], wrong, __ATOMIC_RELAXED);")
    lines = "\n".join("    " + line for line in [*_declared(made), *writer.sizes(), *writer.scope.lines])
    return (
        f"// {' '.join(f'{a.name}:{a.size}' for a in (*kernel.axes, *kernel.reduce_axes))}, {made.shape}\n"
        f"static void {name}_range(void* const* p, i64_ begin, i64_ end) {{\n{lines}\n}}\n"
        f'extern "C" const char* {name}(void* const* p) {{{_entry(name, made, writer.checks)}}}\n'
    )


def _declared(plan: LoopPlan) -> list[str]:
    """The symbols of a kernel as variables (their values come after the pointers), and what the plan named."""
    first = len(plan.kernel.params)
    values = [f"const i64_ {symbol.name} = (i64_)p[{first + i}];" for i, symbol in enumerate(plan.kernel.symbols)]
    return values + [f"const i64_ {name} = {ops.extent(value)};" for name, value in plan.named]


def _entry(name: str, made: LoopPlan, checks: Mapping[Extent, int]) -> str:
    """Shares the range among threads; with checks, they say through one more pointer which one failed."""
    grid, threads = ops.extent(made.grid), ops.extent(made.threads)
    run = f"parallel({name}_range, {{}}, {grid}, {threads});"
    lines = _declared(made)
    if not checks and not lines:
        return f" {run.format('p')} return 0; "
    if not checks:
        return "".join(f"\n    {line}" for line in [*lines, run.format("p"), "return 0;"]) + "\n"
    lines.append("int wrong = 0;")
    pointers = [f"p[{i}]" for i in range(len(made.kernel.params) + len(made.kernel.symbols))]
    lines.append(f"void* const q[] = {{{', '.join([*pointers, '&wrong'])}}};")
    lines.append(run.format("q"))
    for bound, number in checks.items():
        size = f" for a dim of size {bound}" if type(bound) is int else ""
        lines.append(f'if (wrong == {number}) return "index out of range{size}";')
    return "".join(f"\n    {line}" for line in [*lines, "return 0;"]) + "\n"


def _grid(writer: Writer, made: LoopPlan) -> None:
    """The loop over this thread's part of the grid."""
    vector = made.swept if made.chunk else None
    pieces = made.pieces
    chunk, size = writer.extent(made.chunk), writer.extent(vector.size) if vector is not None else ""
    outer = [axis for axis in made.grid_axes if axis.size != 1]
    if vector is not None and made.shape == "pointwise" and not outer and made.tile is None:
        lines = [f"const i64_ from = begin * {chunk}, to = least(end * {chunk}, {size});"]
        writer.scope.lines.extend(lines)
        _serial(writer, made)
        return
    scope = writer.enter(*made.grid_axes)
    rest = "g"
    if vector is not None and pieces != 1:
        start, stop = f"g % {writer.extent(pieces)} * {chunk}", f"least(from + {chunk}, {size})"
        scope.lines.append(f"const i64_ from = {start}, to = {stop};")
        rest = f"g / {writer.extent(pieces)}"
    elif vector is not None:
        scope.lines.append(f"const i64_ from = 0, to = {size};")
    if made.tile is not None:
        tile, length = made.tile, writer.extent(made.tile.axis.size)
        blocks = writer.extent(pieces_of(tile.axis.size, tile.columns))
        start, stop = f"({rest}) % {blocks} * {tile.columns}", f"least(first + {tile.columns}, {length})"
        scope.lines.append(f"const i64_ first = {start}, last = {stop};")
        rest = f"{rest} / {blocks}"
    below: Extent = 1
    for axis in reversed(outer):
        divided = f"({rest}) / {writer.extent(below)}" if below != 1 else f"({rest})"
        last = axis is outer[0]
        scope.lines.append(f"const i64_ {axis.name} = {divided}{'' if last else f' % {writer.extent(axis.size)}'};")
        below *= axis.size
    _serial(writer, made)
    writer.leave("for (i64_ g = begin; g < end; ++g) {", "}")


def _serial(writer: Writer, made: LoopPlan) -> None:
    """The loops that one thread runs in order, around the points."""
    axes = [axis for axis in made.serial if axis.size != 1]
    for axis in axes:
        writer.enter(axis)
    _points(writer, made)
    for axis in reversed(axes):
        writer.leave(_for(axis, "0", writer.extent(axis.size)), "}")


def _for(axis: Axis, start: str, stop: str) -> str:
    return f"for (i64_ {axis.name} = {start}; {axis.name} < {stop}; ++{axis.name}) {{"


def _points(writer: Writer, made: LoopPlan) -> None:
    """What happens at one point of the grid."""
    kernel, vector = made.kernel, made.swept
    match made.shape:
        case "row":
            _levels(writer, made)
        case "column" if made.unroll > 1:
            _wide_columns(writer, made)
        case _:
            if vector is None or vector not in kernel.axes:
                _levels(writer, made)
                return
            if made.tile is not None:
                _tiles(writer, made, vector, made.tile)
                return
            writer.enter(vector)
            _levels(writer, made)
            if made.vector is None:
                writer.leave(_for(vector, "from", "to"), "}")
                return
            tail = _flag(vector.size % made.lanes != 0)
            head = f"sweep<{made.lanes}, 1, false, {tail}>(from, to, [&](i64_ {vector.name}, auto n, auto) BODY {{"
            writer.leave(head, "});")


def _tiles(writer: Writer, made: LoopPlan, vector: Axis, tile: Tile) -> None:
    """Blocks of both axes: what lies across the lanes is turned over, then the rows of the block are swept."""
    scope = writer.enter()
    scope.lines.append(f"const i64_ end = least(at + {WIDTH}, to);")
    for load, buffer in tile.buffers.items():
        step = load.attr[1].coefficient(vector)
        place = writer.place(load.attr[1] - tile.axis.index - vector.index * step)
        scope.lines.extend(turned(load, buffer, tile, place, writer.extent(step)))
    writer.enter(tile.axis)
    writer.enter(vector)
    _levels(writer, made)
    tail = _flag(vector.size % made.lanes != 0)
    writer.leave(f"sweep<{made.lanes}, 1, false, {tail}>(at, end, [&](i64_ {vector.name}, auto n, auto) BODY {{", "});")
    writer.leave(_for(tile.axis, "first", "last"), "}")
    writer.leave(f"for (i64_ at = from; at < to; at += {WIDTH}) {{", "}")


def _write_stores(writer: Writer, stores: Sequence[Store]) -> None:
    """All values first, then the statements that write memory."""
    statements = []
    rest = list(stores)
    while rest:
        store = rest.pop(0)
        if rest and writer.is_pair(store, rest[0]):
            before, statement = writer.store_pair(store, rest.pop(0))
        else:
            before, statement = writer.store(store)
        writer.scope.lines.extend(before)
        statements.append(statement)
    writer.scope.lines.extend(statements)


def _levels(writer: Writer, made: LoopPlan) -> None:
    """A loop for each level of reduction, then the inner stores, then the outer ones."""
    kernel = made.kernel
    inner = [store for store in kernel.stores if store.space == "inner"]
    outer = [store for store in kernel.stores if store.space == "outer"]
    levels: dict[int, list[Expr]] = {}
    for node in kernel.nodes:
        if node.op == "reduce":
            levels.setdefault(node.level, []).append(node)
    last = max(levels, default=0)
    merged = inner if merges(kernel, inner) else []
    for level in sorted(levels):
        _Level(writer, made, levels[level], merged if level == last else []).write()
    if inner and not merged:
        _Level(writer, made, [], inner).write()
    _write_stores(writer, outer)


def _wide_columns(writer: Writer, made: LoopPlan) -> None:
    """Several vectors of columns swept together: one loop over the reduce axes, then the stores."""
    vector, lanes = made.vector, made.lanes
    assert vector is not None
    nodes = [node for node in made.kernel.nodes if node.op == "reduce"]
    here = writer.scope
    writer.enter()
    level = _Level(writer, made, nodes, [], wide=True)
    level.write()
    writer.enter(vector)
    for node, accumulator in zip(nodes, level.results, strict=True):
        level.bind(node, f"{accumulator}[u.value]")
    _write_stores(writer, list(made.kernel.stores))
    columns = f"columns<{lanes}, U.value>(at, n, [&](i64_ {vector.name}, auto n, auto u) BODY {{"
    writer.leave(columns, "});")
    writer.leave("auto column = [&](i64_ at, auto n, auto U) BODY {", "};")
    assert writer.scope is here
    sweep = f"sweep<{lanes}, 1, false, {_flag(vector.size % lanes != 0)}>"
    rest = f"{sweep}(from, to, [&](i64_ at, auto n, auto) BODY {{ column(at, n, Number<1>{{}}); }});"
    whole = f"column(from, Full{{}}, Number<{made.unroll}>{{}});"
    if vector.size % made.chunk == 0:
        here.lines.append(whole)
    else:
        here.lines.append(f"if (to - from == {writer.extent(made.chunk)}) {whole}")
        here.lines.append(f"else {rest}")


def _flag(value: object) -> str:
    return "true" if value else "false"


class _Level:
    """One nest of loops over the reduce axes: reductions of a level, and perhaps inner stores."""

    __slots__ = ("made", "nodes", "results", "stores", "totals", "wide", "writer")

    def __init__(
        self, writer: Writer, made: LoopPlan, nodes: list[Expr], stores: list[Store], wide: bool = False
    ) -> None:
        self.writer, self.made, self.nodes, self.stores, self.wide = writer, made, nodes, stores, wide
        self.results: list[str] = []
        self.totals: dict[str, str] = {}

    @property
    def row(self) -> bool:
        return self.made.shape == "row"

    def kind(self, node: Expr) -> str:
        return self.made.kind(node)

    def write(self) -> None:
        """Accumulators, loops, and the names of the results."""
        if self.made.kernel.reduce_numel == 0:
            self._nothing()
            return
        self.writer.before = self.writer.scope
        strip = self._strip()
        names = [self._declare(node, strip is not None) for node in self.nodes]
        if self.wide:
            self.results = [self.totals.get(name, name) for name in names]
        self._loops(names, strip)
        if not self.wide:
            for node, name in zip(self.nodes, names, strict=True):
                self._finish(node, name)

    def _nothing(self) -> None:
        """Reductions of no elements: their identities."""
        for node in self.nodes:
            kind = self.kind(node)
            text = ops.number(kind, 0) if node.attr.startswith("arg") else ops.start(node.attr, kind, node.dtype)
            self.writer.bind(node, Name(f"mask({text} != 0)" if kind == "mask" else text, kind, False))

    # -- accumulators

    def _body_kind(self, node: Expr) -> str:
        kind = self.made.kind(node.args[0]) if node.attr.startswith("arg") else self.made.kind(node)
        return "i32" if kind == "mask" and node.attr.startswith("arg") else kind

    def _type(self, kind: str) -> str:
        vector = self.made.vector is not None and (self.row or self.made.vector in self.writer.scope.axes or self.wide)
        return f"V<{ops.ELEMENT[kind]}, {self.made.lanes}>" if vector else ops.ELEMENT[kind]

    def _declare(self, node: Expr, strips: bool) -> str:
        name, lines = self.writer.fresh("a"), self.writer.scope.lines
        kind = self._body_kind(node)
        number = ops.start(node.attr, kind, node.args[0].dtype)
        shape = self._type(kind)
        if node.attr.startswith("arg"):
            position = ops.ELEMENT[self.kind(node)]
            at = f"iota<{position}, {self.made.lanes}>()" if self.row else "{}"
            lines.append(f"Best<{shape}, {position}> {name} = {{splat<{shape}>({number}), {at}}};")
            return name
        count = "U.value" if self.wide else str(self.made.unroll if self.row else 1)
        lines.append(f"{shape} {name}[{count}];")
        lines.append(f"fill({name}, {number});")
        if strips and node.attr == "sum" and node.dtype in FLOATS:
            lines.append(f"{shape} {name}_total[{count}] = {{}}, {name}_lost[{count}] = {{}};")
            self.totals[name] = f"{name}_total"
        return name

    def _finish(self, node: Expr, name: str) -> None:
        """Name the result of a reduction: folded over lanes in a row, a vector in a column."""
        writer, kind = self.writer, self.kind(node)
        vector = self.made.vector is not None and not self.row and self.made.vector in writer.scope.axes
        total = self.totals.get(name)
        if total is not None:
            text = f"join({total}, {name}_lost)" if self.row else f"{total}[0]"
        elif node.attr.startswith("arg"):
            text = f"winner<{_flag(node.attr == 'argmax')}>({name})" if self.row else f"{name}.at"
        elif self.row:
            combined = self._combine(node, "a", "b")
            text = f"fold_all({name}, [](auto a, auto b) BODY {{ return {combined}; }})"
            text = f"({text} != 0)" if kind == "mask" else text
        else:
            text = f"{name}[0]"
        if vector:
            self.bind(node, text)
            return
        result = writer.fresh()
        writer.scope.lines.append(f"const auto {result} = {text};")
        writer.bind(node, Name(result, kind, False))

    def bind(self, node: Expr, text: str) -> None:
        """Name a result that lies in a vector; one that does not vary along the lanes is a scalar from here on."""
        writer, kind = self.writer, self.kind(node)
        varies = self.made.vector in self.made.deps[node]
        if not varies:
            text = f"({text}[0] != 0)" if kind == "mask" else f"{text}[0]"
        result = writer.fresh()
        writer.scope.lines.append(f"const auto {result} = {text};")
        writer.bind(node, Name(result, kind, varies))

    def _combine(self, node: Expr, left: str, right: str) -> str:
        attr = node.attr
        if self._body_kind(node) == "mask":
            attr = {"max": "any", "min": "all"}.get(attr, attr)
        text = ops.COMBINE[attr].format(left, right)
        wrap = ops.WRAP.get(node.dtype)
        return f"{wrap}({text})" if wrap else text

    def _step(self, node: Expr, name: str) -> str:
        made, kind = self.made, self._body_kind(node)
        vector = made.vector is not None and made.vector in self.writer.scope.axes
        value = self.writer.operand(node.args[0], kind, vector)
        if node.attr.startswith("arg"):
            return self._arg_step(node, name, value, vector)
        item = f"{name}[{'u.value' if self.wide or self.row else '0'}]"
        combined = self._combine(node, item, value)
        return f"{item} = keep(n, {combined}, {item});" if self.row else f"{item} = {combined};"

    def _arg_step(self, node: Expr, name: str, value: str, vector: bool) -> str:
        position: list[str] = []
        below: Extent = 1
        for axis in reversed(self.made.kernel.reduce_axes):
            position.append(f"{self.writer.extent(below)}*{axis.name}" if loops(axis) else "0")
            below *= axis.size
        element, lanes = ops.ELEMENT[self.kind(node)], self.made.lanes
        flat = f"({element})({' + '.join(position)})"
        at = f"wide<{element}, {lanes}>({flat})" if vector else flat
        if self.row:
            step = self._vector_step(element)
            at += f" + iota<{element}, {lanes}>()" + (f" * {step}" if step != "1" else "")
        live = f"live<{lanes}>(n)" if self.row else f"live<{lanes}>(Full{{}})" if vector else "true"
        in_turn = self.made.loops == self.made.kernel.reduce_axes
        return f"take<{_flag(node.attr == 'argmax')}, {_flag(in_turn)}>({name}, {value}, {at}, {live});"

    def _vector_step(self, element: str) -> str:
        axes = self.made.kernel.reduce_axes
        step: Extent = prod(axis.size for axis in axes[axes.index(self.made.vector) + 1 :])
        return f"({element}){self.writer.extent(step)}" if type(step) is Size else str(step)

    # -- loops

    def _chain(self, axis: Axis) -> int:
        """How often the loop over an axis adds into one accumulator."""
        size = axis.size if type(axis.size) is int else ANY_LENGTH
        return max(size // (self.made.lanes * self.made.unroll), 1) if axis is self.made.vector else size

    def _strip(self) -> int | None:
        """The loop after whose turns long sums are added to totals (its depth), or None if all sums are short."""
        if not any(node.attr == "sum" and node.dtype in FLOATS for node in self.nodes):
            return None
        chains = [self._chain(axis) for axis in self.made.loops]
        if prod(chains) <= 2 * LONG_CHAIN:
            return None
        inner = 1
        for depth in range(len(chains) - 1, 0, -1):
            inner *= chains[depth]
            if inner >= 16:
                return depth - 1 if inner <= 8 * LONG_CHAIN else len(chains) - 1
        return len(chains) - 1

    def _loops(self, names: list[str], strip: int | None) -> None:
        writer, made = self.writer, self.made
        for axis in made.loops:
            writer.enter(axis)
        if self.wide:
            writer.enter(made.vector)  # type: ignore[arg-type]
        for node in made.staged:
            writer.take_staged(node)
        steps = [self._step(node, name) for node, name in zip(self.nodes, names, strict=True)]
        writer.scope.lines.extend(steps)
        _write_stores(writer, self.stores)
        for node in made.staged:
            writer.stage(node)
        if self.wide:
            assert made.vector is not None
            head = f"columns<{made.lanes}, U.value>(at, n, [&](i64_ {made.vector.name}, auto n, auto u) BODY {{"
            writer.leave(head, "});")
        flushes = [f"flush({total}, {name}_lost, {name});" for name, total in self.totals.items()]
        last = len(made.loops) - 1
        for depth in range(last, -1, -1):
            axis = made.loops[depth]
            if depth == strip and depth < last:
                writer.scope.lines.extend(flushes)
            if depth == strip and depth == last:
                self._stripped(axis, flushes)
            else:
                self._close(axis, "0", writer.extent(axis.size))

    def _close(self, axis: Axis, start: str, stop: str) -> None:
        made = self.made
        if axis is not made.vector:
            self.writer.leave(_for(axis, start, stop), "}")
            return
        unroll = made.unroll if self.nodes else 1
        left = axis.size % (made.lanes * unroll)
        rest = type(left) is not int or left >= made.lanes
        head = (
            f"sweep<{made.lanes}, {unroll}, {_flag(rest)}, {_flag(axis.size % made.lanes != 0)}>"
            f"({start}, {stop}, [&](i64_ {axis.name}, auto n, auto u) BODY {{"
        )
        self.writer.leave(head, "});")

    def _stripped(self, axis: Axis, flushes: list[str]) -> None:
        """The innermost loop in pieces, with a flush after each."""
        step = LONG_CHAIN * (self.made.lanes * self.made.unroll if axis is self.made.vector else 1)
        size = self.writer.extent(axis.size)
        self._close(axis, "strip", f"least(strip + {step}, {size})")
        lines = self.writer.scope.lines
        closing = lines.pop()
        start = max(i for i, line in enumerate(lines) if "= strip;" in line or "(strip, least" in line)
        inside = [*lines[start:], closing, *flushes]
        if type(axis.size) is not int and len(self.made.loops) == 1:  # what is short needs no totals
            inside = [*inside[: -len(flushes)], "if (strip) {", *["    " + line for line in flushes], "} else {"]
            count = "U.value" if self.wide else self.made.unroll if self.row else 1
            for name, total in self.totals.items():
                inside.append(f"    for (int u = 0; u < {count}; ++u) {total}[u] = {name}[u];")
                inside.append(f"    fill({name}, 0);")
            inside.append("}")
        del lines[start:]
        lines.append(f"for (i64_ strip = 0; strip < {size}; strip += {step}) {{")
        lines.extend("    " + line for line in inside)
        lines.append("}")
