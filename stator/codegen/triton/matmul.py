"""Prints products as `@triton.jit` functions: `tl.dot` of tiles, and around it what is computed of factors and results.

Rows are lanes of `m`, columns of `n`, terms of `k`; a value has the lanes of what it is made of. In the loop over terms
what a left factor needs is printed with `k` along columns, what a right one needs with `k` along rows. What lies past
the end is loaded as zero; where a factor is computed from what is loaded, it is made zero after that. Sizes may be
arguments, from which a program computes how many tiles there are.
Neighbours: `printer.py` writes statements, `kernel/matmul.py` decides, `kernel/strategies.py` made the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from stator.codegen.triton.launches import launch_text
from stator.codegen.triton.operators import TYPES
from stator.codegen.triton.printer import NO_LANES, Lanes, Printer
from stator.kernel import ir
from stator.kernel.matmul import Matmul
from stator.loop.index import Axis, Index
from stator.sizes import Extent, Size

#: How many there are of something: a number, or the name of a variable.
Count: TypeAlias = "int | str"

#: For files with products.
HELPERS = """\
@triton.jit
def _quotient(a, b):
    # What the instruction does where neither operand nor result is near the ends of the range, which rounds right.
    plain = a / b
    size, result = tl.abs(b), tl.abs(plain)
    inverse = 1.0 / b
    inverse = tl.fma(inverse, tl.fma(-b, inverse, 1.0), inverse)
    quotient = a * inverse
    quotient = tl.fma(tl.fma(-b, quotient, a), inverse, quotient)
    quotient = tl.fma(tl.fma(-b, quotient, a), inverse, quotient)
    far = (size < 7.9e-31) | (size > 1.2e30) | (result < 7.9e-31) | (result > 1.2e30) | (plain != plain)
    return tl.where(far, plain, quotient)


