"""Printers of every level: programs, kernels, schedules. The text is stable: it depends on nothing but the object.

A value used more than once gets a name (t0, t1, …); the rest is printed in place. `kernel` imports this, for its
`text` methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis, Index
from stator.loop.nest import Argument, Buffer, Extern, Nest, Output, Program, View
from stator.sizes.strides import Shape, contiguous

if TYPE_CHECKING:
    from stator.loop.kernel import Kernel, Schedule

_WIDTH = 72
#: How a store in each mode is written.
_SIGNS = {"store": "=", "put": "<-", "sum": "sum=", "add": "+=", "mul": "*=", "minimum": "min=", "maximum": "max="}


class Lines:
    """Prints expressions as lines `name = operation`, each node once."""

    __slots__ = ("lines", "names", "uses")

    def __init__(self, roots: Iterable[Expr]) -> None:
        self.names: dict[Expr, str] = {}
        self.lines: list[str] = []
        self.uses: dict[Expr, int] = {}
        roots = list(roots)
        order = postorder(roots)
        for root in roots:
            self.uses[root] = self.uses.get(root, 0) + 1
        for node in order:
            for child in node.children:
                self.uses[child] = self.uses.get(child, 0) + 1
        for node in order:
            self._print(node)

    def __call__(self, node: Expr) -> str:
        return self.names[node]

    def index(self, position: Index) -> str:
        """The text of an index, loaded integers by their names."""
        return position.render(self)

    def _print(self, node: Expr) -> None:
        text = self._operation(node)
        leaf = node.op in ("const", "index")
        if leaf or (self.uses.get(node, 0) < 2 and node.op not in ("reduce", "scan") and len(text) <= _WIDTH):
            self.names[node] = text
            return
        count = sum(line.startswith("t") for line in self.lines)
        self.names[node] = f"t{count}"
        self.lines.append(f"t{count} = {text}")

    def _operation(self, node: Expr) -> str:
        match node.op:
            case "load":
                return f"{node.attr[0]}[{self.index(node.attr[1])}]"
            case "const":
                return str(node.attr)
            case "index":
                return self.index(node.attr)
            case "cast":
                return f"{node.dtype}({self(node.args[0])})"
            case "bitcast":
                return f"bits_{node.dtype}({self(node.args[0])})"
            case "known":
                return f"known({self(node.args[0])}, {node.attr[0]}…{node.attr[1]})"
            case "reduce" | "scan" | "random":
                name = node.attr if node.op == "reduce" else f"{node.op}_{node.attr}"
            case _:
                name = node.op
        return f"{name}({', '.join(map(self, node.args))})"


def buffer_text(buffer: Buffer) -> str:
    """`name: f32[4, 8]`, with the stride where it is not row-major."""
    known_as = f" as {buffer.opaque}" if buffer.opaque else ""
    return f"{buffer.name}: {_shape(buffer.dtype, buffer.size, buffer.stride)}{known_as}"


def nest_text(nest: Nest) -> str:
    """Loops, values, and the store."""
    lines = Lines([nest.value, *[a.expr for a in nest.index.indirects()]])  # type: ignore[list-item]
    sign = _SIGNS[nest.mode]
    store = f"{nest.buffer.name}[{nest.index.render(lines)}] {sign} {lines(nest.value)}"
    head = f"nest {buffer_text(nest.buffer)} for {_loops(nest.axes, nest.reduce_axes)}:"
    return "\n    ".join([head, *lines.lines, store])


def extern_text(extern: Extern) -> str:
    """A call, as it would be written."""
    outputs = ", ".join(buffer_text(b) for b in extern.outputs)
    arguments = [_argument(a) for a in extern.args] + [f"{k}={_argument(v)}" for k, v in extern.kwargs]
    chosen = "" if extern.taken == tuple(range(len(extern.taken))) else f"[{', '.join(map(str, extern.taken))}]"
    acts = f"  # {', '.join(extern.effects)}" if extern.effects else ""
    return f"extern {outputs} = {extern.out_target or extern.target}({', '.join(arguments)}){chosen}{acts}"


def program_text(program: Program) -> str:
    """The whole program, one paragraph a node."""
    head = f"program {program.name} on {program.device}({', '.join(map(buffer_text, program.inputs))}):"
    nodes = [nest_text(node) if isinstance(node, Nest) else extern_text(node) for node in program.nodes]
    body = [text.replace("\n", "\n  ") for text in nodes]
    tail = f"return {', '.join(map(_output, program.outputs))}"
    if program.mutated:
        body.append(f"mutates {', '.join(program.mutated)}")
    return "\n  ".join([head, *body, tail]) + "\n"


def kernel_text(kernel: Kernel) -> str:
    """The canonical print of a kernel."""
    params = ", ".join(f"{p.name}: {p.role} {p.dtype}[{p.numel}]" for p in kernel.params)
    if kernel.attention is not None:
        score = kernel.attention.score
        lines = Lines([score] if score is not None else [])
        of = f"\n    score = {lines(score)}" if score is not None else ""
        return f"kernel({params}): {kernel.attention.text()}{''.join([f'{chr(10)}    {x}' for x in lines.lines])}{of}\n"
    lines = Lines([root for store in kernel.stores for root in store.roots])
    out = [f"kernel({params}) for {_loops(kernel.axes, kernel.reduce_axes)}:", *lines.lines]
    for store in kernel.stores:
        sign = _SIGNS[store.mode]
        out.append(f"{store.space} {store.buffer}[{lines.index(store.index)}] {sign} {lines(store.value)}")
    return "\n    ".join(out) + "\n"


def schedule_text(schedule: Schedule, told: Sequence[str] = ()) -> str:
    """Kernels, each with why it is one and what is told of how it runs, steps and memory."""
    names = dict(zip(schedule.kernels, schedule.names, strict=True))
    nothing = ("",) * len(names)
    out = [f"schedule {schedule.name} on {schedule.device}({', '.join(map(buffer_text, schedule.inputs))})", ""]
    for (kernel, name), *parts in zip(names.items(), schedule.reasons or nothing, told or nothing, strict=True):
        reason = "; ".join(filter(None, parts))
        out.append(f"{name} = {kernel_text(kernel)}" + (f"    # {reason}\n" if reason else ""))
    out += [step.text(names) for step in schedule.steps]
    memory = schedule.memory
    out += [f"return {', '.join(map(_output, schedule.outputs))}", "", f"arena {memory.arena_bytes} bytes"]
    donors = dict(memory.aliases)
    homes = [*memory.offsets.items(), *[(name, "allocated") for name in memory.allocated]]
    for name, home in homes:
        over = f"  over {donors[name]}" if name in donors else ""
        out.append(f"  {home:>10} {buffer_text(schedule.buffers[name])}{over}")
    out += [f"    returned {buffer_text(schedule.buffers[name])}" for name in memory.returned]
    out += schedule.layouts
    return "\n".join(out) + "\n"


def _loops(axes: tuple[Axis, ...], reduce_axes: tuple[Axis, ...]) -> str:
    outer = ", ".join(f"{a.name} < {a.size}" for a in axes) or "once"
    inner = ", ".join(f"{a.name} < {a.size}" for a in reduce_axes)
    return f"{outer}; reduce {inner}" if inner else outer


def _shape(dtype: str, size: Shape, stride: Shape) -> str:
    dense = all(n == 1 or s == d for n, s, d in zip(size, stride, contiguous(size), strict=True))
    return f"{dtype}{list(size)}" + ("" if dense else f" @ {list(stride)}")


def _argument(argument: Argument) -> str:
    if isinstance(argument, View):
        return _view(argument)
    if isinstance(argument, tuple | list):
        return f"({', '.join(map(_argument, argument))})"
    return repr(argument)


def _view(view: View) -> str:
    offset = f"+{view.offset}" if view.offset else ""
    known_as = f" as {view.opaque}" if view.opaque else ""
    return f"{view.buffer}{offset}{_shape('', view.size, view.stride)}{known_as}"


def _output(output: Output) -> str:
    return _view(output) if isinstance(output, View) else repr(output)
