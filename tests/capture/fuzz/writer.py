"""Writes random functions as source text.

Every program ends (loops are short and counted) and takes `f(a, b, xs, d, t, u)`: two ints, a list of ints, a dict from
strings to ints and two tensors [3]. It may raise; that is part of what is compared. The choices come from a `Random`
that Hypothesis gives, so a failing program is made smaller by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

INTS = ("a", "b", "i", "j", "k")
LISTS = ("xs", "ys")
TENSORS = ("t", "u", "v")
KEYS = ("p", "q", "r")
ERRORS = ("ValueError", "KeyError", "IndexError", "ZeroDivisionError", "UnboundLocalError", "Exception")

#: What a program may call: `tests/capture/fuzz/run.py` puts these into its globals.
NAMES = ("torch", "note", "tell", "Bag", "Scope")


class Writer:
    """One program under construction."""

    def __init__(self, choices: random.Random, breaks: bool) -> None:
        self.random = choices
        #: Whether calls that end a graph may be written.
        self.breaks = breaks
        self.lines: list[str] = []
        self.level = 1
        self.loops = 0
        self.names = 0
        #: Statements that may still be written.
        self.budget = 14

    def program(self) -> str:
        """The text of `f`."""
        self.lines = ["def f(a, b, xs, d, t, u):"]
        for start in ("i, j, k = 1, 2, 3", "ys = [2, b]", "v = t * 2"):
            if self.random.random() < 0.97:
                self.put(start)
        for _ in range(self.random.randint(2, 7)):
            self.statement(0)
        self.put(f"return {self.result()}")
        return "\n".join(self.lines) + "\n"

    # -- pieces ------------------------------------------------------------------------------------------

    def put(self, text: str) -> None:
        """One line at the present level."""
        self.lines.append("    " * self.level + text)

    def any(self, *options: str) -> str:
        return self.random.choice(options)

    def fresh(self, stem: str) -> str:
        """A name that is not used yet."""
        self.names += 1
        return f"{stem}{self.names}"

    def block(self, depth: int) -> None:
        """An indented block of one to three statements."""
        self.level += 1
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth + 1)
        self.level -= 1

    # -- expressions -------------------------------------------------------------------------------------

    def integer(self, depth: int = 0) -> str:
        """An int."""
        if depth > 2:
            return self.any(*INTS[:2], "0", "1", "2", "3", "-1")
        match self.random.randint(0, 11):
            case 0 | 1 | 2:
                return self.any(*INTS)
            case 3:
                return str(self.random.randint(-3, 4))
            case 4 | 5:
                left, right = self.integer(depth + 1), self.integer(depth + 1)
                operator = self.any("+", "-", "*", "&", "|", "^", "//", "%")
                right = f"({right} or 1)" if operator in ("//", "%") and self.random.random() < 0.9 else right
                return f"({left} {operator} {right})"
            case 6:
                return f"len({self.any(*LISTS, 'd')})"
            case 7:
                return f"{self.any(*LISTS)}[{self.index(depth + 1)}]"
            case 8:
                return self.any(f"d[{self.key()!r}]", f"d.get({self.any(*KEYS)!r}, {self.integer(depth + 1)})")
            case 9:
                return f"({self.integer(depth + 1)} if {self.condition(depth + 1)} else {self.integer(depth + 1)})"
            case 10:
                return self.any(f"sum({self.any(*LISTS)})", f"{self.any('max', 'min')}({self.any(*LISTS)}, default=1)")
            case _:
                return f"{self.any(*TENSORS)}.{self.any('shape[0]', 'ndim', 'numel()')}"

    def index(self, depth: int) -> str:
        """A position in a list, mostly one that is there."""
        return self.any("0", "-1", "0", "-1", "1", self.integer(depth))

    def key(self) -> str:
        """A key, mostly one that is there."""
        return self.any("p", "q", "p", "q", *KEYS)

    def condition(self, depth: int = 0) -> str:
        """A truth value."""
        match self.random.randint(0, 6 if self.breaks else 5):
            case 0 | 1:
                return (
                    f"{self.integer(depth + 1)} {self.any('<', '<=', '==', '!=', '>', '>=')} {self.integer(depth + 1)}"
                )
            case 2:
                return f"{self.any(*KEYS)!r} {self.any('in', 'not in')} d"
            case 3:
                return self.any(*LISTS, "d", "not xs")
            case 4 if depth < 2:
                return f"({self.condition(depth + 1)} {self.any('and', 'or')} {self.condition(depth + 1)})"
            case 5:
                return f"0 <= {self.integer(depth + 1)} < {self.integer(depth + 1)}"
            case 6:
                return f"({self.tensor(depth + 1)}).sum() > 0"
        return "a < b"

    def sequence(self, depth: int = 0) -> str:
        """A list of ints."""
        match self.random.randint(0, 6):
            case 0 | 1:
                return self.any(*LISTS)
            case 2:
                return f"[{self.integer(depth + 1)}, {self.integer(depth + 1)}]"
            case 3:
                return f"{self.any(*LISTS)}[{self.any('', '1', '-2')}:{self.any('', '2', '-1')}]"
            case 4 if depth < 2:
                test = f"c {self.any('<', '!=', '>')} b"
                return f"[{self.any('c', 'c + a', 'c * 2')} for c in {self.sequence(depth + 1)} if {test}]"
            case 5:
                return f"sorted({self.any(*LISTS)}, {self.any('reverse=True', 'key=lambda c: -c')})"
        return f"list({self.any('d.values()', 'range(a % 4)', 'reversed(xs)', 'map(abs, xs)')})"

    def tensor(self, depth: int = 0) -> str:
        """A tensor [3]."""
        if depth > 2:
            return self.any("t", "u")
        match self.random.randint(0, 6):
            case 0 | 1:
                return self.any(*TENSORS)
            case 2 | 3:
                return f"({self.tensor(depth + 1)} {self.any('+', '-', '*')} {self.tensor(depth + 1)})"
            case 4:
                return f"({self.tensor(depth + 1)} {self.any('+', '*')} {self.integer(depth + 1)})"
            case 5:
                return f"{self.any('torch.relu', 'torch.cos', 'torch.neg')}({self.tensor(depth + 1)})"
        return f"{self.tensor(depth + 1)}.{self.any('flip(0)', 'abs()', 'clone()', 'cumsum(0)')}"

    def result(self) -> str:
        """What the program returns."""
        parts = [self.any(*INTS, *LISTS, "d", *TENSORS) for _ in range(self.random.randint(1, 4))]
        return self.any(f"({', '.join(parts)},)", f"[{', '.join(parts)}]", f"{{'x': {parts[0]}}}")

    # -- statements --------------------------------------------------------------------------------------

    def statement(self, depth: int) -> None:
        """One statement; deep or late ones are simple."""
        self.budget -= 1
        simple: list[Callable[[int], None]] = [self.assign, self.assign, self.assign, self.change, self.change]
        if self.breaks:
            simple.append(self.tell)
        nested: list[Callable[[int], None]] = [
            self.branch, self.count, self.loop, self.attempt, self.scope, self.inner, self.generate, self.leave,
        ]  # fmt: skip
        options = simple if depth > 2 or self.budget < 0 else simple + nested
        self.random.choice(options)(depth)

    def assign(self, depth: int) -> None:
        """A local gets a value."""
        match self.random.randint(0, 6):
            case 0 | 1:
                self.put(f"{self.any(*INTS)} {self.any('=', '+=', '-=', '*=')} {self.integer()}")
            case 2:
                self.put(f"{self.any(*LISTS)} {self.any('=', '+=')} {self.sequence()}")
            case 3 | 4:
                self.put(f"{self.any(*TENSORS)} = {self.tensor()}")
            case 5:
                self.put(f"{self.any('i', 'j')}, {self.any('k', 'a')} = {self.integer()}, {self.integer()}")
            case _:
                self.put(f"{self.any('i', 'j')}, *ys = {self.sequence()}")

    def change(self, depth: int) -> None:
        """An object changes in place."""
        name, key = self.any(*LISTS), self.any(*KEYS)
        self.put(
            self.any(
                f"{name}.append({self.integer()})",
                f"{name}[{self.index(2)}] = {self.integer()}",
                f"{name}.{self.any('reverse()', 'sort()', 'pop()', 'insert(0, a)')}",
                f"d[{key!r}] = {self.integer()}",
                f"d[{self.key()!r}] += {self.integer()}",
                f"d.pop({key!r}, {self.integer()})" if self.random.random() < 0.7 else f"del d[{key!r}]",
                f"d.{self.any('setdefault', 'pop')}({key!r}, {self.integer()})",
                f"{self.any(*TENSORS)} += {self.integer(2)}",
                f"{self.any(*TENSORS)}[{self.any('0', '1', '-1')}] = {self.integer(2)}",
                f"ys = {name}",
                f"{self.any('del ', 'v = ', 'v = ')}{self.any('t', 'u')}",
            )
        )

    def tell(self, depth: int) -> None:
        """A call that is not captured."""
        self.put(
            self.any(
                f"tell({self.integer()})",
                f"tell({self.any(*LISTS, 'd')})",
                f"note({self.any(*TENSORS)})",
                f"{self.any('i', 'a')} = note({self.tensor()})",
                f"{self.any(*LISTS)}.append(tell({self.integer()}))",
            )
        )

    def branch(self, depth: int) -> None:
        self.put(f"if {self.condition()}:")
        self.block(depth)
        if self.random.random() < 0.5:
            self.put(self.any("else:", f"elif {self.condition()}:"))
            self.block(depth)

    def count(self, depth: int) -> None:
        """A `while` that ends."""
        name = self.fresh("n")
        self.put(f"{name} = 0")
        self.put(f"while {name} < {self.random.randint(1, 3)}{self.any('', f' and {self.condition()}')}:")
        self.put(f"    {name} += 1")
        self.looped(depth)

    def loop(self, depth: int) -> None:
        source = self.any(
            "range(3)", "range(a % 4)", "xs[:3]", "list(d)", "enumerate(xs[:2])", "zip(xs[:3], [1, 2])",
            "d.copy().items()",
        )  # fmt: skip
        pair = source.startswith(("enumerate", "zip", "d.copy"))
        target = self.any("_, i", "_, k") if pair else "_" if source == "list(d)" else self.any("i", "j")
        self.put(f"for {target} in {source}:")
        self.looped(depth)
        if self.random.random() < 0.3:
            self.put("else:")
            self.block(depth)

    def looped(self, depth: int) -> None:
        """The body of a loop."""
        self.loops += 1
        self.block(depth)
        if self.random.random() < 0.4:
            self.level += 1
            self.put(f"if {self.condition()}:")
            self.put(f"    {self.any('break', 'continue')}")
            self.put(f"{self.any(*INTS[:2])} += 1")
            self.level -= 1
        self.loops -= 1

    def attempt(self, depth: int) -> None:
        self.put("try:")
        self.block(depth)
        if self.random.random() < 0.4:
            self.level += 1
            self.put(f"if {self.condition()}:")
            self.put(f"    raise {self.any(*ERRORS[:4])}({self.integer()})")
            self.level -= 1
        for error in sorted(self.random.sample(range(len(ERRORS)), self.random.randint(1, 2))):
            self.put(f"except {ERRORS[error]} as error:")
            self.level += 1
            self.put(self.any("xs.append(len(error.args))", "pass", "d['e'] = type(error).__name__", "raise"))
            self.level -= 1
            self.block(depth)
        self.put("finally:")
        self.block(depth)

    def scope(self, depth: int) -> None:
        """A `with` block."""
        self.put(f"with {self.any('torch.no_grad()', 'Scope(xs)', 'Scope(xs)', 'torch.enable_grad()')}:")
        self.block(depth)

    def inner(self, depth: int) -> None:
        """A function in the function, called at once."""
        name = self.fresh("g")
        cell = self.any("a", "b")
        self.put(f"def {name}(c, e={self.integer()}, *rest, **options):")
        self.level += 1
        self.put(f"nonlocal {cell}")
        if cell not in self.lines[0]:
            raise AssertionError("only parameters are shared")
        self.put(f"{cell} = {cell} + c")
        if self.breaks and self.random.random() < 0.3:
            self.put(f"tell({cell})")
        self.put(f"return {self.any('c + e', f'{cell} * 2', 'len(rest)', 'c')}")
        self.level -= 1
        self.put(f"{self.any('i', 'j')} = {name}({self.integer()}{self.any('', ', 2', ', *xs[:2]', ', e=1')})")

    def generate(self, depth: int) -> None:
        """A generator, used up or not."""
        name = self.fresh("h")
        self.put(f"def {name}(items):")
        self.put("    for item in items:")
        self.put(f"        yield item{self.any('', ' + a', ' * 2')}")
        if self.breaks and self.random.random() < 0.3:
            self.put("        tell(item)")
        self.put(f"{self.any('ys', 'xs')} = {self.any('list', 'sorted')}({name}({self.sequence()}))")

    def leave(self, depth: int) -> None:
        """An early end, or an object of a class."""
        match self.random.randint(0, 2):
            case 0 if depth:
                self.put(f"return {self.result()}")
            case 1:
                name = self.fresh("bag")
                self.put(f"{name} = Bag({self.integer()})")
                self.put(f"{name}.total += {self.integer()}")
                self.put(f"{self.any('i', 'k')} = {name}.twice")
            case _:
                wide = f"f'{{{self.any(*INTS)}!r:>{self.any('3', '{a}', '{b}')}}}'"
                self.put(f"ys = [len({wide}), len(str({self.integer()}))]")
