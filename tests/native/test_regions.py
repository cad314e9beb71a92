"""Records of what guards passed under: after any change of what they read, the answer is that of evaluating anew."""

from __future__ import annotations

import gc
import random
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from stator._native import GuardTree


def node(accessor: str, key: object, *checks: tuple[str, Any], children: tuple[Any, ...] = (), slot: int = -1) -> Any:
    return accessor, key, f"{accessor} {key}", slot, tuple((kind, payload, kind) for kind, payload in checks), children


class Base:
    shared: Any = 1


class Thing(Base):
    def __init__(self) -> None:
        self.number = 2.0
        self.text = "a"
        self.items = [1, "b", [3.0]]
        self.pair = (1, [2])
        self.table = {"k": 1.5, "o": Base()}
        self.hooks: OrderedDict[str, int] = OrderedDict()
        self.inner = Base()
        self.inner.value = 7  # type: ignore[attr-defined]
        self.names = {1, 2}
        self.function = make(5)


class Other(Base):
    __init__ = Thing.__init__


def make(value: Any) -> Any:
    def inner(a: Any = 1.25, *, b: Any = 2.5) -> Any:
        return value, a, b

    return inner


CODE = make(0).__code__

#: Ways to each part of a Thing, with checks that hold for a new one.
WAYS: list[Callable[[], Any]] = [
    lambda: node("attribute", "number", ("EQUALS", 2.0)),
    lambda: node("instance_dict", None, ("ABSENT", "forward"), children=(node("item", "text", ("EQUALS", "a")),)),
    lambda: node(
        "attribute", "items", ("TYPE", list), ("LENGTH", 3),
        children=(node("item", 1, ("EQUALS", "b")), node("item", -1, children=(node("item", 0, ("EQUALS", 3.0)),))),
    ),
    lambda: node("attribute", "pair", children=(node("item", 1, ("LENGTH", 1), children=(node("item", 0),)),)),
    lambda: node("attribute", "table", ("KEYS", ("k", "o")), children=(node("item", "k", ("EQUALS", 1.5)),)),
    lambda: node("instance_dict", None, ("EMPTY", ("hooks",))),
    lambda: node("attribute", "hooks", ("LENGTH", 0)),
    lambda: node("attribute", "inner", ("TYPE", Base), children=(node("attribute", "value", ("EQUALS", 7)),)),
    lambda: node("attribute", "names", ("MEMBERS", (1, 2))),
    lambda: node("attribute", "shared", ("EQUALS", 1)),
    lambda: node("type", None, children=(node("class_attribute", "shared", ("EQUALS", 1)),)),
    lambda: node("type", None, ("LACKS", "missing")),
    lambda: node(
        "attribute", "function", ("CODE", CODE),
        children=(
            node("default", 0, ("EQUALS", 1.25)),
            node("kwdefault", "b", ("EQUALS", 2.5)),
            node("closure", 0, ("EQUALS", 5)),
            node("globals", None, ("ID", globals())),
        ),
    ),
]  # fmt: skip

VALUES = [0, 1, 2.0, "a", None, (1, 2), 7, 1.5, 2.5]


def set_cell(thing: Any, value: Any) -> None:
    thing.function.__closure__[0].cell_contents = value


def swap_dict(thing: Any, value: Any) -> None:
    thing.__dict__ = dict(vars(thing), number=value)


def swap_class(thing: Any, value: Any) -> None:
    thing.__class__ = Other if type(thing) is Thing else Thing


def new_inner(thing: Any, value: Any) -> None:
    del thing.inner
    thing.inner = Base()
    thing.inner.value = value


