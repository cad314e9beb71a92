"""Finding an attribute on a class, as Python does before any descriptor runs.

Neighbours: `watch.py` (the guard on the answer), `base.py`, `mirror.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.values import watch

if TYPE_CHECKING:
    from stator.capture.machine import Machine

#: Marks an attribute that does not exist.
MISSING: Any = object()


def static_attribute(cls: type, name: str) -> Any:
    """What the MRO of `cls` has under `name`, without calling descriptors; `MISSING` if nothing."""
    for parent in cls.__mro__:
        if name in parent.__dict__:
            return parent.__dict__[name]
    return MISSING


def look_up(tx: Machine, cls: type, name: str) -> Any:
    """`static_attribute`, with a guard on the answer."""
    answers, key = tx.session.looked_up, (cls, name)
    raw = answers.get(key)
    if raw is None:
        raw = answers[key] = static_attribute(cls, name)
        watch.class_attribute(tx, cls, name, raw, raw is not MISSING)
    return raw


def is_data_descriptor(tx: Machine, raw: Any) -> bool:
    """Whether a class attribute comes before the instance's dict."""
    return any(look_up(tx, type(raw), name) is not MISSING for name in ("__set__", "__delete__"))
