"""Makes the cases: a receiver, what is done with it, and arguments that Python takes, and some that it does not.

Which arguments are worth a case is asked of Python itself: of many random ones, those are kept whose outcomes differ.
The same seed gives the same cases. Neighbours: `tables.py` (of what), `compare.py` (what is done with a case).
"""

from __future__ import annotations

import enum
import inspect
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.capture.containers.compare import outcome, usable
from tests.capture.containers.tables import ARGUMENTS, KEYWORDS, LEFT_OUT, NAMESPACE, RECEIVERS, TEMPLATES


class Case(NamedTuple):
    """What is done (`action`, over the names r, x, y, z) with which objects, and how."""

    kind: str
    #: The attribute or template that is tried.
    what: str
    action: str
    #: Expressions of r, x, y, z, as far as they are used.
    objects: tuple[str, ...]
    #: Whether the objects are passed to the function, or made in it.
    passed: bool
    #: Whether the function handles the error.
    caught: bool

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {text}" for name, text in zip("rxyz", self.objects, strict=False))
        form = f"{'passed' if self.passed else 'made'}, {'caught' if self.caught else 'escaping'}"
        return f"[{self.kind}] {given}: {self.action!r} ({form})"


def attributes(kind: str) -> list[str]:
    """All that an object of this kind has, but for what is left out."""
    obj = eval(RECEIVERS[kind][0], dict(NAMESPACE), {"t": None})
    return [name for name in dir(obj) if name not in LEFT_OUT]


def parameters(method: Any) -> list[str]:
    """The names of a method's parameters, where it tells."""
    try:
        return [name for name in inspect.signature(method).parameters if name.isidentifier()]
    except (TypeError, ValueError):
        return []


def calls(kind: str, name: str, choices: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Random calls of an attribute: the action and the expressions of x, y, z."""
    obj = eval(RECEIVERS[kind][0], dict(NAMESPACE), {"t": None})
    method = getattr(obj, name)
    own = parameters(method)
    mine = list(RECEIVERS[kind])
    pool = [*ARGUMENTS, *mine * 3]
    yield f"result = r.{name}", []
    if isinstance(obj, enum.Enum) and not callable(method):
        return  # a change of it would last
    if not callable(method):
        yield f"r.{name} = x; result = r", [choices.choice(pool)]
        yield f"del r.{name}; result = r", []
        return
    yield f"result = r.{name}()", []
    yield f"result = type(r).{name}(r)", []
    for text in pool:
        yield f"result = r.{name}(x)", [text]
    for _ in range(60):
        count = choices.choice((1, 1, 2, 2, 2, 3))
        objects = [choices.choice(pool) for _ in range(count)]
        names = list("xyz"[:count])
        named = choices.choice((0, 0, 0, 1, 1, count))
        words = choices.sample([*own * 4, *KEYWORDS], min(named, count))
        if len(set(words)) < len(words):
            continue
        plain = names[: count - len(words)]
        given = [*plain, *(f"{word}={value}" for word, value in zip(words, names[len(plain) :], strict=True))]
        form = choices.choice(("r.{0}({1})", "r.{0}({1})", "r.{0}({1})", "type(r).{0}(r, {1})"))
        yield f"result = {form.format(name, ', '.join(given))}", objects


def done(kind: str, template: str, choices: random.Random) -> Iterator[tuple[str, list[str]]]:
    """A template with random arguments."""
    used = 3 if "z" in template.split("result")[0] or "z]" in template else 2 if "y" in template else 1
    pool = [*ARGUMENTS, *RECEIVERS[kind] * 3]
    if not any(name in template.replace("index", "").replace("next", "") for name in "xyz"):
        yield template, []
        return
    for _ in range(50):
        yield template, [choices.choice(pool) for _ in range(used)]


def distinct(
    kind: str,
    what: str,
    found: Iterator[tuple[str, list[str]]],
    receivers: tuple[str, ...],
    most: int,
    choices: random.Random,
) -> Iterator[Case]:
    """At most so many cases, of which the outcomes differ as far as possible."""
    groups: dict[Any, list[tuple[str, tuple[str, ...]]]] = {}
    for action, objects in found:
        texts = (choices.choice(receivers), *objects)
        native = outcome(action, texts)
        if native is not None and usable(native):
            groups.setdefault(native.group, []).append((action, texts))
    results = [members for group, members in groups.items() if group[0] == "result"]
    errors = [members for group, members in groups.items() if group[0] == "error"]
    right = max(most - len(errors), (2 * most + 2) // 3)
    for members in (*spread(results, right, choices), *spread(errors, most - min(right, len(results)), choices)):
        action, texts = choices.choice(members)
        yield Case(kind, what, action, texts, choices.random() < 0.5, choices.random() < 0.8)


def spread(groups: list[Any], most: int, choices: random.Random) -> list[Any]:
    """At most so many of them, the first always."""
    return groups[:1] + choices.sample(groups[1:], min(most - 1, len(groups) - 1)) if groups and most > 0 else []


def cases(
    seed: int = 0, most: int = 4, kinds: tuple[str, ...] = tuple(RECEIVERS), share: float = 1.0, only: str | None = None
) -> Iterator[Case]:
    """The cases of a seed: at most `most` for each of a share of all attributes and templates of each kind.

    With `only` they are those of one attribute, the same as among all.
    """
    for kind in kinds:
        receivers = RECEIVERS[kind]
        for name in attributes(kind):
            choices = random.Random(f"{seed} {kind} {name}")
            if only not in (None, name) or choices.random() >= share:
                continue
            yield from distinct(kind, name, calls(kind, name, choices), receivers, most, choices)
        for template in TEMPLATES if only is None else ():
            choices = random.Random(f"{seed} {kind} {template}")
            if choices.random() >= share:
                continue
            yield from distinct(kind, template, done(kind, template, choices), receivers, max(1, most // 2), choices)