CHANGES: list[Callable[[Any, Any], Any]] = [
    lambda t, v: setattr(t, "number", v),
    lambda t, v: [setattr(t, "number", float(i)) for i in range(random.randrange(5))],
    lambda t, v: vars(t).update(text=v),
    lambda t, v: vars(t).__setitem__("forward", v),
    lambda t, v: vars(t).pop("text", None),
    lambda t, v: t.items.__setitem__(1, v),
    lambda t, v: t.items[-1].__setitem__(0, v) if isinstance(t.items[-1], list) else None,
    lambda t, v: t.items.append(v),
    lambda t, v: t.items.clear(),
    lambda t, v: setattr(t, "items", [1, v, [3.0]]),
    lambda t, v: setattr(t, "pair", (1, [v])),
    lambda t, v: t.pair[1].append(v),
    lambda t, v: t.table.update(k=v),
    lambda t, v: t.table.update({v: 1}),
    lambda t, v: t.table.clear(),
    lambda t, v: t.hooks.update(x=1),
    lambda t, v: setattr(t, "hooks", OrderedDict(x=1) if v else OrderedDict()),
    lambda t, v: setattr(t.inner, "value", v),
    new_inner,
    lambda t, v: t.names.add(v),
    lambda t, v: setattr(Base, "shared", v),
    lambda t, v: setattr(type(t), "shared", v),
    lambda t, v: setattr(Base, "missing", v),
    lambda t, v: setattr(t.function, "__defaults__", (v,)),
    lambda t, v: t.function.__kwdefaults__.update(b=v),
    lambda t, v: setattr(t.function, "__kwdefaults__", {"b": v}),
    set_cell,
    lambda t, v: setattr(t.function, "__code__", (lambda a=1, *, b=2: v).__code__ if v else make(1).__code__),
    lambda t, v: setattr(t, "function", make(v)),
    swap_dict,
    swap_class,
    lambda t, v: setattr(t, "unrelated", v),
    lambda t, v: object.__setattr__(t, "number", v),
    lambda t, v: delattr(t, "number") if hasattr(t, "number") else None,
]


def restore() -> None:
    Base.shared = 1
    for cls in (Base, Thing, Other):
        for name in ("shared", "missing"):
            if name in vars(cls) and not (cls is Base and name == "shared"):
                delattr(cls, name)


@pytest.mark.parametrize("often", [0, 40])
@pytest.mark.parametrize("seed", range(40))
def test_any_change_is_seen(seed: int, often: int) -> None:
    """Also where a record is divided, because of an attribute that changes often."""
    rng = random.Random(seed)
    random.seed(seed)
    answers = set()
    for _ in range(150):
        thing = Thing()
        ways = [way() for way in rng.sample(WAYS, rng.randrange(2, len(WAYS)))]
        tree = GuardTree((), (node("slot", 0, children=(*ways, node("attribute", "number"))),), ())
        assert tree.check(thing) and tree.check(thing)
        for number in range(often):
            thing.unrelated = number  # type: ignore[attr-defined]
            assert tree.check(thing)
        for _ in range(3):
            change = rng.choice(CHANGES)
            try:
                change(thing, rng.choice(VALUES))
            except (AttributeError, IndexError, TypeError, ValueError):  # what an earlier change has removed
                continue
            for _ in range(2):
                expected = tree.explain(thing) is None
                assert tree.check(thing) == expected, change
                answers.add(expected)
        restore()
    assert answers == {True, False}


def test_objects_that_follow_at_the_same_address() -> None:
    seen = set()
    keep = Thing()
    tree = GuardTree((), (node("slot", 0, children=tuple(way() for way in WAYS)),), ())
    assert tree.check(keep) and tree.check(keep)
    for i in range(2000):
        thing = Thing()
        seen.add(id(thing))
        thing.inner.value = expected = 7 if i % 3 else 8  # type: ignore[attr-defined]
        for _ in range(2):
            assert tree.check(thing) == (expected == 7)
        del thing
    assert len(seen) < 2000


def test_what_stays_beside_what_changes_keeps_its_record() -> None:
    def deep(levels: int) -> Any:
        below = (node("item", 0, children=(deep(levels - 1),)),) if levels else ()
        return node("attribute", "items", ("TYPE", list), children=below)

    thing = Thing()
    keep: Any = thing
    for _ in range(4):
        inner = Thing()
        keep.items = [inner]
        keep = inner
    tree = GuardTree((), (node("slot", 0, children=(node("attribute", "text", ("EQUALS", "a")), deep(4))),), ())
    for number in range(100):
        thing.number = number
        assert tree.check(thing)
    keep.items = (1,)
    for number in range(3):
        thing.number = number
        assert not tree.check(thing)
    keep.items = []
    assert tree.check(thing)


