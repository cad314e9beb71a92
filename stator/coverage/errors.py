"""What eager refuses, compiled: the database's error inputs, and every dtype that an operator does not take.

A case is a call that raises in eager; the compiled call has to raise too, the same class or a refusal of ours. Calls of
other dtypes are made from the samples of a dtype that the operator takes; those that eager computes all the same are
no cases. `python -m stator.coverage --errors` runs all. Neighbours: `database.py`, `__main__.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import stator
from stator.base.errors import CaptureError, DataDependent, StatorError, Unsupported
from stator.coverage import database
from stator.coverage.database import SEED, Sample

#: The dtypes that operators are called with, whether they take them or not.
DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
)
#: Whose samples are turned into other dtypes: the first of these that an operator takes.
FROM = (torch.float32, torch.int64, torch.bool)
#: How many of them.
SAMPLES = 2


def cases(name: str) -> Iterator[tuple[str, Sample]]:
    """Calls of an entry that eager may refuse, with a label each."""
    op = database.entry(name)
    torch.manual_seed(SEED)
    if op.error_inputs_func is not None:
        for i, error in enumerate(op.error_inputs("cpu")):
            yield f"error {i}", database.sample_of(op, error.sample_input)
    taken = op.supported_dtypes("cpu")
    base = next((dtype for dtype in FROM if dtype in taken), None)
    for dtype in DTYPES if base is not None else ():
        if dtype not in taken:
            for i, sample in enumerate(database.samples(name, _name(base), SAMPLES)):
                yield f"{_name(dtype)} {i}", _with_dtype(sample, base, dtype)


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def _with_dtype(sample: Sample, old: torch.dtype | None, new: torch.dtype) -> Sample:
    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype is old:
            return value.detach().to(new)
        return new if value is old else value

    return Sample(sample.function, sample.spec, tuple([leaf(value) for value in sample.leaves]))


def wrong(sample: Sample) -> str | None:
    """How compiled code differs where eager raises: "" if it does not; None if eager raises nothing."""
    if not sample.usable:
        return None
    expected = _raised(sample.function, sample)
    if expected is None:
        return None
    stator.reset()

    def program(args: Any, kwargs: Any) -> Any:
        return sample.function(*args, **kwargs)

    compiled = stator.compile(program, options={"cache": False, "strict": True})
    found = _raised(lambda *args, **kwargs: compiled(args, kwargs), sample)
    if found is None:
        return f"eager raises {_short(expected)}, the compiled function does not"
    refused = isinstance(found, CaptureError | DataDependent | Unsupported)
    alike = isinstance(found, type(expected)) or isinstance(expected, type(found))
    if refused or (alike and not isinstance(found, StatorError)) or isinstance(found, LookupError):
        return ""
    return f"raises {_short(found)}, eager {_short(expected)}"


def _raised(function: Any, sample: Sample) -> Exception | None:
    given = sample.fresh()
    torch.manual_seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*given.args, **given.kwargs)
    except Exception as error:
        return error
    return None


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:160]


def run(match: str = "") -> int:
    """Every case of the entries that match; prints what differs, and gives how many cases do."""
    count = bad = 0
    for name in database.all_names(match):
        for label, sample in cases(name):
            why = wrong(sample)
            count += why is not None
            bad += bool(why)
            if why:
                print(f"{name} {label}: {why}", flush=True)
    print(f"{count} calls that eager refuses, {bad} otherwise when compiled")
    return bad
