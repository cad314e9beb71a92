"""Prints functions of the kernel IR as C++ with vectors: `extern "C" const char* k<i>(void* const* p)` for each.

A function is one over a range of its grid, the parallel loops that it begins with, which `parallel` in `loops.h`
shares among threads. A loop of lanes is a `SWEEP` (`loops.h`): its body is written once, for a block of lanes, of which
`n` are alive. The values of symbolic sizes follow the pointers. What a kernel returns is null, or what was wrong with
an index that it loaded. Neighbours: `lanes` says what is a vector, `memory` writes loads and stores, `ops` has the
spellings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stator.codegen.cpp import ops
from stator.codegen.cpp.memory import Block, Memory, Name
from stator.kernel import ir
from stator.kernel.writing import COMBINE
from stator.loop.index import ZERO, Axis
from stator.loop.scalar import round_to
from stator.sizes import Extent

#: Lines of memory that 32 columns have of 32 terms. All blocks of rows along some columns go through all terms, so they
#: share the lines that are prefetched of the next columns, unless they are more than there are lines.
LINES = 32


def function_text(function: ir.Function) -> str:
    """One kernel: its range function and its entry."""
    name = function.name
    if not function.body:
        return f'extern "C" const char* {name}(void* const*) {{ return 0; }}  // no elements\n'
    return _Printer(function).text()


class _Printer(Memory):
    """Writes one function."""

    def __init__(self, function: ir.Function) -> None:
        super().__init__(function)
        statements = ir.walk(function.body)
        self.uses = Counter([o for s in statements for o in ir.operands(s)])
        # How many of the uses are stores that combine a value with nothing.
        stores = [s for s in statements if isinstance(s, ir.Store) and s.mode in ("store", "put")]
        self.stored = Counter([s.value for s in stores])
        self.positions = {best.position for best in self.lanes.best.values()}  # declared and taken with the best values
        self.operators: dict[ir.Value, str] = {}  # what accumulators are folded by
        self.sources: dict[ir.Operand, str] = {}  # the dtypes that casts have converted
        self.held: dict[ir.Operand, str] = {}  # half types that hold a wider value as it is
        self.multiplied = {s.scratch for s in statements if isinstance(s, ir.Multiply)}
        self.whole: ir.Loop | None = None  # what runs over all pieces of a thread at once

    def text(self) -> str:
        function, name = self.function, self.function.name
        for i, param in enumerate(function.params):
            const, storage = "const " if param.role == "in" else "", ops.STORAGE[param.dtype]
            self.block.lines.append(f"{const}{storage}* {param.name} = ({storage}*)p[{i}];")
        streamed = sorted({s.memory for s in ir.walk(function.body) if isinstance(s, ir.Store) and s.stream})
        for result in streamed:  # where it takes the place of an operand, that is in the caches
            others = [f"(void*){result} != {param.name}" for param in function.params if param.role == "in"]
            self.block.lines.append(f"const bool apart_{result} = {' && '.join(others) or 'true'};")
        self.block.lines += ["Tiles tiles;"] * bool(self.multiplied)
        grid = self.grid()
        self.block.lines += ["end_streams();"] * bool(streamed)
        if function.checks:
            count = len(function.params) + len(function.symbols)
            self.block.lines.insert(0, "int wrong = 0;")
            self.block.lines.append(f"if (wrong) __atomic_store_n((int*)p[{count}], wrong, __ATOMIC_RELAXED);")
        sizes = [f"const i64_ {name} = {ops.WHOLE.extent(value)};" for value, name in self.sizes.items()]
        lines = "\n".join("    " + line for line in [*self.given(), *sizes, *self.block.lines])
        return (
            f"static void {name}_range(void* const* p, i64_ begin, i64_ end) {{\n{lines}\n}}\n"
            f'extern "C" const char* {name}(void* const* p) {{{self.entry(grid)}}}\n'
        )

    def given(self) -> list[str]:
        """The symbols as variables (their values come after the pointers), and what is made of them."""
        function, first = self.function, len(self.function.params)
        values = [f"const i64_ {symbol.name} = (i64_)p[{first + i}];" for i, symbol in enumerate(function.symbols)]
        return values + [f"const i64_ {symbol.name} = {ops.WHOLE.extent(value)};" for symbol, value in function.named]

    def entry(self, grid: Extent) -> str:
        """Shares the range among threads; with checks, they say through one more pointer which one failed."""
        function = self.function
        run = f"parallel({function.name}_range, {{}}, {ops.WHOLE.extent(grid)}, {ops.WHOLE.extent(function.threads)});"
        lines, checks = self.given(), function.checks
        if not checks and not lines:
            return f" {run.format('p')} return 0; "
        if not checks:
            return "".join(f"\n    {line}" for line in [*lines, run.format("p"), "return 0;"]) + "\n"
        pointers = [f"p[{i}]" for i in range(len(function.params) + len(function.symbols))]
        lines += ["int wrong = 0;", f"void* const q[] = {{{', '.join([*pointers, '&wrong'])}}};", run.format("q")]
        for number, bound in checks.items():
            size = f" for a dim of size {bound}" if type(bound) is int else ""
            lines.append(f'if (wrong == {number}) return "index out of range{size}";')
        return "".join(f"\n    {line}" for line in [*lines, "return 0;"]) + "\n"

    # ---- blocks

    def enter(self) -> None:
        self.block = Block(self.block)

    def leave(self, head: str, tail: str) -> None:
        """Close the block: its text goes to the one around it between `head` and `tail`."""
        inner, parent = self.block, self.block.parent
        assert parent is not None
        self.block = parent
        parent.lines.append(head)
        parent.lines.extend(["    " + line for line in inner.lines])
        parent.lines.append(tail)

    def grid(self) -> Extent:
        """The function's body, as a loop over this thread's part of the parallel iterations; how many there are."""
        *before, last = self.function.body
        self.statements(before)
        axes: list[Axis] = []
        body: ir.Block = (last,)
        while len(body) == 1 and isinstance(body[0], ir.Loop) and body[0].kind == "parallel":
            axes.append(body[0].axis)
            body = body[0].body
        if not axes:
            self.statements(body)
            return 1
        match body:
            case (ir.Loop(piece=ir.Piece(axis, step), unroll=1) as loop,) if axes == [axis]:  # pieces in a row are one
                chunk, size = self.extent(step), self.extent(loop.axis.size)
                self.block.lines.append(f"const i64_ from = begin * {chunk}, to = least(end * {chunk}, {size});")
                self.whole = loop
                self.statements(body)
                return axis.size
        self.enter()
        self.block.lines += [
            f"const i64_ {axis.name} = {'g' if axes == [axis] else axis.name + '_at'};" for axis in axes
        ]
        self.statements(body)
        starts, steps, below = self._counting(axes)
        self.leave(f"for (i64_ {', '.join(['g = begin', *starts])}; g < end; {', '.join(['++g', *steps])}) {{", "}")
        return below

    def _counting(self, axes: Sequence[Axis]) -> tuple[list[str], list[str], Extent]:
        """Where the axes of a grid begin, how they go on without being divided again, and how many steps there are."""
        if len(axes) == 1:
            return [], [], axes[0].size
        below: Extent = 1
        starts, steps = [], []
        for axis in reversed(axes):
            at, size = f"{axis.name}_at", self.extent(axis.size)
            divided = f"begin / {self.extent(below)}" if below != 1 else "begin"
            starts.append(f"{at} = {divided}" + ("" if axis is axes[0] else f" % {size}"))
            steps.append(f"++{at}" if axis is axes[0] else f"next({at}, {size})")
            below *= axis.size
        return starts, [" && ".join(steps)], below

    def statements(self, block: Sequence[ir.Statement]) -> None:
        """A block; what its last loop, or statement, adds to a variable of its own is folded after it."""
        stores: list[ir.Store] = []
        own = {s.target for s in block if isinstance(s, ir.Declare)}
        changed = [ir.assigned([statement]) & own for statement in block]
        last = {target: place for place, targets in enumerate(changed) for target in targets}
        for place, statement in enumerate(block):
            if isinstance(statement, ir.Store):
                stores.append(statement)
                continue
            self.stores(stores)
            stores = []
            if isinstance(statement, ir.Loop):
                self.run(statement)
            else:
                self.statement(statement)
            for target in sorted(changed[place], key=lambda value: value.name):
                if last[target] == place:
                    self.fold(target)
        self.stores(stores)

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let(target, op, args):
                self.let(target, op, args)
            case ir.Position(target):
                self.name(target, self.position(statement))
            case ir.Load(target):
                # g++ would load what more than two operators take once for each of them (two: as fast)
                several = self.loop is not None and self.loop.kind == "whole" and self.uses[target] > 2
                hidden = several and target in self.lanes.varying
                self.name(target, f"in_register({self.load(statement)})" if hidden else self.load(statement))
            case ir.Within(target, value):
                if statement.number:
                    self.name(target, self.within(statement))
                else:
                    self.names[target] = self.named(value)
            case ir.Declare():
                self.declare(statement)
            case ir.Assign():
                self.assign(statement)
            case ir.Best():
                self.take(statement)
            case ir.Flush(target):
                self.block.lines.append(f"flush({target.name}_total, {target.name}_lost, {target.name});")
            case ir.Scan():
                self.scan(statement)
            case ir.Scratch(name, dtype, numel):
                self.block.lines.append(f"alignas(64) {ops.STORAGE[dtype]} {name}[{numel}];")
            case ir.Turn():
                self.turn(statement)
            case ir.Multiply():
                self.multiply(statement)
            case _:
                raise NotImplementedError(f"C++ has no {type(statement).__name__}")

    def name(self, target: ir.Value, text: str) -> None:
        """Define a value."""
        vector = target in self.lanes.varying
        self.define(text, target.name)
        self.names[target] = Name(target.name, ops.KIND[target.dtype], vector)

    def let(self, target: ir.Value, op: str, args: tuple[ir.Operand, ...]) -> None:
        vector, dtype, kind = any(self.named(arg).vector for arg in args), target.dtype, ops.KIND[target.dtype]
        texts = [self.operand(arg, vector) for arg in args]
        match op:
            case "cast":
                given = args[0].dtype
                self.sources[target] = given
                if (
                    ops.KIND[given] == kind
                    and (dtype not in ops.WRAP or self.holds(dtype, args[0]))
                    and dtype != "bool"
                ):
                    self.names[target] = Name(texts[0], kind, vector)
                    self.held[target] = given
                    return
                text = ops.cast(given, dtype, texts[0], self.stored[target] == self.uses[target])
            case "bitcast":
                text = ops.bitcast(args[0].dtype, dtype, texts[0])
            case "uniform" | "normal":
                seed = self.operand(args[0], False)
                at = texts[1] if vector else self.operand(args[1], False, "i64")
                text = f"{op}_<{self.width}>({seed}, {at})" if vector else f"{op}_({seed}, {at})"
            case "where":
                if not self.named(args[0]).vector:  # all lanes choose alike: a branch, or a move
                    texts[0] = self.operand(args[0], False)
                text = ops.operator(op, "", dtype, texts)
            case _:
                text = ops.operator(op, ops.KIND[args[-1].dtype], dtype, texts)
        self.name(target, text)
        if op in _CHOOSE:
            operands = args[op == "where" :]
            for half in ("bf16", "f16"):
                if all(self.holds(half, operand) for operand in operands):
                    self.held[target] = half

    def holds(self, half: str, operand: ir.Operand) -> bool:
        """Whether a half type holds an operand as it is, so that it need not be rounded."""
        if isinstance(operand, ir.Literal):
            return operand.dtype == "f32" and round_to(half, operand.number) == operand.number
        return self.held.get(operand) == half

    # ---- accumulators

    def shape(self, target: ir.Value, kind: str) -> str:
        """The type of a variable: a vector where lanes differ in it, or it has a part for each."""
        loop = self.lanes.folded.get(target) or self.lanes.scanned.get(target)
        loop = loop or (self.loop if target in self.lanes.varying else None)
        return f"V<{ops.ELEMENT[kind]}, {loop.lanes}>" if loop is not None else ops.ELEMENT[kind]

    def declare(self, statement: ir.Declare) -> None:
        target, start, lines = statement.target, statement.start, self.block.lines
        if target in self.positions:
            return
        assert isinstance(start, ir.Literal), "a variable starts from a number"
        name = target.name
        if (best := self.lanes.best.get(target)) is not None:
            self.declare_best(best, start)
            return
        kind = ops.KIND[target.dtype]
        shape = self.shape(target, kind)
        folded = self.lanes.folded.get(target)
        count = str(folded.unroll) if folded is not None else "1"
        number = str(-int(start.number)) if kind == "mask" else ops.number(kind, start.number)
        lines += [f"{shape} {name}[{count}];", f"fill({name}, {number});"]
        if target in self.lanes.flushed:
            lines.append(f"{shape} {name}_total[{count}] = {{}}, {name}_lost[{count}] = {{}};")

    def declare_best(self, best: ir.Best, start: ir.Literal) -> None:
        kind, position = _best_kind(best), ops.ELEMENT[ops.KIND[best.position.dtype]]
        shape, folded = self.shape(best.best, kind), self.lanes.folded.get(best.best)
        number = ops.number(kind, int(start.number) if start.dtype == "bool" else start.number)
        kind, name = f"Best<{shape}, {position}>", best.best.name
        if folded is None:
            self.block.lines.append(f"{kind} {name}[1] = {{{{splat<{shape}>({number}), {{}}}}}};")
        else:
            self.block.lines += [f"{kind} {name}[{folded.unroll}];", f"fill({name}, {number});"]

    def assign(self, statement: ir.Assign) -> None:
        target, op, name = statement.target, statement.op, statement.target.name
        assert statement.args[ir.FOLDING[op]] == target, "a variable takes the next value"
        folded = target in self.lanes.folded
        vector = folded or target in self.lanes.varying
        values = [self.operand(arg, vector) for arg in statement.args if arg != target]
        item = f"{name}[{'u' if folded else '0'}]"
        if op == "fma":  # what it is folded by in the end is a sum
            op, combined = "add", f"fused_({', '.join(values)}, {item})"
        else:
            combined = _combined(op, target.dtype, item, *values)
        self.operators[target] = op
        self.block.lines.append(f"{item} = keep(n, {combined}, {item});" if folded else f"{item} = {combined};")

    def scan(self, scan: ir.Scan) -> None:
        """One step of a scan, or one for each lane."""
        dtype, state = scan.target.dtype, f"{scan.state.name}[0]"
        along = scan.state in self.lanes.scanned
        value = self.operand(scan.value, along or scan.target in self.lanes.varying)
        combine, wrap = ops.COMBINE[COMBINE.get(scan.op, scan.op)], ops.WRAP.get(dtype, "")
        if along:
            step = f"{wrap}({combine.format('a', 'b')})"
            function = ops.scan_along_lanes(scan.op, dtype, self.sources.get(scan.value))
            text = f"{function}({state}, {value}, n, [](auto a, auto b) BODY {{ return {step}; }})"
        else:
            text = f"({state} = {wrap}({combine.format(state, value)}))"
        self.name(scan.target, text)

    def turn(self, turn: ir.Turn) -> None:
        """A block, turned over: where it begins, how far apart its columns are, how many of both there are."""
        (rows, height), (columns, width) = turn.rows, turn.columns
        first, start = (piece.axis.index * piece.step for piece in (height, width))
        step = turn.index.coefficient(columns)
        place = self.place(turn.index.substitute({rows: first, columns: start}))
        counts = [
            f"least({self.extent(piece.step)}, {self.extent(axis.size)} - {self.place(begin)})"
            for axis, piece, begin in ((columns, width, start), (rows, height, first))
        ]
        where = f"{turn.scratch}, {turn.memory} + {place}, {self.extent(step)}"
        self.block.lines.append(f"turn<{turn.width}>({where}, {', '.join(counts)});")

    def multiply(self, product: ir.Multiply) -> None:
        """A block of sums: where both factors begin, how far apart rows are, how many there are of rows and columns."""
        terms, begins = product.terms, {product.terms: ZERO}
        counts = []
        for axis, piece in (product.rows, product.columns):
            begins[axis] = begin = piece.axis.index * piece.step
            counts.append(f"least({self.extent(piece.step)}, {self.extent(axis.size)} - {self.place(begin)})")
        left, right = (self.place(index.substitute(begins)) for index in (product.at, product.to))
        step = product.at.stride(product.rows[0])
        assert step is not None
        factors = f"{product.left} + {left}, {self.extent(step)}, {product.right} + {right}"
        part = product.rows[1].axis
        assert isinstance(part.size, int)
        ahead = -(-LINES // part.size) if product.ahead and part.size <= LINES else 0
        function = f"multiply<{product.width}, {terms.size}, {ahead}>"
        given = f"{factors}, {', '.join(counts)}, {self.place(part.index)}"
        self.block.lines.append(f"{function}(tiles, {product.scratch}, {given});")

    def take(self, best: ir.Best) -> None:
        kind, folded = _best_kind(best), best.best in self.lanes.folded
        vector = folded or best.best in self.lanes.varying
        value, here = (self.operand(arg, vector, given) for arg, given in ((best.value, kind), (best.here, "")))
        live = f"live<{self.width}>({'n' if folded else 'Full{}'})" if vector else "true"
        flags, item = f"{_flag(best.op == 'gt')}, {_flag(best.in_turn)}", "u" if folded else "0"
        self.block.lines.append(f"take<{flags}>({best.best.name}[{item}], {value}, {here}, {live});")

    def fold(self, target: ir.Value) -> None:
        """Name what a variable has come to: folded over lanes where it has a part for each."""
        if target in self.positions:
            return
        name, kind, folded = target.name, ops.KIND[target.dtype], target in self.lanes.folded
        vector = target in self.lanes.varying
        if (best := self.lanes.best.get(target)) is not None:
            self.define(f"winner<{_flag(best.op == 'gt')}>({name})" if folded else f"{name}[0]", f"{name}_found")
            for part, value in (("value", best.best), ("at", best.position)):
                self.define(f"{name}_found.{part}", f"{value.name}_all")
                kind = _best_kind(best) if part == "value" else ops.KIND[value.dtype]
                self.names[value] = Name(f"{value.name}_all", kind, vector)
            return
        if target in self.lanes.flushed:
            text = f"join({name}_total, {name}_lost)" if folded else f"{name}_total[0]"
        elif folded:
            body = _combined(self.operators[target], target.dtype, "a", "b")
            text = f"fold_all({name}, {ops.FOLDS.get(body) or f'[](auto a, auto b) BODY {{ return {body}; }}'})"
        else:
            text = f"{name}[0]"
        if kind == "mask" and not vector:
            text = f"({text} != 0)"
        self.define(text, f"{target.name}_all")
        self.names[target] = Name(f"{target.name}_all", kind, vector)

    # ---- loops

    def run(self, loop: ir.Loop) -> None:
        if not loop.lanes:
            self.enter()
            self.statements(loop.body)
            start, stop = self.bounds(loop)
            axis = loop.axis.name
            self.leave(f"for (i64_ {axis} = {start}; {axis} < {stop}; ++{axis}) {{", "}")
            return
        self.loop = loop
        self.enter()
        self.statements(loop.body)
        self.leave(self.sweep(loop), "})")
        self.loop = None

    def bounds(self, loop: ir.Loop) -> tuple[str, str]:
        """Where a loop begins and ends."""
        piece, size = loop.piece, self.extent(loop.axis.size)
        if piece is None:
            return "0", size
        if loop is self.whole:
            return "from", "to"
        start = f"{self.extent(piece.step)}*{piece.axis.name}"
        stop = f"{start} + {self.extent(piece.step)}"
        return start, stop if loop.axis.size % piece.step == 0 else f"least({stop}, {size})"

    def sweep(self, loop: ir.Loop) -> str:
        """The head of a loop of lanes: whether single vectors and a part of one may be left over, too."""
        (start, stop), together = self.bounds(loop), loop.lanes * loop.unroll
        left, tail = loop.axis.size % together, loop.axis.size % loop.lanes != 0
        lanes, unroll, rest = loop.lanes, 1, False
        match loop.kind:
            case "whole":
                lanes, tail = together, False
            case "rest":
                start = f"{stop} - ({stop} - {start}) % {together}"
            case _:
                unroll = loop.unroll
                rest = unroll > 1 and (type(left) is not int or left >= lanes)
        over = _LEFT[rest, tail]
        return f"SWEEP({lanes}, {unroll}, {over}, {loop.axis.name}, {start}, {stop}, {{"


#: What a loop may leave over, by whether that may be single vectors, and a part of one.
_LEFT = {(False, False): "none", (True, False): "rest", (False, True): "tail", (True, True): "both"}
#: Operators that give one of their operands, or one with another sign.
_CHOOSE = frozenset(("minimum", "maximum", "where", "neg", "abs"))


def _best_kind(best: ir.Best) -> str:
    """Truth values are compared as numbers."""
    kind = ops.KIND[best.best.dtype]
    return "i32" if kind == "mask" else kind


def _combined(op: str, dtype: str, left: str, right: str) -> str:
    text = (ops.COMBINE_MASKS if ops.KIND[dtype] == "mask" else ops.COMBINE)[op].format(left, right)
    wrap = ops.WRAP.get(dtype)
    return f"{wrap}({text})" if wrap else text


def _flag(value: object) -> str:
    return "true" if value else "false"
