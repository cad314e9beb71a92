"""Prints functions of the kernel IR as C: a statement is a line.

Everything is decided by then. Neighbours: `kernel/strategies.py` makes the functions, `spelling` has how operators are
written, `scalar.h` what they call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from stator.codegen.c import spelling
from stator.codegen.c.spelling import WHOLE
from stator.codegen.places import place
from stator.kernel import ir
from stator.kernel.strategies import serial
from stator.kernel.verify import verify
from stator.loop.index import Axis, Index, Indirect
from stator.loop.kernel import Kernel, kernel_name
from stator.loop.scalar import FLOATS

#: What the compiler is told. Sums keep their order; integers wrap around; kernels may read bytes of any type.
FLAGS = (
    "-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-fwrapv", "-fno-strict-aliasing", "-fno-delete-null-pointer-checks", "-w",
)  # fmt: skip


def emit(kernels: Sequence[Kernel], names: Sequence[str] = (), check: bool = False) -> str:
    """A unit: a function for each kernel that takes its pointers and sizes, and gives an error or null.

    Kernels are called k0, k1, … where they have no names. With `check` it raises GrammarError where the
    kernel IR breaks its rules.
    """
    named = zip(kernels, names or map(kernel_name, range(len(kernels))), strict=True)
    functions = [serial(kernel, name) for kernel, name in named]
    for function in functions if check else ():
        verify(function)
    return "\n".join([_header(), *map(function_text, functions)])


@cache
def _header() -> str:
    return (resources.files(__package__) / "scalar.h").read_text(encoding="utf-8")


def function_text(function: ir.Function) -> str:
    """One kernel."""
    lines = []
    for i, param in enumerate(function.params):
        storage = ("const " if param.role == "in" else "") + spelling.STORAGE[param.dtype]
        lines.append(f"{storage}* {param.name} = p[{i}];")
    first = len(function.params)
    lines += [f"const int64_t {s.name} = (int64_t)p[{first + i}];" for i, s in enumerate(function.symbols)]
    if function.checks:
        lines.append("int wrong = 0;")
    lines += _Printer(function).block(function.body)
    for number, bound in function.checks.items():
        size = f" for a dim of size {bound}" if type(bound) is int else ""
        lines.append(f'if (wrong == {number}) return "index out of range{size}";')
    lines.append("return 0;")
    body = "\n".join("    " + line for line in lines)
    return f"const char* {function.name}(void* const* p) {{\n{body}\n}}\n"


class _Printer:
    """Prints statements; knows the dtypes of memory, and which sums are flushed: they have a total beside them."""

    def __init__(self, function: ir.Function) -> None:
        self.memory = {param.name: param.dtype for param in function.params}
        self.flushed = {s.target.name for s in ir.walk(function.body) if isinstance(s, ir.Flush)}

    def block(self, block: ir.Block) -> Iterator[str]:
        own = {s.target.name for s in block if isinstance(s, ir.Declare)} & self.flushed
        for statement in block:
            yield self.statement(statement)
            if isinstance(statement, ir.Loop):
                yield from ("    " + line for line in self.block(statement.body))
                yield "}"
                done = {s.target.name for s in ir.walk(statement.body) if isinstance(s, ir.Flush)}
                yield from (f"{name} += {name}_total;" for name in sorted(done & own))

    def statement(self, statement: ir.Statement) -> str:
        match statement:
            case ir.Let(target, op, args):
                return f"const {spelling.TYPE[target.dtype]} {target.name} = {_computed(op, target.dtype, args)};"
            case ir.Assign(target, op, args):
                return f"{target.name} = {_computed(op, target.dtype, args)};"
            case ir.Declare(target, start):
                total = f" double {target.name}_total = 0;" if target.name in self.flushed else ""
                return f"{spelling.TYPE[target.dtype]} {target.name} = {_operand(start)};{total}"
            case ir.Flush(target):
                return f"{target.name}_total += {target.name}; {target.name} = 0;"
            case ir.Position(target, index):
                return f"const int64_t {target.name} = {_place(index)};"
            case ir.Load(target, memory, index, mask):
                loaded = spelling.load(target.dtype, f"{memory}[{_place(index)}]")
                loaded = loaded if mask is None else f"{_operand(mask)} ? {loaded} : 0"
                return f"const {spelling.TYPE[target.dtype]} {target.name} = {loaded};"
            case ir.Within():
                return self.within(statement)
            case ir.Best():
                return self.best(statement)
            case ir.Scan(target, op, state, value):
                step = spelling.scan(op, target.dtype, [state.name, _operand(value)])
                return f"const {spelling.TYPE[target.dtype]} {target.name} = {state.name} = {step};"
            case ir.Store(memory, index, value, mode):
                where, dtype = f"{memory}[{_place(index)}]", self.memory[memory]
                written = _operand(value)
                if mode not in ("store", "put"):
                    written = spelling.operator(mode, dtype, dtype, [f"({spelling.load(dtype, where)})", written])
                return f"{where} = {spelling.store(dtype, written)};"
            case ir.Loop(axis, _, _, piece):
                begin, end = "0", WHOLE.extent(axis.size)
                if piece is not None:
                    begin = f"{piece.step}*{piece.axis.name}"
                    end = f"least({begin} + {piece.step}, {end})"
                return f"for (int64_t {axis.name} = {begin}; {axis.name} < {end}; ++{axis.name}) {{"
        raise NotImplementedError(f"plain C has no {type(statement).__name__}")

    @staticmethod
    def best(statement: ir.Best) -> str:
        best, value = statement.best.name, _operand(statement.value)
        better = f"{value} {'>' if statement.op == 'gt' else '<'} {best}"
        if statement.best.dtype in FLOATS:
            better += f" || ({value} != {value} && {best} == {best})"
        return f"if ({better}) {best} = {value}, {statement.position.name} = {_operand(statement.here)};"

    @staticmethod
    def within(statement: ir.Within) -> str:
        target, text = statement.target, _operand(statement.value)
        head = f"const {spelling.TYPE[target.dtype]} {target.name} ="
        if not statement.number:
            return f"{head} {text};"
        inside = f"({text} >= 0 && {text} < {WHOLE.extent(statement.bound)})"
        needed = f" && {_operand(statement.mask)}" if statement.mask is not None else ""
        return f"if (!{inside}{needed}) wrong = {statement.number}; {head} {inside} ? {text} : 0;"


def _computed(op: str, dtype: str, args: tuple[ir.Operand, ...]) -> str:
    texts = [_operand(arg) for arg in args]
    match op:
        case "copy":
            return texts[0]
        case "cast":
            return spelling.cast(args[0].dtype, dtype, texts[0])
        case "bitcast":
            return spelling.bitcast(args[0].dtype, dtype, texts[0])
        case "uniform" | "normal":
            return f"{op}({', '.join(texts)})"
        case _:
            return spelling.operator(op, dtype, args[-1].dtype, texts)


def _operand(operand: ir.Operand) -> str:
    return spelling.number(operand.dtype, operand.number) if isinstance(operand, ir.Literal) else operand.name


def _place(index: Index) -> str:
    """A position."""

    def leaf(atom: Axis | Indirect) -> str:
        return atom.name if isinstance(atom, Axis) else f"(int64_t){atom.expr}"

    return place(index, leaf, WHOLE.extent, WHOLE.divide)