def test_registers_are_filled_from_the_record() -> None:
    thing, other = Thing(), Thing()
    parts = (node("attribute", "inner", slot=0), node("attribute", "table", slot=1), node("attribute", "number"))
    tree = GuardTree((), (node("slot", 0, children=parts), node("slot", 1, slot=2)), (("SAME", (0, 2), "same"),))
    for _ in range(3):
        assert tree.check(thing, thing.inner) and not tree.check(thing, other.inner)
    before = sys.getrefcount(thing.inner), sys.getrefcount(thing.table)
    for _ in range(100):
        assert tree.check(thing, thing.inner)
    assert (sys.getrefcount(thing.inner), sys.getrefcount(thing.table)) == before


class Counting:
    """A property is no word of memory: it is asked each time."""

    asked = 0
    kept = 1
    answer = 1

    @property
    def value(self) -> int:
        Counting.asked += 1
        return Counting.answer


def test_what_has_no_words_is_evaluated() -> None:
    target = Counting()
    target.a = target.b = 1  # type: ignore[attr-defined]
    parts = (node("attribute", "a"), node("attribute", "b"), node("attribute", "value", ("EQUALS", 1)))
    tree = GuardTree((), (node("slot", 0, children=parts),), ())
    for _ in range(5):
        assert tree.check(target)
    assert Counting.asked == 5
    Counting.answer = 2
    assert not tree.check(target)
    Counting.answer = 1


@pytest.mark.usefixtures("few_objects")
def test_guards_that_change_what_is_recorded() -> None:
    class Restless:
        @property
        def value(self) -> int:
            self.a = [object() for _ in range(3)]
            tree.check(self) if len(calls) < 50 and not calls.append(1) else None  # type: ignore[func-returns-value]
            return 1

    calls: list[int] = []
    target = Restless()
    target.a = []
    parts = (node("attribute", "a"), node("attribute", "a", ("TYPE", list)), node("attribute", "value", ("EQUALS", 1)))
    tree = GuardTree((), (node("slot", 0, children=parts),), ())
    for _ in range(20):
        assert tree.check(target)
        gc.collect()


def test_trees_and_dicts_come_and_go() -> None:
    things = [Thing() for _ in range(10)]
    for i in range(300):
        trees = [GuardTree((), (node("slot", 0, children=tuple(way() for way in WAYS)),), ()) for _ in range(3)]
        for tree in trees:
            for thing in things:
                assert tree.check(thing) and tree.check(thing)
        things[i % 10] = Thing()
        things[(i + 1) % 10].number = float(2)


def test_frames_that_share_globals() -> None:
    """A dict of globals that changes all the time does not make what is below be recorded anew."""
    space: dict[str, Any] = {"thing": Thing(), "i": 0}
    ways = tuple(way() for way in WAYS)
    tree = GuardTree(
        (), (node("constant", space, ("ABSENT", "x"), children=(node("item", "thing", children=ways),)),), ()
    )
    for i in range(200):
        space["i"] = i
        assert tree.check()
    space["thing"].inner.value = 0
    assert not tree.check()
    space["thing"] = Thing()
    assert tree.check()
    space["x"] = types.SimpleNamespace()
    assert not tree.check()


def store(target: Any, value: Any) -> None:
    target.number = value


def fill(target: Any, value: Any) -> None:
    target.items[1] = value


LEVEL: Any = 0


def set_global(target: Any, value: Any) -> None:
    global LEVEL
    LEVEL = value


@pytest.mark.parametrize("extra", [0, 40])
@pytest.mark.parametrize("write", [store, fill, set_global])
def test_stores_by_specialised_instructions(write: Callable[[Any, Any], None], extra: int) -> None:
    """The interpreter's fast stores are told, or compared: every tree is new, so that each check after the first is
    answered from its record."""
    for _ in range(40):
        write(Thing(), 1)
    for i in range(300):
        target = Thing()
        vars(target).update({f"n{k}": k for k in range(extra)})
        write(target, 0)
        parts = (
            node("attribute", "number", ("EQUALS", target.number)),
            node("attribute", "items", ("TYPE", list), children=(node("item", 1, ("EQUALS", target.items[1])),)),
            node("constant", globals(), children=(node("item", "LEVEL", ("EQUALS", LEVEL)),)),
        )
        below = node("type", None, children=(node("class_attribute", "__init__"), node("class_attribute", "shared")))
        tree = GuardTree((), (node("slot", 0, children=(*parts[:2], below)), parts[2]), ())
        assert tree.check(target) and tree.check(target)
        write(target, i % 2)
        assert tree.check(target) == (i % 2 == 0)
        write(target, 0)
        assert tree.check(target)
