"""What one thread's code has at hand: its number, its warp's shuffles, the block's shared memory and barriers.

Numbers in registers are as `stator.tile.cpu.casts` has them: f16 and bf16 as f32 that are rounded, fp8 as bits,
pointers as i64. In memory of either kind they lie packed. Shared memory is one piece: what the kernel keeps there lies
first, and behind it is room for exchanges, one after the other, which is used again as soon as all threads have read.
Neighbours: `exchange` moves tiles by this, `access` goes to global memory, `kernel` makes one for each kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stator.tile.cpu.casts import memory, pack, register, unpack
from stator.tile.cpu.code import Code, Maker
from stator.tile.ir.types import BF16, I32, Element
from stator.tile.nvidia.places import Places, bits_of

SHARED = "@shared"
#: 16 bytes are left out behind so many of an exchange, so that rows do not fall on the same banks.
_ROW, _GAP = 128, 16
_WIDEST = 16


class ThreadMaker(Maker):
    """Writes operations on single numbers, with what a GPU has instructions for."""

    def __init__(self, code: Code) -> None:
        super().__init__(code, 0)
        self._words: dict[tuple[str, str], str] = {}  # two numbers that have been taken apart → their word

    def to_bfloat(self, value: str) -> str:
        return self.to_bfloats(value, self.number("float", 0.0))[0]

    def to_bfloats(self, low: str, high: str) -> tuple[str, str]:
        """Two numbers at once. The instruction that rounds one alone, which LLVM takes, has an eighth of the rate."""
        both = self.code.value(
            'call i32 asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f"' + f"(float {high}, float {low}) #1"
        )
        return self.bfloats(both)

    def bfloats(self, word: str) -> tuple[str, str]:
        """The two numbers of a word: an instruction each, where elements of a vector take two or three."""
        words = self.op("shl", "i32", word, "16"), self.op("and", "i32", word, str(-(1 << 16)))
        found = self.bits("i32", "float", words[0]), self.bits("i32", "float", words[1])
        self._words[found] = word
        return found

    def of_bfloats(self, low: str, high: str) -> str:
        """The inverse, of numbers that bf16 has."""
        word = self._words.get((low, high))
        if word is not None:
            return word
        lower = self.op("lshr", "i32", self.bits("float", "i32", low), "16")
        upper = self.op("and", "i32", self.bits("float", "i32", high), str(-(1 << 16)))
        return self.op("or", "i32", lower, upper)


class Threads:
    """Writes the code of a thread, one of `warps` times 32."""

    def __init__(self, warps: int, kept: int = 0) -> None:
        self.code = Code()
        self.m = ThreadMaker(self.code)
        self.warps, self.kept, self.room = warps, kept, 0
        self._dirty, self._used, self.barriers = False, False, 0
        self.scratch, self.base = (0, 0), kept
        self.code.entry.append("  %tid = call range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x()")
        self.code.declared["tid"] = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()"
        self._elements: dict[tuple[str, tuple[int, ...]], str] = {}
        self._vectors: dict[str, list[str]] = {}  # what vectors were made of
        self._shared = ""

    # ---- numbers of a thread

    def thread_bits(self, bases: Sequence[int]) -> str:
        """The exclusive or of the bases of the bits of the thread's number that are set, as i32.

        It is computed where the kernel begins, so that every place may use it.
        """
        return self._of_thread("xor", tuple(bases))

    def thread_sum(self, bases: Sequence[int]) -> str:
        """The sum of the bases of the bits that are set."""
        return self._of_thread("add", tuple(bases))

    def warp_sum(self, bases: Sequence[int]) -> str:
        """The sum of the bases of the bits that are set, none of which is a lane's.

        One lane says it, so that an assembler knows that it is the same in a warp.
        """
        key = "warp", tuple(bases)
        if key not in self._elements:
            own = self.thread_sum(bases)
            lines, self.code.lines = self.code.lines, self.code.entry
            self._elements[key] = self.of_lane(I32, own, "0") if own != "0" else own
            self.code.lines = lines
        return self._elements[key]

    def _of_thread(self, op: str, bases: tuple[int, ...]) -> str:
        if (op, bases) not in self._elements:
            lines, self.code.lines = self.code.lines, self.code.entry
            self._elements[op, bases] = self._in_runs(op, bases)
            self.code.lines = lines
        return self._elements[op, bases]

    def _in_runs(self, op: str, bases: tuple[int, ...]) -> str:
        """Bits whose bases double from one to the next are one factor of a product."""
        found, bit = "", 0
        while bit < len(bases):
            basis, length = bases[bit], 1
            if basis:
                plain = op == "add" or basis & (basis - 1) == 0
                while plain and bit + length < len(bases) and bases[bit + length] == basis << length:
                    length += 1
                part = self._run(bit, length, basis)
                found = part if not found else self.m.op(op, "i32", found, part)
            bit += length
        return found or "0"

    def _run(self, bit: int, length: int, basis: int) -> str:
        """So many bits of the thread's number from one on, the first of which stands for a number."""
        m, value = self.m, "%tid"
        if bit:
            value = m.op("lshr", "i32", value, str(bit))
        value = m.op("and", "i32", value, str((1 << length) - 1))
        return value if basis == 1 else m.op("mul nuw nsw", "i32", value, str(basis))

    def shared_address(self) -> str:
        """Where shared memory begins, as i32."""
        if not self._shared:
            self._shared = "%shared"
            self.code.entry.append(f"  {self._shared} = ptrtoint ptr addrspace(3) {SHARED} to i32")
        return self._shared

    def is_first(self, bits: int) -> str:
        """Whether none of some bits of the thread's number is set."""
        if not bits:
            return "true"
        return self.m.compare("eq", "i32", self.m.op("and", "i32", "%tid", str(bits)), "0")

    # ---- numbers as words of 32 bits

    def words(self, element: Element, value: str) -> list[str]:
        """A number as one or two i32."""
        m, type_ = self.m, register(element)
        if type_ in ("i64", "double"):
            whole = value if type_ == "i64" else m.bits("double", "i64", value)
            high = m.op("lshr", "i64", whole, "32")
            return [m.convert("trunc", "i64", "i32", part) for part in (whole, high)]
        if type_ == "float":
            return [m.bits("float", "i32", value)]
        return [value if type_ == "i32" else m.convert("zext", type_, "i32", value)]

    def number(self, element: Element, words: Sequence[str]) -> str:
        """The inverse."""
        m, type_ = self.m, register(element)
        if type_ in ("i64", "double"):
            low, high = (m.convert("zext", "i32", "i64", word) for word in words)
            whole = m.op("or", "i64", m.op("shl", "i64", high, "32"), low)
            return whole if type_ == "i64" else m.bits("i64", "double", whole)
        if type_ == "float":
            return m.bits("i32", "float", words[0])
        return words[0] if type_ == "i32" else m.convert("trunc", "i32", type_, words[0])

    # ---- shuffles

    def swapped(self, element: Element, value: str, bits: int) -> str:
        """The value of the lane whose number differs in these bits."""
        return self._shuffled("bfly", element, value, str(bits))

    def of_lane(self, element: Element, value: str, lane: str) -> str:
        """The value of a lane."""
        return self._shuffled("idx", element, value, lane)

    def _shuffled(self, way: str, element: Element, value: str, by: str) -> str:
        found = [
            self.code.call(
                "i32", f"llvm.nvvm.shfl.sync.{way}.i32", ("i32", "-1"), ("i32", word), ("i32", by), ("i32", "31"),
                attributes=" convergent nounwind",
            )
            for word in self.words(element, value)
        ]  # fmt: skip
        return self.number(element, found)

    # ---- shared memory

    def barrier(self) -> None:
        """All threads wait for one another, and see what each has written."""
        self.barriers += 1
        if self.warps == 1:
            self.code.call("void", "llvm.nvvm.bar.warp.sync", ("i32", "-1"), attributes=" convergent nounwind")
        else:
            name = "llvm.nvvm.barrier.cta.sync.aligned.all"
            self.code.call("void", name, ("i32", "0"), attributes=" convergent nounwind")

    def exchange(self, nbytes: int) -> None:
        """Room for an exchange: nobody reads there what an earlier one has written.

        It is the scratch of the operation that is written, if that is enough: who has placed it put a barrier before.
        """
        if nbytes <= self.scratch[1]:
            if self._used:
                self.barrier()
            self._used, self.base = True, self.scratch[0]
            return
        self.room, self.base = max(self.room, nbytes), self.kept
        if self._dirty:
            self.barrier()
        self._dirty = True

    def begin(self, scratch: tuple[int, int]) -> None:
        """An operation begins that may work from a byte on, in so many."""
        self.scratch, self._used = scratch, False

    def entered(self) -> None:
        """A region begins that may run again, or behind another one that has exchanged something."""
        self._dirty = True

    def shared(self, offset: str, constant: int = 0) -> str:
        """The address of bytes of the room for exchanges."""
        place = self.code.pure(f"getelementptr i8, ptr addrspace(3) {SHARED}, i32 {offset}")
        constant += self.base
        return place if not constant else self.code.pure(f"getelementptr i8, ptr addrspace(3) {place}, i32 {constant}")

    def vector(self, type_: str, values: Sequence[str]) -> tuple[str, str]:
        """Numbers side by side, and the type of that."""
        if len(values) == 1:
            return type_, values[0]
        kind, found = f"<{len(values)} x {type_}>", "poison"
        for place, value in enumerate(values):
            found = self.code.pure(f"insertelement {kind} {found}, {type_} {value}, i32 {place}")
        self._vectors[found] = list(values)
        return kind, found

    def parts(self, type_: str, count: int, value: str) -> list[str]:
        """The numbers of a vector."""
        if count == 1:
            return [value]
        return self._vectors.get(value) or [
            self.code.pure(f"extractelement <{count} x {type_}> {value}, i32 {place}") for place in range(count)
        ]

    def put(self, element: Element, values: Sequence[str], place: str) -> None:
        """Writes numbers side by side to shared memory."""
        if element == BF16 and len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            element, values = I32, [self.m.of_bfloats(low, high) for low, high in pairs]
        type_ = memory(element)
        kind, vector = self.vector(type_, [pack(self.m, element, value) for value in values])
        align = len(values) * element.itemsize
        self.code.do(f"store {kind} {vector}, ptr addrspace(3) {place}, align {align}")

    def take(self, element: Element, count: int, place: str) -> list[str]:
        """Reads them."""
        if element == BF16 and count > 1:
            return [value for word in self.take(I32, count // 2, place) for value in self.m.bfloats(word)]
        type_ = memory(element)
        kind = type_ if count == 1 else f"<{count} x {type_}>"
        vector = self.code.value(f"load {kind}, ptr addrspace(3) {place}, align {count * element.itemsize}")
        return [unpack(self.m, element, value) for value in self.parts(type_, count, vector)]

    def write_tile(
        self, element: Element, values: Sequence[str], places: Places, once: bool = False, offset: int = 0
    ) -> None:
        """A tile to the room for exchanges; if `once`, by one of the threads that hold an element."""

        def write(part: Sequence[int], at: str) -> None:
            self.put(element, [values[each] for each in part], at)

        if once and places.alone:
            with self.code.when(self.is_first(places.alone)):
                self._each_vector(element, places, offset, write)
        else:
            self._each_vector(element, places, offset, write)

    def read_tile(self, element: Element, places: Places, offset: int = 0) -> list[str]:
        """A tile of the room for exchanges, by a layout of the reader's."""
        found: dict[int, str] = {}

        def read(part: Sequence[int], at: str) -> None:
            found.update(zip(part, self.take(element, len(part), at), strict=True))

        self._each_vector(element, places, offset, read)
        return [found[places.at[each]] for each in places.elements]

    def _each_vector(
        self, element: Element, places: Places, offset: int, do: Callable[[Sequence[int], str], None]
    ) -> None:
        size = element.itemsize
        width = places.vector(_WIDEST // size)
        bases, done = [basis * size for basis in places.threads], set[int]()
        plain = are_disjoint([*places.threads, *[basis for basis in places.registers if basis], places.origin])
        base = self.thread_sum([padded(basis) for basis in bases]) if plain else self.thread_bits(bases)
        for each in places.first:
            if each in done:
                continue
            part, at = range(each, each + width), places.elements[each] * size
            do(part, self.shared(base, offset + padded(at)) if plain else self.shared(self._padded(base, at), offset))
            done.update(part)

    def _padded(self, base: str, other: int) -> str:
        """Where the byte lies whose number is the exclusive or of two."""
        m = self.m
        place = m.op("xor", "i32", base, str(other))
        row = m.op("lshr", "i32", place, str(bits_of(_ROW)))
        return m.op("add", "i32", place, m.op("shl", "i32", row, str(bits_of(_GAP))))


def are_disjoint(numbers: Sequence[int]) -> bool:
    """Whether no bit is set in two of them."""
    seen = 0
    for number in numbers:
        if seen & number:
            return False
        seen |= number
    return True


def padded(offset: int) -> int:
    """Where a byte of an exchange lies; of a sum of powers of two that is the sum of theirs."""
    return offset + offset // _ROW * _GAP


def padded_size(nbytes: int) -> int:
    """How many bytes so many take."""
    return padded(nbytes + _ROW)
