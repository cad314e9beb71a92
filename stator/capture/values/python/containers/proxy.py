"""Mapping proxies: read-only views of dicts.

Neighbours: `mapping.py`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.python.containers.mapping import DictValue
from stator.capture.values.registry import builds

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value


@value_class
class ProxyValue(Object):
    """A `types.MappingProxyType` over a dict."""

    kind = "a mapping proxy"

    inner: DictValue = part()

    def python_type(self) -> type:
        return types.MappingProxyType

    def truth(self, tx: Machine) -> bool:
        return self.inner.truth(tx)

    def length(self, tx: Machine) -> int:
        return self.inner.length(tx)

    def contains(self, tx: Machine, item: Value) -> Value:
        return self.inner.contains(tx, item)

    def iterate(self, tx: Machine) -> Value:
        return self.inner.iterate(tx)

    def pairs(self, tx: Machine) -> list[tuple[Value, Value]]:
        return self.inner.pairs(tx)

    def get_item(self, tx: Machine, key: Value) -> Value:
        return self.inner.get_item(tx, key)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self.inner.compare(tx, op, getattr(other, "inner", other))

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name in ("get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__"):
            return self.inner.get_attr(tx, name)
        return super().get_attr(tx, name)

    def reconstruct(self, out: Assembler) -> None:
        out.call(types.MappingProxyType, self.inner)


@builds(types.MappingProxyType)
def build_proxy(tx: Machine, obj: Any, source: Source) -> Value:
    """A read-only view is guarded as the dict it shows."""
    watch.type_of(tx, source, type(obj))
    return ProxyValue(DictValue(None, dict, source=source, real=dict(obj)), source=source)
