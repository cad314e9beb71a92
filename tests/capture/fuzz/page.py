"""The paper that programs are written on: lines, levels, choices and how much may still be written.

Every function of a program has the same variables, so that any expression fits anywhere: the ints `a b i j k`, the
lists of ints `xs ys`, the dict `d` from strings to ints, the tensors `t u v` [n], and the object `bag`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

INTS = ("a", "b", "i", "j", "k")
LISTS = ("xs", "ys")
TENSORS = ("t", "u", "v")
KEYS = ("p", "q", "r")

#: What every function is given.
GIVEN = "a, b, xs, d, t, u, bag"


class Page:
    """A program under construction."""

    def __init__(self, choices: random.Random, breaks: bool) -> None:
        self.random = choices
        #: Whether what ends a graph may be written.
        self.breaks = breaks
        self.lines: list[str] = []
        self.level = 0
        #: How many loops are around the present place.
        self.loops = 0
        self.names = 0
        #: Statements that may still be written.
        self.budget = 0
        #: Functions, generators and contexts of the module that may be used here.
        self.helpers: list[str] = []
        self.generators: list[str] = []
        self.managers: list[str] = []

    def put(self, text: str) -> None:
        """One line at the present level."""
        self.lines.append("    " * self.level + text)

    def any(self, *options: str) -> str:
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        """True in that share of cases."""
        return self.random.random() < share

    def fresh(self, stem: str) -> str:
        """A name that is not used yet."""
        self.names += 1
        return f"{stem}{self.names}"

    @contextlib.contextmanager
    def indented(self, header: str) -> Iterator[None]:
        """A block under a header."""
        self.put(header)
        self.level += 1
        yield
        self.level -= 1
