"""Sources: interning, texts, and resolving against a scope."""

from __future__ import annotations

import gc
import math
import pickle
from typing import Any

import pytest
import torch

from stator.capture.source import (
    AttrSource,
    ClassAttrSource,
    ClosureSource,
    ConstSource,
    DictKeySource,
    FunctionClosureSource,
    FunctionCodeSource,
    FunctionDefaultSource,
    FunctionGlobalsSource,
    FunctionKwDefaultSource,
    GlobalSource,
    GlobalsSource,
    InstanceDictSource,
    ItemSource,
    LocalSource,
    Source,
    TypeSource,
    scope_of,
)

KEYS: list[Any] = [1, 1.0, True, 0.0, -0.0, math.nan, "1", b"1", None, (1,), (1.0,), ..., torch.float32, object()]


def test_equal_paths_are_one_object() -> None:
    for a in KEYS:
        for b in KEYS:
            assert (ItemSource(LocalSource("x"), a) is ItemSource(LocalSource("x"), b)) == (a is b)
    assert AttrSource(GlobalSource("a"), "b") is AttrSource(GlobalSource("a"), "b")
    assert AttrSource(GlobalSource("a"), "b") is not AttrSource(LocalSource("a"), "b")


@pytest.mark.usefixtures("few_objects")
def test_unused_sources_are_forgotten() -> None:
    gc.collect()
    before = len(Source._table)
    kept = [ItemSource(LocalSource("forgotten"), i) for i in range(100)]
    assert len(Source._table) == before + 101
    del kept
    gc.collect()
    assert len(Source._table) <= before


def make(captured: int) -> Any:
    def inner(x: Any, y: int = 5, *, z: str = "z") -> int:
        return captured

    return inner


FUNCTION = make(3)


class Thing:
    def method(self) -> None: ...


def test_text_is_the_expression_and_resolves_to_the_object() -> None:
    thing = Thing()
    thing.items = [1, {"k": 2}]  # type: ignore[attr-defined]
    x = LocalSource("x")
    scope = scope_of(FUNCTION, {"x": thing, "y": 5, "z": "z"})
    cases: list[tuple[Source, str]] = [
        (x, "L['x']"),
        (AttrSource(x, "items"), "L['x'].items"),
        (ItemSource(ItemSource(AttrSource(x, "items"), 1), "k"), "L['x'].items[1]['k']"),
        (DictKeySource(ItemSource(AttrSource(x, "items"), 1), 0), "list(L['x'].items[1])[0]"),
        (TypeSource(x), "type(L['x'])"),
        (ClassAttrSource(TypeSource(x), "method"), "inspect.getattr_static(type(L['x']), 'method')"),
        (InstanceDictSource(x), "L['x'].__dict__"),
        (GlobalSource("FUNCTION"), "G['FUNCTION']"),
        (GlobalsSource(), "G"),
        (FunctionCodeSource(GlobalSource("FUNCTION")), "G['FUNCTION'].__code__"),
        (FunctionGlobalsSource(GlobalSource("FUNCTION")), "G['FUNCTION'].__globals__"),
        (FunctionDefaultSource(GlobalSource("FUNCTION"), 0), "G['FUNCTION'].__defaults__[0]"),
        (FunctionKwDefaultSource(GlobalSource("FUNCTION"), "z"), "G['FUNCTION'].__kwdefaults__['z']"),
        (FunctionClosureSource(GlobalSource("FUNCTION"), 0), "G['FUNCTION'].__closure__[0].cell_contents"),
        (ConstSource(torch), "torch"),
        (AttrSource(ConstSource(torch), "nn"), "torch.nn"),
    ]
    names = {"L": scope.locals, "G": scope.globals, "torch": torch, "inspect": __import__("inspect")}
    for source, text in cases:
        assert str(source) == text
        assert source.resolve(scope) is eval(text, names), text
    assert ClosureSource("captured").resolve(scope) == 3


def test_base_path_and_root() -> None:
    x = LocalSource("x")
    leaf = ItemSource(AttrSource(x, "a"), 0)
    assert leaf.base is AttrSource(x, "a") and x.base is None
    assert list(leaf.path()) == [x, AttrSource(x, "a"), leaf]
    assert leaf.root is x


def test_pickling_keeps_identity() -> None:
    leaf = FunctionDefaultSource(ItemSource(AttrSource(GlobalSource("a"), "b"), ("k", 1.5)), 2)
    assert pickle.loads(pickle.dumps(leaf)) is leaf


def test_missing_things_raise_as_the_expression_would() -> None:
    scope = scope_of(FUNCTION, {"x": [1]})
    with pytest.raises(IndexError):
        ItemSource(LocalSource("x"), 3).resolve(scope)
    with pytest.raises(AttributeError):
        AttrSource(LocalSource("x"), "missing").resolve(scope)
    with pytest.raises(AttributeError):
        ClassAttrSource(TypeSource(LocalSource("x")), "missing").resolve(scope)
