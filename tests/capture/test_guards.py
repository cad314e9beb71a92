"""Guards: every kind passes for what it was made from and fails for what differs, also after being remembered."""

from __future__ import annotations

import functools
import gc
import math
import threading
import types
import weakref
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from stator import _native
from stator.capture.guard_kinds import KINDS, STATES, always
from stator.capture.guards import Guard, GuardSet, Roots, compile_tree, state_guards
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
    TypeSource,
)

X = LocalSource("x")
Y = LocalSource("y")


def program(x: Any, y: Any = None) -> None:
    """Gives the slots x and y."""


def tree_of(*guards: Guard) -> _native.GuardTree:
    return compile_tree(GuardSet(guards), Roots.of(program))


def passes(tree: _native.GuardTree, *slots: object) -> bool:
    """Checks three times, so that remembered results are used, and compares with the way that remembers nothing."""
    found = {tree.check(*slots) for _ in range(3)}
    assert found == {tree.explain(*slots) is None}
    return found.pop()


class Plain:
    shared = 1

    def method(self) -> None: ...


CONSTANTS = [
    0, 1, -1, 1.0, 0.0, -0.0, math.nan, True, False, None, "", "a", b"a", (), (1,), (1.0,), (True,), (0.0,), (-0.0,),
    2**80, complex(0, -0.0), complex(0, 0.0), torch.float32, torch.int64, torch.device("cpu"), torch.device("meta"),
    torch.contiguous_format, slice(1, 2), slice(1.0, 2), (1, (2, "b")), (1, (2, "c")), range(3), ...,
]  # fmt: skip


def test_equals_holds_for_the_same_constant_only() -> None:
    for i, expected in enumerate(CONSTANTS):
        tree = tree_of(Guard("EQUALS", X, expected))
        for j, value in enumerate(CONSTANTS):
            assert passes(tree, value) == (i == j), (expected, value)
    assert passes(tree_of(Guard("EQUALS", X, math.nan)), float("nan"))
    assert passes(tree_of(Guard("EQUALS", X, 10**30)), 10**29 * 10)
    assert passes(tree_of(Guard("EQUALS", X, torch.device("cpu"))), torch.device("cpu"))


OTHER = {"a": 1}
CASES: list[tuple[str, Any, Any, list[Any]]] = [
    ("TYPE", dict, {}, [functools.partial, [], type("D", (dict,), {})()]),
    ("ID", OTHER, OTHER, [{"a": 1}, None]),
    ("LENGTH", 2, [1, 2], [[1], (), {"a": 1}, 5]),
    ("LENGTH", 2, {"a": 1, "b": 2}, [{1}, {}]),
    ("KEYS", ("a", 1), {"a": 0, 1: 0}, [{1: 0, "a": 0}, {"a": 0}, {"a": 0, 1: 0, 2: 0}, {"a": 0, 1.0: 0}]),
    ("KEYS", (Plain,), {Plain: 0}, [{GuardSet: 0}]),
    ("MEMBERS", {1, "a"}, {1, "a"}, [{1}, {1, "b"}, {True, "a"}, [1, "a"]]),
    ("MEMBERS", {8, 16}, {8, 16}, [{16, 8}, {8.0, 16}]),
    ("LACKS", "extra", Plain, [type("P", (Plain,), {"extra": 1}), 5]),
    ("MRO", Plain.__mro__, Plain, [type("P", (Plain,), {}), object, 5]),
    ("EMPTY", ("a", "b"), {"a": {}, "b": {}}, [{"a": {}, "b": {1: 1}}, {"a": {}}, {"a": {}, "b": []}, 5]),
    ("PRESENT", "a", {"a": 1}, [{}, {"b": 1}, 5]),
    ("ABSENT", "a", {"b": 1}, [{"a": 1}, 5]),
    ("CODE", program.__code__, program, [passes, 5]),
    ("CALL", (len, 2), [1, 2], [[1], 5]),
]


@pytest.mark.parametrize(("kind", "payload", "good", "bad"), CASES)
def test_kinds(kind: str, payload: Any, good: Any, bad: list[Any]) -> None:
    tree = tree_of(Guard(kind, X, payload))
    assert passes(tree, good)
    for value in bad:
        assert not passes(tree, value), value
    assert passes(tree, good)


def test_every_kind_has_a_test_here() -> None:
    elsewhere = {"STATE", "EQUALS", "TENSOR", "SAME", "NOT_SAME", "NOT_ALIASED", "ALIASED", "CONDITION", "TOGETHER"}
    assert {case[0] for case in CASES} | elsewhere == set(KINDS)


