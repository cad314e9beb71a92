"""What the soundness tests share: programs that change something between two calls, each call compared with eager's.

A case is a function of a `Calls`: it calls `calls(fn, *args)`, changes one thing, and calls again. `@changes` says that
the change matters (the compiled result of every call must be eager's), `@keeps` that it does not (and must not compile
again). The first call must have been captured, so that a case cannot pass by running eagerly.
"""

from __future__ import annotations

import functools
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

import stator
from stator.capture.entry import versions_of

Case = Callable[["Calls"], None]


class Calls:
    """Calls functions both ways and compares."""

    def __init__(self) -> None:
        self.compiled: dict[int, tuple[Any, Any]] = {}
        self.graphs = 0
        self.captured: list[bool] = []

    def backend(self, gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
        """Runs the graph as it is, and counts it."""
        self.graphs += 1
        return gm.forward

    def of(self, fn: Any) -> Any:
        """The compiled form of a function, made once."""
        if id(fn) not in self.compiled:
            self.compiled[id(fn)] = fn, stator.compile(fn, backend=self.backend, options={"strict": True})
        return self.compiled[id(fn)][1]

    def __call__(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.graphs
        found, expected = outcome(self.of(fn), args, kwargs), outcome(fn, args, kwargs)
        self.captured.append(self.graphs > before)
        compare(found, expected)
        return expected

    @property
    def entries(self) -> int:
        """How many versions there are of all functions."""
        return sum(len(versions_of(compiled)) for _, compiled in self.compiled.values())


def outcome(fn: Any, args: Any, kwargs: Any) -> Any:
    """The result of a call, or the exception that it raises."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return error


def compare(found: Any, expected: Any) -> None:
    """The same types, values, metadata and structure, exactly."""
    assert type(found) is type(expected), (found, expected)
    match expected:
        case torch.Tensor():
            assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
            assert found.stride() == expected.stride() and found.requires_grad == expected.requires_grad
            assert found.is_inference() == expected.is_inference()
            assert torch.equal(found.isnan(), expected.isnan()), (found, expected)
            same = (found == expected) | expected.isnan()
            assert bool(same.all()), (found, expected)
            if expected.is_floating_point():
                assert torch.equal(found.signbit() | found.isnan(), expected.signbit() | expected.isnan())
        case Exception():
            assert str(found) == str(expected)
        case list() | tuple():
            assert len(found) == len(expected), (found, expected)
            for ours, theirs in zip(found, expected, strict=True):
                compare(ours, theirs)
        case Mapping():
            compare(list(found), list(expected))
            compare(list(found.values()), list(expected.values()))
        case float() if math.isnan(expected):
            assert math.isnan(found)
        case float():
            assert math.copysign(1, found) == math.copysign(1, expected) and found == expected
        case _:
            assert found == expected, (found, expected)


class Table(list[Any]):
    """Cases by decorator."""

    def changes(self, case: Case) -> Case:
        """The change matters."""
        self.append(("changes", case))
        return case

    def keeps(self, case: Case) -> Case:
        """The change does not matter: what is compiled stays valid."""
        self.append(("keeps", case))
        return case

    def breaks(self, case: Case) -> Case:
        """Not captured in this version; what matters is the result."""
        self.append(("breaks", case))
        return case


#: What the programs of rows find.
IMPORTS = """
import abc, collections, collections.abc, dataclasses, datetime, enum, functools, gc, importlib.util, inspect, logging
import math, operator, os, random, sys, tempfile, threading, time, types, typing, warnings
import torch
import torch.nn.functional as F
from torch import nn
PATH = os.path.join(tempfile.gettempdir(), f"stator-rows-{os.getpid()}")
"""


class Rows(Table):
    """Cases as texts: a program, what it is called on, and what changes between the calls.

    Each row runs in a module of its own, made by `setup`; `undo` runs whatever happens.
    """

    def __init__(self, setup: str = "") -> None:
        super().__init__()
        self.setup = setup

    def row(
        self,
        name: str,
        program: str,
        change: str = "",
        setup: str = "",
        args: str = "x()",
        after: str | None = None,
        undo: str = "",
        kind: str = "changes",
    ) -> None:
        """A case; `after` is what the later calls are on, where that differs."""

        def case(call: Calls) -> None:
            made = types.ModuleType("mutated")
            space: dict[str, Any] = vars(made)
            space.update(x=x, nan=float("nan"))
            sys.modules[made.__name__] = made
            exec(self.setup, space)
            exec(setup, space)
            if program.startswith("lambda"):
                space["f"] = eval(program, space)
            else:
                exec(program, space)
            try:
                call(space["f"], *eval(f"({args},)", space))
                exec(change, space)
                for _ in range(2):
                    call(space["f"], *eval(f"({after or args},)", space))
            finally:
                exec(undo, space)

        assert all(name != other.__name__ for _, other in self), f"two rows are called {name}"
        case.__name__ = name
        getattr(self, kind)(case)


def ids_of(table: Table) -> list[str]:
    """How pytest shows the cases."""
    return [f"{kind}-{case.__name__}" for kind, case in table]


#: Told what each case did (`soundness.py` counts).
observers: list[Callable[[Calls], None]] = []


def check(kind: str, case: Case) -> None:
    """Runs a case."""
    calls = Calls()
    case(calls)
    for observe in observers:
        observe(calls)
    assert len(calls.captured) > 1, "a case calls at least twice"
    if kind != "breaks":
        assert calls.captured[0], "the first call is captured"
    if kind == "keeps":
        assert not any(calls.captured[1:]) and calls.entries == 1, "no later call compiles"


def x() -> torch.Tensor:
    """What the programs are called on."""
    return torch.arange(6.0).reshape(2, 3) + 0.5


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value under a name, for a while."""
    missing = object()
    before = vars(owner).get(name, missing) if not isinstance(owner, dict) else owner.get(name, missing)
    store = owner.__setitem__ if isinstance(owner, dict) else functools.partial(setattr, owner)
    drop = owner.__delitem__ if isinstance(owner, dict) else functools.partial(delattr, owner)
    store(name, value)
    try:
        yield
    finally:
        if before is missing:
            drop(name)
        else:
            store(name, before)
