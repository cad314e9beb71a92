"""A copy of a kernel that is easier to write as loops; the module itself is as it was.

- Calls are written out.
- Tiles of pointers or integers that a loop carries, and that each turn advances everywhere by the same number, are not
  carried: the number is, and the tile is what it was before the loop and that number.

      p_2 = for_(…, p)                                      d_2 = for_(…, 0)
      def body(i, p_1):                            →        def body(i, d_1):
          x = load(p_1)                                         x = load(addptr(p, splat(d_1)))
          yield_(addptr(p_1, splat(s)))                         yield_(add(d_1, cast(s)))

- `x + dot(a, b, 0)` is `dot(a, b, x)`; scaled products are plain ones (`scaled`); sums are carried, not tiles (`sums`).
- Operations that nobody uses are left out, and so are `assume`s.

Neighbours: `schedule` takes the copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stator.tile.cpu.refused import Refused
from stator.tile.cpu.scaled import Scaled
from stator.tile.cpu.sums import carry_sums
from stator.tile.ir.build import IRBuilder, new_function
from stator.tile.ir.core import Block, Function, Module, Operation, Value
from stator.tile.ir.operators import effects_of
from stator.tile.ir.types import I64, Type

_DEPTH = 64


def prepare(module: Module, name: str, sums: bool = True) -> Function:
    """The prepared copy of a function of a module. Without `sums`, loops go on carrying tiles that are added up."""
    source = module.functions[name]
    types = {param.name: param.type for param in source.params}
    function, builder = new_function(Module(), source.name, types, source.results, source.location)
    function.hints, function.attrs = dict(source.hints), dict(source.attrs)
    uses = Counter(operand for each in module.functions.values() for o in each.body.walk() for operand in o.operands)
    copier = _Copier(module, builder, dict(zip(source.params, function.params, strict=True)), uses)
    returned = copier.block(source.body)
    builder.emit("return", returned)
    remove_dead(function.body)
    if sums:
        carry_sums(function.body)
        remove_dead(function.body)
    return function


@dataclass(frozen=True, slots=True)
class _Advance:
    """A carried tile that each turn moves on: by the sum of these scalars, signed."""

    position: int
    steps: tuple[tuple[int, Value], ...]
    counter: Type


class _Copier:
    """Copies operations to where a builder stands. `names` is what has become of the values of the source."""

    def __init__(
        self, module: Module, builder: IRBuilder, names: dict[Value, Value], uses: Counter[Value], depth: int = 0
    ) -> None:
        self.module, self.builder, self.names, self.uses, self.depth = module, builder, names, uses, depth
        self.made: dict[Value, tuple[Operation, Block]] = {}

    def block(self, block: Block) -> list[Value]:
        """Copies all but the terminator, and gives what its operands have become."""
        for operation in block.operations[:-1]:
            self.operation(operation)
        return [self.names[operand] for operand in block.operations[-1].operands]

    def operation(self, operation: Operation) -> None:
        match operation.op:
            case "call":
                self.call(operation)
            case "assume":
                return
            case "for":
                self.for_(operation)
            case "dot_scaled":
                scaled = Scaled(self.builder, operation, [self.names[operand] for operand in operation.operands])
                self.names[operation.result] = scaled.product()
            case "add" if self.added(operation):
                return
            case _:
                self.plain(operation, [self.region(region) for region in operation.regions])

    def plain(self, operation: Operation, regions: Sequence[Block]) -> None:
        operands = tuple([self.names[operand] for operand in operation.operands])
        results = tuple([self.builder.value(result.type, result.name) for result in operation.results])
        made = Operation(operation.op, operands, dict(operation.attrs), results, tuple(regions), operation.location)
        self.builder.block.operations.append(made)
        self.names.update(zip(operation.results, results, strict=True))
        self.made.update(dict.fromkeys(results, (made, self.builder.block)))

    def region(self, region: Block) -> Block:
        made = self.builder.block_of([arg.type for arg in region.args], [arg.name for arg in region.args])
        self.names.update(zip(region.args, made.args, strict=True))
        with self.builder.inside(made):
            given = self.block(region)
            last = region.operations[-1]
            self.builder.emit(last.op, given, location=last.location)
        return made

    def call(self, operation: Operation) -> None:
        callee = self.module.functions[operation.attrs["callee"]]
        if self.depth == _DEPTH:
            raise Refused("call", f"{callee.name} calls itself", operation.location)
        names = dict(zip(callee.params, [self.names[operand] for operand in operation.operands], strict=True))
        inner = _Copier(self.module, self.builder, names, self.uses, self.depth + 1)
        self.names.update(zip(operation.results, inner.block(callee.body), strict=True))

    # ---- carried tiles that advance

    def for_(self, operation: Operation) -> None:
        (body,) = operation.regions
        found = _advances(operation)
        if not found:
            self.plain(operation, [self.region(body)])
            return
        emit = self.builder.emit
        at = {advance.position: advance for advance in found}
        bounds, starts = operation.operands[:3], operation.operands[3:]
        given = [
            emit("constant", (), {"value": 0, "type": at[i].counter})[0] if i in at else self.names[start]
            for i, start in enumerate(starts)
        ]
        made = self.builder.block_of([body.args[0].type, *[v.type for v in given]], [arg.name for arg in body.args])
        self.names[body.args[0]] = made.args[0]
        with self.builder.inside(made):
            for i, arg in enumerate(body.args[1:]):
                moved = made.args[i + 1]
                self.names[arg] = self.moved(self.names[starts[i]], moved) if i in at else moved
            yields = self.block(body)
            for i, advance in at.items():
                yields[i] = self.stepped(made.args[i + 1], advance)
            emit("yield", yields)
        operands = [*[self.names[bound] for bound in bounds], *given]
        results = emit("for", operands, operation.attrs, [made], operation.location)
        for i, (old, new) in enumerate(zip(operation.results, results, strict=True)):
            self.names[old] = self.moved(self.names[starts[i]], new) if i in at else new

    def moved(self, start: Value, by: Value) -> Value:
        """A tile that is everywhere so much further on."""
        (spread,) = self.builder.emit("splat", [by], {"shape": start.type.shape})
        return self.builder.emit("addptr" if start.type.is_pointer else "add", [start, spread])[0]

    def stepped(self, counter: Value, advance: _Advance) -> Value:
        emit = self.builder.emit
        for sign, step in advance.steps:
            by = self.names[step]
            if by.type != advance.counter:
                (by,) = emit("cast", [by], {"dtype": advance.counter.element})
            (counter,) = emit("add" if sign > 0 else "sub", [counter, by])
        return counter

    # ---- sums of products

    def added(self, operation: Operation) -> bool:
        """Whether the sum has become a product that adds up from the other summand."""
        for product, other in (operation.operands, operation.operands[::-1]):
            made, block = self.made.get(self.names[product], (None, None))
            fits = made is not None and made.op == "dot" and block is self.builder.block and self.uses[product] == 1
            if made is None or not fits or not self.is_zero(made.operands[2]) or product is other:
                continue
            self.builder.block.operations.remove(made)
            operands = (*made.operands[:2], self.names[other])
            result = self.builder.value(operation.result.type, operation.result.name)
            sum_ = Operation("dot", operands, dict(made.attrs), (result,), (), made.location)
            self.builder.block.operations.append(sum_)
            self.names[operation.result] = result
            self.made[result] = (sum_, self.builder.block)
            return True
        return False

    def is_zero(self, value: Value) -> bool:
        made = self.made.get(value, (None, None))[0]
        while made is not None and made.op in ("splat", "broadcast"):
            made = self.made.get(made.operands[0], (None, None))[0]
        return made is not None and made.op == "constant" and made.attrs["value"] == 0


def _advances(operation: Operation) -> list[_Advance]:
    (body,) = operation.regions
    made = {result: o for o in body.operations for result in o.results}
    found = []
    for position, (arg, given) in enumerate(zip(body.args[1:], body.operations[-1].operands, strict=True)):
        steps = _steps(given, arg, made) if not arg.type.is_scalar else None
        if steps:
            counter = Type(I64) if arg.type.is_pointer else arg.type.scalar
            found.append(_Advance(position, steps, counter))
    return found


def _steps(value: Value, arg: Value, made: dict[Value, Operation]) -> tuple[tuple[int, Value], ...] | None:
    """The scalars that are added to an argument to get a value, if that is all that is done to it."""
    if value is arg:
        return ()
    operation = made.get(value)
    if operation is None or operation.op not in ("add", "sub", "addptr"):
        return None
    if not arg.type.is_pointer and not (hasattr(arg.type.element, "is_integer") and arg.type.element.is_integer):
        return None
    first, second = operation.operands
    turns = [(first, second)] + ([(second, first)] if operation.op == "add" else [])
    for rest, step in turns:
        spread = made.get(step)
        before = _steps(rest, arg, made)
        if before is not None and spread is not None and spread.op == "splat":
            return (*before, (-1 if operation.op == "sub" else 1, spread.operands[0]))
    return None


def remove_dead(block: Block) -> None:
    """Leaves out what has no effect and is not used, in regions too."""
    uses = Counter(operand for operation in block.walk() for operand in operation.operands)
    _remove(block, uses)


def _remove(block: Block, uses: Counter[Value]) -> None:
    kept = []
    for operation in reversed(block.operations):
        effects = effects_of(operation) - {"reads"}
        if not effects and not any(uses[result] for result in operation.results):
            for each in _with_regions(operation):
                uses.subtract(each.operands)
            continue
        kept.append(operation)
        for region in operation.regions:
            _remove(region, uses)
    block.operations[:] = reversed(kept)


def _with_regions(operation: Operation) -> Iterator[Operation]:
    yield operation
    for region in operation.regions:
        yield from region.walk()