# -- tensors -------------------------------------------------------------------------------------------


def different_tensors() -> dict[str, torch.Tensor]:
    base = torch.randn(3, 4)
    with torch.inference_mode():
        inference = torch.randn(3, 4)
    return {
        "plain": base,
        "other data": torch.randn(3, 4) * 5,
        "size": torch.randn(3, 5),
        "rank": torch.randn(3, 4, 1),
        "seven": torch.randn(1, 1, 1, 1, 1, 3, 4),
        "seven, permuted": torch.randn(1, 1, 1, 1, 1, 4, 3).mT,
        "scalar": torch.tensor(1.0),
        "stride": torch.randn(4, 3).t(),
        "dtype": torch.randn(3, 4, dtype=torch.float64),
        "grad": torch.randn(3, 4, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.randn(3, 4)),
        "frozen parameter": torch.nn.Parameter(torch.randn(3, 4), requires_grad=False),
        "meta": torch.empty(3, 4, device="meta"),
        "inference": inference,
        "sparse": base.to_sparse(),
        "complex": torch.randn(3, 4, dtype=torch.complex64),
        "conj": torch.randn(3, 4, dtype=torch.complex64).conj(),
        "negative": torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    }


SAME_FACTS = {frozenset({"plain", "other data"})}


def test_tensor_metadata() -> None:
    tensors = different_tensors()
    for name, expected in tensors.items():
        if name == "sparse":
            continue
        tree = tree_of(Guard("TENSOR", X, expected))
        for other, value in tensors.items():
            alike = name == other or frozenset({name, other}) in SAME_FACTS
            assert passes(tree, value) == alike, (name, other)
        assert not passes(tree, None)


def test_tensor_with_history_counts_as_requiring_grad() -> None:
    leaf = torch.randn(3, 4, requires_grad=True)
    tree = tree_of(Guard("TENSOR", X, leaf))
    assert passes(tree, leaf * 2)
    assert passes(tree, (leaf * 2).view(3, 4))
    assert not passes(tree, (leaf * 2).detach())
    leaf.requires_grad_(False)
    assert not passes(tree, leaf)


def test_sizes_may_be_any() -> None:
    guard = Guard("TENSOR", X, torch.randn(3, 4))
    facts = guard.payload._replace(sizes=(None, 4), strides=(4, 1))
    tree = tree_of(Guard("TENSOR", X, facts))
    assert passes(tree, torch.randn(9, 4))
    assert not passes(tree, torch.randn(9, 5))
    assert "[*, 4]" in str(Guard("TENSOR", X, facts))


@pytest.mark.usefixtures("few_objects")
def test_a_guard_does_not_keep_the_tensor() -> None:
    tensor = torch.randn(3)
    guard = Guard("TENSOR", X, tensor)
    gone = weakref.ref(tensor)
    tree = tree_of(guard)
    del tensor
    gc.collect()
    assert gone() is None
    assert passes(tree, torch.randn(3))


# -- ways to a value -----------------------------------------------------------------------------------


def closure_of(value: Any) -> types.FunctionType:
    def inner(a: int = 5, *, b: str = "b") -> Any:
        return value

    return inner


def test_every_way_is_followed() -> None:
    instance = Plain()
    instance.a = [{"k": (7, 8)}]  # type: ignore[attr-defined]
    inner = closure_of(3)
    ways: list[tuple[Any, Any, Any]] = [
        (AttrSource(X, "a"), instance, instance.a),  # type: ignore[attr-defined]
        (InstanceDictSource(X), instance, vars(instance)),
        (ItemSource(InstanceDictSource(X), "a"), instance, instance.a),  # type: ignore[attr-defined]
        (TypeSource(X), instance, Plain),
        (ClassAttrSource(TypeSource(X), "method"), instance, Plain.method),
        (AttrSource(TypeSource(X), "shared"), instance, 1),
        (AttrSource(X, "nn"), torch, torch.nn),
        (ItemSource(X, -1), [1, "two"], "two"),
        (ItemSource(X, "k"), {"k": "v"}, "v"),
        (DictKeySource(X, 1), {"a": 0, Plain: 0}, Plain),
        (FunctionCodeSource(X), inner, inner.__code__),
        (FunctionGlobalsSource(X), inner, globals()),
        (FunctionDefaultSource(X, 0), inner, 5),
        (FunctionDefaultSource(X, -1), inner, 5),
        (FunctionKwDefaultSource(X, "b"), inner, "b"),
        (FunctionClosureSource(X, 0), inner, 3),
        (ItemSource(ItemSource(ItemSource(AttrSource(X, "a"), 0), "k"), 1), instance, 8),
        (AttrSource(ConstSource(torch), "nn"), None, torch.nn),
        (GlobalSource("Plain"), None, Plain),
        (GlobalsSource(), None, globals()),
    ]
    for source, root, expected in ways:
        tree = tree_of(Guard("ID", source, expected))
        assert passes(tree, root), source
        wrong = tree_of(Guard("ID", source, object()))
        assert not passes(wrong, root), source
        if source.root is X:
            assert not passes(tree, object()), source  # cannot be read there


