"""Where values come from and go to in a function, across loops and branches.

Neighbours: `matmul` asks what products feed others; passes ask who uses a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stator.tile.ir.core import Block, Function, Operation, Value


class Flow:
    """The operations that make and use each value, and the values that control flow passes on to each."""

    def __init__(self, function: Function) -> None:
        self.made: dict[Value, Operation] = {}
        self.uses: dict[Value, list[Operation]] = {}
        self.given: dict[Value, list[Value]] = {}
        for operation in function.body.walk():
            self.made.update(dict.fromkeys(operation.results, operation))
            for operand in operation.operands:
                self.uses.setdefault(operand, []).append(operation)
            self._control(operation)

    def _pass(self, targets: tuple[Value, ...], values: tuple[Value, ...]) -> None:
        for target, value in zip(targets, values, strict=True):
            self.given.setdefault(target, []).append(value)

    def _control(self, operation: Operation) -> None:
        ends = [_given(region) for region in operation.regions]
        match operation.op:
            case "if":
                for values in ends:
                    self._pass(operation.results, values)
            case "for":
                arguments = operation.regions[0].args[1:]
                self._pass(arguments, operation.operands[3:])
                self._pass(arguments, ends[0])
                self._pass(operation.results, arguments)
            case "while":
                test, body = operation.regions
                self._pass(test.args, operation.operands)
                self._pass(test.args, ends[1])
                self._pass(body.args, ends[0][1:])
                self._pass(operation.results, ends[0][1:])

    def before(self, value: Value) -> Iterator[Value]:
        """What a value is directly made of."""
        yield from self.given.get(value, ())
        made = self.made.get(value)
        if made is not None and value not in self.given:
            yield from made.operands

    def sources(self, value: Value, wanted: Callable[[Operation], bool]) -> list[Operation]:
        """The operations of a kind that a value is made of, with none of that kind between."""
        found: list[Operation] = []
        seen, stack = {value}, [value]
        while stack:
            current = stack.pop()
            made = self.made.get(current)
            if made is not None and wanted(made):
                found.append(made)
                continue
            fresh = [v for v in self.before(current) if v not in seen]
            seen.update(fresh)
            stack += fresh
        return found


def _given(region: Block) -> tuple[Value, ...]:
    last = region.terminator
    return () if last is None else last.operands
