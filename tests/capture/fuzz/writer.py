"""Writes random programs as source text.

A program is a module: a class, functions, generators and contexts that use one another, and `f`, which uses them all.
Every program ends (loops are short and counted, nothing calls itself). It may raise; that is part of what is compared.
The choices come from a `Random` that Hypothesis gives, so a failing program is made smaller by it.
Neighbours: `page.py` (the variables of every function), `expressions.py`, `statements.py`, `run.py` (what it is given).
"""

from __future__ import annotations

from tests.capture.fuzz.containers import CLASSES, HELD
from tests.capture.fuzz.page import GIVEN
from tests.capture.fuzz.statements import Statements

BAG = """
class Bag:
    def __init__(self, total, held):
        self.total = total
        self.held = held
        self.items = [total]
        self.parts = []
{HELD}

    @property
    def twice(self):
        return self.total * 2

    def plus(self, other):
        self.total += other
        return self.total

    def grow(self, other):
        self.items.append(other)
        return self

    def __len__(self):
        return len(self.items)

    def __getitem__(self, key):
        return self.__dict__.get("_" + key, self.total)

    def __setitem__(self, key, value):
        setattr(self, "_" + key, value)
""".replace("{HELD}", "\n".join(f"        {line}" for line in HELD))


class Writer(Statements):
    """One program under construction."""

    def program(self) -> str:
        """The text of the module."""
        self.lines = ["COUNT = 0", *CLASSES.splitlines(), *BAG.splitlines()]
        if self.chance(0.4):
            self.method()
        for write in (self.helper, self.helper, self.generator, self.manager):
            if self.chance(0.3):
                write()
        self.budget = 16
        self.returned = self.result
        with self.indented(f"def f({GIVEN}):"):
            self.start()
            for _ in range(self.random.randint(2, 7)):
                self.statement(0)
            self.put(f"return {self.result()}")
        return "\n".join(self.lines) + "\n"

    def start(self) -> None:
        """The variables that a function is not given."""
        self.put("global COUNT")
        for text in ("i, j, k = 1, 2, 3", "ys = [2, b]", "v = t * 2"):
            if self.chance(0.98):
                self.put(text)

    def body(self, most: int) -> None:
        """A short body."""
        self.budget = 5
        self.returned = lambda: self.integer(2)
        for _ in range(self.random.randint(1, most)):
            self.statement(1)

    def method(self) -> None:
        """A method of the class."""
        self.level = 1
        with self.indented("def step(self, a):"):
            self.put("bag, b, xs, d, t, u = self, self.total, self.items, {'p': 1, 'q': a}, self.held, self.held + 1")
            self.start()
            self.body(3)
            self.put(f"self.total = {self.integer()}")
            self.put(f"return {self.integer()}")
        self.level = 0
        self.helpers.append("bag.step")

    def helper(self) -> None:
        """A function of the module."""
        name = self.fresh("help")
        with self.indented(f"def {name}({GIVEN}):"):
            self.start()
            self.body(3)
            self.put(f"return {self.integer()}")
        self.helpers.append(name)

    def generator(self) -> None:
        """A generator of the module."""
        name = self.fresh("make")
        with self.indented(f"def {name}({GIVEN}):"):
            self.start()
            for _ in range(self.random.randint(1, 3)):
                self.put(f"yield {self.integer()}")
                self.body(1)
        self.generators.append(name)

    def manager(self) -> None:
        """A context made of a generator."""
        name = self.fresh("scope")
        self.put("@contextlib.contextmanager")
        with self.indented(f"def {name}({GIVEN}):"):
            self.start()
            self.body(2)
            self.put("try:")
            self.put(f"    yield {self.integer()}")
            if self.chance(0.5):
                self.put(f"except {self.any('KeyError', 'ValueError', 'Exception')} as error:")
                self.put(f"    {self.any('xs.append(7)', 'raise', 'raise ValueError(a) from error')}")
            with self.indented("finally:"):
                self.put("xs.append(9)")
                self.body(2)
        self.managers.append(name)