def test_cells() -> None:
    inner = closure_of(3)
    tree = compile_tree([Guard("EQUALS", ClosureSource("value"), 3)], Roots.of(inner))
    assert tree.check(5, "b")
    assert inner.__closure__ is not None
    inner.__closure__[0].cell_contents = 4
    assert not tree.check(5, "b")


# -- what is remembered must not hide a change ----------------------------------------------------------


def test_change_of_an_instance_attribute_is_seen() -> None:
    instance = Plain()
    instance.flag = True  # type: ignore[attr-defined]
    instance.rate = 0.5  # type: ignore[attr-defined]
    flag, rate = AttrSource(X, "flag"), AttrSource(X, "rate")
    tree = tree_of(Guard("TYPE", X, Plain), Guard("EQUALS", flag, True), Guard("EQUALS", rate, 0.5))
    assert passes(tree, instance)
    for value in (False, True, 1, True):
        instance.flag = value  # type: ignore[attr-defined]
        assert passes(tree, instance) == (value is True)
    del instance.flag  # type: ignore[attr-defined]
    assert not passes(tree, instance)
    vars(instance)["flag"] = True
    assert passes(tree, instance)
    instance.__dict__ = {"flag": False, "rate": 0.5}
    assert not passes(tree, instance)


def store(instance: Any, value: object) -> None:
    instance.flag = value


def test_change_through_specialised_bytecode_is_seen() -> None:
    instance = Plain()
    instance.flag = 0  # type: ignore[attr-defined]
    tree = tree_of(Guard("EQUALS", ItemSource(InstanceDictSource(X), "flag"), 0))
    for i in range(200):
        store(instance, i % 2)
        assert tree.check(instance) == (i % 2 == 0)
        assert tree.check(instance) == (i % 2 == 0)


def test_change_of_the_class_is_seen() -> None:
    class Local:
        value = 3

        def run(self) -> None: ...

    class Parent(Local): ...

    instance = Parent()
    tree = tree_of(
        Guard("ID", ClassAttrSource(TypeSource(X), "run"), Local.run), Guard("EQUALS", AttrSource(X, "value"), 3)
    )
    assert passes(tree, instance)
    instance.value = 4
    assert not passes(tree, instance)
    del instance.value
    assert passes(tree, instance)
    Local.value = property(lambda self: 5)  # type: ignore[assignment]
    instance.__dict__["value"] = 3
    assert not passes(tree, instance)
    Local.value = 3
    assert passes(tree, instance)
    Parent.run = lambda self: None  # type: ignore[method-assign]
    assert not passes(tree, instance)
    del Parent.run
    assert passes(tree, instance)
    instance.__class__ = type("Parent", (), {"run": Local.run})  # type: ignore[assignment]
    assert passes(tree, instance)
    instance.__class__ = type("Parent", (), {"run": 3})  # type: ignore[assignment]
    assert not passes(tree, instance)


def test_change_of_a_global_is_seen() -> None:
    namespace: dict[str, Any] = {"limit": 3, "name": "a"}
    function = types.FunctionType(program.__code__, namespace)
    guards = [
        Guard("EQUALS", GlobalSource("limit"), 3),
        Guard("EQUALS", GlobalSource("name"), "a"),
        Guard("ABSENT", GlobalsSource(), "len"),
    ]
    tree = compile_tree(guards, Roots.of(function))
    assert passes(tree, 0, 0)
    for key, value, expected in [
        ("limit", 4, False), ("limit", 3, True), ("len", 1, False), ("other", 1, False)
    ]:  # fmt: skip
        namespace[key] = value
        assert passes(tree, 0, 0) == expected
    del namespace["len"]
    assert passes(tree, 0, 0)
    namespace.clear()
    assert not passes(tree, 0, 0)


