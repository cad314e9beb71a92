"""A plan as text of LLVM: the function of one program, and the function that runs programs until none is left.

    void run(context)            takes programs from the context's counter, with memory of its own for buffers
    void program(context, number, x, y, z, scratch)

The context is an array of 64-bit words: see `writer.Word`. A failed assertion leaves its number there and ends its
program. Neighbours: `schedule` has decided; `nests` writes loops; `build` makes machine code; `launch` fills contexts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stator.tile.analysis.axes import Axes
from stator.tile.cpu.casts import register
from stator.tile.cpu.nests import Nests
from stator.tile.cpu.plan import Body, Control, Nest, Plan, Whole
from stator.tile.cpu.writer import Site, Word, Writer
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.rules import dtype_of


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a kernel, and what its numbers stand for."""

    llvm: str
    sites: tuple[Site, ...]
    prints: bool


class Program(Writer):
    """Writes the function of one program."""

    def __init__(self, plan: Plan, axes: Mapping[Value, Axes], lanes: int) -> None:
        super().__init__(plan, axes, lanes)
        self.nests = Nests(self)

    def body(self, body: Body) -> None:
        for item in body.items:
            match item:
                case Nest():
                    self.nests.nest(item)
                case Whole(operation):
                    self.nests.whole(operation)
                case Control(operation, bodies):
                    self.control(operation, bodies)
                case Operation():
                    self.scalar(item)

    # ---- control flow

    def control(self, operation: Operation, bodies: Sequence[Body]) -> None:
        match operation.op:
            case "if":
                self.if_(operation, bodies)
            case "for":
                self.for_(operation, bodies[0])
            case _:
                self.while_(operation, bodies)

    def slots(self, values: Sequence[Value]) -> list[str]:
        """Memory for those values that are scalars."""
        return [self.code.memory(register(v.type.element)) if v.type.is_scalar else "" for v in values]

    def put(self, values: Sequence[Value], slots: Sequence[str]) -> None:
        texts = [self.scalars[value] if slot else "" for value, slot in zip(values, slots, strict=True)]
        for value, text, slot in zip(values, texts, slots, strict=True):
            if slot:
                self.code.store(register(value.type.element), text, slot)

    def get(self, values: Sequence[Value], slots: Sequence[str]) -> None:
        for value, slot in zip(values, slots, strict=True):
            if slot:
                self.scalars[value] = self.code.load(register(value.type.element), slot)

    def if_(self, operation: Operation, bodies: Sequence[Body]) -> None:
        code, slots = self.code, self.slots(operation.results)
        names = [code.fresh(name) for name in ("then", "otherwise", "end")]
        code.branch(self.scalars[operation.operands[0]], names[0], names[1])
        for name, body in zip(names, bodies, strict=False):
            code.block(name)
            self.body(body)
            self.put(body.given, slots)
            code.jump(names[2])
        code.block(names[2])
        self.get(operation.results, slots)

    def for_(self, operation: Operation, body: Body) -> None:
        """Counts in 64 bits, up or down as the sign of the step says."""
        code, (region,) = self.code, operation.regions
        slots = self.slots(region.args[1:])
        self.put(operation.operands[3:], slots)
        dtype = dtype_of(operation.operands[0].type)
        type_ = register(dtype)
        signed = dtype.kind == "int"
        lower, upper, step = (self.widened(self.scalars[v], type_, signed) for v in operation.operands[:3])
        if not step.lstrip("-").isdigit():
            self.fail_unless(code.value(f"icmp ne i64 {step}, 0"), "the step of a loop is 0", operation)
        before, head, inside, end = code.label, *[code.fresh(name) for name in ("head", "body", "end")]
        code.jump(head)
        code.block(head)
        place, after, latch = f"%{code.fresh('i')}", f"%{code.fresh('i')}", code.fresh("latch")
        code.do(f"{place} = phi i64 [{lower}, %{before}], [{after}, %{latch}]")
        less, more = ("slt", "sgt") if signed else ("ult", "ugt")
        up, down = (code.value(f"icmp {p} i64 {place}, {upper}") for p in (less, more))
        goes_on = code.value(f"select i1 {code.value(f'icmp sgt i64 {step}, 0')}, i1 {up}, i1 {down}")
        code.branch(goes_on, inside, end)
        code.block(inside)
        self.scalars[region.args[0]] = place if type_ == "i64" else code.value(f"trunc i64 {place} to {type_}")
        self.get(region.args[1:], slots)
        self.body(body)
        self.put(body.given, slots)
        code.jump(latch)
        code.block(latch)
        code.do(f"{after} = add i64 {place}, {step}")
        code.jump(head)
        code.block(end)
        self.read_results(operation.results, slots)

    def widened(self, text: str, type_: str, signed: bool) -> str:
        if type_ == "i64" or text.lstrip("-").isdigit():
            return text
        return self.code.value(f"{'sext' if signed else 'zext'} {type_} {text} to i64")

    def read_results(self, results: Sequence[Value], slots: Sequence[str]) -> None:
        self.get(results, slots)

    def while_(self, operation: Operation, bodies: Sequence[Body]) -> None:
        code, (test, region) = self.code, operation.regions
        slots = self.slots(test.args)
        self.put(operation.operands, slots)
        head, inside, end = (code.fresh(name) for name in ("head", "body", "end"))
        code.jump(head)
        code.block(head)
        self.get(test.args, slots)
        self.body(bodies[0])
        condition, *passed = bodies[0].given
        for values in (region.args, operation.results):
            for value, arg in zip(passed, values, strict=True):
                if value.type.is_scalar:
                    self.scalars[arg] = self.scalars[value]
        code.branch(self.scalars[condition], inside, end)
        code.block(inside)
        self.body(bodies[1])
        self.put(bodies[1].given, slots)
        code.jump(head)
        code.block(end)


