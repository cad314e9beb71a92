"""Random small kernels as text, for both ways of running them: statements of all kinds over scalars and blocks.

What a name stands for keeps its type, as kernels want it; everything else is up to the seed: which statements, how deep
they go, what is known while compiling and what is not.
"""

from __future__ import annotations

import linecache
import random
from typing import Any

import numpy as np

HEADER = """
import stator.tile as triton
import stator.tile.language as tl

@triton.jit
def pick(a, b):
    if a > b:
        return a - b, 1
    if a == 0:
        return b, 2
    return a, -3

@triton.jit(noinline=True)
def apart(a, b, K: tl.constexpr):
    total = 0
    for i in range(K):
        total += a * i + b
    return total

@triton.jit
def most(a, b):
    if a > b:
        c = a
    else:
        c = b
    return c

@triton.jit
def kernel(out, floats, x, n, m, K: tl.constexpr, FLAG: tl.constexpr):
    i = tl.arange(0, 8)
    s0, s1, s2 = n, m, 3
    b0, b1 = tl.load(x + i), i * 2
    f0, f1 = tl.load(x + i).to(tl.float32) / 7, n * 0.5
"""
FOOTER = """
    tl.store(out + i, b0)
    tl.store(out + 8 + i, b1 + s2)
    tl.store(out + 16, s0)
    tl.store(out + 17, s1)
    tl.store(floats + i, f0)
    tl.store(floats + 8, f1)
"""


class Writer:
    """Writes one kernel's statements."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.counters = 0

    def scalar(self, depth: int = 2) -> str:
        pick = self.random.choice
        if depth == 0 or self.random.random() < 0.3:
            return pick(["s0", "s1", "s2", "K", str(self.random.randint(-5, 9))])
        a, b = self.scalar(depth - 1), self.scalar(depth - 1)
        return pick([
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"(s0 // ({b}))", f"(s1 % ({b}))", f"({a} if {self.test()} else {b})",
            f"tl.minimum({a}, {b})", f"(s0 & {b})", "tl.sum(b0)", f"tl.max(b1 ^ {a})", "tl.reduce(b0, 0, most)",
            "(s1 >> 2)", f"apart(s0, {a}, K)", f"min({a}, {b}, s0)", f"pick(s1, {a} + s0)[1]",
        ])  # fmt: skip

    def test(self) -> str:
        pick = self.random.choice
        plain = f"s{self.random.randint(0, 2)} {pick(['<', '>=', '==', '!='])} {self.random.randint(-4, 12)}"
        other = f"s0 {pick(['<', '>'])} s1"
        return pick(
            [plain, plain, other, f"({plain} and {other})", f"({plain} or FLAG)", f"(not {other})", "FLAG", "K > 2"]
        )

    def block(self) -> str:
        a, b, s = self.random.choice(["b0", "b1"]), self.random.choice(["b0", "b1", "i"]), self.scalar(1)
        return self.random.choice([
            f"{a} + {s}", f"{a} * {b}", f"tl.where({a} > {s}, {a}, {b})", f"{a} - ({b} >> 1)", f"tl.cumsum({b}, 0) + {s}",
            f"tl.maximum({a}, {b})", f"tl.flip({a})", f"tl.sort({a})", f"({a} // 3) % 5 + {s}", f"f0.to(tl.int32) + {b}",
            f"tl.load(x + (({a} % 8 + 8) % 8), mask={b} > {s}, other={s})", f"tl.associative_scan({a}, 0, most)",
        ])  # fmt: skip

    def float(self) -> str:
        return self.random.choice([
            "f0 * 0.5", f"f0 + {self.scalar(1)}", "tl.exp(-tl.abs(f0))", "b0 / 3", "tl.where(b1 > 2, f0, 0.25)", "f0 - tl.sum(f0)",
            "tl.cumsum(f0, 0)", "tl.softmax(f0)", "f0 + f1",
        ])  # fmt: skip

    def statement(self, indent: str, depth: int) -> None:
        kind = self.random.choice(
            ["s", "s", "b", "b", "f", "g", "call"] + ["if", "for", "while", "static"] * (depth > 0)
        )
        add = lambda text: self.lines.append(indent + text)  # noqa: E731
        match kind:
            case "s":
                name = f"s{self.random.randint(0, 1)}"
                add(f"{name} {self.random.choice(['= 0 * n +', '+=', '-='])} {self.scalar()}")
            case "b":
                add(f"b{self.random.randint(0, 1)} = {self.block()}")
            case "f":
                add(f"f0 = {self.float()}")
            case "g":
                add(f"f1 {self.random.choice(['+=', '*='])} {self.random.choice(['0.5', 's0', 'tl.max(f0)'])}")
            case "call":
                add(f"s0, s1 = pick(s1, {self.scalar(1)} + s0)[0], s1 + pick(s0, s1)[1]")
            case "if":
                add(f"if {self.test()}:")
                self.body(indent, depth)
                if self.random.random() < 0.6:
                    add("else:")
                    self.body(indent, depth)
                if self.random.random() < 0.3:
                    add(f"s2 = {self.random.randint(-9, 9)} if {self.test()} else s2 + 1")
            case "for":
                number = self.counter()
                bounds = self.random.choice(["3", "0, K", "s0 % 4", "1, 7, 2", "4, s1 % 3, -1"])
                add(f"for k{number} in range({bounds}):")
                add(f"    s1 += k{number}")
                self.body(indent, depth)
            case "while":
                number = self.counter()
                add(f"c{number} = {self.random.choice(['0', 's0 % 3', 'K - 3'])}")
                add(f"while c{number} < 3:")
                self.body(indent, depth)
                add(f"    c{number} += 1")
            case "static":
                number = self.counter()
                add(f"for k{number} in tl.static_range(K):")
                add(f"    b0 += k{number} * s2")
                self.body(indent, depth)

    def counter(self) -> int:
        self.counters += 1
        return self.counters

    def body(self, indent: str, depth: int) -> None:
        for _ in range(self.random.randint(1, 2)):
            self.statement(indent + "    ", depth - 1)

    def kernel(self) -> str:
        for _ in range(self.random.randint(3, 7)):
            self.statement("    ", 2)
        return HEADER + "\n".join(self.lines) + FOOTER


def kernel_of(seed: int) -> Any:
    """A random kernel, whose text Python can find."""
    text, file = Writer(seed).kernel(), f"<random kernel {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, file, "exec"), names)
    return names["kernel"]


def results(kernel: Any, seed: int) -> tuple[Any, Any]:
    """What a launch writes: integers and floats."""
    numbers = np.random.default_rng(seed)
    x = numbers.integers(-20, 20, 8, dtype=np.int32)
    n, m = (int(value) for value in numbers.integers(-9, 30, 2))
    out, floats = np.zeros(18, np.int32), np.zeros(9, np.float32)
    kernel[(1,)](out, floats, x, n, m, K=int(numbers.integers(1, 4)), FLAG=bool(seed % 2))
    return out, floats
