"""Prints attention as `@triton.jit` functions: forward, and two kernels of its gradients.

Scores are in powers of two: what is added up is exp2(s · log2 e - l · log2 e). Where no block that is walked reaches
past an end or the diagonal nothing is masked; the rest is a second loop. A row of no keys, or whose scores are all
-inf, gives zeros, as eager's kernels do. `score` is printed as any kernel's statements are, on tiles of its axes.
Sizes that are symbolic are arguments; positions within a batch have 32 bits unless some tensor is too large for that.
Neighbours: `loop/attention.py` has the formulas, `kernel/attention.py` the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stator.codegen.triton.launches import launch_entry, rounded, steps_of
from stator.codegen.triton.operators import TYPES
from stator.codegen.triton.printer import NO_LANES, Lanes, Printer
from stator.kernel import ir
from stator.kernel.attention import AttentionPlan
from stator.kernel.blocks import power_of_two
from stator.kernel.nest import Order, nest
from stator.loop.attention import EXACT, SCORE, TENSORS
from stator.loop.expr import postorder
from stator.loop.extent import wrapped
from stator.loop.index import ZERO, Axis, Index
from stator.loop.kernel import Kernel, Param, Store
from stator.sizes import Extent, postfix

LOG2E = 1.4426950408889634


def attention_text(plan: AttentionPlan, name: str) -> str:
    """One kernel."""
    return _PRINTERS[plan.attention.kind](plan, name).text()


def attention_launch(plan: AttentionPlan, name: str, warp: int, more: Mapping[str, object]) -> str:
    """What launches of it need to know; `more` are options of the compiler."""
    params, symbols = plan.kernel.params, plan.kernel.symbols
    options: dict[str, object] = {"num_warps": plan.threads // warp, "num_stages": plan.rows.stages, **more}
    options["enable_reflect_ftz"] = True  # of shares that are summed to one, tiny ones may be nothing
    if not symbols:
        return launch_entry(name, params, plan.programs, options)
    numbers = {symbol: i for i, symbol in enumerate(symbols)}
    limits = tuple([(postfix(numel, numbers), 2**31) for numel in dict.fromkeys([param.numel for param in params])])
    grid, sizes = postfix(plan.programs, numbers), tuple([symbol.name for symbol in symbols])
    attention = plan.attention
    steps = [step for _, stride in attention.strides for step in stride]
    if attention.score is not None:
        loads = [node.attr[1] for node in postorder([attention.score]) if node.op == "load"]
        steps += [step for index in loads for step in steps_of(index)]
    rounds = rounded(symbols, steps)
    return launch_entry(name, params, grid, options, f"{plan.programs} blocks", sizes, limits, rounds)


class _Printer:
    """What the kernels have in common: lines, tiles of tensors, masks and scores."""

    #: Rows of queries and keys as tiles: which stand along the first dim of scores.
    first = "m"

    def __init__(self, plan: AttentionPlan, name: str) -> None:
        self.plan, self.attention, self.name = plan, plan.attention, name
        self.lines: list[str] = []
        self.indent = "    "
        self.step = {"m": plan.rows.queries, "n": plan.rows.keys}
        self.end = {"m": self.attention.queries, "n": self.attention.keys}
        self.size = {"d": power_of_two(self.attention.width), "e": power_of_two(self.attention.depth)}
        self.size = {letter: max(16, size) for letter, size in self.size.items()}
        self.real = {"d": self.attention.width, "e": self.attention.depth}
        self.type = TYPES[self.attention.dtype]

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def text(self) -> str:
        attention = self.attention
        read, _ = TENSORS[attention.kind]
        names = [*read, *attention.loads, *attention.written, *[f"spare{i}" for i in range(attention.spares)]]
        symbols = [symbol.name for symbol in self.plan.kernel.symbols]
        names += [*symbols, *["WIDE: tl.constexpr"] * bool(symbols)]
        self.add("program = tl.program_id(0)")
        self.widen("program", *symbols)
        self.head()
        self.body()
        return "\n".join(["@triton.jit", f"def {self.name}({', '.join(names)}):", *self.lines])

    def head(self) -> None:
        """The block and the head of a program, with the heads of one batch behind each other."""
        raise NotImplementedError

    def body(self) -> None:
        raise NotImplementedError

    # ---- tiles

    def widen(self, *names: str) -> None:
        """Have 64 bits where positions need them."""
        if self.plan.kernel.symbols:
            self.add("if WIDE:")
            for name in names:
                self.add(f"    {name} = {name}.to(tl.int64)")

    def rows(self, letter: str, start: str) -> None:
        """The rows of a block, as a column and as a row."""
        self.add(f"{letter} = {start} + tl.arange(0, {self.step[letter]})")
        self.widen(letter)

    def place(self, tensor: str, rows: str, elements: str, turned: bool) -> str:
        """The addresses of a tile of a tensor whose base is known, elements of a row along the second dim or first."""
        *_, row, element = self.attention.stride(tensor)
        across, along = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        parts = [_times(f"{rows}{across}", row), _times(f"{elements}{along}", element)]
        return f"{tensor}_head + ({' + '.join(parts)})"

    def mask(self, rows: str, elements: str, turned: bool, live: bool) -> str:
        """Which elements of a tile there are; `live` where rows may lie past the end."""
        across, along = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        parts = [f"({rows}{across} < {self.end[rows]})"] if live else []
        parts += [f"({elements}{along} < {self.real[elements]})"] if self.real[elements] != self.size[elements] else []
        return " & ".join(parts)

    def load(self, target: str, tensor: str, rows: str, elements: str, live: bool, turned: bool = False) -> None:
        mask = self.mask(rows, elements, turned, live)
        guard = f", {mask}, other=0.0" if mask else ""
        self.add(f"{target} = tl.load({self.place(tensor, rows, elements, turned)}{guard})")

    def load_row(self, target: str, tensor: str, rows: str, live: bool) -> None:
        """A number for each row: the logarithms of sums, or what is taken off gradients."""
        (step,) = self.attention.stride(tensor)[2:]
        guard = f", {rows} < {self.end[rows]}, other=0.0" if live else ""
        self.add(f"{target} = tl.load({tensor}_head + {_times(rows, step)}{guard})")

    def store(self, tensor: str, rows: str, elements: str, value: str) -> None:
        mask = self.mask(rows, elements, False, self.end[rows] % self.step[rows] != 0)
        guard = f", {mask}" if mask else ""
        self.add(f"tl.store({self.place(tensor, rows, elements, False)}, {value}.to({self.type}){guard})")

    def base(self, tensor: str, head: str) -> None:
        batch, each, *_ = self.attention.stride(tensor)
        self.add(f"{tensor}_head = {tensor} + (b * {wrapped(batch)} + {head} * {wrapped(each)})")

    # ---- scores

    def score(self, masked: bool) -> None:
        """`s` by `factor`, from the product of `q` and `k` in it; -inf where nothing is to be seen."""
        attention = self.attention
        ways = ("[:, None]", "[None, :]") if self.first == "m" else ("[None, :]", "[:, None]")
        at = {"m": f"m{ways[0]}", "n": f"n{ways[1]}"}
        if self.factor == LOG2E:
            self.add(f"s = s * {attention.scale!r}")
        if attention.score is not None:
            self.lines += _Score(self.plan, self.indent, at, [self.step[letter] for letter in self.order()]).written()
        ends = masked and self.first == "m" and attention.keys % self.step["n"] != 0
        parts = [f"({at['n']} < {attention.keys})"] if ends else []
        parts += [f"({at['n']} <= {at['m']})"] if masked and attention.causal else []
        if parts:
            self.add(f"s = tl.where({' & '.join(parts)}, s, float('-inf'))")

    @property
    def factor(self) -> float:
        """What makes powers of two of `s`: with the scale, where that keeps their order and no bias is added."""
        attention = self.attention
        return attention.scale * LOG2E if attention.score is None and attention.scale > 0 else LOG2E

    def order(self) -> str:
        return "mn" if self.first == "m" else "nm"

    def loop(self, letter: str, start: str, end: str, inside: Callable[[], None]) -> None:
        """Blocks of rows one after the other."""
        self.add(f"for start in tl.range({start}, {end}, {self.step[letter]}):")
        self.indent += "    "
        self.rows(letter, "start")
        inside()
        self.indent = self.indent[:-4]


class _ByQueries(_Printer):
    """A program has a block of queries, and walks the keys: first those that need no mask."""

    def head(self) -> None:
        attention, blocks = self.attention, wrapped(self.plan.blocks)
        last = f"{wrapped(self.plan.blocks - 1)} - program % {blocks}" if attention.causal else f"program % {blocks}"
        self.add(f"block = {last}")
        self.add(f"h = (program // {blocks}) % {attention.heads}")
        self.add(f"b = (program // {wrapped(self.plan.blocks * attention.heads)}).to(tl.int64)")
        self.rows("m", f"block * {self.step['m']}")
        self.add(f"d = tl.arange(0, {self.size['d']})")
        self.add(f"e = tl.arange(0, {self.size['e']})")
        shared = f"h // {attention.groups}" if attention.groups > 1 else "h"
        for tensor in attention.tensors:
            self.base(tensor, shared if tensor in ("k", "v") else "h")

    def walk(self, inside: Callable[[bool], None]) -> None:
        """Both loops over keys."""
        attention, m, n = self.attention, self.step["m"], self.step["n"]
        whole = attention.keys // n * n
        end, full = str(attention.keys), str(whole)
        if attention.causal:
            self.add(f"end = tl.minimum((block + 1) * {m}, {attention.keys})")
            self.add(f"full = tl.minimum((block * {m} + 1) // {n} * {n}, {whole})")
            end, full = "end", "full"
        if whole != 0:
            self.loop("n", "0", full, lambda: inside(False))
        if attention.causal or whole != attention.keys:
            self.loop("n", full if whole != 0 else "0", end, lambda: inside(True))


class _Forward(_ByQueries):
    """`o`, and `l` for the gradients."""

    def body(self) -> None:
        attention, m = self.attention, self.step["m"]
        ends = attention.queries % m != 0
        self.load("x", "q", "m", "d", ends)
        self.add(f"most = tl.full([{m}], float('-inf'), tl.float32)")
        self.add(f"total = tl.zeros([{m}], tl.float32)")
        self.add(f"result = tl.zeros([{m}, {self.size['e']}], tl.float32)")
        self.walk(self.step_of_keys)
        self.add("nothing = total == 0.0")
        self.add("result = tl.where(nothing, 0.0, 1.0 / total)[:, None] * result")
        self.store("o", "m", "e", "result")
        self.add(f"total = tl.where(nothing, float('-inf'), (most + tl.log2(total)) * {1 / LOG2E!r})")
        (step,) = attention.stride("l")[2:]
        if attention.logs != attention.queries:
            self.add(f"total = tl.where(m < {attention.queries}, total, float('inf'))")
        guard = f", m < {attention.logs}" if attention.logs % m != 0 else ""
        self.add(f"tl.store(l_head + {_times('m', step)}, total{guard})")

    def step_of_keys(self, masked: bool) -> None:
        ends = masked and self.attention.keys % self.step["n"] != 0
        self.load("y", "k", "n", "d", ends, turned=True)
        self.add("s = tl.dot(x, y)")
        self.score(masked)
        self.add(f"more = tl.maximum(most, tl.max(s, 1) * {self.factor!r})")
        shift = "more"
        if masked or self.attention.score is not None:  # a row may have seen nothing so far
            self.add("shift = tl.where(more == float('-inf'), 0.0, more)")
            shift = "shift"
        self.add(f"p = tl.exp2(s * {self.factor!r} - {shift}[:, None])")
        self.add(f"less = tl.exp2(most - {shift})")
        self.add("total = total * less + tl.sum(p, 1)")
        self.add("result = result * less[:, None]")
        self.load("z", "v", "n", "e", ends)
        self.add(f"result = tl.dot(p.to({self.type}), z, result)")
        self.add("most = more")


class _Queries(_ByQueries):
    """`dq`, and an exact `delta` if it is asked for."""

    def body(self) -> None:
        attention, m = self.attention, self.step["m"]
        ends = attention.queries % m != 0
        self.load("x", "q", "m", "d", ends)
        self.load("y", "g", "m", "e", ends)
        self.load_row("logs", "l", "m", ends)
        self.add(f"logs = tl.where(logs == float('-inf'), 0.0, logs * {LOG2E!r})")
        self.load_row("off", "delta", "m", ends)
        self.add(f"result = tl.zeros([{m}, {self.size['d']}], tl.float32)")
        if attention.exact:
            self.add(f"more = tl.zeros([{m}], tl.float32)")
            self.add(f"mean = tl.zeros([{m}, {self.size['d']}], tl.float32)")
        self.walk(self.step_of_keys)
        if attention.exact:
            self.add("result = result - more[:, None] * mean")
            (step,) = attention.stride(EXACT)[2:]
            guard = f", m < {attention.queries}" if ends else ""
            self.add(f"tl.store({EXACT}_head + {_times('m', step)}, off + more{guard})")
        self.store("dq", "m", "d", f"(result * {attention.scale!r})")

    def step_of_keys(self, masked: bool) -> None:
        ends = masked and self.attention.keys % self.step["n"] != 0
        self.load("kt", "k", "n", "d", ends, turned=True)
        self.load("vt", "v", "n", "e", ends, turned=True)
        self.add("s = tl.dot(x, kt)")
        self.score(masked)
        self.add(f"p = tl.exp2(s * {self.factor!r} - logs[:, None])")
        self.add("s = p * (tl.dot(y, vt) - off[:, None])")
        self.add(f"result = tl.dot(s.to({self.type}), tl.trans(kt), result)")
        if self.attention.exact:
            self.add("more += tl.sum(s, 1)")
            self.add(f"mean = tl.dot(p.to({self.type}), tl.trans(kt), mean)")


class _Keys(_Printer):
    """`dk` and `dv`: a program has a block of keys, and walks the queries of all heads that share it."""

    first = "n"

    def head(self) -> None:
        attention, blocks = self.attention, wrapped(self.plan.blocks)
        heads = attention.heads // attention.groups
        self.add(f"block = program % {blocks}")
        self.add(f"head = (program // {blocks}) % {heads}")
        self.add(f"b = (program // {wrapped(self.plan.blocks * heads)}).to(tl.int64)")
        self.rows("n", f"block * {self.step['n']}")
        self.add(f"d = tl.arange(0, {self.size['d']})")
        self.add(f"e = tl.arange(0, {self.size['e']})")
        for tensor in ("k", "v", "dk", "dv"):
            self.base(tensor, "head")

    def body(self) -> None:
        attention, n = self.attention, self.step["n"]
        ends = attention.keys % n != 0
        self.load("x", "k", "n", "d", ends)
        self.load("y", "v", "n", "e", ends)
        self.add(f"of_keys = tl.zeros([{n}, {self.size['d']}], tl.float32)")
        self.add(f"of_values = tl.zeros([{n}, {self.size['e']}], tl.float32)")
        if attention.groups > 1:
            self.add(f"for member in range({attention.groups}):")
            self.indent += "    "
            self.add(f"h = head * {attention.groups} + member")
        else:
            self.add("h = head")
        for tensor in ("q", "g", "l", "delta"):
            self.base(tensor, "h")
        self.walk()
        self.indent = "    "
        self.store("dv", "n", "e", "of_values")
        self.store("dk", "n", "d", f"(of_keys * {attention.scale!r})")

    def walk(self) -> None:
        """Queries from the diagonal on, if there is one, then those that need no mask, then those at the end."""
        attention, m, n = self.attention, self.step["m"], self.step["n"]
        whole = attention.queries // m * m
        start = "0"
        if attention.causal:
            self.add(f"middle = tl.minimum((block * {n} + {n + m - 2}) // {m} * {m}, {whole})")
            self.loop("m", f"block * {n} // {m} * {m}", "middle", lambda: self.step_of_queries(True, False))
            self.add(f"middle = tl.maximum(middle, block * {n} // {m} * {m})")
            start = "middle"
        if whole != 0:
            self.loop("m", start, str(whole), lambda: self.step_of_queries(False, False))
        if whole != attention.queries:
            first = f"tl.maximum({whole}, {start})" if attention.causal else str(whole)
            self.loop("m", first, str(attention.queries), lambda: self.step_of_queries(True, True))

    def step_of_queries(self, masked: bool, ends: bool) -> None:
        self.load("qt", "q", "m", "d", ends, turned=True)
        self.add("s = tl.dot(x, qt)")
        self.score(masked)
        self.load_row("logs", "l", "m", ends)
        self.add(f"logs = tl.where(logs == float('-inf'), 0.0, logs * {LOG2E!r})")
        self.add(f"p = tl.exp2(s * {self.factor!r} - logs[None, :])")
        if ends:
            self.add(f"p = tl.where(m[None, :] < {self.attention.queries}, p, 0.0)")
        self.load("z", "g", "m", "e", ends)
        self.add(f"of_values = tl.dot(p.to({self.type}), z, of_values)")
        self.load_row("off", "delta", "m", ends)
        self.add("s = p * (tl.dot(y, tl.trans(z)) - off[None, :])")
        self.add(f"of_keys = tl.dot(s.to({self.type}), tl.trans(qt), of_keys)")


_PRINTERS: Mapping[str, type[_Printer]] = {"forward": _Forward, "keys": _Keys, "queries": _Queries}


class _Score(Printer):
    """The statements of `score`, on tiles of rows of queries and keys, of one batch and head."""

    def __init__(self, plan: AttentionPlan, indent: str, at: Mapping[str, str], shape: Sequence[int]) -> None:
        attention = plan.attention
        assert attention.score is not None
        params = (*plan.kernel.params, Param(SCORE, "f32", "in", 1))
        kernel = Kernel(attention.axes, (), (Store("result", ZERO, attention.score, "outer"),), params)
        super().__init__(nest(kernel, "score", Order((attention.axes,), (), blocks=True)))
        self.indent, self.at, self.tile = indent, at, list(shape)

    def written(self) -> list[str]:
        """The lines, which take `s` and give it."""
        self.block(self.function.body)
        return self.lines

    def loop(self, loop: ir.Loop) -> None:
        self.block(loop.body)

    def leaf(self, axis: Axis) -> str:
        return self.at.get(axis.name, axis.name)

    def lanes_at(self, index: Index) -> Lanes:
        return frozenset([axis.name for axis in index.axes() if axis.name in self.at])

    def guard(self, lanes: Lanes, mask: ir.Operand | None = None) -> list[str]:
        sizes = {axis.name: axis.size for axis in self.loops_of_scores()}
        parts = [f"({self.at[letter]} < {sizes[letter]})" for letter in "mn" if letter in lanes]
        return parts + ([self.operand(mask)] if mask is not None else [])

    def loops_of_scores(self) -> list[Axis]:
        return [s.axis for s in ir.walk(self.function.body) if isinstance(s, ir.Loop)]

    def load(self, statement: ir.Load) -> None:
        if statement.memory == SCORE:
            self.texts[statement.target], self.lanes[statement.target] = "s", frozenset("mn")
            return
        lanes, more = self.lanes_at(statement.index), self.lanes_of(statement.mask)
        where = " + ".join([self.place(statement.index), *[f"{self.at[x]} * 0" for x in sorted(more - lanes)]])
        guard = self.guard(lanes, statement.mask)
        text = f"tl.load({statement.memory} + ({where})" + (f", {' & '.join(guard)}, other=0)" if guard else ")")
        self.define(statement, statement.target, text, lanes | more)

    def store(self, statement: ir.Store) -> None:
        value = self.operand(statement.value)
        if self.lanes_of(statement.value) == frozenset("mn"):
            self.add(f"s = {value}")
        elif self.lanes_of(statement.value) == NO_LANES:
            self.add(f"s = tl.full({self.tile}, {value}, tl.float32)")
        else:
            self.add(f"s = tl.broadcast_to({value}, {self.tile})")


def _times(name: str, step: Extent) -> str:
    return name if step == 1 else f"{name} * {wrapped(step)}"
