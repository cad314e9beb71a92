"""Statements: assignments, changes in place, and control flow of every kind."""

from __future__ import annotations

from collections.abc import Callable

from tests.capture.fuzz.containers import Containers
from tests.capture.fuzz.page import GIVEN, INTS, KEYS, LISTS, TENSORS

ERRORS = ("ValueError", "KeyError", "IndexError", "ZeroDivisionError", "UnboundLocalError", "RuntimeError", "Exception")


class Statements(Containers):
    """Writes statements."""

    #: What a `return` in the function being written gives.
    returned: Callable[[], str]

    def statement(self, depth: int) -> None:
        """One statement; deep or late ones are simple."""
        self.budget -= 1
        simple = [
            self.assign,
            self.assign,
            self.assign,
            self.change,
            self.change,
            self.compute,
            self.contain,
            self.contain,
        ]
        if self.breaks:
            simple += [self.tell]
        nested = [
            self.branch, self.count, self.loop, self.attempt, self.attempt, self.scope, self.scope, self.inner,
            self.generate, self.leave, self.match, self.consume, self.call,
        ]  # fmt: skip
        self.random.choice(simple if depth > 2 or self.budget < 0 else simple + nested)(depth)

    def block(self, depth: int) -> None:
        """One to three statements, one level further in."""
        self.level += 1
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth + 1)
        self.level -= 1

    # -- simple ------------------------------------------------------------------------------------------

    def assign(self, depth: int) -> None:
        """A local gets a value."""
        match self.random.randint(0, 7):
            case 0 | 1:
                self.put(f"{self.any(*INTS)} {self.any('=', '+=', '-=', '*=')} {self.integer()}")
            case 2:
                self.put(f"{self.any(*LISTS)} = {self.sequence()}")
            case 3 | 4:
                self.put(f"{self.any(*TENSORS)} = {self.tensor()}")
            case 5:
                self.put(f"{self.any('i', 'j')}, {self.any('k', 'a')} = {self.integer()}, {self.integer()}")
            case 6:
                self.put(f"{self.any('bag.total', 'COUNT')} {self.any('=', '+=')} {self.integer()}")
            case _:
                self.put(f"{self.any('i, *ys', '*ys, i', 'i, j, *ys')} = {self.sequence()}")

    def change(self, depth: int) -> None:
        """An object changes in place."""
        name, key = self.any(*LISTS), self.any(*KEYS)
        self.put(
            self.any(
                f"{name}.append({self.integer()})",
                f"{name}[{self.index(2)}] = {self.integer()}",
                f"{name}.{self.any('reverse()', 'sort()', 'pop()', 'insert(0, a)', 'extend(ys[:2])')}",
                f"{name}[{self.any(':1', '1:', '1:2')}] = ({self.sequence()})[:4]",
                f"del {name}[{self.any(':1', '1:2', '-1:')}]",
                f"{name} += ({self.sequence()})[:4]",
                f"d[{key!r}] = {self.integer()}",
                f"d[{self.key()!r}] += {self.integer()}",
                f"d.pop({key!r}, {self.integer()})" if self.chance(0.7) else f"del d[{key!r}]",
                f"d.{self.any('setdefault', 'pop')}({key!r}, {self.integer()})",
                f"d.update({key}={self.integer(2)})",
                f"bag.{self.any('grow', 'plus')}({self.integer(2)})",
                f"bag['a'] = {self.integer(2)}",
                f"ys = {name}",
                f"del {self.any(*INTS, 'v', 'ys')}" if self.chance(0.15) else "bag.items.append(k)",
            )
        )

    def compute(self, depth: int) -> None:
        """A tensor changes in place, or is named once more."""
        name, other = self.any(*TENSORS), self.any(*TENSORS)
        self.put(
            self.any(
                f"{name} += {self.integer(2)}",
                f"{name}[{self.any('0', ':2', '-1', '1:')}] {self.any('=', '+=', '*=')} {self.integer(2)}",
                f"{name}.{self.any('mul_(2)', 'add_(1)', 'neg_()', f'add_({self.tensor(2)})', 'zero_()')}",
                f"{name} = {other}",
                f"{name} = {other}{self.any('[:]', '.view(-1)', '.detach()')}",
                f"bag.held = {other}",
                "bag.held += 1",
                f"bag.parts = [{name}, {other}]; bag.parts[0] += 1",
                f"bag.parts.append({other})",
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
                f"bag.total = tell({self.integer()})",
                f"v = {self.tensor(1)} * tell({self.integer(2)})",
                "stator.graph_break()",
            )
        )

    # -- branches and loops ------------------------------------------------------------------------------

    def branch(self, depth: int) -> None:
        self.put(f"if {self.condition()}:")
        self.block(depth)
        if self.chance(0.5):
            self.put(self.any("else:", f"elif {self.condition()}:"))
            self.block(depth)

    def match(self, depth: int) -> None:
        subject, cases = self.random.choice(
            [
                (self.any(*LISTS), ["[]", "[i]", "[i, *ys]", "[0 | 1, j, *_]", "[*_, k]"]),
                ("d", ["{'p': i, 'q': j}", "{'r': k}", "{'p': 1 as i}"]),
                ("bag", [f"Bag(total=i) if i > {self.integer(2)}", "Bag(total=1)", "Bag(items=[i, *_])"]),
                (self.integer(), ["0 | 1", "-1", "int(i) if i < 3", "str()"]),
                ("(a, b)", ["(0, i)", "(i, j) if i < j"]),
            ]
        )
        with self.indented(f"match {subject}:"):
            for case in [*self.random.sample(cases, self.random.randint(1, 2)), *(["_"] if self.chance(0.5) else [])]:
                self.put(f"case {case}:")
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
            "d.copy().items()", "d", "d.values()", "d.items()", "(t, u)", "reversed(xs[:2])", "t[:2]",
            "sorted({*xs})[:3]",
        )  # fmt: skip
        targets = {
            "list(d)": ["_"], "d": ["_"], "(t, u)": ["v"], "t[:2]": ["_"],
        }  # fmt: skip
        pairs = source.startswith(("enumerate", "zip")) or source.endswith("items()")
        self.put(f"for {self.any(*targets.get(source, ['_, i', '_, k'] if pairs else ['i', 'j']))} in {source}:")
        self.looped(depth)

    def looped(self, depth: int) -> None:
        """The body of a loop, and what follows it."""
        self.loops += 1
        self.block(depth)
        if self.chance(0.4):
            self.level += 1
            self.put(f"if {self.condition()}:")
            self.put(f"    {self.any('break', 'continue')}")
            self.put(f"{self.any(*INTS[:2])} += 1")
            self.level -= 1
        self.loops -= 1
        if self.chance(0.3):
            self.put("else:")
            self.block(depth)

    # -- exceptions and contexts -------------------------------------------------------------------------

    def attempt(self, depth: int) -> None:
        self.put("try:")
        self.block(depth)
        if self.chance(0.5):
            self.put(f"    if {self.condition()}:")
            self.put(f"        raise {self.any(*ERRORS[:4])}({self.integer()})")
        handled = self.random.sample(range(len(ERRORS)), self.random.randint(0, 2))
        for error in sorted(handled):
            self.handler(ERRORS[error], depth)
        if handled and self.chance(0.3):
            self.put("else:")
            self.block(depth)
        if not handled or self.chance(0.5):
            self.put("finally:")
            self.block(depth)
            if self.chance(0.2):
                self.level += 1
                self.put(f"if {self.condition()}:")
                self.put(f"    {self.any(f'return {self.returned()}', *(['break', 'continue'] if self.loops else []))}")
                self.level -= 1

    def handler(self, error: str, depth: int) -> None:
        self.put(f"except {error} as error:")
        self.level += 1
        self.put(self.any("xs.append(len(error.args))", "pass", "d['e'] = len(type(error).__name__)"))
        if self.breaks and self.chance(0.3):
            self.put("tell(a)")
        if self.chance(0.3):
            self.put(
                self.any(
                    "raise",
                    f"raise ValueError({self.any('i', 'a')}) from error",
                    "raise KeyError(j)",
                    "raise RuntimeError('x') from None",
                )
            )
        self.level -= 1
        self.block(depth)

    def scope(self, depth: int) -> None:
        """A `with` block."""
        scopes = [
            "torch.no_grad()", "torch.enable_grad()", "torch.autocast('cpu', dtype=torch.bfloat16)", "Scope(xs)",
            "Scope(xs)", "Scope(ys) as j", "Scope(xs), Scope(ys)", "contextlib.suppress(KeyError, IndexError)",
            "contextlib.nullcontext(a) as i", "contextlib.ExitStack() as stack",
            *(f"{name}({GIVEN}) as k" for name in self.managers),
        ]  # fmt: skip
        chosen = self.any(*scopes)
        self.put(f"with {chosen}:")
        if chosen.startswith("contextlib.Exit"):
            self.put(f"    stack.{self.any('enter_context(Scope(xs))', f'callback(xs.append, {self.integer(2)})')}")
        self.block(depth)

    # -- functions in functions --------------------------------------------------------------------------

    def inner(self, depth: int) -> None:
        """A function in the function, called at once and perhaps later."""
        name = self.fresh("g")
        shared = sorted(self.random.sample(GIVEN.split(", ")[:6], self.random.randint(1, 6)))
        outer = self.returned, self.loops
        with self.indented(f"def {name}(c, e={self.integer()}, *rest, **options):"):
            self.put(f"nonlocal {', '.join(shared)}")
            self.put("global COUNT")
            self.put("i, j, k = c, e, len(rest)")
            self.put(f"ys, v = {self.any('[c, e]', 'list(rest)', 'xs')}, {self.any('t', 'u', 't * 2')}")
            self.put(f"{self.any('i', *(name for name in shared if name in INTS))} += c")
            self.returned, self.loops = lambda: self.integer(2), 0
            for _ in range(self.random.randint(0, 2)):
                self.statement(depth + 1)
            self.put(f"return {self.any('c + e', 'i * 2', 'len(rest)', 'c', self.integer(2))}")
        self.returned, self.loops = outer
        self.put(
            f"{self.any('i', 'j')} = {name}({self.integer()}{self.any('', ', 2', ', *xs[:2]', ', e=1', ', 1, 2, z=a')})"
        )
        if self.chance(0.3):
            self.put(f"{self.any(*INTS[:2])} += 1")
            self.put(f"k = {name}(2)")

    def generate(self, depth: int) -> None:
        """A generator, used up or not."""
        name = self.fresh("h")
        with self.indented(f"def {name}(items):"):
            if self.chance(0.3):
                self.put("nonlocal a")
                self.put("a += 1")
            self.put("for item in items:")
            self.put(f"    {self.any('yield item', 'yield item + a', 'b = yield item * 2', 'yield from (item, a)')}")
            if self.breaks and self.chance(0.4):
                self.put(f"    {self.any('tell(item)', 'note(t)')}")
        self.use(f"{name}(({self.sequence()})[:4])", depth)

    def consume(self, depth: int) -> None:
        """One of the program's own generators."""
        if self.generators and not self.loops:
            self.use(f"{self.random.choice(self.generators)}({GIVEN})", depth)
        else:
            self.assign(depth)

    def use(self, made: str, depth: int) -> None:
        """What is done with a generator."""
        match self.random.randint(0, 4):
            case 0:
                self.put(f"{self.any('ys', 'xs')} = {self.any('list', 'sorted')}({made})")
            case 1:
                name = self.fresh("z")
                self.put(f"{name} = {made}")
                self.put(f"i = next({name}, 0)")
                self.statement(depth + 1)
                self.put(self.any(f"j = next({name}, 1)", f"{name}.close()", f"ys = list({name})", f"i += sum({name})"))
            case 2:
                self.put(f"i, *ys = {made}")
            case 3:
                self.put(f"for i, j in zip({made}, {self.any('range(2)', 'xs[:3]')}):")
                self.looped(depth)
            case _:
                self.put(f"for i in {made}:")
                self.looped(depth)

    def call(self, depth: int) -> None:
        """A call of one of the program's own functions, as a statement."""
        self.put(f"{self.any(*INTS)} = {self.called(0)}")

    def leave(self, depth: int) -> None:
        """An early end, or an object of a class."""
        match self.random.randint(0, 2):
            case 0 if depth:
                self.put(f"return {self.returned()}")
            case 1:
                name = self.fresh("bag")
                self.put(f"{name} = Bag({self.integer()}, {self.tensor()})")
                self.put(f"{name}.total += {self.integer()}")
                self.put(f"{self.any('i', 'k')} = {name}.twice + {name}.plus(2)")
                self.put(f"{self.any(f'bag = {name}', f'bag.items = {name}.items', f'v = {name}.held')}")
            case _:
                self.put(f"fs = [lambda c: c + a, lambda c: xs.append(c), lambda c, e={self.any(*INTS)}: e]")
                self.put(f"a += {self.integer(2)}")
                self.put(f"ys = [g({self.any(*INTS)}) or 0 for g in fs]")
