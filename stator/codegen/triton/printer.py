"""Prints functions of the kernel IR as `@triton.jit` functions: a statement is a line, a loop of lanes a block.

The parallel loop of a function is its grid. Outer points are lanes of `x`, points of the reduce axes lanes of `r`: a
value has the lanes of what it is made of, of one, of both or of none. A loop over `r` that one block covers is no loop
in the text, so what is in scratch there are names. A loaded index out of its bound stops the device, as eager's kernels
do, and nothing is touched there. Triton widens the mask of a load to its pointers, never the other way round, so
pointers are widened here where the mask has more lanes. Symbolic sizes are arguments, on whose values nothing is
specialised; a launch computes the grid, and whether positions need 64 bits.
Neighbours: `operators` has the spellings, `kernel/strategies.py` made the functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stator.codegen.places import place
from stator.codegen.triton.operators import ATOMICS, FOLDS, POINTERS, SCANS, SIGNED, TYPES, spelling
from stator.kernel import ir
from stator.loop import scalar
from stator.loop.extent import wrapped
from stator.loop.index import Axis, Index, Indirect
from stator.loop.kernel import Param
from stator.loop.magnitude import reach
from stator.sizes import Extent, Size
from stator.sizes.writing import postfix

#: What a value varies along.
Lanes = frozenset[str]
NO_LANES: Lanes = frozenset()
#: A position that no element has: what stands for the best of none.
NOWHERE = 2**62


def function_text(function: ir.Function) -> str:
    """One kernel."""
    return Printer(function).text()


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
        grid = next((loop.axis.size for loop in _loops(function) if loop.kind == "parallel"), 1 if function.body else 0)
    options: dict[str, object] = {"num_warps": max(function.threads // warp, 1), "enable_fp_fusion": False, **more}
    if function.checks:
        options |= {"debug": True, "sanitize_overflow": False}  # without `debug`, Triton drops assertions
    sizes = tuple([symbol.name for symbol in function.symbols])
    limits = tuple([(program(most), limit) for most, limit in _counted(function)]) if function.symbols else ()
    return launch_entry(function.name, function.params, program(grid), options, f"{grid} blocks", sizes, limits)


def launch_entry(
    name: str,
    params: Sequence[Param],
    grid: object,
    options: Mapping[str, object],
    remark: str = "",
    sizes: tuple[str, ...] = (),
    limits: tuple[tuple[object, int], ...] = (),
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
    }
    lines = [f"        {key!r}: {value!r}," for key, value in launch.items()]
    return "\n".join([f"    {name!r}: {{  # {remark or f'{grid} blocks'}", *lines, "    },"])


def _loops(function: ir.Function) -> list[ir.Loop]:
    return [statement for statement in ir.walk(function.body) if isinstance(statement, ir.Loop)]


def _counted(function: ir.Function) -> list[tuple[Extent, int]]:
    """What a function counts to that int32 may not hold, and from where on; points are counted past the end."""
    local = {statement.name for statement in ir.walk(function.body) if isinstance(statement, ir.Scratch)}
    ends: list[tuple[Extent, int]] = [(loop.axis.size, 2**30) for loop in _loops(function) if loop.kind == "lanes"]
    ends += [(param.numel, 2**31) for param in function.params]
    for statement in ir.walk(function.body):
        if isinstance(statement, ir.Load | ir.Store | ir.Position) and getattr(statement, "memory", "") not in local:
            ends.append((reach(statement.index) + 1, 2**31))
    return [(end, limit) for end, limit in dict.fromkeys(ends) if type(end) is Size or end >= limit]


class Printer:
    """Writes one function; `matmul.py` has one whose blocks are tiles of a product."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        lanes = [loop for loop in _loops(function) if loop.kind == "lanes"]
        self.outer = next((loop for loop in lanes if loop.piece is not None), None)
        self.row = next((loop for loop in lanes if loop.piece is None), None)
        self.inner = False  # in the loop over `r`
        self.indent = "    "
        self.lines: list[str] = []
        self.texts: dict[ir.Value, str] = {}  # values that are other names, or numbers
        self.lanes: dict[ir.Value, Lanes] = {}
        self.made: dict[ir.Value, ir.Statement] = {}
        self.scratch: dict[str, ir.Operand] = {}
        self.wide = not function.symbols and bool(_counted(function))

    @property
    def whole(self) -> bool:
        """Whether one block covers a row."""
        size = self.row.axis.size if self.row is not None else 1
        return self.row is None or (type(size) is int and size <= self.row.lanes)

    def shape(self, inner: bool) -> str:
        """The shape of blocks, with all lanes of a row or one for it."""
        x = self.outer.lanes if self.outer is not None else 1
        return f"[{x}]" if self.row is None else f"[{x}, {self.row.lanes if inner else 1}]"

    def text(self) -> str:
        function = self.function
        names = [*[param.name for param in function.params], *[symbol.name for symbol in function.symbols]]
        names += ["WIDE: tl.constexpr"] if function.symbols else []
        if function.body:
            self.head()
            self.block(function.body)
        else:
            self.add("pass")
        return "\n".join(["@triton.jit", f"def {function.name}({', '.join(names)}):", *self.lines])

    def head(self) -> None:
        """The points of this program, and of a row."""
        x, r = self.outer.lanes if self.outer else 1, self.row.lanes if self.row else 0
        row, wide = "[:, None]" if r else "", ".to(tl.int64)" if self.wide else ""
        self.add("program = tl.program_id(0)" + wide)
        if r:
            self.add(f"base = tl.arange(0, {r})[None, :]" + wide)
        if self.function.symbols:
            self.add("if WIDE:")
            for name in ["program", *["base"] * bool(r), *[symbol.name for symbol in self.function.symbols]]:
                self.add(f"    {name} = {name}.to(tl.int64)")
        points = f"program * {x} + tl.arange(0, {x})"
        self.add(f"x = ({points}){row}" if row else f"x = {points}")
        self.add(f"xm = x < {self.outer.axis.size if self.outer else 1}")
        if r and self.whole:
            self.points("base")

    def points(self, text: str) -> None:
        assert self.row is not None
        self.add(f"r = {text}")
        self.add(f"rm = r < {self.row.axis.size}")

    # ---- statements

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def define(self, statement: ir.Statement, target: ir.Value, text: str, lanes: Lanes) -> None:
        self.add(f"{target.name} = {text}")
        self.lanes[target], self.made[target] = lanes, statement

    def rename(self, target: ir.Value, operand: ir.Operand) -> None:
        """Another name for a value, or one for a number."""
        self.texts[target], self.lanes[target] = self.operand(operand), self.lanes_of(operand)
        if isinstance(operand, ir.Value) and operand in self.made:
            self.made[target] = self.made[operand]

    def block(self, block: Sequence[ir.Statement]) -> None:
        """A block; what a loop over `r` adds to is folded after it."""
        for i, statement in enumerate(block):
            if isinstance(statement, ir.Loop):
                self.loop(statement)
                if statement.axis is (self.row.axis if self.row else None):
                    for target in sorted(ir.assigned(statement.body), key=lambda value: value.name):
                        self.fold(target, statement)
            elif isinstance(statement, ir.Declare):
                self.declare(statement, block[i + 1 :])
            else:
                self.statement(statement)

    def loop(self, loop: ir.Loop) -> None:
        if self.row is None or loop.axis is not self.row.axis:
            self.block(loop.body)
            return
        self.inner, indent = True, self.indent
        if not self.whole:
            end = f"tl.full([], {loop.axis.size}, tl.int64)" if self.wide else str(loop.axis.size)  # not unsigned
            self.add(f"for start in range(0, {end}, {loop.lanes}):")
            self.indent += "    "
            self.points("start + base")
        self.block(loop.body)
        self.inner, self.indent = False, indent

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let(target, _, args):
                lanes = NO_LANES.union(*map(self.lanes_of, args))
                self.define(statement, target, self.computed(statement), lanes)
            case ir.Position(target, index):
                lanes, text = self.lanes_at(index), self.place(index)
                fixed = index.fixed and not index.terms
                text = f"tl.full([], {text}, {TYPES[target.dtype]})" if fixed else f"({text}).to({TYPES[target.dtype]})"
                self.define(statement, target, text, lanes)
            case ir.Load():
                self.load(statement)
            case ir.Within(target, value, bound, number, mask):
                if not number:
                    self.rename(target, value)
                    return
                lanes = self.lanes_of(value)
                text = f"_within({self.typed(value)}, {bound}, {' & '.join(self.guard(lanes, mask)) or 'True'})"
                self.define(statement, target, text, lanes)
            case ir.Assign():
                self.assign(statement)
            case ir.Best():
                self.best(statement)
            case ir.Online():
                self.online(statement)
            case ir.Scan():
                self.scan(statement)
            case ir.Scratch():
                pass
            case ir.Store():
                self.store(statement)
            case _:
                raise NotImplementedError(f"Triton has no {type(statement).__name__}")

    # ---- accumulators

    def declare(self, statement: ir.Declare, after: Sequence[ir.Statement]) -> None:
        """What a block takes all at once starts from nothing."""
        target, dtype = statement.target, TYPES[statement.target.dtype]
        self.lanes[target], self.made[target] = frozenset("x"), statement
        loops = [s for s in after if isinstance(s, ir.Loop)]
        folded = any(target in ir.assigned(loop.body) for loop in loops)
        inner = [s for loop in loops for s in loop.body]
        state = any(isinstance(s, ir.Scan) and s.state == target for s in inner)
        count = any(isinstance(s, ir.Online) and s.op == "welford" and s.states[0] == target for s in inner)
        if (self.whole and (folded or state)) or count:  # how many a row has follows from where it is
            return
        self.add(f"{target.name} = tl.full({self.shape(folded)}, {self.start(target, folded)}, {dtype})")

    def start(self, target: ir.Value, position: bool = True) -> str:
        """The number that a variable starts from; the position of the best of none is past all others."""
        statement = self.made[target]
        assert isinstance(statement, ir.Declare) and isinstance(statement.start, ir.Literal), "it starts from a number"
        if position and any(isinstance(s, ir.Best) and s.position == target for s in ir.walk(self.function.body)):
            return str(NOWHERE)
        number = statement.start.number
        return str(int(number)) if target.dtype == "bool" else _number(number, target.dtype)

    def taken(self, operand: ir.Operand, target: ir.Value) -> str:
        """What a row has of a value, and elsewhere what changes nothing."""
        shape, dtype = self.shape(True), TYPES[target.dtype]
        text, start = self.operand(operand), self.start(target)
        block = (
            f"tl.full({shape}, {text}, {dtype})"
            if isinstance(operand, ir.Literal)
            else f"tl.broadcast_to({text}, {shape})"
        )
        return f"tl.where(rm, {block}, {start})" + (".to(tl.int1)" if target.dtype == "bool" else "")

    def assign(self, statement: ir.Assign) -> None:
        target, op, (_, value) = statement.target, statement.op, statement.args
        given = self.taken(value, target) if self.inner else self.typed(value)
        if not (self.inner and self.whole):
            given = FOLDS[op][0].format(target.name, given)
        self.add(f"{target.name} = {given}")

    def best(self, statement: ir.Best) -> None:
        best, position = statement.best, statement.position
        names = f"{best.name}, {position.name}"
        given = [self.typed(operand) for operand in (statement.value, statement.here)]
        if self.inner:
            given = [self.taken(statement.value, best), self.taken(statement.here, position)]
        if self.inner and self.whole:
            self.add(f"{names} = {', '.join(given)}")
        else:
            self.add(f"{names} = {_merge(statement)}({names}, {', '.join(given)})")

    def online(self, statement: ir.Online) -> None:
        assert self.inner and self.row is not None and not self.whole, "a row that one block covers is taken at once"
        names, value = [state.name for state in statement.states], statement.value
        match statement.op:
            case "exp_sum":
                self.add(f"{', '.join(names)} = _exp_sum({', '.join(names)}, {self.taken(value, statement.states[0])})")
            case "welford":  # how many values a lane has taken follows from where it is
                mean = ", ".join(names[1:])
                self.add(f"{mean} = _welford({mean}, {self.operand(value)}, rm, start // {self.row.lanes} + 1)")

    def fold(self, target: ir.Value, loop: ir.Loop) -> None:
        """What lanes of a row have come to."""
        dtype, name = target.dtype, target.name
        (taker,) = [s for s in ir.walk(loop.body) if not isinstance(s, ir.Loop) and target in ir.assigned([s])]
        match taker:
            case ir.Online(states, op) if target == states[0]:
                names = [state.name for state in states]
                given = names
                if op == "welford":
                    given = [*names[1:], f"({loop.axis.size} - base + {loop.lanes - 1}) // {loop.lanes}"]
                self.add(f"{', '.join(names)} = _{op}_of_row({', '.join(given)})")
            case ir.Best(best=best) if target == best:
                return
            case ir.Best(best=best):
                self.add(f"_, {name} = tl.reduce(({best.name}, {name}), 1, {_merge(taker)})")
                self.add(f"{name} = {name}[:, None]")
            case ir.Assign(op=op):
                self.add(f"{name} = {FOLDS[op][1].format(name)}[:, None]")
                if op in ("add", "mul") and dtype not in ("f32", "f64"):
                    self.add(f"{name} = {name}.to({TYPES[dtype]})")

    def scan(self, scan: ir.Scan) -> None:
        """A block, and what was before it where a row takes several. Lanes past the end are seen by nobody."""
        name, state, join = scan.target.name, scan.state.name, SCANS[scan.op]
        if not self.inner:
            self.add(f"{state} = {join}({state}, {self.typed(scan.value)})")
            self.define(scan, scan.target, state, frozenset("x"))
            return
        block = f"tl.broadcast_to({self.typed(scan.value)}, {self.shape(True)})"
        self.define(scan, scan.target, f"tl.associative_scan({block}, 1, {join})", frozenset("xr"))
        if not self.whole:
            assert self.row is not None
            last = f"tl.where(base == {self.row.lanes - 1}, {name}, 0)"
            self.add(f"{name} = {join}({state}, {name})")
            self.add(f"{state} = tl.sum({last}, 1)[:, None].to({TYPES[scan.target.dtype]})")

    # ---- values

    def operand(self, operand: ir.Operand) -> str:
        if isinstance(operand, ir.Literal):
            return _number(operand.number, operand.dtype)
        return self.texts.get(operand, operand.name)

    def typed(self, operand: ir.Operand) -> str:
        """A number as a tensor of its dtype; any other operand by its name."""
        text = self.operand(operand)
        return f"tl.full([], {text}, {TYPES[operand.dtype]})" if isinstance(operand, ir.Literal) else text

    def lanes_of(self, operand: ir.Operand | None) -> Lanes:
        return self.lanes[operand] if isinstance(operand, ir.Value) else NO_LANES

    def computed(self, statement: ir.Let) -> str:
        op, args, dtype = statement.op, statement.args, statement.target.dtype
        match op:
            case "cast":
                return self.cast(args[0], dtype)
            case "bitcast":
                return f"{self.typed(args[0])}.to({TYPES[dtype]}, bitcast=True)"
            case "uniform" | "normal":
                return f"_{op}({', '.join(map(self.typed, args))})"
            case "where":
                return f"tl.where({self.operand(args[0])}, {', '.join(self.given(statement, args[1:]))})"
            case _:
                return spelling(op, args[-1].dtype).format(*self.given(statement, args))

    def given(self, statement: ir.Let, args: Sequence[ir.Operand]) -> list[str]:
        """Texts of operands; where all are numbers, or one is no float, numbers get their dtype said."""
        single = statement.op in ("div", "shl", "shr", "pow")
        single = single or all(isinstance(arg, ir.Literal) for arg in args)
        return [self.typed(arg) if single or arg.dtype not in ("f32", "i32") else self.operand(arg) for arg in args]

    def cast(self, operand: ir.Operand, dtype: str) -> str:
        source, value = operand.dtype, self.typed(operand)
        if dtype == "bool":
            return f"({value} != 0)"
        if source in scalar.FLOATS and dtype in scalar.INTEGERS:
            wide = "_double" if source == "f64" else ""
            value = f"{wide}_whole_{64 if dtype in ('i64', 'u8') else 32}({value})"
        elif (source, dtype) in (("f64", "f16"), ("f64", "bf16")):
            value = f"{value}.to(tl.float32)"  # eager rounds twice
        elif dtype in scalar.FLOATS and source in SIGNED and self.is_computed(operand):
            value = f"_signed({value}, tl.{'float64' if dtype == 'f64' else 'float32'})"
        if dtype == "i16" and source in ("i32", "i64", *scalar.FLOATS):
            return f"_short({value})"
        return f"{value}.to({TYPES[dtype]})"

    def is_computed(self, operand: ir.Operand) -> bool:
        """Whether LLVM sees of what an integer was made that may be negative, so that it may take it for a flag."""
        match self.made.get(operand) if isinstance(operand, ir.Value) else None:
            case None | ir.Load():
                return False
            case ir.Position(index=index):
                return not index.nonnegative
            case ir.Let(op="cast", args=(source,)):
                return source.dtype in SIGNED
        return True

    # ---- memory

    def lanes_at(self, index: Index) -> Lanes:
        """The lanes of a position: those of its axes, and of what it loads."""
        axes = index.axes()
        lanes = frozenset(
            [letter for letter, loop in (("x", self.outer), ("r", self.row)) if loop and loop.axis in axes]
        )
        return lanes.union(*[self.lanes_of(atom.expr) for atom in index.indirects()])  # type: ignore[arg-type]

    def place(self, index: Index) -> str:
        def leaf(atom: Axis | Indirect) -> str:
            return self.leaf(atom) if isinstance(atom, Axis) else self.operand(atom.expr)  # type: ignore[arg-type]

        return place(index, leaf, wrapped, _divide)

    def leaf(self, axis: Axis) -> str:
        """The points of an axis."""
        return axis.name

    def guard(self, lanes: Lanes, mask: ir.Operand | None = None) -> list[str]:
        """Which lanes there are, and under the mask."""
        return [f"{letter}m" for letter in "xr" if letter in lanes] + ([self.operand(mask)] if mask is not None else [])

    def load(self, statement: ir.Load) -> None:
        target, memory, index, mask = statement.target, statement.memory, statement.index, statement.mask
        if memory in self.scratch:
            self.rename(target, self.scratch[memory])
            return
        lanes, more = self.lanes_at(index), self.lanes_of(mask)
        where = " + ".join([self.place(index), *[f"{letter} * 0" for letter in sorted(more - lanes)]])
        guard = self.guard(lanes, mask)
        text = f"tl.load({memory} + ({where})" + (f", {' & '.join(guard)}, other=0)" if guard else ")")
        self.define(statement, target, text, lanes | more)

    def store(self, statement: ir.Store) -> None:
        memory, value, mode = statement.memory, statement.value, statement.mode
        if memory not in {param.name for param in self.function.params}:
            assert self.whole, "a row that is walked in a loop is kept nowhere"
            self.scratch[memory] = value
            return
        shape, guard = self.shape(self.inner), "xm & rm" if self.inner else "xm"
        points = self.place(statement.index) + (" + x * 0" if not self.lanes_at(statement.index) else "")
        where = f"{memory} + tl.broadcast_to({points}, {shape})"
        text = self.operand(value)
        text = f"tl.full({shape}, {text}, {TYPES[value.dtype]})" if isinstance(value, ir.Literal) else text
        function, more = ("tl.store", "") if mode in ("store", "put") else (ATOMICS[mode], ", sem='relaxed'")
        self.add(f"{function}({where}, tl.broadcast_to({text}, {shape}), {guard}{more})")


def _merge(best: ir.Best) -> str:
    return "_arg_max" if best.op == "gt" else "_arg_min"


def _divide(inner: str, sign: str, divisor: str, nonnegative: bool) -> str:
    if not nonnegative:
        return f"_{'mod' if sign == '%' else 'floordiv'}({inner}, {divisor})"
    return f"({inner} {sign} {divisor})" if inner.isidentifier() else f"(({inner}) {sign} {divisor})"


def _number(value: object, dtype: str) -> str:
    if dtype == "bool":
        return "True" if value else "False"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    return str(value)
