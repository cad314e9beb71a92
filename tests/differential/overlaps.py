"""Operators that write to memory which another operand reads: `python -m tests.differential.overlaps`.

Every operator of the database that works in place or takes `out=`, with an operand in the same memory: at the same
place, an element further on, in steps, one element repeated, and between the elements that are written.
Three answers are right: eager's result, the class of error that eager raises, and a refusal, which has to come wherever
eager's result is not that of operands of their own. Neighbour: `stator.fake.overlap` decides.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import stator
from stator.base.errors import CaptureError, DataDependent, Unsupported
from stator.coverage import database

#: Where both lie in memory: offset and step of the target, then those of the operand.
PLACES: dict[str, tuple[int, int, int, int]] = {
    "same": (0, 1, 0, 1),
    "one further on": (0, 1, 1, 1),
    "one before": (1, 1, 0, 1),
    "in steps, same": (0, 2, 0, 2),
    "in steps, one further on": (0, 2, 2, 2),
    "in steps, one before": (2, 2, 0, 2),
    "every second": (0, 1, 0, 2),
    "between": (0, 2, 1, 2),
    "repeated": (0, 2, 0, 0),
    "one repeated": (0, 2, 2, 0),
}
#: Entries that draw random numbers, or give memory that nobody has written.
LEFT_OUT = {"bernoulli", "normal", "multinomial", "randint_like", "empty_like", "resize_", "resize_as_"}
#: Entries whose kernels write to `out=` as if it were contiguous.
LEFT_OUT |= {"nn.functional.avg_pool3d", "nn.functional.linear", "narrow_copy"}
DTYPES = ("float32", "int64", "bool")
SAMPLES = 2
MOST = 400


@dataclass(frozen=True)
class Call:
    """An operator on memory: where the target and one operand lie there, and what else it gets."""

    label: str
    function: Callable[..., Any]
    memory: Tensor
    target: tuple[int, int, tuple[int, ...]]
    operand: tuple[int, int, tuple[int, ...]]
    #: Leaves of the arguments; `number` is the operand's among them, None stands for the target.
    leaves: tuple[Any, ...]
    spec: Any
    number: int
    out: bool

    def run(self, memory: Tensor, apart: bool = False) -> Tensor:
        """The memory after the call; `apart`, the operand is a copy."""
        target, operand = (_part(memory, *place) for place in (self.target, self.operand))
        leaves: list[Any] = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        leaves[self.number] = operand.clone() if apart else operand
        if not self.out:
            leaves[0] = target
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        if self.out:
            self.function(*args, **kwargs, out=target)
        else:
            self.function(*args, **kwargs)
        return memory


def _part(memory: Tensor, offset: int, step: int, size: tuple[int, ...]) -> Tensor:
    numel = math.prod(size)
    if step == 0:
        return memory[offset : offset + 1].expand(numel).view(size) if numel else memory[:0].view(size)
    return memory[offset : offset + numel * step : step].view(size)


def calls(name: str, dtype: str) -> Iterator[Call]:
    """Calls of an entry of the database."""
    entry = database.entry(name)
    for sample in database.samples(name, dtype, SAMPLES):
        tensors = [i for i, leaf in enumerate(sample.leaves) if isinstance(leaf, Tensor)]
        if not sample.usable or not tensors or any(sample.leaves[i].numel() > MOST for i in tensors):
            continue
        leaves = tuple([leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in sample.leaves])
        if entry.inplace_variant is not None and tensors[0] == 0:
            for number in tensors[1:]:
                yield from _placed(name, entry.inplace_variant, leaves, sample.spec, number, leaves[0], False)
        if entry.supports_out:
            result = _result(sample.function, leaves, sample.spec)
            for number in tensors if isinstance(result, Tensor) else ():
                yield from _placed(f"{name} out", sample.function, leaves, sample.spec, number, result, True)


def _result(function: Callable[..., Any], leaves: Sequence[Any], spec: Any) -> Any:
    args, kwargs = pytree.tree_unflatten(list(leaves), spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception:
            return None


def _placed(
    name: str, function: Any, leaves: tuple[Any, ...], spec: Any, number: int, target: Tensor, out: bool
) -> Iterator[Call]:
    operand = leaves[number]
    if operand.dtype is not target.dtype or target.numel() < 2 or operand.numel() < 1:
        return
    for label, (offset, step, its_offset, its_step) in PLACES.items():
        length = 2 * (target.numel() + operand.numel()) + 8
        memory = torch.ones(length, dtype=target.dtype)
        places = (offset, step, tuple(target.shape)), (its_offset, its_step, tuple(operand.shape))
        _part(memory, *places[0]).copy_(target)
        if its_step:
            _part(memory, *places[1]).copy_(operand)
        yield Call(f"{name} {number} {label}", function, memory, *places, leaves, spec, number, out)


def _outcome(run: Callable[[Tensor], Tensor], memory: Tensor) -> Tensor | Exception:
    torch.manual_seed(database.SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run(memory.clone())
        except Exception as error:
            return error


def verdict(call: Call) -> tuple[str, str]:
    """What eager does, and what is wrong with what compiled code does; "" if nothing is."""
    eager, apart = _outcome(call.run, call.memory), _outcome(partial(call.run, apart=True), call.memory)
    if isinstance(eager, Exception):
        kind = "refused" if not isinstance(apart, Exception) else "failing"
    else:
        kind = "as if apart" if not isinstance(apart, Exception) and _equal(eager, apart) else "by order"
    stator.reset()
    compiled = stator.compile(call.run, backend="aot_eager", fullgraph=True, options={"strict": True})
    got = _outcome(compiled, call.memory)
    if isinstance(got, CaptureError | Unsupported | DataDependent):
        return f"{kind}, not captured", ""
    if isinstance(eager, Exception):
        alike = isinstance(got, Exception) and (isinstance(got, type(eager)) or isinstance(eager, type(got)))
        return kind, "" if alike else f"eager raises {type(eager).__name__}: {str(eager)[:80]}, ours {str(got)[:200]}"
    if isinstance(got, Exception):
        return kind, f"raises {type(got).__name__}: {got}"[:300]
    return kind, "" if _equal(got, eager) else "another result" + " than of operands apart" * (kind == "by order")


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="a pattern of names of the database")
    parser.add_argument("--kinds", action="store_true", help="print what eager does with each operator")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kinds: Counter[str] = Counter()
    wrong = 0
    for dtype in DTYPES:
        for name in database.names(dtype, given.match):
            if name in LEFT_OUT:
                continue
            of_name: Counter[str] = Counter()
            for call in calls(name, dtype):
                kind, why = verdict(call)
                of_name[kind] += 1
                wrong += bool(why)
                if why:
                    print(f"{call.label} ({dtype}): {why}".replace("\n", " "), flush=True)
            kinds += of_name
            if given.kinds and of_name:
                print(f"# {name} {dtype}: {dict(of_name)}", flush=True)
    print(f"{sum(kinds.values())} calls {dict(kinds)}, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