def test_mutable_things_below_an_unchanged_dict_are_checked() -> None:
    instance = Plain()
    instance.items = [1, 2]  # type: ignore[attr-defined]
    instance.weight = torch.nn.Parameter(torch.randn(2, 2))  # type: ignore[attr-defined]
    instance.hook = closure_of(1)  # type: ignore[attr-defined]
    tree = tree_of(
        Guard("LENGTH", AttrSource(X, "items"), 2),
        Guard("TENSOR", AttrSource(X, "weight"), instance.weight),  # type: ignore[attr-defined]
        Guard("CODE", AttrSource(X, "hook"), instance.hook.__code__),  # type: ignore[attr-defined]
    )
    assert passes(tree, instance)
    instance.items.append(3)  # type: ignore[attr-defined]
    assert not passes(tree, instance)
    instance.items.pop()  # type: ignore[attr-defined]
    assert passes(tree, instance)
    instance.weight.requires_grad_(False)  # type: ignore[attr-defined]
    assert not passes(tree, instance)
    instance.weight.requires_grad_(True)  # type: ignore[attr-defined]
    instance.weight.data = torch.randn(3, 2)  # type: ignore[attr-defined]
    assert not passes(tree, instance)
    instance.weight.data = torch.randn(2, 2)  # type: ignore[attr-defined]
    assert passes(tree, instance)
    instance.hook.__code__ = closure_of(2).__code__.replace(co_name="changed")  # type: ignore[attr-defined]
    assert not passes(tree, instance)


def test_modules_are_followed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    first = AttrSource(X, "0")
    tree = tree_of(
        Guard("TYPE", X, torch.nn.Sequential),
        Guard("EQUALS", AttrSource(X, "training"), True),
        Guard("ID", AttrSource(first, "weight"), model[0].weight),
        Guard("TENSOR", AttrSource(first, "weight"), model[0].weight),
        Guard("TENSOR", AttrSource(AttrSource(X, "1"), "running_mean"), model[1].running_mean),
    )
    assert passes(tree, model)
    model.eval()
    assert not passes(tree, model)
    model.train()
    model[1].running_mean = torch.zeros(3, dtype=torch.float64)
    assert not passes(tree, model)
    model[1].running_mean = torch.zeros(3)
    assert passes(tree, model)
    old = model[0].weight
    model[0].weight = torch.nn.Parameter(torch.randn(3, 2))
    assert not passes(tree, model)
    model[0].weight = old
    assert passes(tree, model)
    model[0] = torch.nn.Linear(2, 3)
    assert not passes(tree, model)


def test_many_instances_take_turns() -> None:
    instances = [Plain() for _ in range(20)]
    for i, instance in enumerate(instances):
        instance.number = i % 3  # type: ignore[attr-defined]
    tree = tree_of(Guard("EQUALS", AttrSource(X, "number"), 0))
    for _ in range(3):
        assert [tree.check(instance) for instance in instances] == [i % 3 == 0 for i in range(20)]
    for _ in range(50):  # addresses are reused
        fresh = Plain()
        fresh.number = _ % 2  # type: ignore[attr-defined]
        assert tree.check(fresh) == (_ % 2 == 0)


# -- relations and state -------------------------------------------------------------------------------


def test_relations() -> None:
    base = torch.randn(4)
    other = torch.randn(4)
    same = tree_of(Guard("SAME", X, Y))
    assert passes(same, base, base)
    assert not passes(same, base, other)
    different = tree_of(Guard("NOT_SAME", X, Y))
    assert passes(different, base, base.view(4))
    assert not passes(different, base, base)
    apart = tree_of(Guard("NOT_ALIASED", None, [X, Y]))
    assert passes(apart, base, other)
    assert not passes(apart, base, base)
    assert not passes(apart, base, base[1:])
    assert not passes(apart, base, 3)
    together = tree_of(Guard("ALIASED", None, [X, Y]))
    assert passes(together, base, base[1:])
    assert not passes(together, base, other)
    assert not passes(together, base, 3)


def test_many_storages() -> None:
    count = 300
    tensors = [torch.randn(2) for _ in range(count)]
    tree = tree_of(Guard("NOT_ALIASED", None, [ItemSource(X, i) for i in range(count)]))
    assert passes(tree, tensors)
    tensors[299] = tensors[7].view(2, 1)
    assert not passes(tree, tensors)


