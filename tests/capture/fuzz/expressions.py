"""Expressions of each kind: ints, conditions, lists and tensors.

All of them end soon and stay small. What a graph cannot hold (calls that tell, branches on data) is written only into
programs with breaks.
"""

from __future__ import annotations

from tests.capture.fuzz.page import GIVEN, INTS, KEYS, LISTS, TENSORS, Page


class Expressions(Page):
    """Writes expressions."""

    def integer(self, depth: int = 0) -> str:
        """An int."""
        if depth > 2:
            return self.any(*INTS[:2], "0", "1", "2", "3", "-1")
        match self.random.randint(0, 17 if self.breaks else 15):
            case 0 | 1 | 2:
                return self.any(*INTS)
            case 3:
                return str(self.random.randint(-3, 4))
            case 4 | 5:
                left, right = self.integer(depth + 1), self.integer(depth + 1)
                operator = self.any("+", "-", "*", "&", "|", "^", "//", "%")
                right = f"({right} or 1)" if operator in ("//", "%") and self.chance(0.9) else right
                return f"({left} {operator} {right})"
            case 6:
                return f"len({self.any(*LISTS, 'd', 'bag')})"
            case 7:
                return f"{self.any(*LISTS)}[{self.index(depth + 1)}]"
            case 8:
                return self.any(f"d[{self.key()!r}]", f"d.get({self.any(*KEYS)!r}, {self.integer(depth + 1)})")
            case 9:
                return f"({self.integer(depth + 1)} if {self.condition(depth + 1)} else {self.integer(depth + 1)})"
            case 10:
                return self.any(f"sum({self.any(*LISTS)})", f"{self.any('max', 'min')}({self.any(*LISTS)}, default=1)")
            case 11:
                return f"{self.any(*TENSORS)}.{self.any('shape[0]', 'ndim', 'numel()', 'size(-1)', 'stride(0)')}"
            case 12:
                return self.any("bag.total", "bag.twice", f"bag.plus({self.integer(depth + 1)})", "COUNT", "bag['a']")
            case 13:
                return f"(k := {self.integer(depth + 1)})"
            case 14:
                return self.small(depth)
            case 15:
                return self.called(depth)
            case 16:
                return self.any(f"tell({self.integer(depth + 1)})", f"note({self.any(*TENSORS)})")
            case _:
                return f"int(({self.tensor(depth + 1)} > 0).sum())"

    def held(self) -> str:
        """An int that is read from one of a bag's containers."""
        raise NotImplementedError

    def small(self, depth: int) -> str:
        """An int by way of something else."""
        if self.chance(0.5):
            return self.held()
        return self.any(
            f"[lambda c: c + a, lambda c, e={self.integer(2)}: c * e][{self.any('a', 'b')} % 2]({self.integer(2)})",
            f"next(iter({self.any(*LISTS)}), {self.integer(2)})",
            f"len({{*{self.any(*LISTS)}, {self.integer(2)}}})",
            f"{{(a, 1): i, (b, 1): j}}[{self.any('a', 'b')}, 1]",
            f"len(f'{{{self.any(*INTS)}!r:>{self.any('3', '{a}', '{b}')}}}')",
            f"max({self.any(*LISTS)}, key=lambda c: (c % 2, -c), default=0)",
            f"({self.sequence(2)} or [2]).pop()",
            f"any(c > {self.integer(2)} for c in {self.any(*LISTS)}) + 1",
        )

    def called(self, depth: int) -> str:
        """The result of one of the program's own functions."""
        if not self.helpers or self.loops or depth > 1:
            return self.any(*INTS)
        name = self.random.choice(self.helpers)
        if name == "bag.step":
            return f"bag.step({self.integer(2)})"
        given = self.any(GIVEN, f"{self.integer(2)}, b, ys, d, u, v, bag", "a=b, b=a, xs=ys, d=d, t=t, u=v, bag=bag")
        return f"{name}({given})"

    def index(self, depth: int) -> str:
        """A position in a list, mostly one that is there."""
        return self.any("0", "-1", "0", "-1", "1", self.integer(depth))

    def key(self) -> str:
        """A key, mostly one that is there."""
        return self.any("p", "q", "p", "q", *KEYS)

    def condition(self, depth: int = 0) -> str:
        """A truth value."""
        compare = ("<", "<=", "==", "!=", ">", ">=")
        match self.random.randint(0, 9 if self.breaks else 7):
            case 0 | 1:
                return f"{self.integer(depth + 1)} {self.any(*compare)} {self.integer(depth + 1)}"
            case 2:
                return f"{self.any(*KEYS)!r} {self.any('in', 'not in')} d"
            case 3:
                return self.any(*LISTS, "d", "not xs", "bag", "bag is not None", "isinstance(bag, Bag)")
            case 4 if depth < 2:
                return f"({self.condition(depth + 1)} {self.any('and', 'or')} {self.condition(depth + 1)})"
            case 5:
                return f"0 <= {self.integer(depth + 1)} < {self.integer(depth + 1)}"
            case 6:
                return f"{self.integer(depth + 1)} {self.any('in', 'not in')} {self.any(*LISTS)}"
            case 7:
                return f"{self.any('t', 'bag.held')} is {self.any('u', 'v', 't')}"
            case 8:
                return f"({self.tensor(depth + 1)}).sum() {self.any(*compare)} {self.any('0', '0', 'a')}"
            case 9:
                return self.any(
                    f"({self.tensor(depth + 1)} > 0).{self.any('any', 'all')}()",
                    f"-2 < {self.any(*TENSORS)}.sum() < {self.any('2', 'b')}",
                    f"not {self.any(*TENSORS)}.max() > {self.any('0', '1')}",
                )
        return "a < b"

    def sequence(self, depth: int = 0) -> str:
        """A list of ints."""
        match self.random.randint(0, 9 if self.breaks else 8):
            case 0 | 1:
                return self.any(*LISTS)
            case 2:
                return f"[{self.integer(depth + 1)}, {self.integer(depth + 1)}]"
            case 3:
                return f"{self.any(*LISTS)}[{self.any('', '1', '-2')}:{self.any('', '2', '-1')}{self.any('', ':2')}]"
            case 4 if depth < 2:
                test = f"c {self.any('<', '!=', '>')} b"
                return f"[{self.any('c', 'c + a', 'c * 2')} for c in {self.any(*LISTS, 'd.values()')} if {test}]"
            case 5:
                key = self.any("reverse=True", "key=lambda c: -c", "key=lambda c: (c % 2, c)")
                return f"sorted({self.any(*LISTS)}, {key})"
            case 6:
                return f"[*{self.any(*LISTS)}[:2], *{self.any('ys[-2:]', 'd.values()', 'range(b % 3)')}, a]"
            case 7:
                return self.any(
                    f"sorted({{*xs, {self.integer(2)}}} {self.any('|', '&', '-', '^')} set(ys))",
                    "list({c: c + a for c in xs}.values())",
                    "list(c * 2 for c in xs if c)",
                    "[c + e for c, e in zip(xs, ys)]",
                    f"[(k := c) for c in {self.any(*LISTS)} if c]",
                )
            case 9:
                return self.any(
                    "[tell(c) for c in xs[:2]]",
                    "sorted(xs[:3], key=tell)",
                    "list(map(tell, ys[:2]))",
                    "[c for c in ys[:3] if t.sum() > c]",
                    "[note(c) for c in (t, v)]",
                    "list(tell(c) + a for c in xs[:2])",
                )
        return f"list({self.any('d.values()', 'range(a % 4)', 'reversed(xs)', 'map(abs, xs)', 'filter(None, ys)')})"

    def tensor(self, depth: int = 0) -> str:
        """A tensor."""
        if depth > 2:
            return self.any("t", "u")
        match self.random.randint(0, 9):
            case 0 | 1:
                return self.any(*TENSORS, "bag.held")
            case 2 | 3:
                return f"({self.tensor(depth + 1)} {self.any('+', '-', '*')} {self.tensor(depth + 1)})"
            case 4:
                return f"({self.tensor(depth + 1)} {self.any('+', '*')} {self.integer(depth + 1)})"
            case 5:
                return f"{self.any('torch.relu', 'torch.cos', 'torch.neg')}({self.tensor(depth + 1)})"
            case 6:
                return f"[t, u, v][{self.integer(2)} % 3]"
            case 7:
                return self.any(
                    f"torch.where(t > 0, {self.tensor(depth + 1)}, u)",
                    "torch.stack([t, u]).sum(0)",
                    "(t[:, None] @ u[None, :]).sum(0).float()",
                    "torch.ones_like(t)",
                    f"{{'p': t, 'q': v}}[{self.any('p', 'q')!r}]",
                    f"torch.full((t.shape[0],), float({self.integer(2)}))",
                )
            case 8:
                return (
                    f"{self.any(*TENSORS)}{self.any('[:]', '.view(-1)', '.detach()', '.float()', '.reshape(1, -1)[0]')}"
                )
        return f"{self.tensor(depth + 1)}.{self.any('flip(0)', 'abs()', 'clone()', 'cumsum(0)', 'roll(1)')}"

    def result(self) -> str:
        """What a function returns."""
        parts = [self.any(*INTS, *LISTS, "d", "bag", *TENSORS, *TENSORS) for _ in range(self.random.randint(1, 4))]
        return self.any(f"({', '.join(parts)},)", f"[{', '.join(parts)}]", f"{{'x': {parts[0]}}}")