_RUN = """
define void @run(ptr %context) #0 {{
start:
  %scratch = call noalias align 64 ptr @aligned_alloc(i64 64, i64 {size})
  %at_total = getelementptr i64, ptr %context, i64 {total}
  %total = load i64, ptr %at_total
  %at_chunk = getelementptr i64, ptr %context, i64 {chunk}
  %chunk = load i64, ptr %at_chunk
  %at_x = getelementptr i64, ptr %context, i64 {x}
  %nx = load i64, ptr %at_x
  %at_y = getelementptr i64, ptr %context, i64 {y}
  %ny = load i64, ptr %at_y
  br label %take
take:
  %first = atomicrmw add ptr %context, i64 %chunk monotonic
  %some = icmp slt i64 %first, %total
  br i1 %some, label %begin, label %done
begin:
  %beyond = add i64 %first, %chunk
  %last = call i64 @llvm.smin.i64(i64 %beyond, i64 %total)
  br label %each
each:
  %number = phi i64 [%first, %begin], [%next, %each]
  %row = udiv i64 %number, %nx
  %x = urem i64 %number, %nx
  %y = urem i64 %row, %ny
  %z = udiv i64 %row, %ny
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  call void @program(ptr %context, i64 %number, i32 %x32, i32 %y32, i32 %z32, ptr %scratch)
  %next = add i64 %number, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %each, label %take
done:
  call void @free(ptr %scratch)
  ret void
}}

declare noalias ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
"""

_ROUNDS_TO_HALF = re.compile(r"fptrunc .* to (half|<\d+ x half>)$", re.MULTILINE)


def write(plan: Plan, axes: Mapping[Value, Axes], lanes: int) -> Text:
    """The text of a kernel for vectors of so many lanes of 32 bits."""
    writer = Program(plan, axes, lanes)
    writer.parameters()
    writer.body(plan.body)
    code = writer.code
    declared = dict(code.declared)
    declared["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
    head = "define internal void @program(ptr %context, i64 %number, i32 %x, i32 %y, i32 %z, ptr noalias %scratch) #0 {"
    lines = [*code.constants.values(), head, "entry:", *code.entry, "  br label %start", "start:", *code.lines]
    size = max(-(-plan.size // 64) * 64, 64)
    run = _RUN.format(size=size, total=Word.TOTAL, chunk=Word.CHUNK, x=Word.X, y=Word.Y)
    vectors = f'"prefer-vector-width"="{32 * lanes}" "min-legal-vector-width"="{32 * lanes}"'
    tail = ["  ret void", "}", run, *declared.values(), f"attributes #0 = {{ nounwind {vectors} }}"]
    prints = any(operation.op == "print" for operation in plan.function.body.walk())
    text = "\n".join([*lines, *tail]) + "\n"
    # Where a processor computes in float16, LLVM drops conversions between operations, and would contract what is left.
    if not plan.function.attrs.get("enable_fp_fusion", True) or _ROUNDS_TO_HALF.search(text):
        text = text.replace(" contract ", " ")
    return Text(text, tuple(writer.sites), prints)
