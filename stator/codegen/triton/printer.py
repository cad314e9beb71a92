"""Prints functions of the kernel IR as `@triton.jit` functions: a statement is a line, a loop of lanes a block.

The parallel loops of a function are its grid. Loops of lanes are the dims of a tile, outer points first, then `r`, the
points of the reduce axes: a value has the lanes of what it is made of, of all, of some or of none. A loop over `r` that
one block covers is no loop in the text, so what is in scratch there are names. A block that ends where its axis does
has no mask. A loaded index out of its bound stops the device, as eager's kernels do, and nothing is touched there.
Triton widens the mask of a load to its pointers, never the other way round, so pointers are widened here where the mask
has more lanes. Symbolic sizes are arguments, on whose values nothing is specialised; a launch computes the grid, and
whether positions need 64 bits.
Neighbours: `launches` writes what their launches need to know, `operators` has the spellings, `kernel/strategies.py`
made the functions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from math import prod

from stator.codegen.places import place
from stator.codegen.triton.halves import Halves
from stator.codegen.triton.launches import counted, loops_of
from stator.codegen.triton.operators import ATOMICS, FOLDS, ROUGH, SCANS, SIGNED, TYPES, spelling
from stator.kernel import ir
from stator.loop import scalar
from stator.loop.extent import less, wrapped
from stator.loop.index import Axis, Index, Indirect

#: Memory with less than such a part of as many elements as there are points is read by several programs.
_SHARED = 8
#: What a value varies along.
Lanes = frozenset[str]
NO_LANES: Lanes = frozenset()
#: A position that no element has, by the dtype of positions: what stands for the best of none.
NOWHERE = {"i64": 2**62, "i32": 2**31 - 1}


def function_text(function: ir.Function, stages: int = 1, kept: Collection[str] = (), rounds: bool = True) -> str:
    """One kernel; of rows that a program takes in turn, or of the pieces of a row, so many are under way at once.

    Loads of memory that is `kept` ask the cache to have it when others come by. Without `rounds`, results need not be
    rounded as eager's are.
    """
    return Printer(function, stages, kept, rounds).text()


class Printer:
    """Writes one function; `matmul.py` has one whose blocks are tiles of a product."""

    def __init__(self, function: ir.Function, stages: int = 1, kept: Collection[str] = (), rounds: bool = True) -> None:
        self.function, self.stages, self.kept = function, stages, kept
        lanes = [loop for loop in loops_of(function) if loop.kind == "lanes"]
        self.outer = [loop for loop in lanes if loop.piece is not None]
        rows = {loop.axis: loop for loop in lanes if loop.piece is None}
        assert len(rows) < 2, "a tile has one row of points of the reduce axes"
        self.row = next(iter(rows.values()), None)
        self.dims = [*self.outer, *rows.values()]
        self.letters = [loop.axis.name for loop in self.dims]
        self.around: Lanes = frozenset([loop.axis.name for loop in self.outer])
        self.inner = False  # in the loop over `r`
        self.indent = "    "
        self.lines: list[str] = []
        self.texts: dict[ir.Value, str] = {}  # values that are other names, or numbers
        self.lanes: dict[ir.Value, Lanes] = {}
        self.made: dict[ir.Value, ir.Statement] = {}
        self.scratch: dict[str, ir.Operand] = {}
        self.halves = Halves(function, rounds)
        stores = [s for s in ir.walk(function.body) if isinstance(s, ir.Store)]
        local = {s.name for s in ir.walk(function.body) if isinstance(s, ir.Scratch)}
        self.sums = {s.memory for s in stores if s.memory in local and s.mode == "add"}  # rows that are variables
        #: Whether 64 bits are needed whatever symbols are.
        self.wide = any(type(end) is int for end, _ in counted(function))
        inner = [s for loop in lanes if loop.piece is None for s in loop.body if isinstance(s, ir.Store)]
        stored = any(s.memory not in local for s in inner)
        self.evictions = {} if self.whole and stored else _evictions(function)

    @property
    def whole(self) -> bool:
        """Whether one block covers a row."""
        size = self.row.axis.size if self.row is not None else 1
        return self.row is None or (type(size) is int and size <= self.row.lanes)

    def shape(self, inner: bool) -> str:
        """The shape of blocks, with all lanes of a row or one for it."""
        sizes = [loop.lanes if loop is not self.row or inner else 1 for loop in self.dims]
        return f"[{', '.join(map(str, sizes or [1]))}]"

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
        wide = ".to(tl.int64)" if self.wide else ""
        row, function = self.row, self.function
        if function.symbols or self.outer or any(loop.kind == "parallel" for loop in loops_of(function)):
            self.add("program = tl.program_id(0)" + wide)
        if row is not None:
            self.add(f"base = {self.range(row)}" + wide)
        if function.symbols:
            self.add("if WIDE:")
            for name in ["program", *["base"] * bool(row), *[symbol.name for symbol in function.symbols]]:
                self.add(f"    {name} = {name}.to(tl.int64)")
        self.programs()
        if row is not None and self.whole:
            self.points("base")

    def programs(self) -> None:
        """Where this program is along each axis of the grid, the last of which goes fastest."""
        blocks = {loop.piece.axis: loop for loop in self.outer if loop.piece is not None}
        grid = [loop.axis for loop in loops_of(self.function) if loop.kind == "parallel"]
        for i, axis in enumerate(grid):
            behind, digit = prod([later.size for later in grid[i + 1 :]]), "program"
            digit += f" // {wrapped(behind)}" if behind != 1 else ""
            digit += f" % {wrapped(axis.size)}" if i else ""
            if (loop := blocks.get(axis)) is None:
                self.add(f"{axis.name} = {digit}")
                continue
            name, first = loop.axis.name, f"{digit if digit.isidentifier() else f'({digit})'} * {loop.lanes} + "
            alone = ".to(tl.int64)" if self.wide else ""
            self.add(f"{name} = {f'{first}{self.range(loop)}' if axis.size != 1 else f'{self.range(loop)}{alone}'}")
            if not _full(loop):
                self.add(f"{name}m = {name} < {loop.axis.size}")

    def range(self, loop: ir.Loop) -> str:
        """The numbers of lanes, along their dim of the tile."""
        at = ", ".join([":" if other is loop else "None" for other in self.dims])
        return f"tl.arange(0, {loop.lanes})" + (f"[{at}]" if len(self.dims) > 1 else "")

    def points(self, text: str) -> None:
        assert self.row is not None
        self.add(f"r = {text}")
        if not _full(self.row):
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
            self.turns(loop) if loop.kind == "range" else self.block(loop.body)
            return
        self.inner, indent = True, self.indent
        if not self.whole:
            end = f"tl.full([], {loop.axis.size}, tl.int64)" if self.wide else str(loop.axis.size)  # not unsigned
            several = f", num_stages={self.stages}" if self.stages > 1 else ""
            self.add(f"for start in {'tl.' if several else ''}range(0, {end}, {loop.lanes}{several}):")
            self.indent += "    "
            self.points("start + base")
        self.block(loop.body)
        self.inner, self.indent = False, indent

    def turns(self, loop: ir.Loop) -> None:
        """Rows that one program takes one after the other."""
        assert loop.piece is not None and type(loop.piece.step) is int
        first, step, indent = f"{loop.piece.axis.name} * {loop.piece.step}", loop.piece.step, self.indent
        end = f"{first} + {step}" if loop.axis.size % step == 0 else f"min({first} + {step}, {loop.axis.size})"
        several = f", num_stages={self.stages}" if self.stages > 1 else ""
        self.add(f"for {loop.axis.name} in {'tl.' if several else ''}range({first}, {end}{several}):")
        self.indent += "    "
        self.block(loop.body)
        self.indent = indent

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let(target) if target in self.halves.absorbed:
                pass
            case ir.Let(target):
                written = self.halves.combined.get(target, statement)
                lanes = NO_LANES.union(*map(self.lanes_of, written.args))
                self.define(statement, target, self.computed(written), lanes)
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
        self.lanes[target], self.made[target] = self.around, statement
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
            return str(NOWHERE[target.dtype])
        number = statement.start.number
        return str(int(number)) if target.dtype == "bool" else _number(number, target.dtype)

    def taken(self, operand: ir.Operand, target: ir.Value) -> str:
        """What a row has of a value, and elsewhere what changes nothing."""
        text, start = self.wide_value(operand), self.start(target)
        assert self.row is not None
        text = text if _full(self.row) else f"tl.where(rm, {text}, {start})"
        return text + (".to(tl.int1)" if target.dtype == "bool" else "")

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
                mean, live = ", ".join(names[1:]), "True" if _full(self.row) else "rm"
                self.add(f"{mean} = _welford({mean}, {self.operand(value)}, {live}, start // {self.row.lanes} + 1)")

    def fold(self, target: ir.Value, loop: ir.Loop) -> None:
        """What lanes of a row have come to."""
        dtype, name, dim = target.dtype, target.name, len(self.dims) - 1
        (taker,) = [s for s in ir.walk(loop.body) if not isinstance(s, ir.Loop) and target in ir.assigned([s])]
        match taker:
            case ir.Online(states, op) if target == states[0]:
                names = [state.name for state in states]
                given = names
                if op == "welford":
                    given = [*names[1:], f"({loop.axis.size} - base + {loop.lanes - 1}) // {loop.lanes}"]
                self.add(f"{', '.join(names)} = _{op}_of_row({', '.join(given)}, {dim})")
            case ir.Best(best=best) if target == best:
                return
            case ir.Best(best=best):
                both = f"{best.name}, {name}"
                self.add(f"{both} = tl.reduce(({both}), {dim}, {_merge(taker)}, keep_dims=True)")
            case ir.Assign(op=op):
                self.add(f"{name} = {FOLDS[op][1].format(name, dim)}")
                if op in ("add", "mul") and dtype not in ("f32", "f64"):
                    self.add(f"{name} = {name}.to({TYPES[dtype]})")

    def scan(self, scan: ir.Scan) -> None:
        """A block, and what was before it where a row takes several. Lanes past the end are seen by nobody."""
        name, state, join = scan.target.name, scan.state.name, SCANS[scan.op]
        if not self.inner:
            self.add(f"{state} = {join}({state}, {self.typed(scan.value)})")
            self.define(scan, scan.target, state, self.around)
            return
        block, dim, all_lanes = self.typed(scan.value), len(self.dims) - 1, frozenset(self.letters)
        block = block if self.lanes_of(scan.value) == all_lanes else f"tl.broadcast_to({block}, {self.shape(True)})"
        self.define(scan, scan.target, f"tl.associative_scan({block}, {dim}, {join})", all_lanes)
        if not self.whole:
            assert self.row is not None
            last = f"tl.where(base == {self.row.lanes - 1}, {name}, 0)"
            self.add(f"{name} = {join}({state}, {name})")
            self.add(f"{state} = tl.sum({last}, {dim}, keep_dims=True).to({TYPES[scan.target.dtype]})")

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
                if statement.target in self.halves.rounded and self.several(self.lanes_of(args[0])):
                    return f"_{dtype}({self.typed(args[0])})"
                return self.cast(args[0], dtype)
            case _ if statement.target in self.halves.rough:
                return ROUGH[op].format(*self.given(statement, args))
            case "bitcast":
                return f"{self.typed(args[0])}.to({TYPES[dtype]}, bitcast=True)"
            case "uniform" | "normal":
                return f"_{op}({', '.join(map(self.typed, args))})"
            case "where":
                return f"tl.where({self.operand(args[0])}, {', '.join(self.given(statement, args[1:]))})"
            case _:
                return spelling(op, args[-1].dtype).format(*self.given(statement, args))

    def several(self, lanes: Lanes) -> bool:
        """Whether a value with these lanes has an even number of them."""
        return any(loop.lanes > 1 for loop in self.dims if loop.axis.name in lanes)

    def given(self, statement: ir.Let, args: Sequence[ir.Operand]) -> list[str]:
        """Texts of operands; where all are numbers, or one is no float, numbers get their dtype said."""
        single = statement.op in ("div", "shl", "shr", "pow") or all(isinstance(arg, ir.Literal) for arg in args)
        single = single or (statement.op in ("floordiv", "mod") and isinstance(args[0], ir.Literal))  # it is negated
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
        lanes = frozenset([loop.axis.name for loop in self.dims if loop.axis in axes])
        return lanes.union(*[self.lanes_of(atom.expr) for atom in index.indirects()])  # type: ignore[arg-type]

    def place(self, index: Index) -> str:
        def leaf(atom: Axis | Indirect) -> str:
            return self.leaf(atom) if isinstance(atom, Axis) else self.operand(atom.expr)  # type: ignore[arg-type]

        return place(index, leaf, wrapped, _divide)

    def wide_value(self, value: ir.Operand) -> str:
        """A value with all lanes."""
        text, shape = self.operand(value), self.shape(True)
        if isinstance(value, ir.Literal):
            return f"tl.full({shape}, {text}, {TYPES[value.dtype]})"
        return text if self.lanes_of(value) == frozenset(self.letters) else f"tl.broadcast_to({text}, {shape})"

    def leaf(self, axis: Axis) -> str:
        """The points of an axis."""
        return axis.name

    def guard(self, lanes: Lanes, mask: ir.Operand | None = None) -> list[str]:
        """Which lanes there are, and under the mask."""
        masks = [f"{loop.axis.name}m" for loop in self.dims if loop.axis.name in lanes and not _full(loop)]
        return masks + ([self.operand(mask)] if mask is not None else [])

    def load(self, statement: ir.Load) -> None:
        target, memory, index, mask = statement.target, statement.memory, statement.index, statement.mask
        if memory in self.scratch:
            self.rename(target, self.scratch[memory])
            return
        if memory in self.sums:
            self.texts[target], self.lanes[target] = memory, frozenset(self.letters)
            return
        lanes, more = self.lanes_at(index), self.lanes_of(mask)
        where = " + ".join([self.place(index), *[f"{name} * 0" for name in self.letters if name in more - lanes]])
        where, guard = where if where.isalnum() else f"({where})", self.guard(lanes, mask)
        text = f"tl.load({memory} + {where}" + (f", {' & '.join(guard)}, other=0" if guard else "")
        policy = "evict_last" if memory in self.kept else self.evictions.get(statement)
        text += f", eviction_policy='{policy}')" if policy else ")"
        self.define(statement, target, text, lanes | more)

    def store(self, statement: ir.Store) -> None:
        memory, value, mode = statement.memory, statement.value, statement.mode
        if memory in self.sums:
            assert self.whole, "a row that is walked in a loop is kept nowhere"
            text = self.wide_value(value)
            self.add(f"{memory} = {text if mode == 'store' else f'{memory} + {text}'}")
            return
        if memory not in {param.name for param in self.function.params}:
            assert self.whole, "a row that is walked in a loop is kept nowhere"
            self.scratch[memory] = value
            return
        shape = self.shape(self.inner)
        everywhere = self.around | (frozenset(self.letters) if self.inner else NO_LANES)
        place = self.place(statement.index)
        if place.isdigit():
            place = f"tl.full({shape}, {place}, tl.{'int32' if int(place) < 2**31 else 'int64'})"
        elif self.lanes_at(statement.index) != everywhere or not everywhere:
            place = f"tl.broadcast_to({place}, {shape})"
        elif not place.isidentifier():
            place = f"({place})"
        where = f"{memory} + {place}"
        text = self.operand(value)
        text = f"tl.full({shape}, {text}, {TYPES[value.dtype]})" if isinstance(value, ir.Literal) else text
        guard = ", " + (" & ".join(self.guard(everywhere)) or "None")
        function, more = ("tl.store", "") if mode in ("store", "put") else (ATOMICS[mode], ", sem='relaxed'")
        guard = guard if more or guard != ", None" else ""
        self.add(f"{function}({where}, {text}{guard}{more})")


def _evictions(function: ir.Function) -> dict[ir.Load, str]:
    """What of the caches' memory loads in loops over a row may take, where each element is one program's alone.

    What no later loop reads is read past the rest, what one does is kept for it.
    """
    loops = loops_of(function)
    rows = [loop for loop in loops if loop.kind == "lanes" and loop.piece is None]
    points = {loop.piece.axis: loop.axis for loop in loops if loop.piece is not None}
    alone = {points.get(loop.axis, loop.axis) for loop in loops if loop.kind == "parallel"}
    total = prod([axis.size for axis in {*alone, *[row.axis for row in rows]}])
    large = {param.name for param in function.params if not less(param.numel * _SHARED, total)}
    found: dict[ir.Load, str] = {}
    later: set[str] = set()
    for row in reversed(rows):
        loads = [s for s in ir.walk(row.body) if isinstance(s, ir.Load)]
        for load in loads:
            if alone | {row.axis} <= load.index.axes() and load.memory in large:
                found[load] = "evict_last" if load.memory in later else "evict_first"
        later.update([load.memory for load in loads])
    return found


def _full(loop: ir.Loop) -> bool:
    """Whether blocks of lanes end where their axis does."""
    return type(loop.axis.size) is int and loop.axis.size % loop.lanes == 0


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
