"""One kernel as a `@triton.jit` function.

Every expression node becomes one line `t<i> = …`, written once in each scope that needs it. Scopes: the outer scope
(blocks [X, 1], or [X] without reduce axes) and, for reductions that do not fit in one block, a loop over the reduce
axes for each level. Invariant: a line only uses names of its own scope and of the outer one. A loaded index out of its
bound stops the device, as eager's kernels do, and nothing is touched there. Triton widens the mask of a load to its
pointers, never the other way round, so the writer knows of each name whether it has the lanes of x, of r, of both or of
none, and widens the pointers where the mask has more. Symbolic sizes are arguments, on whose
values nothing is specialised; the launcher computes the grid, and whether positions need 64 bits.
Neighbours: `blocks.py` gives the shape, `operators.py` the spellings; `loop.kernel` says what a kernel means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stator.codegen.triton import special_functions
from stator.codegen.triton.blocks import Blocks, choose
from stator.codegen.triton.operators import ATOMICS, PREAMBLE, REDUCTIONS, SCANS, TYPES, spelling
from stator.loop import scalar
from stator.loop.expr import Expr, op
from stator.loop.extent import wrapped
from stator.loop.index import Axis, Index, Indirect
from stator.loop.kernel import Kernel, Store, kernel_name
from stator.loop.magnitude import reach
from stator.loop.ranges import Ranges
from stator.sizes import Extent, Size

SIGNED = frozenset(("i8", "i16", "i32", "i64"))
#: What a name varies along: the outer points of a program, the points of its reduce axes, both or nothing.
NO_LANES: frozenset[str] = frozenset()
X_LANES, R_LANES = frozenset("x"), frozenset("r")


def emit(kernels: Sequence[Kernel], names: Sequence[str] = ()) -> str:
    """A Python file with a kernel and `launch_<its name>` for each, called k0, k1, … where they have no names."""
    parts = [PREAMBLE]
    if any(node.op in special_functions.SPELLING for kernel in kernels for node in kernel.nodes):
        parts.append(special_functions.PREAMBLE)
    for kernel, name in zip(kernels, names or map(kernel_name, range(len(kernels))), strict=True):
        blocks = choose(kernel)
        parts.append(emit_kernel(kernel, name, blocks))
        parts.append(_launcher(kernel, name, blocks))
    return "\n\n".join(parts)


def emit_kernel(kernel: Kernel, name: str, blocks: Blocks) -> str:
    """The text of one kernel as a Triton function."""
    return _Writer(kernel, blocks).function(name)


def _launcher(kernel: Kernel, name: str, blocks: Blocks) -> str:
    names = ", ".join([param.name for param in kernel.params] + [symbol.name for symbol in kernel.symbols])
    sizes = f"X={blocks.x}, R={blocks.r}, num_warps={blocks.warps}, enable_fp_fusion=False"
    if checks_indices(kernel):
        sizes += ", debug=True, sanitize_overflow=False"  # without `debug`, Triton drops assertions
    if kernel.symbols:
        sizes = f"WIDE={' or '.join(f'{most} >= {limit}' for most, limit in _counted(kernel)) or False}, {sizes}"
    return f"def launch_{name}({names}):\n    {name}[({blocks.grid},)]({names}, {sizes})"


def _counted(kernel: Kernel) -> list[tuple[Extent, int]]:
    """What a kernel counts to that int32 may not hold, and from where on; points are counted past the end."""
    indices = [
        node.attr[1] if node.op == "load" else node.attr for node in kernel.nodes if node.op in ("load", "index")
    ]
    indices += [store.index for store in kernel.stores]
    ends = [(points, 2**30) for points in (kernel.outer_numel, kernel.reduce_numel)]
    ends += [(count, 2**31) for count in [*[param.numel for param in kernel.params], *[reach(i) + 1 for i in indices]]]
    return [(end, limit) for end, limit in dict.fromkeys(ends) if type(end) is Size or end >= limit]


def checks_indices(kernel: Kernel) -> bool:
    """Whether it points with integers that it loads."""
    positions = [store.index for store in kernel.stores]
    positions += [
        node.attr[1] if node.op == "load" else node.attr for node in kernel.nodes if node.op in ("load", "index")
    ]
    return any(position.has_indirect for position in positions)


@dataclass
class _Scope:
    """Lines at one depth, the nodes that have names in it, and the masks its loads stand under."""

    indent: str
    names: dict[tuple[Expr | Indirect, Expr | None], str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)

    def name(self, key: tuple[Expr | Indirect, Expr | None], name: str) -> None:
        self.names[key] = name
        self.given.add(name)

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)


class _Writer:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, blocks: Blocks) -> None:
        self.kernel, self.blocks = kernel, blocks
        self.reduced = frozenset(kernel.reduce_axes)
        self.flat = not kernel.reduce_axes
        self.outer = _Scope("    ")
        self.inner: _Scope | None = None
        #: Of each name of a value the lanes that it has.
        self.lanes: dict[str, frozenset[str]] = {}
        #: Of a mask inside of another: the outer one.
        self.wider: dict[Expr, Expr] = {}
        self.count = 0
        self.ranges = Ranges()
        self.written = {param.name for param in kernel.params if param.role == "inout"}
        self.wide = not kernel.symbols and bool(_counted(kernel))

    # -- the function --------------------------------------------------------------------------------

    def function(self, name: str) -> str:
        self._head()
        for level in range(self.kernel.levels):
            self._reductions(level)
        inner = [s for s in self.kernel.stores if s.space == "inner" and not self._early(s)]
        if inner and not self.flat:
            self._open()
            for value in inner:
                self._value(value.value)
            for store in inner:
                self._store(store)
            self._close()
        outer = [s for s in self.kernel.stores if s.space == "outer" or self.flat]
        for store in outer:
            self._value(store.value)
        for store in outer:
            self._store(store)
        params = ", ".join([*[p.name for p in self.kernel.params], *[s.name for s in self.kernel.symbols]])
        wide = ", WIDE: tl.constexpr" if self.kernel.symbols else ""
        head = f"{self._decorator()}\ndef {name}({params}, X: tl.constexpr, R: tl.constexpr{wide}):"
        return "\n".join([head, *self.outer.lines])

    def _decorator(self) -> str:
        """A single element may lie anywhere: its alignment is worth no second binary. Nor are values of sizes."""
        single = [param.name for param in self.kernel.params if param.numel == 1 and param.role == "in"]
        given = [f"do_not_specialize={[symbol.name for symbol in self.kernel.symbols]}"] if self.kernel.symbols else []
        given += [f"do_not_specialize_on_alignment={single}"] if single else []
        return f"@triton.jit({', '.join(given)})" if given else "@triton.jit"

    def _head(self) -> None:
        kernel, add = self.kernel, self.outer.add
        if kernel.symbols:
            add("first, base = tl.program_id(0), tl.arange(0, R)")
            add("if WIDE:")
            for name in ("first", "base", *[symbol.name for symbol in kernel.symbols]):
                add(f"    {name} = {name}.to(tl.int64)")
            add("x = first * X + tl.arange(0, X)")
        else:
            add("x = tl.program_id(0)" + (".to(tl.int64)" if self.wide else "") + " * X + tl.arange(0, X)")
        if not self.flat:
            add("x = x[:, None]")
        add(f"xm = x < {kernel.outer_numel}")
        self._axes(self.outer, "x", kernel.axes)
        if not self.flat:
            lanes = "base" if kernel.symbols else "tl.arange(0, R)"
            add(f"base = {lanes}[None, :]" + (".to(tl.int64)" if self.wide else ""))
            if self.blocks.persistent:
                self._range(self.outer, "base")

    def _range(self, scope: _Scope, text: str) -> None:
        scope.add(f"r = {text}")
        scope.add(f"rm = r < {self.kernel.reduce_numel}")
        self._axes(scope, "r", self.kernel.reduce_axes)

    @staticmethod
    def _axes(scope: _Scope, flat: str, axes: tuple[Axis, ...]) -> None:
        for position, axis in enumerate(axes):
            step = wrapped(math.prod([later.size for later in axes[position + 1 :]]))
            text = flat if step == "1" else f"{flat} // {step}"
            if position:
                text = f"{text} % {wrapped(axis.size)}" if step == "1" else f"({text}) % {wrapped(axis.size)}"
            scope.add(f"{axis.name} = {text}")

    # -- loops over the reduce axes --------------------------------------------------------------------

    def _open(self) -> None:
        """Start a loop over the reduce axes; a persistent block is the whole range, so there is none."""
        if self.blocks.persistent:
            return
        self.inner = _Scope("        ")
        self._range(self.inner, "start + base")

    def _close(self) -> None:
        """End the loop. Lines of the outer scope that its body asked for stand before its head by then."""
        if self.inner is not None:
            end = str(self.kernel.reduce_numel)
            if self.wide:  # Triton takes a number past 2**31 for an unsigned one
                end = f"tl.full([], {end}, tl.int64)"
            self.outer.add(f"for start in range(0, {end}, R):")
            self.outer.lines += self.inner.lines
            self.inner = None

    def _early(self, store: Store) -> bool:
        """Whether an inner store goes into the loop of its level instead of one more loop at the end."""
        return store.buffer not in self.written and store.value.level < self.kernel.levels and store.mode == "store"

    def _reductions(self, level: int) -> None:
        nodes = [n for n in self.kernel.nodes if n.op == "reduce" and n.level == level + 1]
        names = {node: self._fresh() for node in nodes}
        if not self.blocks.persistent:
            for node in nodes:
                self._start(node, names[node])
        self._open()
        for node in nodes:
            self._accumulate(node, names[node])
        for store in self.kernel.stores:
            if store.space == "inner" and self._early(store) and store.value.level == level:
                self._value(store.value)
                self._store(store)
        self._close()
        for node in nodes:
            self._finish(node, names[node])
            self.outer.name((node, None), names[node])
            self.lanes[names[node]] = X_LANES

    def _start(self, node: Expr, name: str) -> None:
        dtype, add = node.args[0].dtype, self.outer.add
        if node.attr.startswith("arg"):
            first = _literal(scalar.identity(node.attr, dtype), dtype)
            add(f"{name} = tl.full([X, R], {first}, {TYPES[dtype]})")
            add(f"{name}p = tl.full([X, R], {2**62}, tl.int64)")
        else:
            add(f"{name} = tl.full([X, R], {self._identity(node)}, {TYPES[dtype]})")

    @staticmethod
    def _identity(node: Expr) -> str:
        dtype = node.args[0].dtype
        value = scalar.identity(node.attr, dtype)
        return str(int(value)) if dtype == "bool" else _literal(value, dtype)

    def _accumulate(self, node: Expr, name: str) -> None:
        body, dtype = node.args[0], node.args[0].dtype
        value = self._value(body)
        scope = self.inner or self.outer
        constant = body.op == "const"
        block = f"tl.full([X, R], {value}, {TYPES[dtype]})" if constant else f"tl.broadcast_to({value}, [X, R])"
        if node.attr.startswith("arg"):
            merge = "_arg_max" if node.attr == "argmax" else "_arg_min"
            first = _literal(scalar.identity(node.attr, dtype), dtype)
            scope.add(f"{name}v = tl.where(rm, {block}, {first})")
            scope.add(f"{name}q = tl.where(rm, tl.broadcast_to(r, [X, R]).to(tl.int64), {2**62})")
            if self.inner is None:
                scope.add(f"{name}, {name}p = {name}v, {name}q")
            else:
                scope.add(f"{name}, {name}p = {merge}({name}, {name}p, {name}v, {name}q)")
            return
        kept = f"tl.where(rm, {block}, {self._identity(node)})"
        if dtype == "bool":
            kept += ".to(tl.int1)"
        if self.inner is None:
            scope.add(f"{name} = {kept}")
        else:
            scope.add(f"{name} = {REDUCTIONS[node.attr][1].format(name, kept)}")

    def _finish(self, node: Expr, name: str) -> None:
        if node.attr.startswith("arg"):
            merge = "_arg_max" if node.attr == "argmax" else "_arg_min"
            self.outer.add(f"_, {name} = tl.reduce(({name}, {name}p), 1, {merge})")
            self.outer.add(f"{name} = {name}[:, None]")
        else:
            self.outer.add(f"{name} = {REDUCTIONS[node.attr][2].format(name)}[:, None]")
            if node.attr in ("sum", "prod") and node.dtype not in ("f32", "f64"):
                self.outer.add(f"{name} = {name}.to({TYPES[node.dtype]})")

    # -- values ------------------------------------------------------------------------------------------

    def _fresh(self) -> str:
        self.count += 1
        return f"t{self.count - 1}"

    def _scope(self, node: Expr) -> _Scope:
        return self.inner if self.inner is not None and node in self.kernel.inner else self.outer

    def _value(self, root: Expr, mask: Expr | None = None) -> str:
        """The name of a node's value, written with all it needs; `mask` is what its loads stand under."""
        pending = [root]
        while pending:
            node = pending[-1]
            if self._known(node, mask):
                pending.pop()
                continue
            below = _below(node)
            missing = [child for child in below if not self._known(child, mask)]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            self._write(node, mask)
        return self._name(root, mask)

    def _known(self, node: Expr, mask: Expr | None) -> bool:
        return node.op == "const" or self._find(node, mask) is not None

    def _find(self, node: Expr, mask: Expr | None) -> str | None:
        """The name it has under this mask, or under a wider one, in the scope at hand or the outer one."""
        masks = [mask]
        while masks[-1] is not None:
            masks.append(self.wider.get(masks[-1]))
        for scope in (self.inner, self.outer):
            if scope is not None:
                found = next((name for mask in masks if (name := scope.names.get((node, mask))) is not None), None)
                if found is not None:
                    return found
        return None

    def _name(self, node: Expr, mask: Expr | None) -> str:
        if node.op == "const":
            return _literal(node.attr, node.dtype)
        found = self._find(node, mask)
        assert found is not None, f"{node} has no value yet"
        return found

    def _in_loop(self, node: Expr | None, mask: Expr | None) -> bool:
        """Whether the name of a value is one of the loop's: what uses it is written there too."""
        if node is None or node.op == "const" or self.inner is None:
            return False
        return self._name(node, mask) in self.inner.given

    def _write(self, node: Expr, mask: Expr | None) -> None:
        scope = self._scope(node)
        if node.op == "scan":
            self._scan(node, scope)
            return
        if mask is not None and self.inner is not None and self._in_loop(mask, None):
            scope = self.inner
        text = self._text(node, mask)
        name = self._fresh()
        scope.add(f"{name} = {text}")
        scope.name((node, mask if self._has_load(node) else None), name)
        self.lanes[name] = self._lanes_of(node, mask)

    def _lanes_of(self, node: Expr, mask: Expr | None) -> frozenset[str]:
        """The lanes of a value, whose operands have names by now."""
        match node.op:
            case "load":
                return self._lanes_at(node.attr[1], mask) | self._lanes(mask, None)
            case "index":
                return self._lanes_at(node.attr, mask)
            case "masked":
                condition, body, other = node.args
                joined = condition if mask is None else op("and", mask, condition)
                return self._lanes(condition, mask) | self._lanes(body, joined) | self._lanes(other, mask)
            case _:
                return NO_LANES.union(*[self._lanes(arg, mask) for arg in node.args])

    def _lanes(self, node: Expr | None, mask: Expr | None) -> frozenset[str]:
        return NO_LANES if node is None or node.op == "const" else self.lanes[self._name(node, mask)]

    def _lanes_at(self, index: Index, mask: Expr | None) -> frozenset[str]:
        """The lanes of a position: those of its axes, and those of what it loads through."""
        axes = _axes_of(index)
        lanes = (X_LANES if axes - self.reduced else NO_LANES) | (R_LANES if axes & self.reduced else NO_LANES)
        return lanes.union(*[self._lanes(atom.expr, mask) for atom in index.indirects()])  # type: ignore[arg-type]

    @staticmethod
    def _has_load(node: Expr) -> bool:
        pending, seen = [node], set()
        while pending:
            one = pending.pop()
            if one.op == "load":
                return True
            if one.op not in ("reduce", "scan"):
                new = [child for child in one.children() if child not in seen]
                seen.update(new)
                pending.extend(new)
        return False

    def _scan(self, node: Expr, scope: _Scope) -> None:
        """A block, and what was before it where a row takes several. It goes on whatever mask its value is used under.

        Lanes past the end come last and are seen by nobody.
        """
        value, dtype, join = self._value(node.args[0], None), TYPES[node.dtype], SCANS[node.attr]
        name = self._fresh()
        value = self._typed(node.args[0], value)
        scope.add(f"{name} = tl.associative_scan(tl.broadcast_to({value}, [X, R]), 1, {join})")
        if self.inner is not None:
            first = _literal(scalar.identity(node.attr, node.dtype), node.dtype)
            self.outer.add(f"{name}_before = tl.full([X, 1], {first}, {dtype})")
            scope.add(f"{name} = {join}({name}_before, {name})")
            scope.add(f"{name}_before = tl.sum(tl.where(base == R - 1, {name}, 0), 1)[:, None].to({dtype})")
        scope.name((node, None), name)
        self.lanes[name] = X_LANES | R_LANES

    def _text(self, node: Expr, mask: Expr | None) -> str:
        args = [self._name(arg, mask) for arg in node.args] if node.op != "masked" else []
        match node.op:
            case "load":
                return self._load(node, mask)
            case "index":
                return f"({self._index(node.attr, mask)}).to(tl.int64)"
            case "cast":
                return self._cast(node, args[0])
            case "known":
                return args[0]
            case "bitcast":
                return f"{self._typed(node.args[0], args[0])}.to({TYPES[node.dtype]}, bitcast=True)"
            case "random":
                seed, number = (self._typed(arg, name) for arg, name in zip(node.args, args, strict=True))
                drawn = f"_{node.attr}({seed}, {number})"
                return drawn if node.dtype == "f32" else f"{drawn}.to({TYPES[node.dtype]})"
            case "masked":
                return self._masked(node, mask)
            case _:
                dtype = node.args[-1].dtype if node.args else node.dtype
                return spelling(node.op, dtype).format(*self._operands(node, args))

    def _operands(self, node: Expr, args: list[str]) -> list[str]:
        """Names of operands; when all are constants, or one is not a float, constants get their dtype said."""
        shown = []
        for arg, name in zip(node.args, args, strict=True):
            typed = arg.op == "const" and (
                node.op in ("div", "shl", "shr", "pow")
                or node.op in special_functions.SPELLING
                or arg.dtype not in ("f32", "i32")
                or all(a.op == "const" for a in node.args)
            )
            shown.append(f"tl.full([], {name}, {TYPES[arg.dtype]})" if typed else name)
        return shown

    @staticmethod
    def _typed(node: Expr, name: str) -> str:
        """A constant as a tensor of its dtype; any other node by its name."""
        return f"tl.full([], {name}, {TYPES[node.dtype]})" if node.op == "const" else name

    def _cast(self, node: Expr, value: str) -> str:
        source = node.args[0]
        value = self._typed(source, value)
        if node.dtype == "bool":
            return f"({value} != 0)"
        if source.dtype in scalar.FLOATS and node.dtype in scalar.INTEGERS:
            wide = "_double" if source.dtype == "f64" else ""
            value = f"{wide}_whole_{64 if node.dtype in ('i64', 'u8') else 32}({value})"
        elif (source.dtype, node.dtype) in (("f64", "f16"), ("f64", "bf16")):
            value = f"{value}.to(tl.float32)"  # eager rounds twice
        elif node.dtype in scalar.FLOATS and source.dtype in SIGNED and source.op not in ("load", "const"):
            known = self.ranges.numbers(source)
            converted = source.op == "cast" and source.args[0].dtype in scalar.FLOATS
            if not converted and (known is None or known[0] < 0):
                value = f"_signed({value}, tl.{'float64' if node.dtype == 'f64' else 'float32'})"
        if node.dtype == "i16" and source.dtype in ("i32", "i64", *scalar.FLOATS):
            return f"_short({value})"
        return f"{value}.to({TYPES[node.dtype]})"

    def _masked(self, node: Expr, mask: Expr | None) -> str:
        """The body is written under the mask joined with the one around it."""
        condition, body, other = node.args
        joined = condition if mask is None else op("and", mask, condition)
        if mask is not None and joined is not mask:
            self.wider.setdefault(joined, mask)
        if joined is not condition and not self._known(joined, None):
            self._write_joined(joined, mask, condition)
        value = self._value(body, joined)
        name, rest = self._name(condition, mask), self._name(other, mask)
        if body.op == "const" and other.op == "const":
            value = f"tl.full([], {value}, {TYPES[body.dtype]})"
        return f"tl.where({name}, {value}, {rest})"

    def _write_joined(self, joined: Expr, mask: Expr | None, condition: Expr) -> None:
        left, right = self._name(mask, None) if mask is not None else "", self._name(condition, mask)
        name = self._fresh()
        inside = self._in_loop(mask, None) or self._in_loop(condition, mask)
        scope = self.inner if inside and self.inner is not None else self.outer
        scope.add(f"{name} = {left} & {right}")
        scope.name((joined, None), name)
        self.lanes[name] = self._lanes(mask, None) | self._lanes(condition, mask)

    # -- memory ------------------------------------------------------------------------------------------

    def _index(self, index: Index, mask: Expr | None) -> str:
        loaded = {atom.expr: atom for atom in index.indirects()}
        return index.render(lambda expr: self._within(loaded[expr], mask))

    def _within(self, atom: Indirect, mask: Expr | None) -> str:
        """A loaded index after its check, written once for each mask it stands under."""
        node: Expr = atom.expr  # type: ignore[assignment]
        for scope in (self.inner, self.outer):
            if scope is not None and (atom, mask) in scope.names:
                return scope.names[atom, mask]
        guard = self._guard(self._lanes(node, mask))
        if mask is not None:
            guard.append(self._name(mask, None))
        inside = self._in_loop(node, mask) or self._in_loop(mask, None)
        scope = self.inner if inside and self.inner is not None else self.outer
        loaded = self._typed(node, self._name(node, mask))
        text = f"_within({loaded}, {atom.bound}, {' & '.join(guard) or 'True'})"
        name = self._fresh()
        scope.add(f"{name} = {text}")
        scope.name((atom, mask), name)
        return name

    @staticmethod
    def _guard(lanes: frozenset[str]) -> list[str]:
        return [f"{letter}m" for letter in ("x", "r") if letter in lanes]

    def _load(self, node: Expr, mask: Expr | None) -> str:
        buffer, index = node.attr
        lanes = self._lanes_at(index, mask)
        parts = self._guard(lanes)
        place = self._index(index, mask)
        if mask is not None:
            parts.append(self._name(mask, None))
            place = " + ".join([place, *[f"{letter} * 0" for letter in sorted(self._lanes(mask, None) - lanes)]])
        text = f"{buffer} + ({place})"
        return f"tl.load({text}, {' & '.join(parts)}, other=0)" if parts else f"tl.load({text})"

    def _store(self, store: Store) -> None:
        inner = store.space == "inner" and not self.flat
        shape, guard = ("[X, R]", "xm & rm") if inner else ("[X]" if self.flat else "[X, 1]", "xm")
        scope = (self.inner or self.outer) if inner else self.outer
        for atom in store.index.indirects():
            self._value(atom.expr)  # type: ignore[arg-type]
        value = self._value(store.value)
        if store.value.op == "const":
            value = f"tl.full({shape}, {value}, {TYPES[store.value.dtype]})"
        place = f"{store.buffer} + tl.broadcast_to({self._index(store.index, None)} + x * 0, {shape})"
        if store.mode in ("store", "put"):
            scope.add(f"tl.store({place}, tl.broadcast_to({value}, {shape}), {guard})")
        else:
            function = ATOMICS[store.mode]
            scope.add(f"{function}({place}, tl.broadcast_to({value}, {shape}), {guard}, sem='relaxed')")


def _below(node: Expr) -> tuple[Expr, ...]:
    """What is written before it, under the same mask."""
    match node.op:
        case "masked":
            return node.args[0], node.args[2]
        case "scan":
            return ()
    return node.children()


def _axes_of(index: Index) -> frozenset[Axis]:
    """The axes of a position itself, without those of what it loads through, which may be a reduction over them."""
    found: set[Axis] = set()
    for atom, _ in index.terms:
        if isinstance(atom, Axis):
            found.add(atom)
        elif not isinstance(atom, Indirect):
            found |= _axes_of(atom.inner)
    return frozenset(found)


def _literal(value: object, dtype: str) -> str:
    if dtype == "bool":
        return "True" if value else "False"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    return str(value)
