"""Random programs: a straight line of templates over awkward inputs, run once in eager while it is written.

A `Program` is data that prints as a function with its inputs, so that a failing one can be pasted and shortened.
Invariant: eager runs every program that `generate` gives. `rng` may be Hypothesis's, which then shortens failures.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.differential import operations
from tests.differential.inputs import COMPLEX, FLOATS, LAYOUTS, Input

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
MOST_ELEMENTS = 4000
LEAST_STATEMENTS, MOST_STATEMENTS = 2, 12
MOST_RESIZED = 40_000
_SLOT = re.compile(r"\{(\w*):(\w+?)(=?)(\d?)(?:@(\w+))?\}")


@dataclass(frozen=True)
class Program:
    """The inputs x0, x1, …; statements; the names that are returned."""

    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def source(self) -> str:
        """The function as text."""
        parameters = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({parameters}):\n{body}    return {', '.join(self.outputs)},\n"

    def function(self) -> Callable[..., Any]:
        """The function, newly made: nothing is known about it yet."""
        namespace: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.source, "<program>", "exec"), namespace)
        function: Callable[..., Any] = namespace["f"]
        return function

    def __str__(self) -> str:
        inputs = "".join(f"    {item!r},\n" for item in self.inputs)
        return f"{self.source}inputs = (\n{inputs})"

    def widened(self, dtype: str = "float64", copies: bool = False) -> Program:
        """The same program with a wide type wherever its text asks for a half one; `copies`: `half()` makes one."""
        to = f".to(torch.{dtype}{', copy=True' * copies})"
        text = [re.sub(r"\.(half|bfloat16)\(\)", to, line) for line in self.lines]
        text = [re.sub(r"torch\.b?float16\b", f"torch.{dtype}", line) for line in text]
        return replace(self, lines=tuple(text))

    def resized(self, factor: int) -> Program | None:
        """The same program with every size above 1 so many times as great, if eager runs it."""
        inputs = [replace(i, size=tuple(n * factor if n > 1 else n for n in i.size)) for i in self.inputs]
        if max((torch.Size(item.size).numel() for item in inputs), default=0) > MOST_RESIZED or self.inputs == inputs:
            return None
        program = replace(self, inputs=tuple(inputs))
        return None if program.values() is None else program

    def values(self) -> Any:
        """What eager returns; None where it raises, on the host or on the inputs' devices.

        The host is asked first: another device that finds a position out of range stops for good.
        """
        found = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for inputs in dict.fromkeys([tuple([replace(i, device="cpu") for i in self.inputs]), self.inputs]):
                    found = self.function()(*[item.build()[0] for item in inputs])
            except Exception:
                return None
        return found


def generate(
    rng: random.Random, most: int = MOST_STATEMENTS, least: int = LEAST_STATEMENTS, device: str = "cpu"
) -> Program:
    """A program of a few statements, at most so many: short ones find faults of single operators sooner.

    It has fewer than `least` where eager refuses too many of those that were tried. Its inputs are on a device.
    """
    return _Writer(rng, most=most, least=least, device=device).write()


@dataclass
class _Writer:
    rng: random.Random
    inputs: list[Input] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    most: int = MOST_STATEMENTS
    least: int = LEAST_STATEMENTS
    device: str = "cpu"
    families: Sequence[tuple[int, list[str]]] = field(default_factory=lambda: operations.FAMILIES)
    #: What the numbers of inputs are: see `Input.values`.
    numbers: Sequence[str] = ("normal", "normal", "normal", "positive", "special", "edges")

    def write(self) -> Program:
        """Inputs, statements, outputs."""
        rng = self.rng
        self._make_inputs()
        wanted, tries = rng.randint(min(self.least, self.most), self.most), 0
        while len(self.lines) < wanted and tries < 60:
            tries += 1
            self._statement()
        names = [name for name, value in self.values.items() if isinstance(value, Tensor)]
        count = min(len(names), rng.choice((1, 1, 2, 2, 3, 4)))
        made = [name for name in names if not name.startswith("x")]
        outputs = [rng.choice(names) for _ in range(count - 1)]
        outputs.append(made[-1] if made else names[-1])
        return Program(tuple(self.inputs), tuple(self.lines), tuple(outputs))

    def _make_inputs(self) -> None:
        rng = self.rng
        palette = [rng.choice(SIZES) for _ in range(2)] + [rng.choice((0, 1, *SIZES))]
        main = rng.choice((torch.float32,) * 4 + DTYPES)
        for i in range(rng.randint(1, 4)):
            size = tuple(rng.choice(palette) for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4))))
            while torch.Size(size).numel() > MOST_ELEMENTS:
                size = size[1:]
            dtype = rng.choice((main, main, rng.choice(DTYPES)))
            if rng.random() < 0.06:
                dtype = rng.choice(COMPLEX)
            grad = rng.choice(("", "", "leaf", "leaf", "inner")) if dtype in (*FLOATS, *COMPLEX) else ""
            values = rng.choice(self.numbers)
            layout = rng.choice(("contiguous", "contiguous", rng.choice(LAYOUTS)))
            recipe = Input(size, dtype, layout, values, grad, rng.randint(0, 99), self.device)
            self.inputs.append(recipe)
            self.values[f"x{i}"] = recipe.build()[0]

    # ---- statements --------------------------------------------------------------------------------------------------

    def _statement(self) -> None:
        rng = self.rng
        families = [*self.families]
        if self.device != "cpu":
            families.append((16, operations.DEVICES))
        family = rng.choices([f for _, f in families], [w for w, _ in families])[0]
        text = self._fill(rng.choice(family))
        if text is None:
            return
        if family is operations.IN_PLACE:
            self._run(text, [])
            return
        value = self._evaluate(text)
        if value is None:
            return
        name = f"v{len(self.lines)}"
        leaves = [value] if isinstance(value, Tensor) else list(value)
        if len(leaves) > 6 or not leaves or not all(isinstance(v, Tensor) for v in leaves):
            return
        if sum(v.numel() for v in leaves) > MOST_ELEMENTS:
            return
        targets = [name] if isinstance(value, Tensor) else [f"{name}_{i}" for i in range(len(leaves))]
        line = f"{', '.join(targets)}{',' if not isinstance(value, Tensor) else ''} = {text}"
        # Of a leaf that is a view itself eager's views made there do not say that they need gradients, others do.
        known = family is not operations.VIEWS or all(i.layout == "contiguous" for i in self.inputs if i.grad)
        if rng.random() < 0.03 and known:
            line = f"with torch.no_grad(): {line}"
        self._run(line, targets)

    def _evaluate(self, text: str) -> Any:
        """What the expression gives, on copies: it may be thrown away. The host is asked first here, too."""
        found = None
        on_host = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in self.values.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with torch.no_grad():
                    for values in (self.values,) if self.device == "cpu" else (on_host, self.values):
                        found = eval(text, {"torch": torch, "F": F}, dict(values))
            except Exception:
                return None
        return found

    def _run(self, line: str, targets: list[str]) -> None:
        """Append the line if eager runs the whole program with it."""
        program = Program(tuple(self.inputs), (*self.lines, line), tuple(dict.fromkeys([*self.values, *targets])))
        results = program.values()
        if results is not None:
            self.lines.append(line)
            self.values = dict(zip(program.outputs, results, strict=True))

    # ---- slots -------------------------------------------------------------------------------------------------------

    def _fill(self, template: str) -> str | None:
        self.chosen = {}
        try:
            return _SLOT.sub(self._slot, template)
        except _NothingFits:
            return None

    def _slot(self, match: re.Match[str]) -> str:
        name, kind, exact, digit, of = match.groups()
        if name and name in self.chosen:
            return self.chosen[name]
        if of:
            text = self._dependent(kind, self.chosen[of], self.values[self.chosen[of]])
        elif kind in ("t", "f", "r", "i", "b", "c"):
            text = self._tensor(kind, int(digit or 0), bool(exact))
        else:
            text = self._number(kind)
        if name:
            self.chosen[name] = text
        return text

    def _tensor(self, kind: str, dims: int, exact: bool) -> str:
        def fits(value: Tensor) -> bool:
            dtype = value.dtype
            right = {
                "t": not dtype.is_complex,
                "f": dtype.is_floating_point,
                "r": dtype.is_floating_point and value.shape[:1] != (0,),
                "i": not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool),
                "b": dtype is torch.bool,
                "c": dtype.is_complex,
            }[kind]
            return right and (value.dim() == dims if exact else value.dim() >= dims)

        return self._one([name for name, value in self.values.items() if fits(value)])

    def _one(self, names: list[str]) -> str:
        if not names:
            raise _NothingFits
        return self.rng.choice(names[-4:] if self.rng.random() < 0.5 else names)

    def _number(self, kind: str) -> str:
        rng = self.rng
        match kind:
            case "s":
                return rng.choice(("0.5", "2.0", "1.7", "3", "0.0", "1"))
            case "n":
                return rng.choice(("0", "1", "2", "3"))
            case "k":
                return rng.choice(("True", "False"))
            case "ft":
                return str(rng.choice(FLOATS))
            case _:
                return str(rng.choice(DTYPES))

    def _dependent(self, kind: str, name: str, tensor: Tensor) -> str:
        rng, size = self.rng, tuple(tensor.shape)
        match kind:
            case "dim":
                return str(rng.randrange(-max(len(size), 1), max(len(size), 1)))
            case "same":
                same = [n for n, v in self.values.items() if v.shape == tensor.shape and v.dtype is tensor.dtype]
                return self._one(same)
            case "like":
                return self._one([n for n, v in self.values.items() if _broadcasts(v.shape, tensor.shape)])
            case "perm":
                return ", ".join(map(str, rng.sample(range(len(size)), len(size))))
            case "size":
                count = tensor.numel()
                factors = [n for n in (1, 2, 3, 4, 5, 7, 8) if count and count % n == 0] or [1]
                shapes = [(-1,), (rng.choice(factors), -1), (-1, rng.choice(factors)), (-1, rng.choice(factors), 1)]
                return str(rng.choice(shapes))
            case "wide":
                outer = rng.choice(((), (2,), (1,)))
                return str(tuple(n if n != 1 else rng.choice((1, 2, 3)) for n in (*outer, *size)))
            case "cut":
                cuts = ("1:", ":-1", "::2", "0", "-1", ":", "1:3", "None, :", "...", "1::2")
                return f"[{', '.join(rng.choice(cuts) for _ in range(rng.randint(1, max(1, len(size)))))}]"
            case "pick":
                top = size[0] if size else 0
                if not top:
                    raise _NothingFits
                picked = [
                    rng.randrange(-top, top) if rng.random() < 0.1 else rng.randrange(top)
                    for _ in range(rng.randint(1, 4))
                ]
                return f"torch.tensor({picked})"
        raise AssertionError(kind)


class _NothingFits(Exception):
    """No variable can fill a slot."""


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b), strict=False))


# ---- shortening ------------------------------------------------------------------------------------------------------


def shorter(program: Program) -> Iterator[Program]:
    """Programs with one thing less: an output, a statement, a feature of an input."""
    for i in range(len(program.outputs)):
        if len(program.outputs) > 1:
            yield replace(program, outputs=program.outputs[:i] + program.outputs[i + 1 :])
    for i in reversed(range(len(program.lines))):
        yield replace(program, lines=program.lines[:i] + program.lines[i + 1 :])
    for i, item in enumerate(program.inputs):
        plain = [
            replace(item, layout="contiguous"),
            replace(item, grad=""),
            replace(item, grad="leaf"),
            replace(item, values="normal"),
            replace(item, values="positive"),
        ]
        for simpler in plain:
            harder = (simpler.grad and not item.grad) or (simpler.values == "normal" and item.values != "special")
            if simpler != item and not harder:
                yield replace(program, inputs=(*program.inputs[:i], simpler, *program.inputs[i + 1 :]))


def shorten(program: Program, fails: Callable[[Program], bool], budget: int = 60) -> Program:
    """The shortest program that still fails, within a number of tries."""
    again = True
    while again and budget > 0:
        again = False
        for candidate in shorter(program):
            budget -= 1
            if budget <= 0:
                break
            if fails(candidate):
                program, again = candidate, True
                break
    return program