def test_global_state() -> None:
    tree = tree_of(*state_guards())
    assert passes(tree)
    with torch.no_grad():
        assert not passes(tree)
    with torch.inference_mode():
        assert not passes(tree)
    with torch.autocast("cpu", torch.bfloat16):
        assert not passes(tree)
        inside = tree_of(*state_guards())
        assert passes(inside)
    assert not passes(inside)
    with torch.autocast("cpu", torch.float16):
        assert not passes(inside)
    torch.set_default_dtype(torch.float64)
    assert not passes(tree)
    torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert not passes(tree)
    torch.use_deterministic_algorithms(True)
    assert not passes(tree)
    torch.use_deterministic_algorithms(False)
    torch.func.vmap(lambda x: [x, passes_now.append(tree.check())][0])(torch.randn(2))
    assert passes_now == [False]
    assert passes(tree)


passes_now: list[bool] = []


def readings() -> list[tuple[Any, int | None]]:
    return [(state.read(), _native.read_state(name)) for name, state in STATES.items() if state.when is always]


def test_native_state_changes_when_and_as_python_s_does() -> None:
    plain = readings()
    assert all(number is not None for _, number in plain)
    settings: list[Any] = [
        torch.no_grad(), torch.inference_mode(), torch.autocast("cpu"), torch.device("cpu"),
        FlopCounterMode(display=False),
    ]  # fmt: skip
    for setting in settings:
        with setting:
            inside = readings()
        assert any(a != b for a, b in zip(plain, inside, strict=True)), setting
        for (value, number), (other, changed) in zip(plain, inside, strict=True):
            assert (value == other) == (number == changed), setting
    assert readings() == plain
    threads: list[Any] = []
    thread = threading.Thread(target=lambda: threads.append(readings()))
    thread.start()
    thread.join()
    assert threads == [plain]


def test_state_that_only_python_reads() -> None:
    guard = Guard("STATE", None, ("grad_mode", False))
    tree = tree_of(guard)  # it is not so now, so there is no number for it
    assert not passes(tree)
    with torch.no_grad():
        assert passes(tree)


# -- the set and the texts -----------------------------------------------------------------------------


def test_duplicates_are_added_once() -> None:
    guards = GuardSet()
    for _ in range(2):
        guards.add(Guard("TYPE", X, int))
        guards.add(Guard("EQUALS", X, 1))
        guards.add(Guard("EQUALS", X, 1.0))
        guards.add(Guard("TENSOR", X, torch.randn(2, 2)))
        guards.add(Guard("KEYS", X, ["a"]))
        guards.add(Guard("MEMBERS", X, {1}))
    assert [guard.kind for guard in guards] == ["TYPE", "EQUALS", "EQUALS", "TENSOR", "KEYS", "MEMBERS"]
    assert len(guards) == 6


def test_texts_and_explanation() -> None:
    guards = [
        Guard("TYPE", X, torch.nn.Linear),
        Guard("EQUALS", AttrSource(X, "training"), True),
        Guard("TENSOR", AttrSource(X, "weight"), torch.nn.Parameter(torch.randn(3, 2))),
        Guard("ABSENT", InstanceDictSource(X), "forward"),
        Guard("STATE", None, ("grad_mode", True)),
    ]
    assert GuardSet(guards).describe() == [
        "type(L['x']) is torch.nn.modules.linear.Linear",
        "L['x'].training == True",
        "L['x'].weight is Parameter float32[3, 2] strides (2, 1) cpu requires_grad",
        "'forward' not in L['x'].__dict__",
        "torch.is_grad_enabled() == True",
    ]
    tree = compile_tree(guards, Roots.of(program))
    model = torch.nn.Linear(2, 3)
    assert tree.explain(model) is None
    with torch.no_grad():
        assert tree.explain(model) == "torch.is_grad_enabled() == True"
    model.eval()
    assert tree.explain(model) == "L['x'].training == True"
    assert tree.explain(5) == "type(L['x']) is torch.nn.modules.linear.Linear"
    reach = tree_of(Guard("TYPE", AttrSource(X, "missing"), int))
    assert reach.explain(5) == "L['x'].missing can be read"


class Rude:
    @property
    def value(self) -> int:
        raise KeyboardInterrupt

    @property
    def broken(self) -> int:
        raise RuntimeError("broken")


def test_exceptions_in_guards() -> None:
    assert not passes(tree_of(Guard("EQUALS", AttrSource(X, "broken"), 1)), Rude())
    with pytest.raises(KeyboardInterrupt):
        tree_of(Guard("EQUALS", AttrSource(X, "value"), 1)).check(Rude())


@pytest.mark.usefixtures("few_objects")
def test_cycles_are_collected() -> None:
    class Holder: ...

    holder = Holder()
    holder.tree = tree_of(Guard("ID", X, holder))  # type: ignore[attr-defined]
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None
