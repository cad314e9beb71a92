"""Expressions to C++ statements: every node once, in the outermost scope where all it varies along is known.

A `Scope` is a piece of text inside one more loop than its parent. `Writer.value` gives the C++ name of a node and
writes its definition if there is none in sight, so common subexpressions are shared and loop-invariant ones leave the
loop by themselves. Nodes that vary along the vector axis are vectors, all others scalars, widened where they meet.
Loads under a `masked` are written once per mask and happen only where it holds. A loaded index is checked where it is
first used: outside of its bound it counts as 0, and `wrong` remembers which check failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stator.codegen.cpp import ops
from stator.codegen.cpp.plan import INT32, LoopPlan, guarded
from stator.codegen.cpp.tiles import place_in
from stator.kernel.facts import Axes
from stator.kernel.placement import Placement, Scope
from stator.loop import expr
from stator.loop.collision import scatters
from stator.loop.expr import Expr
from stator.loop.extent import less
from stator.loop.index import Atom, Axis, FloorDiv, Index, Indirect, Mod, indirect
from stator.loop.kernel import Store
from stator.sizes import Extent, Size

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


@dataclass(frozen=True, slots=True)
class Name:
    """A C++ variable (or literal): its text, register kind, and whether it is a vector."""

    text: str
    kind: str
    vector: bool


class Block(Scope[Name]):
    """Its statements, and what was made vectors of equal lanes there."""

    __slots__ = ("defined", "lines", "wides")

    def __init__(self, parent: Block | None, axes: Axes) -> None:
        super().__init__(parent, axes)
        self.lines: list[str] = []
        self.wides: dict[tuple[str, str], str] = {}
        self.defined: set[str] = set()

    def name(self, node: Expr | Indirect, mask: Expr | None, name: Name) -> None:
        self.names[node, mask] = name
        self.defined.add(name.text)


class Writer(Placement[Name]):
    """Writes the expressions of one kernel."""

    __slots__ = ("_count", "_sizes", "_staged", "checks", "live", "plan")

    def __init__(self, plan: LoopPlan) -> None:
        super().__init__(Block(None, frozenset()), plan.deps, guarded(plan))
        self.plan = plan
        self.live = "n"
        self.checks: dict[Extent, int] = {}  # the bounds that loaded indices are held to, each with its number
        self._count = 0
        self._sizes: dict[Size, str] = {}
        self._staged: dict[Expr, str] = {}

    # -- scopes

    def leave(self, head: str, tail: str) -> None:
        """Close the scope: its text goes to its parent between `head` and `tail`."""
        inner, parent = self.scope, self.scope.parent
        assert parent is not None
        self.scope = parent
        parent.lines.append(head)
        parent.lines.extend(["    " + line for line in inner.lines])
        parent.lines.append(tail)

    def fresh(self, letter: str = "t") -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def bind(self, node: Expr, held: Name) -> None:
        """Make a reduction's result known in this scope."""
        super().bind(node, held)
        self.scope.defined.add(held.text)

    # -- sizes

    def extent(self, value: Extent) -> str:
        """A size; what is computed from symbols gets a name at the top of the kernel."""
        text = ops.extent(value)
        if type(value) is not Size or text.isidentifier():
            return text
        return self._sizes.setdefault(value, f"z{len(self._sizes)}")

    def sizes(self) -> list[str]:
        """The definitions of all sizes asked for."""
        return [f"const i64_ {name} = {ops.extent(value)};" for value, name in self._sizes.items()]

    # -- values

    def define(self, node: Expr, mask: Expr | None) -> None:
        plan, home = self.plan, self.home(node, mask)
        axes = self.axes(node) | (self.axes(mask) if mask is not None else frozenset())
        kind = plan.kind(node)
        vector = plan.vector is not None and plan.vector in axes
        if node.op == "const":
            home.name(node, mask, Name(ops.number(kind, node.attr), kind, False))
            return
        here, self.scope = self.scope, home
        text = self._text(node, mask, kind, vector)
        self.scope = here
        scalar_load = text.startswith("load1(")  # the same for all lanes of a block, though not for all blocks
        if text.isidentifier():
            home.name(node, mask, Name(text, kind, vector))
            return
        name = self.fresh()
        home.lines.append(f"const auto {name} = {text};")
        home.name(node, mask, Name(name, kind, vector and not scalar_load))

    def _text(self, node: Expr, mask: Expr | None, kind: str, vector: bool) -> str:
        match node.op:
            case "load":
                return self._load(node, mask, vector)
            case "index":
                return self._position(node.attr, mask, kind, vector)
            case "masked":
                inner = self.both(mask, node.args[0])
                parts = [
                    self.operand(node.args[0], "mask", vector, mask),
                    self.operand(node.args[1], kind, vector, inner),
                    self.operand(node.args[2], kind, vector, mask),
                ]
                return f"select({', '.join(parts)})"
            case "random":
                return self._random(node, mask, vector)
            case "scan":
                return self._scan(node, kind, vector)
            case "cast":
                source = node.args[0]
                if kind == self.plan.kind(source) and node.dtype not in ops.WRAP and node.dtype != "bool":
                    return self.operand(source, kind, vector, mask)
                text = self.operand(source, self.plan.kind(source), vector, mask)
                dtype = "i32" if node in self.plan.narrow else node.dtype
                return ops.cast(source.dtype, dtype, text)
            case "known":
                return self.operand(node.args[0], kind, vector, mask)
            case "bitcast":
                text = self.operand(node.args[0], ops.KIND[node.args[0].dtype], vector, mask)
                return ops.bitcast(node.args[0].dtype, node.dtype, text)
            case "where":
                parts = [self.operand(node.args[0], "mask", vector, mask)]
                parts += [self.operand(arg, kind, vector, mask) for arg in node.args[1:]]
                return ops.operator("where", "", node.dtype, parts)
            case _:
                args = self._clamped(node, mask) if vector and node.op in COMPARISONS else node.args
                common = self._common(args, node)
                parts = [self.operand(arg, common, vector, mask) for arg in args]
                text = ops.operator(node.op, common, node.dtype, parts)
                return f"to_i32({text})" if kind == "i32" and common == "i64" else text

    def _scan(self, node: Expr, kind: str, vector: bool) -> str:
        """One step of a scan, whose state stands before the loops."""
        element, lanes, state = ops.ELEMENT[kind], self.plan.lanes, self.fresh("a")
        shape = f"V<{element}, {lanes}>" if vector else element
        start = ops.start(node.attr, kind, node.dtype)
        self.before.lines.append(f"{shape} {state} = splat<{shape}>({start});")
        value = self.operand(node.args[0], kind, vector)
        wrap = ops.WRAP.get(node.dtype, "")
        if vector and self.plan.vector in self.plan.kernel.reduce_axes:
            step = f"{wrap}({ops.COMBINE[node.attr].format('a', 'b')})"
            scan = ops.scan_along_lanes(node)
            return f"{scan}({state}, {value}, {self.live}, [](auto a, auto b) BODY {{ return {step}; }})"
        return f"({state} = {wrap}({ops.COMBINE[node.attr].format(state, value)}))"

    def _clamped(self, node: Expr, mask: Expr | None) -> tuple[Expr, ...]:
        """The operands of a comparison of lanes that fit in 32 bits with one wider number, which is made to fit.

        That is done once for all lanes; beyond either end of their range it compares as at the end.
        """
        plan, (left, right) = self.plan, node.args
        if {plan.kind(left), plan.kind(right)} != {"i32", "i64"}:
            return node.args
        narrow, wide = (left, right) if plan.kind(left) == "i32" else (right, left)
        ends = plan.ranges.numbers(narrow)
        if ends is None or not -INT32 < ends[0] <= ends[1] < INT32 - 1 or self.value(wide, mask).vector:
            return node.args
        low, high = (expr.const(end, "i64") for end in (ends[0] - 1, ends[1] + 1))
        held = expr.op("minimum", expr.op("maximum", wide, low), high)
        plan.narrow |= {held}
        return (narrow, held) if narrow is left else (held, narrow)

    def _common(self, args: Sequence[Expr], node: Expr) -> str:
        """The register kind in which an operator works: the wider one of its operands and its result."""
        kinds = {self.plan.kind(arg) for arg in args}
        if ops.KIND[node.dtype] == "i64":
            kinds.add(self.plan.kind(node))
        return "i64" if "i64" in kinds else kinds.pop()

    def operand(self, node: Expr, kind: str, vector: bool, mask: Expr | None = None) -> str:
        """The text of a node as a register of this kind, widened to a vector if asked."""
        name = self.value(node, mask)
        text = name.text
        if vector and not name.vector:
            return self._wide(text, kind, name.kind)
        return text if name.kind == kind else ops.convert(name.kind, kind, text)

    def _wide(self, text: str, kind: str, given: str) -> str:
        """A vector of equal lanes, written once, as far out as its scalar is known."""
        home = self.scope
        for scope in self.scope.chain():
            if (text, kind) in scope.wides:
                return scope.wides[text, kind]
            if not text.isidentifier() or text in scope.defined:
                home = scope
                if text.isidentifier():
                    break
        value = text if given == kind else ops.convert(given, kind, text)
        lanes = self.plan.lanes
        made = f"wide_mask<{lanes}>({value})" if kind == "mask" else f"wide<{ops.ELEMENT[kind]}, {lanes}>({value})"
        name = self.fresh("w")
        home.lines.append(f"const auto {name} = {made};")
        home.wides[text, kind] = name
        return name

    # -- rows that are kept between the loops over them

    def stage(self, node: Expr) -> None:
        """Keep a value that this loop over a row has computed, unless an earlier one did."""
        name = self.scope.names.get((node, None))
        axis = self.plan.vector
        if name is None or node in self._staged or axis is None:
            return
        kept = self._staged[node] = self.fresh("s")
        self.before.lines.append(f"{ops.ELEMENT[name.kind]} {kept}[{ops.extent(axis.size)}];")
        self.scope.lines.append(f"store<{self.plan.lanes}>({kept} + {axis.name}, {name.text}, {self.live});")

    def take_staged(self, node: Expr) -> None:
        """Read what an earlier loop over the row kept, if one did."""
        if node in self._staged and self.plan.vector is not None:
            name = self.fresh()
            text = f"load<{self.plan.lanes}>({self._staged[node]} + {self.plan.vector.name}, {self.live})"
            self.scope.lines.append(f"const auto {name} = {text};")
            self.scope.name(node, None, Name(name, self.plan.kind(node), True))

    # -- memory and positions

    def place(self, index: Index, mask: Expr | None = None, lane: str | None = None) -> str:
        """An index as C++; with `lane`, at that lane of the block. What it loads is loaded under the mask."""

        def atom_text(atom: object) -> str:
            match atom:
                case Axis():
                    return f"({atom.name} + {lane})" if lane and atom is self.plan.vector else atom.name
                case Indirect():
                    name = self._within(atom, mask)
                    return f"(i64_){name.text}[{lane}]" if name.vector and lane else f"(i64_){name.text}"
            inner = self.place(atom.inner, mask, lane)  # type: ignore[attr-defined]
            divisor = self.extent(atom.divisor)  # type: ignore[attr-defined]
            if isinstance(atom, FloorDiv):
                if atom.inner.nonnegative:
                    return f"(({inner}) / {divisor})"
                return f"floordiv_((i64_)({inner}), (i64_){divisor})"
            if atom.inner.nonnegative:  # type: ignore[attr-defined]
                return f"(({inner}) % {divisor})"
            return f"mod_((i64_)({inner}), (i64_){divisor})"

        parts = [atom_text(a) if c == 1 else f"{self.extent(c)}*{atom_text(a)}" for a, c in index.terms]
        if index.const != 0 or not parts:
            parts.append(self.extent(index.const))
        return " + ".join(parts)

    def _offsets(self, index: Index, mask: Expr | None) -> tuple[str, str, str] | None:
        """(where a block of lanes is, a vector of how far from there each is, its kind), if vectors tell that."""
        lanes, rest = self.plan.lanes, index
        parts: list[tuple[str, str, int]] = []
        reach: Extent = 0
        for atom, coefficient in index.terms:
            one = _alone(atom)
            if self._lane_stride(one, mask) is not None:
                continue
            found = self._of_lanes(atom, mask)
            if found is None or type(coefficient) is not int or not one.nonnegative or one.high is None:
                return None
            parts.append((*found, coefficient))
            rest = rest - one * coefficient
            reach += abs(coefficient) * one.high
        step = self.plan.lane_stride(rest)
        if type(step) is not int:
            return None
        narrow = less(reach + abs(step) * lanes, INT32) and all(part[1] == "i32" for part in parts)
        kind = "i32" if narrow else "i64"
        texts = [f"iota<{ops.ELEMENT[kind]}, {lanes}>() * {step}"] if step or not parts else []
        for text, given, coefficient in parts:
            text = text if given == kind else ops.convert(given, kind, text)
            texts.append(text if coefficient == 1 else f"{text} * {coefficient}")
        return self.place(rest, mask), " + ".join(texts), kind

    def _of_lanes(self, atom: Atom, mask: Expr | None) -> tuple[str, str] | None:
        """An atom that is different in each lane as a vector of some kind."""
        match atom:
            case Indirect():
                name = self._within(atom, mask)
                return name.text, name.kind
            case FloorDiv() | Mod() if type(atom.divisor) is int and atom.inner.within(INT32):
                found = self._offsets(atom.inner, mask)
                if found is None or found[2] != "i32":
                    return None
                text = f"(wide<int, {self.plan.lanes}>((int)({found[0]})) + {found[1]})"
                places, whole = atom.divisor.bit_length() - 1, isinstance(atom, FloorDiv)
                if atom.divisor == 1 << places:
                    return f"({text} {f'>> {places}' if whole else f'& {atom.divisor - 1}'})", "i32"
                return f"({text} {'/' if whole else '%'} {atom.divisor})", "i32"
        return None

    def _within(self, atom: Indirect, mask: Expr | None) -> Name:
        """A loaded index, checked once for each mask it is used under."""
        node: Expr = atom.expr  # type: ignore[assignment]
        name = self.value(node, mask)
        if self.plan.in_range(atom):
            return name
        found = self.find(atom, mask)
        if found is not None:
            return found
        here, self.scope = self.scope, self.home(node, mask)
        checked = Name(self.fresh(), name.kind, name.vector)
        number = self.checks.setdefault(atom.bound, len(self.checks) + 1)
        function = f"within<{self.plan.lanes}>" if name.vector else "within"
        text = f"{function}({name.text}, {self.extent(atom.bound)}, {self._needed(mask, name.vector)}, {number}, wrong)"
        self.scope.lines.append(f"const auto {checked.text} = {text};")
        self.scope.name(atom, mask, checked)
        self.scope = here
        return checked

    def _needed(self, mask: Expr | None, vector: bool) -> str:
        """Where a value under the mask is really used: a mask of lanes, or one flag for a scalar."""
        lanes = self.plan.lanes
        spread = mask is not None and self.value(mask).vector
        if not vector and not spread:
            return "true" if mask is None else self.operand(mask, "mask", False)
        text = f"live<{lanes}>({self.live})"
        if mask is not None:
            text = f"({self.operand(mask, 'mask', True)} & {text})"
        return text if vector else f"any<{lanes}>({text})"

    def _lane_stride(self, index: Index, mask: Expr | None) -> Extent | None:
        """How far apart the lanes read; None where each must be asked, as by an index loaded under a mask."""
        if any(self._within(atom, mask).vector for atom in index.indirects()):
            return None
        return self.plan.lane_stride(index)

    def _at_lane(self, index: Index, stride: Extent | None, mask: Expr | None = None) -> str:
        """The index at lane j, from the block's start where a stride is known."""
        if stride is None:
            return self.place(index, mask, "j")
        return f"{self.place(index, mask)} + {self.extent(stride)}*j" if stride != 0 else self.place(index, mask)

    def _load(self, node: Expr, mask: Expr | None, vector: bool) -> str:
        buffer, index = node.attr
        kind, stride = self.plan.kind(node), self._lane_stride(index, mask) if vector else 0
        if stride == 0 and (mask is None or not vector):
            text = f"load1({buffer}[{self.place(index, mask)}])"
            return text if mask is None else f"({self.operand(mask, 'mask', False)} ? {text} : {ops.number(kind, 0)})"
        if mask is None or self.value(mask).vector:
            return self._lanes(node, stride, mask, self.operand(mask, "mask", True) if mask is not None else "")
        nothing = f"V<{ops.ELEMENT[kind]}, {self.plan.lanes}>{{}}"  # all lanes are read, or none
        return f"({self.value(mask).text} ? {self._lanes(node, stride, mask, '')} : {nothing})"

    def _lanes(self, node: Expr, stride: Extent | None, mask: Expr | None, guard: str) -> str:
        """A vector of loads, each under its lane of the guard if there is one."""
        buffer, index = node.attr
        element, lanes, live = ops.ELEMENT[self.plan.kind(node)], self.plan.lanes, self.live
        if self.plan.tile is not None and self.plan.vector is not None and node in self.plan.tile.buffers:
            return f"load<{lanes}>({place_in(self.plan.tile, node, self.plan.vector)}, {live})"
        if stride == 1:
            where = f"{buffer} + {self.place(index, mask)}"
            return f"load_if<{lanes}>({where}, {guard}, {live})" if guard else f"load<{lanes}>({where}, {live})"
        if stride == 0 and not guard:
            return f"wide<{element}, {lanes}>(load1({buffer}[{self.place(index, mask)}]))"
        if stride == -1 and not guard:
            return f"load_back<{lanes}>({buffer} + {self.place(index, mask)}, {live})"
        if stride == 2 and not guard:
            return f"load_even<{lanes}{self._part(buffer, index)}>({buffer} + {self.place(index, mask)}, {live})"
        if (offsets := self._offsets(index, mask)) is not None:
            where = f"{buffer} + {offsets[0]}, {offsets[1]}"
            if guard:
                return f"gather_if<{element}, {lanes}>({where}, {guard}, {live})"
            return f"gather<{element}, {lanes}>({where}, {live})"
        at = f"[&](int j) BODY {{ return load1({buffer}[{self._at_lane(index, stride, mask)}]); }}"
        if guard:
            return f"lanes_if<{element}, {lanes}>({guard}, {live}, {at})"
        return f"lanes<{element}, {lanes}>({live}, {at})"

    def _part(self, buffer: str, index: Index) -> str:
        """Which numbers of pairs these are, where all of the buffer is pairs."""
        numel = next(param.numel for param in self.plan.kernel.params if param.name == buffer)
        if type(numel) is not int or numel % 2:
            return ""
        return ", 0" if index.divisible_by(2) else ", 1" if (index - 1).divisible_by(2) else ""

    def _position(self, index: Index, mask: Expr | None, kind: str, vector: bool) -> str:
        element, lanes = ops.ELEMENT[kind], self.plan.lanes
        if not vector:
            return f"({element})({self.place(index, mask)})"
        stride = self._lane_stride(index, mask)
        if stride is None and (found := self._offsets(index, mask)) is not None and found[2] == kind:
            return f"wide<{element}, {lanes}>(({element})({found[0]})) + {found[1]}"
        if stride is None:
            at = f"[&](int j) BODY {{ return ({element})({self.place(index, mask, 'j')}); }}"
            return f"lanes<{element}, {lanes}>({self.live}, {at})"
        start = f"wide<{element}, {lanes}>(({element})({self.place(index, mask)}))"
        steps = f"iota<{element}, {lanes}>()" + (f" * ({element}){self.extent(stride)}" if stride != 1 else "")
        return f"{start} + {steps}" if stride != 0 else start

    def _random(self, node: Expr, mask: Expr | None, vector: bool) -> str:
        seed = self.operand(node.args[0], "i64", False, mask)
        counter = self.plan.kind(node.args[1])
        at = self.operand(node.args[1], counter if vector else "i64", vector, mask)
        text = f"{node.attr}_<{self.plan.lanes}>({seed}, {at})" if vector else f"{node.attr}_({seed}, {at})"
        return text if node.dtype == "f32" else ops.cast("f32", node.dtype, text)

    def store(self, item: Store) -> tuple[list[str], str]:
        """Names the value and the place of a store; the statement is to be written after all of the scope's values."""
        plan, index, lanes = self.plan, item.index, self.plan.lanes
        kind = ops.KIND[item.value.dtype]
        stride = plan.lane_stride(index)
        spread = plan.vector is not None and plan.vector in self.scope.axes
        vector = spread and (stride != 0 or scatters(item))  # what scatters does so for every lane
        text = self.operand(item.value, kind, vector)
        place = self.place(index)
        if not vector:
            return [], self._store1(item, place, text)
        where = f"{item.buffer} + {place}"
        if stride == 1:
            if item.mode not in ("store", "put"):
                text = ops.operator(item.mode, kind, item.value.dtype, [f"load<{lanes}>({where}, {self.live})", text])
            return [], f"store<{lanes}>({where}, {text}, {self.live});"
        if stride == -1 and item.mode == "store":
            return [], f"store_back<{lanes}>({where}, {text}, {self.live});"
        name = self.fresh()
        lane = f"({name}[j] != 0)" if kind == "mask" else f"{name}[j]"
        body = f"[&](int j) BODY {{ {self._store1(item, self._at_lane(index, stride), lane)} }}"
        return [f"const auto {name} = {text};"], f"each<{lanes}>({self.live}, {body});"

    def is_pair(self, even: Store, odd: Store) -> bool:
        """Whether two stores write numbers that lie in turn."""
        if even.buffer != odd.buffer or even.mode != "store" or odd.mode != "store":
            return False
        if self.plan.vector is None or self.plan.vector not in self.scope.axes:
            return False
        return odd.index - even.index is Index.of(1) and self.plan.lane_stride(even.index) == 2

    def store_pair(self, even: Store, odd: Store) -> tuple[list[str], str]:
        """As `store`, for both stores of a pair."""
        kind, lanes = ops.KIND[even.value.dtype], self.plan.lanes
        parts = ", ".join([self.operand(item.value, kind, True) for item in (even, odd)])
        return [], f"store_pairs<{lanes}>({even.buffer} + {self.place(even.index)}, {parts}, {self.live});"

    @staticmethod
    def _store1(item: Store, place: str, text: str) -> str:
        """One element, combined with what is there in the mode of the store."""
        if item.mode not in ("store", "put"):
            held = f"load1({item.buffer}[{place}])"
            text = ops.operator(item.mode, ops.KIND[item.value.dtype], item.value.dtype, [held, text])
        return f"store1({item.buffer} + {place}, {text});"


def _alone(atom: Atom) -> Index:
    """The index that is one atom of another."""
    match atom:
        case Axis():
            return atom.index
        case Indirect():
            return indirect(atom.expr, atom.bound)
        case FloorDiv():
            return atom.inner // atom.divisor
        case _:
            return atom.inner % atom.divisor
