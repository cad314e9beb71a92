"""Promotion, generated: every pointwise overload of PyTorch with several operands, over dtypes and kinds of operands.

An operand is a tensor with dims, a 0-dim tensor or a Python number, of each dtype. What eager refuses is left out.
Cases go by dozens into one graph; those of a graph that differs are then told apart.
`python -m tests.differential.promotion --match add --share 0.1 --seed 3` runs a share of all cases; without a share
it runs everything (hours).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import random
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import stator

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (2, -3, 1.001, True, 0.5, 300, 1.5 + 2j)
#: What a parameter that is none of the operands gets, by its name.
FIXED: dict[str, Any] = {"rounding_mode": "floor", "approximate": "tanh", "p": 0.5, "threshold": 1, "scale": 2.0}
_OPERANDS = ("Tensor", "Tensor?", "Scalar", "Scalar?", "number", "Optional[Tensor]", "Optional[number]")
#: Operators whose half-type results may differ by a rounding, as eager's kernels differ between sizes too.
_INEXACT = re.compile(
    r"pow|atan2|hypot|logaddexp|special_|igamma|lerp|backward|elu|celu|softplus|zeta|addcmul|addcdiv|float_power"
)
_PLAIN = (1.3, -2.7, 0.5, 3.9, 2.0)


@dataclass(frozen=True)
class Operand:
    """A tensor of a dtype, with dims or without, or a number."""

    kind: str
    value: Any

    def build(self) -> Any:
        if self.kind == "number":
            return self.value
        numbers = _PLAIN if self.kind == "dims" else (1.001,)
        if self.value is torch.bool:
            made = torch.tensor([number > 1 for number in numbers])
        elif self.value.is_floating_point or self.value.is_complex:
            made = torch.tensor(numbers, dtype=torch.float64).to(self.value)
        else:
            whole = [abs(round(n)) or 1 if self.value is torch.uint8 else round(n) or 1 for n in numbers]
            made = torch.tensor(whole if self.kind == "dims" else [3], dtype=self.value)
        return made if self.kind == "dims" else made.reshape(())

    def __str__(self) -> str:
        return repr(self.value) if self.kind == "number" else f"{str(self.value)[6:]}{'[5]' * (self.kind == 'dims')}"


@functools.cache
def fixed(overload: Any) -> dict[str, Any]:
    """Arguments that are the same in every case; the program that is compiled reads no schema."""
    return {a.name: FIXED[a.name] for a in overload._schema.arguments if a.name in FIXED}


@dataclass(frozen=True)
class Case:
    """One call of an overload."""

    overload: Any
    operands: tuple[Operand, ...]
    keywords: tuple[tuple[str, Operand], ...] = ()

    def arguments(self) -> list[Any]:
        return [operand.build() for operand in (*self.operands, *[operand for _, operand in self.keywords])]

    def call(self, arguments: Sequence[Any]) -> Any:
        count = len(self.operands)
        rest = dict(zip([name for name, _ in self.keywords], arguments[count:], strict=True))
        return self.overload(*arguments[:count], **{**fixed(self.overload), **rest})

    def __str__(self) -> str:
        parts = [*map(str, self.operands), *[f"{name}={operand}" for name, operand in self.keywords]]
        return f"{self.overload}({', '.join(parts)})"


def overloads(match: str = "") -> list[Any]:
    """The pointwise overloads with at least two operands, in-place ones too."""
    found = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            one = getattr(packet, overload)
            if (
                torch.Tag.pointwise not in one.tags
                or torch.Tag.data_dependent_output in one.tags
                or any(a.is_out for a in one._schema.arguments)
            ):
                continue
            if sum(str(a.type) in _OPERANDS for a in one._schema.arguments) >= 2 and re.search(match, str(one)):
                found.append(one)
    return found


def cases(overload: Any) -> Iterator[Case]:
    """Dtypes and kinds of the first two operands in every pair; a third repeats one of them; keywords are numbers."""
    tensors = [Operand(kind, dtype) for kind in ("dims", "single") for dtype in DTYPES]
    numbers = [Operand("number", value) for value in NUMBERS]
    arguments = [a for a in overload._schema.arguments if str(a.type) in _OPERANDS]
    plain = [tensors if "Tensor" in str(a.type) else numbers for a in arguments if not a.kwarg_only]
    named = [a.name for a in arguments if a.kwarg_only]
    for pair in itertools.product(*plain[:2]):
        thirds = [dict.fromkeys([o for o in (*pair, *NUMBER_OPERANDS) if o in options]) for options in plain[2:]]
        for rest in itertools.product(*thirds):
            yield Case(overload, (*pair, *rest))
            for name, number in itertools.product(named, NUMBER_OPERANDS):
                yield Case(overload, (*pair, *rest), ((name, number),))


NUMBER_OPERANDS = tuple(Operand("number", value) for value in (2, 0.5, True))


def eager(case: Case) -> Tensor | None:
    """What eager gives; None where it refuses, or gives no tensor of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.call(case.arguments())
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return None