@triton.jit
def _halves(a):
    return tl.split(tl.permute(tl.reshape(a, [a.shape[0], 2, a.shape[1] // 2]), [0, 2, 1]))
"""


def matmul_text(plan: Matmul, function: ir.Function, rounds: bool = True) -> str:
    """One kernel, whose results are rounded as eager's are or not."""
    return _Printer(plan, function, rounds).text()


def matmul_launch(plan: Matmul, function: ir.Function, warp: int, more: Mapping[str, object]) -> str:
    """What launches of it need to know; `more` are options of the compiler."""
    return launch_text(function, warp, plan.programs, {"num_stages": plan.tiling.stages, **more})


class _Printer(Printer):
    """Writes one function, whose parallel loops are over `b`, `m` and `n`, and whose inner loop is over `k`."""

    def __init__(self, plan: Matmul, function: ir.Function, rounds: bool) -> None:
        super().__init__(function, rounds=rounds)
        self.plan = plan
        self.loops = {s.axis.name: s.axis for s in ir.walk(function.body) if isinstance(s, ir.Loop)}
        tiling = plan.tiling
        self.step = {"m": tiling.rows, "n": tiling.columns, "k": tiling.terms}
        self.side = ""  # which factor is printed, where one is

    # ---- lanes

    def lanes_at(self, index: Index) -> Lanes:
        return frozenset([axis.name for axis in index.axes() if axis.name in self.step])

    def several(self, lanes: Lanes) -> bool:
        return bool(lanes)

    def leaf(self, axis: Axis) -> str:
        return f"k_{self.side}" if axis.name == "k" else axis.name

    def guard(self, lanes: Lanes, mask: ir.Operand | None = None) -> list[str]:
        parts = [self.mask(letter) for letter in "mnk" if letter in lanes and self.ends(letter)]
        return parts + ([self.operand(mask)] if mask is not None else [])

    def mask(self, letter: str) -> str:
        return f"{letter}_{self.side}_live" if letter == "k" else f"{letter}_live"

    def ends(self, letter: str) -> bool:
        """Whether lanes may lie past the end of an axis."""
        tiling = self.plan.tiling
        step = {"m": tiling.rows, "n": tiling.columns, "k": tiling.terms}[letter]
        return self.loops[letter].size % step != 0

    # ---- the program

    def head(self) -> None:
        first = "first" if self.plan.tiling.persistent else "program"
        self.add(f"{first} = tl.program_id(0){'.to(tl.int64)' if self.wide else ''}")
        if self.function.symbols:
            self.add("if WIDE:")
            for name in [first, *[symbol.name for symbol in self.function.symbols]]:
                self.add(f"    {name} = {name}.to(tl.int64)")
        counts = [self.named(*pair) for pair in zip(("batches", "rows", "columns"), self.plan.tiles(), strict=True)]
        if self.plan.tiling.persistent:
            tiles = _product(*counts)
            self.add(f"for program in tl.range(first, {tiles}, {self.plan.cores}, flatten=True):")
            self.indent += "    "
        self.order(*counts)
        for letter, shape in (("m", "[:, None]"), ("n", "[None, :]")):
            self.add(f"{letter} = ({letter}_tile * {self.step[letter]} + tl.arange(0, {self.step[letter]})){shape}")
            if self.ends(letter):
                self.add(f"{letter}_live = {letter} < {self.loops[letter].size}")

    def named(self, name: str, extent: Extent) -> Count:
        """A number, or a name for what is computed of sizes."""
        if type(extent) is int:
            return extent
        self.add(f"{name} = {extent}")
        return name

    def order(self, batches: Count, rows: Count, columns: Count) -> None:
        """Which batch and tile a program computes: those of some rows of tiles, column by column."""
        turn = "program"
        if batches != 1:
            each = _product(rows, columns)
            self.add(f"b = program // {each}")
            self.add(f"tile = program % {each}")
            turn = "tile"
        group = self.plan.tiling.group
        if isinstance(rows, int) and rows <= group:
            self.add(f"m_tile = {turn} % {rows}")
            self.add(f"n_tile = {turn} // {rows}")
            return
        band, height = _product(columns, group), str(group)
        self.add(f"band = {turn} // {band}")
        if isinstance(rows, str) or rows % group:
            height = "height"
            self.add(f"height = tl.minimum({rows} - band * {group}, {group})")
        self.add(f"m_tile = band * {group} + ({turn} % {band}) % {height}")
        self.add(f"n_tile = ({turn} % {band}) // {height}")

    # ---- statements

    def block(self, block: Sequence[ir.Statement]) -> None:
        """What comes behind the loop over terms is done for some columns after the others, where it takes registers."""
        ends = [i for i, s in enumerate(block) if isinstance(s, ir.Loop) and s.axis.name == "k"]
        if not ends or self.plan.parts == 1:
            super().block(block)
            return
        before, behind = block[: ends[0] + 1], block[ends[0] + 1 :]
        super().block(before)
        if self.needs_columns(before, behind):
            super().block(behind)
            return
        sums = sorted([value.name for value in ir.assigned(before)])
        for name in sums:
            self.split(name, name, 0, self.plan.parts)
        whole, self.step["n"] = self.step["n"], self.step["n"] // self.plan.parts
        for part in range(self.plan.parts):
            for name in sums:
                self.add(f"{name} = {name}_{part}")
            self.add(f"n = (n_tile * {whole} + {part * self.step['n']} + tl.arange(0, {self.step['n']}))[None, :]")
            if self.ends("n"):
                self.add(f"n_live = n < {self.loops['n'].size}")
            super().block(behind)
        self.step["n"] = whole

    def split(self, name: str, whole: str, first: int, parts: int) -> None:
        """So many parts of the columns of a sum, numbered from the first: halves, and halves of these."""
        half = parts // 2
        names = [f"{whole}_{at}" + f"_to_{at + half}" * (half > 1) for at in (first, first + half)]
        self.add(f"{', '.join(names)} = _halves({name})")
        if half > 1:
            self.split(names[0], whole, first, half)
            self.split(names[1], whole, first + half, half)

    def computed(self, statement: ir.Let) -> str:
        """Quotients without the branch of the instruction, which takes registers that hold sums."""
        if statement.op in ("div", "reciprocal") and statement.args[-1].dtype == "f32":
            given = self.given(statement, statement.args)
            return f"_quotient({', '.join(given if statement.op == 'div' else ['1.0', *given])})"
        return super().computed(statement)

    def needs_columns(self, before: Sequence[ir.Statement], behind: Sequence[ir.Statement]) -> bool:
        """Whether what is known of columns before the loop over terms is read behind it."""
        known = {t for s in before if not isinstance(s, ir.Declare | ir.Loop) for t in ir.targets(s)}
        known = {value for value in known if "n" in self.lanes.get(value, NO_LANES)}
        return any(operand in known for s in ir.walk(behind) for operand in ir.operands(s))

    def loop(self, loop: ir.Loop) -> None:
        if loop.axis.name != "k":
            self.block(loop.body)
            return
        step, indent = self.step["k"], self.indent
        sums = [s for s in loop.body if isinstance(s, ir.Assign)]
        self.add(f"for start in tl.range(0, {self.end_of_terms(loop.axis)}, {step}):")
        self.indent += "    "
        body = [s for s in loop.body if not isinstance(s, ir.Assign)]
        made = {target: s for s in body for target in ir.targets(s)}
        products = [_factors(s, made) for s in sums]
        lanes = self.lanes_of_all(body)
        for side, letter, shape in (("left", "m", "[None, :]"), ("right", "n", "[:, None]")):
            self.side = side
            self.add(f"k_{side} = (start + tl.arange(0, {step})){shape}")
            if self.ends("k"):
                self.add(f"k_{side}_live = k_{side} < {loop.axis.size}")
            wanted = [pair[0 if letter in lanes[pair[0]] else 1] for pair in products]
            self.factors(body, dict.fromkeys(wanted), lanes, made)
        self.side = ""
        for s, pair in zip(sums, products, strict=True):
            left, right = pair if "m" in lanes[pair[0]] else pair[::-1]
            precision = ', input_precision="ieee"' if left.dtype == "f32" else ""
            total = s.target.name
            self.add(f"{total} = tl.dot({self.operand(left)}, {self.operand(right)}, {total}{precision})")
        self.indent = indent

    def end_of_terms(self, axis: Axis) -> str:
        """How many terms there are, in 64 bits where positions have these: counting to it, one has them too."""
        if self.wide:
            return f"tl.full([], {axis.size}, tl.int64)"
        if not self.function.symbols or type(axis.size) is Size:
            return str(axis.size)
        self.add(f"terms = tl.full([], {axis.size}, tl.int64 if WIDE else tl.int32)")
        return "terms"

    def lanes_of_all(self, body: Sequence[ir.Statement]) -> dict[ir.Value, Lanes]:
        """The lanes of what the loop over terms computes."""
        found: dict[ir.Value, Lanes] = {}
        for s in body:
            lanes = self.lanes_at(s.index) if isinstance(s, ir.Load | ir.Position) else NO_LANES
            for operand in ir.operands(s):
                if isinstance(operand, ir.Value):
                    lanes |= found[operand] if operand in found else self.lanes_of(operand)
            found.update(dict.fromkeys(ir.targets(s), lanes))
        return found

    def factors(
        self,
        body: Sequence[ir.Statement],
        wanted: dict[ir.Value, None],
        lanes: dict[ir.Value, Lanes],
        made: Mapping[ir.Value, ir.Statement],
    ) -> None:
        """What factors of one side need, and they themselves, with zeros past the end."""
        needed = set(wanted)
        for s in reversed(body):
            if any(target in needed for target in ir.targets(s)):
                needed.update([operand for operand in ir.operands(s) if isinstance(operand, ir.Value)])
        for s in body:
            (target,) = ir.targets(s)
            if target in needed:
                self.texts.pop(target, None)
                self.statement(s)
                if not lanes[target] - {"k"}:  # the other side may need it too, along its own lanes
                    name = f"{target.name}_{self.side}"
                    self.add(f"{name} = {target.name}")
                    self.texts[target] = name
        for value in wanted:
            if self.ends("k") and not isinstance(made[value], ir.Load):
                name = f"{value.name}_live"
                zero = f"tl.full([], 0, {TYPES[value.dtype]})"
                self.add(f"{name} = tl.where({self.mask('k')}, {self.operand(value)}, {zero})")
                self.texts[value] = name

    def declare(self, statement: ir.Declare, after: Sequence[ir.Statement]) -> None:
        target = statement.target
        self.lanes[target], self.made[target] = frozenset("mn"), statement
        self.add(f"{target.name} = tl.zeros([{self.step['m']}, {self.step['n']}], {TYPES[target.dtype]})")

    def load(self, statement: ir.Load) -> None:
        target, index, mask = statement.target, statement.index, statement.mask
        lanes, more = self.lanes_at(index), self.lanes_of(mask)
        where = " + ".join([self.place(index), *[f"{self.letter(letter)} * 0" for letter in sorted(more - lanes)]])
        guard = self.guard(lanes, mask)
        text = f"tl.load({statement.memory} + ({where})" + (f", {' & '.join(guard)}, other=0)" if guard else ")")
        self.define(statement, target, text, lanes | more)

    def letter(self, letter: str) -> str:
        return f"k_{self.side}" if letter == "k" else letter

    def store(self, statement: ir.Store) -> None:
        shape = f"[{self.step['m']}, {self.step['n']}]"
        lanes, value = self.lanes_at(statement.index), statement.value
        points = self.place(statement.index)
        if lanes != frozenset("mn"):
            points += "".join([f" + {letter} * 0" for letter in "mn" if letter not in lanes])
        text = self.operand(value)
        if isinstance(value, ir.Literal):
            text = f"tl.full({shape}, {text}, {TYPES[value.dtype]})"
        elif self.lanes_of(value) != frozenset("mn"):
            text = f"tl.broadcast_to({text}, {shape})"
        guard = "".join([f", {' & '.join(live)}" for live in [self.guard(frozenset("mn"))] if live])
        self.add(f"tl.store({statement.memory} + ({points}), {text}{guard})")


def _product(*counts: Count) -> Count:
    """The product of counts, in one operand."""
    known = prod([count for count in counts if isinstance(count, int)])
    names = [count for count in counts if isinstance(count, str)]
    if not names:
        return known
    parts = [*names, *([str(known)] if known != 1 else [])]
    return f"({' * '.join(parts)})" if len(parts) > 1 else parts[0]


def _factors(s: ir.Assign, made: Mapping[ir.Value, ir.Statement]) -> tuple[ir.Value, ir.Value]:
    """The factors of what is added, as they are before an exact conversion where both are of half precision."""
    product = made[s.args[1]]  # type: ignore[index]
    assert s.op == "add" and isinstance(product, ir.Let) and product.op == "mul"
    wide: list[ir.Value] = [arg for arg in product.args if isinstance(arg, ir.Value)]
    narrow = [_narrow(arg, made) for arg in wide]
    left, right = narrow if narrow[0].dtype == narrow[1].dtype else wide
    return left, right


def _narrow(value: ir.Value, made: Mapping[ir.Value, ir.Statement]) -> ir.Value:
    match made.get(value):
        case ir.Let(op="cast", args=(ir.Value() as source,)) if source.dtype in ("bf16", "f16"):
            return source
    return value
