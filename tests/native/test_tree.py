"""The native tree without torch: specifications, what is remembered, and reference counts, on every Python version."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict
from typing import Any

import pytest

from stator._native import Dispatcher, GuardTree


def node(accessor: str, key: object, *checks: tuple[str, Any], children: tuple[Any, ...] = (), slot: int = -1) -> Any:
    return accessor, key, f"{accessor} {key}", slot, tuple((kind, payload, kind) for kind, payload in checks), children


def tree(*nodes: Any, relations: tuple[Any, ...] = ()) -> GuardTree:
    return GuardTree((), nodes, relations)


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (node("nonsense", 0), ValueError),
        (node("slot", 0, ("NONSENSE", 0)), ValueError),
        (node("slot", 0, ("LENGTH", "x")), TypeError),
        (node("slot", 0, ("KEYS", ["x"])), TypeError),
        (node("slot", 0, ("CALL", (1, 2, 3))), TypeError),
        (("slot", 0), TypeError),
    ],
)
def test_wrong_specifications_are_refused(spec: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        tree(spec)


def test_registers_are_verified() -> None:
    with pytest.raises(ValueError, match="filled by 2"):
        tree(node("slot", 0, slot=0), node("slot", 1, slot=0))
    with pytest.raises(ValueError, match="filled by 0"):
        tree(node("slot", 0, slot=1))


def test_missing_slots_do_not_match() -> None:
    assert not tree(node("slot", 1, ("ID", None))).check(None)
    assert tree().check()


@pytest.mark.parametrize("deep", [False, True])
def test_arguments_with_one_check_are_told_apart_as_all_are(deep: bool) -> None:
    """What is the very object passes at once; what is another one may still be equal, and what fails is named."""
    number, text, thing = 1.5, "a b", object()
    last = (node("slot", 3, children=(node("attribute", "a", ("EQUALS", 2)),)),) if deep else ()
    guards = tree(
        node("slot", 2, ("ID", thing)), node("slot", 0, ("EQUALS", number)), node("slot", 1, ("EQUALS", text)), *last
    )
    same: list[Any] = [number, text, thing, Holder(a=2)]
    again = [float("1.5"), "".join(["a", " b"]), thing, Holder(a=2)]
    assert again[0] is not number and again[1] is not text
    assert guards.check(*same) and guards.check(*again) and guards.explain(*again) is None
    for at, (other, reason) in enumerate([(1, "EQUALS"), ("b", "EQUALS"), (object(), "ID"), (Holder(a=3), "EQUALS")]):
        wrong = [*same[:at], other, *same[at + 1 :]]
        fails = deep or at < 3
        assert guards.check(*wrong) is not fails and guards.explain(*wrong) == (reason if fails else None)
    assert not guards.check(*same[:2]) and guards.explain(*same[:2]) == "slot 2"
    assert not guards.check(*same[1:]) and guards.check(*same)


SCALARS = [0, 1, True, 1.0, "a", None, (1, 2)]


def change(rng: random.Random, target: Any) -> None:
    """One random change of an instance, its dict or the dict below, by one of the ways that Python has."""
    value = rng.choice(SCALARS)
    match rng.randrange(9):
        case 0:
            target.a = value
        case 1:
            vars(target)["a"] = value
        case 2:
            target.b["k"] = value
        case 3:
            target.b = {"k": value, "other": 1}
        case 4:
            vars(target).pop("a", None)
        case 5:
            target.__dict__ = dict(vars(target))
        case 6:
            setattr(type(target), "a", value) if rng.random() < 0.5 else type(target).__dict__.get("a") is None
        case 7:
            target.b.pop("k", None)
        case 8:
            target.unrelated = value


@pytest.mark.parametrize("seed", range(20))
def test_remembering_never_changes_the_answer(seed: int) -> None:
    rng = random.Random(seed)

    class Local(Holder): ...

    if seed % 2:
        third = node("instance_dict", None, ("ABSENT", "zz"), children=(node("item", "a", ("EQUALS", 1)),))
    else:
        third = node("type", None, children=(node("class_attribute", "__init__", ("ID", Holder.__init__)),))
    watched = tree(
        node(
            "slot", 0,
            children=(
                node("attribute", "a", ("EQUALS", rng.choice(SCALARS))),
                node("attribute", "b", children=(node("item", "k", ("EQUALS", rng.choice(SCALARS))),)),
                third,
            ),
        )
    )  # fmt: skip
    targets = [Local(a=1, b={"k": 1}) for _ in range(3)]
    answers = set()
    for _ in range(600):
        target = rng.choice(targets)
        change(rng, target)
        if rng.random() < 0.3:
            target.a = 1
        for _ in range(2):
            expected = watched.explain(target) is None
            assert watched.check(target) == expected
            answers.add(expected)
    assert False in answers


def store(target: Any, value: Any) -> None:
    target.a = value


def test_stores_by_specialised_instructions_are_seen() -> None:
    for attributes in ({"a": 0}, {f"n{i}": 0 for i in range(40)} | {"a": 0}):
        target = Holder(**attributes)
        for accessor in (
            node("attribute", "a", ("EQUALS", 0)),
            node("instance_dict", None, children=(node("item", "a", ("EQUALS", 0)),)),
        ):
            watched = tree(node("slot", 0, children=(accessor,)))
            for i in range(300):
                store(target, i % 2)
                assert watched.check(target) == watched.check(target) == (i % 2 == 0)


GLOBAL = 0


def set_global(value: int) -> None:
    global GLOBAL
    GLOBAL = value


def test_stores_to_globals_are_seen() -> None:
    watched = tree(node("constant", globals(), children=(node("item", "GLOBAL", ("EQUALS", 0)),)))
    for i in range(300):
        set_global(i % 2)
        assert watched.check() == watched.check() == (i % 2 == 0)


def test_dict_subclasses() -> None:
    ordered: OrderedDict[str, int] = OrderedDict(a=1, b=2)
    keys = tree(node("slot", 0, ("KEYS", ("a", "b")), children=(node("item", "a", ("EQUALS", 1)),)))
    assert keys.check(ordered) and keys.check(ordered)
    ordered.move_to_end("a")
    assert not keys.check(ordered)
    ordered.move_to_end("b")
    assert keys.check(ordered)
    made: defaultdict[str, int] = defaultdict(lambda: 1)
    item = tree(node("slot", 0, children=(node("item", "a", ("EQUALS", 1)),)))
    assert not item.check(made) and not made
    made["a"] = 1
    assert item.check(made)


def test_reference_counts_stay() -> None:
    value = object()
    target = Holder(a=value, b={"k": value}, c=(value,))
    watched = tree(
        node(
            "slot", 0, slot=0,
            children=(
                node("attribute", "a", ("ID", value), slot=1),
                node("attribute", "b", children=(node("item", "k", ("ID", value), slot=2),)),
                node("attribute", "c", ("TYPE", tuple), ("LENGTH", 1), children=(node("item", 0, ("ID", value)),)),
                node("type", None, children=(node("class_attribute", "__init__", ("ID", Holder.__init__)),)),
                node("instance_dict", None, ("PRESENT", "a")),
            ),
        )
    )  # fmt: skip
    watched.check(target)
    before = sys.getrefcount(value), sys.getrefcount(target), sys.getrefcount(vars(target)), sys.getrefcount(tuple)
    for _ in range(100):
        assert watched.check(target)
        assert watched.explain(target) is None
        assert not watched.check(None)
    after = sys.getrefcount(value), sys.getrefcount(target), sys.getrefcount(vars(target)), sys.getrefcount(tuple)
    assert before == after


def function(x: Any, *rest: Any, flag: bool = True, **extra: Any) -> Any:
    return x, rest, flag, extra


def test_dispatcher_counts_references_and_calls_its_entry() -> None:
    missed: list[Any] = []
    dispatcher = Dispatcher(function, lambda args, kwargs: missed.append((args, kwargs)))
    value = object()
    assert dispatcher(value, 1, flag=False, k=2) is None
    assert missed == [((value, 1), {"flag": False, "k": 2})]
    missed.clear()
    dispatcher.add(tree(node("slot", 0, ("ID", value))), lambda *args, **kwargs: "entry")
    before = sys.getrefcount(value)
    for _ in range(100):
        assert dispatcher(value, 1, flag=False, k=2) == "entry"
    assert sys.getrefcount(value) == before
    assert dispatcher.bind(value, 1, k=2) == (value, True, (1,), {"k": 2})
    dispatcher.clear()
    assert dispatcher.entries == []


class Vicious:
    """Its attribute changes the entries while guards run."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    @property
    def poison(self) -> int:
        self.dispatcher.clear()
        return 1


def test_guards_that_change_the_entries() -> None:
    dispatcher = Dispatcher(function, lambda args, kwargs: "missed")
    for _ in range(3):
        dispatcher.add(tree(node("slot", 0, children=(node("attribute", "poison", ("EQUALS", 1)),))), function)
    assert dispatcher(Vicious(dispatcher)) == "missed"