def differ(case: Case, got: Any, want: Tensor) -> str:
    """How a result differs in dtype, size or value."""
    if not isinstance(got, Tensor) or (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{case} is {getattr(got, 'dtype', got)} {tuple(getattr(got, 'shape', ()))}, eager's {want.dtype}"
    if torch.equal(got.nan_to_num(7, 8, 9), want.nan_to_num(7, 8, 9)) if not got.is_complex() else False:
        return ""
    slack = 0.0
    if want.is_floating_point() or want.is_complex():
        real = want.real if want.is_complex() else want
        eps = torch.finfo(real.dtype).eps
        half = want.dtype in (torch.bfloat16, torch.float16)
        slack = (1.01 * eps if _INEXACT.search(str(case.overload)) else 0.0) if half else 16 * eps
        if "polynomial" in str(case.overload):
            slack = max(slack, 0.01)  # recurrences of hundreds of steps lose digits, each in its own way
    wide = [t.to(torch.complex128) for t in (got, want)]
    terms = 1.0 if slack else 0.0  # what may have been subtracted on the way
    close = torch.allclose(*wide, rtol=slack, atol=slack * terms, equal_nan=True)
    return "" if close else f"{case} is {got.tolist()}, eager's {want.tolist()} ({want.dtype})"


def compiled(chosen: Sequence[Case]) -> list[Any] | Exception:
    """The results of these cases in one graph."""

    def program(arguments: list[list[Any]]) -> list[Any]:
        return [case.call(given) for case, given in zip(chosen, arguments, strict=True)]

    stator.reset()
    options = {"cache": False, "strict": True}
    try:
        result: list[Any] = stator.compile(program, fullgraph=True, dynamic=False, options=options)(
            [case.arguments() for case in chosen]
        )
    except Exception as error:
        return error
    return result


def differences(chosen: Sequence[Case], size: int = 40) -> Iterator[str]:
    """What differs among these cases."""
    wanted = [(case, want) for case in chosen if (want := eager(case)) is not None]
    for start in range(0, len(wanted), size):
        part = wanted[start : start + size]
        found = compiled([case for case, _ in part])
        if not isinstance(found, Exception):
            yield from filter(None, [differ(case, got, want) for (case, want), got in zip(part, found, strict=True)])
        elif len(part) > 1:
            yield from differences([case for case, _ in part], len(part) // 2)
        else:
            yield f"{part[0][0]} raises {type(found).__name__}: {str(found).splitlines()[0][:200]}"


def sample(share: float, seed: int, match: str = "") -> list[Case]:
    """A share of all cases, the same for a seed, in random order."""
    rng = random.Random(seed)
    found = [case for overload in overloads(match) for case in cases(overload)]
    rng.shuffle(found)
    return found[: math.ceil(len(found) * share)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="a regular expression over overloads")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    chosen = sample(given.share, given.seed, given.match)
    print(f"# {len(chosen)} cases", flush=True)
    count = 0
    for difference in differences(chosen):
        count += 1
        print(difference, flush=True)
    print(f"# {count} differ")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
