"""Positions, loads and stores of the kernel IR in C++: one element, or a block of lanes at the steps that it has.

How a block of lanes is loaded follows from by how much a lane moves the index (`lanes.Lanes.stride`): together, at
every other place, backwards, or each at an address of its own. Neighbour: `printer`, whose base this is.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator.codegen.cpp import ops
from stator.codegen.cpp.lanes import Lanes
from stator.codegen.places import place
from stator.kernel.facts import INT32
from stator.kernel.ir import Function, Literal, Load, Loop, Operand, Position, Scratch, Store, Value, Within, walk
from stator.loop.extent import less
from stator.loop.index import Atom, Axis, FloorDiv, Index, Indirect, Mod, indirect
from stator.sizes import Extent, Size


@dataclass(frozen=True, slots=True)
class Name:
    """A C++ variable or literal: its text, register kind, and whether it is a vector."""

    text: str
    kind: str
    vector: bool = False


class Block:
    """Lines of a C++ block, what it defines, and what was made vectors of equal lanes there."""

    __slots__ = ("defined", "lines", "parent", "wides")

    def __init__(self, parent: Block | None) -> None:
        self.parent = parent
        self.lines: list[str] = []
        self.defined: set[str] = set()
        self.wides: dict[tuple[str, str], str] = {}


class Memory:
    """Texts of operands, positions and accesses, at one place of a function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.lanes = Lanes.of(function)
        self.sizes: dict[Size, str] = {}  # those that are computed, by name
        self.block = Block(None)
        self.loop: Loop | None = None  # the loop of lanes that is being written
        self.names: dict[Value, Name] = {}
        self.numels = {param.name: param.numel for param in function.params}
        self.elements = {param.name: param.dtype for param in function.params}
        self.scratch = {s.name: s for s in walk(function.body) if isinstance(s, Scratch)}
        self._count = 0

    @property
    def width(self) -> int:
        """How many lanes there are."""
        assert self.loop is not None
        return self.loop.lanes

    def extent(self, value: Extent) -> str:
        """A size; what is computed from symbols gets a name at the top of the kernel."""
        text = ops.WHOLE.extent(value)
        if type(value) is not Size or text.isidentifier():
            return text
        return self.sizes.setdefault(value, f"z{len(self.sizes)}")

    # ---- operands

    def define(self, text: str, name: str) -> None:
        """A constant of this block."""
        self.block.lines.append(f"const auto {name} = {text};")
        self.block.defined.add(name)

    def named(self, operand: Operand) -> Name:
        """How an operand is called here."""
        if isinstance(operand, Literal):
            kind = ops.KIND[operand.dtype]
            return Name(ops.number(kind, operand.number), kind)
        return self.names[operand]

    def operand(self, operand: Operand, vector: bool, kind: str = "") -> str:
        """The text of an operand, in another register kind than its own, and widened to a vector, if asked."""
        name = self.named(operand)
        kind = kind or name.kind
        if vector and not name.vector:
            return self._wide(name, kind, isinstance(operand, Literal))
        return name.text if name.kind == kind else ops.convert(name.kind, kind, name.text)

    def _wide(self, name: Name, kind: str, literal: bool) -> str:
        """A vector of equal lanes, written once, as far out as its scalar is known."""
        text, home, block = name.text, self.block, self.block
        while block is not None:
            if (text, kind) in block.wides:
                return block.wides[text, kind]
            if literal or text in block.defined:
                home = block
                if not literal:
                    break
            block = block.parent  # type: ignore[assignment]
        value = text if name.kind == kind else ops.convert(name.kind, kind, text)
        width = self.width
        made = f"wide_mask<{width}>({value})" if kind == "mask" else f"wide<{ops.ELEMENT[kind]}, {width}>({value})"
        self._count += 1
        wide = home.wides[text, kind] = f"w{self._count}"
        home.lines.append(f"const auto {wide} = {made};")
        return wide

    # ---- positions

    def place(self, index: Index, lane: str | None = None) -> str:
        """An index; with `lane`, at that lane of the block."""

        def leaf(atom: Axis | Indirect) -> str:
            if isinstance(atom, Axis):
                return f"({atom.name} + {lane})" if lane and self.loop and atom is self.loop.axis else atom.name
            name = self.names[atom.expr]  # type: ignore[index]
            return f"(i64_){name.text}[{lane}]" if name.vector and lane else f"(i64_){name.text}"

        return place(index, leaf, self.extent, ops.WHOLE.divide)

    def stride(self, index: Index) -> Extent | None:
        """By how much a lane moves the index, or None where that is not constant."""
        return self.lanes.stride(index, self.loop)

    def _offsets(self, index: Index) -> tuple[str, str, str] | None:
        """(where a block of lanes is, a vector of how far from there each is, its kind), if vectors tell that."""
        rest, reach = index, 0
        parts: list[tuple[str, str, int]] = []
        for atom, coefficient in index.terms:
            one = _alone(atom)
            if self.stride(one) is not None:
                continue
            found = self._of_lanes(atom)
            if found is None or type(coefficient) is not int or not one.nonnegative or one.high is None:
                return None
            parts.append((*found, coefficient))
            rest = rest - one * coefficient
            reach += abs(coefficient) * one.high
        step = self.stride(rest)
        if type(step) is not int:
            return None
        narrow = less(reach + abs(step) * self.width, INT32) and all(part[1] == "i32" for part in parts)
        kind = "i32" if narrow else "i64"
        texts = [f"iota<{ops.ELEMENT[kind]}, {self.width}>() * {step}"] if step or not parts else []
        for text, given, coefficient in parts:
            text = text if given == kind else ops.convert(given, kind, text)
            texts.append(text if coefficient == 1 else f"{text} * {coefficient}")
        return self.place(rest), " + ".join(texts), kind

    def _of_lanes(self, atom: Atom) -> tuple[str, str] | None:
        """An atom that is different in each lane as a vector of some kind."""
        match atom:
            case Indirect():
                name = self.names[atom.expr]  # type: ignore[index]
                return name.text, name.kind
            case FloorDiv() | Mod() if type(atom.divisor) is int and atom.inner.within(INT32):
                found = self._offsets(atom.inner)
                if found is None or found[2] != "i32":
                    return None
                text = f"(wide<int, {self.width}>((int)({found[0]})) + {found[1]})"
                places, whole = atom.divisor.bit_length() - 1, isinstance(atom, FloorDiv)
                if atom.divisor == 1 << places:
                    return f"({text} {f'>> {places}' if whole else f'& {atom.divisor - 1}'})", "i32"
                return f"({text} {'/' if whole else '%'} {atom.divisor})", "i32"
        return None

    def _at_lane(self, index: Index, stride: Extent | None) -> str:
        """The index at lane j, from the block's start where a stride is known."""
        if stride is None:
            return self.place(index, "j")
        return f"{self.place(index)} + {self.extent(stride)}*j" if stride != 0 else self.place(index)

    def position(self, statement: Position) -> str:
        """A position as a number."""
        index, kind = statement.index, ops.KIND[statement.target.dtype]
        element, stride = ops.ELEMENT[kind], self.stride(index)
        if stride == 0:
            return f"({element})({self.place(index)})"
        if stride is None:
            found = self._offsets(index)
            if found is not None and found[2] == kind:
                return f"wide<{element}, {self.width}>(({element})({found[0]})) + {found[1]}"
            at = f"[&](int j) BODY {{ return ({element})({self.place(index, 'j')}); }}"
            return f"lanes<{element}, {self.width}>(n, {at})"
        start = f"wide<{element}, {self.width}>(({element})({self.place(index)}))"
        times = f" * ({element}){self.extent(stride)}" if stride != 1 else ""
        return f"{start} + iota<{element}, {self.width}>(){times}"

    def within(self, statement: Within) -> str:
        """A loaded integer, checked."""
        name = self.named(statement.value)
        function = f"within<{self.width}>" if name.vector else "within"
        needed = self._needed(statement.mask, name.vector)
        return f"{function}({name.text}, {self.extent(statement.bound)}, {needed}, {statement.number}, wrong)"

    def _needed(self, mask: Operand | None, vector: bool) -> str:
        """Where a value under the mask is really used: a mask of lanes, or one flag for a scalar."""
        spread = mask is not None and self.named(mask).vector
        if not vector and not spread:
            return "true" if mask is None else self.operand(mask, False)
        text = f"live<{self.width}>(n)"
        if mask is not None:
            text = f"({self.operand(mask, True)} & {text})"
        return text if vector else f"any({text})"

    # ---- loads

    def load(self, statement: Load) -> str:
        """What lies at a place, or at those of a block of lanes; under a mask, only where that holds."""
        memory, index, mask = statement.memory, statement.index, statement.mask
        stride = self.stride(index)
        spread = mask is not None and self.named(mask).vector
        kind = ops.KIND[statement.target.dtype]
        if stride == 0 and not spread:
            text = f"load1({memory}[{self.place(index)}])"
            return text if mask is None else f"({self.operand(mask, False)} ? {text} : {ops.number(kind, 0)})"
        if mask is None or spread:
            return self._lanes(memory, index, stride, kind, self.operand(mask, True) if mask is not None else "")
        nothing = f"V<{ops.ELEMENT[kind]}, {self.width}>{{}}"  # all lanes are read, or none
        return f"({self.operand(mask, False)} ? {self._lanes(memory, index, stride, kind, '')} : {nothing})"

    def _lanes(self, memory: str, index: Index, stride: Extent | None, kind: str, guard: str) -> str:
        """A vector of loads, each under its lane of the guard if there is one."""
        element, width = ops.ELEMENT[kind], self.width
        where, live = ("_if", f"{guard}, n") if guard else ("", "n")
        if stride == 1:
            return f"load{where}<{width}>({memory} + {self.place(index)}, {live})"
        if stride == -1 and not guard:
            return f"load_back<{width}>({memory} + {self.place(index)}, n)"
        if stride == 2 and not guard:
            return f"load_even<{width}{self._part(memory, index)}>({memory} + {self.place(index)}, n)"
        if (offsets := self._offsets(index)) is not None:
            return f"gather{where}<{element}, {width}>({memory} + {offsets[0]}, {offsets[1]}, {live})"
        at = f"[&](int j) BODY {{ return load1({memory}[{self._at_lane(index, stride)}]); }}"
        return f"lanes{where}<{element}, {width}>({live}, {at})"

    def _part(self, memory: str, index: Index) -> str:
        """Which numbers of pairs these are, where all of the memory is pairs."""
        numel = self.numels[memory]
        if type(numel) is not int or numel % 2:
            return ""
        return ", 0" if index.divisible_by(2) else ", 1" if (index - 1).divisible_by(2) else ""

    # ---- stores

    def stores(self, statements: list[Store]) -> None:
        """Stores in a row: the values that need names, then the statements that write memory."""
        written = []
        rest = list(statements)
        while rest:
            store = rest.pop(0)
            if rest and self._is_pair(store, rest[0]):
                written.append(self._pair(store, rest.pop(0)))
            else:
                written.append(self._store(store))
        self.block.lines.extend(written)

    def _store(self, item: Store) -> str:
        memory, index, mode = item.memory, item.index, item.mode
        dtype = item.value.dtype
        kind, stride = ops.KIND[dtype], self.stride(index)
        vector = self.loop is not None and (stride != 0 or mode != "store")  # what scatters does so for every lane
        text, place = self.operand(item.value, vector), self.place(index)
        if not vector:
            return self._one(item, place, text)
        where, width = f"{memory} + {place}", self.width
        if stride == 1:
            if mode not in ("store", "put"):
                text = ops.operator(mode, kind, dtype, [f"load<{width}>({where}, n)", text])
            if item.stream:
                return f"stream<{width}>({where}, {text}, n, apart_{memory});"
            return f"store<{width}>({where}, {text}, n);"
        if stride == -1 and mode == "store":
            return f"store_back<{width}>({where}, {text}, n);"
        self._count += 1
        name = f"v{self._count}"
        self.define(text, name)
        lane = f"({name}[j] != 0)" if kind == "mask" else f"{name}[j]"
        return f"each<{width}>(n, [&](int j) BODY {{ {self._one(item, self._at_lane(index, stride), lane)} }});"

    @staticmethod
    def _one(item: Store, place: str, text: str) -> str:
        """One element, combined with what is there in the mode of the store."""
        if item.mode not in ("store", "put"):
            held, dtype = f"load1({item.memory}[{place}])", item.value.dtype
            text = ops.operator(item.mode, ops.KIND[dtype], dtype, [held, text])
        return f"store1({item.memory} + {place}, {text});"

    def _is_pair(self, even: Store, odd: Store) -> bool:
        """Whether two stores write numbers that lie in turn."""
        if even.memory != odd.memory or even.mode != "store" or odd.mode != "store" or self.loop is None:
            return False
        return odd.index - even.index is Index.of(1) and self.stride(even.index) == 2

    def _pair(self, even: Store, odd: Store) -> str:
        parts = ", ".join([self.operand(item.value, True) for item in (even, odd)])
        return f"store_pairs<{self.width}>({even.memory} + {self.place(even.index)}, {parts}, n);"


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
