"""`functools.partial`, met or made by the frame.

Nested partials are one, as in Python; subclasses are users' objects.
Neighbour: `function.py`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ItemSource
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.python.containers.mapping import named_dict
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import builds, handles, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source


@value_class
class PartialValue(Object):
    """A `functools.partial`."""

    kind = "a partial"

    function: Value = part()
    args: list[Value] = part()
    kwargs: dict[str, Value] = part()
    real: functools.partial[Any] | None = None
    attributes: dict[str, Value] = part(init=False, default_factory=dict)

    def python_type(self) -> type:
        return functools.partial

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(tx, (*self.args, *args), {**self.kwargs, **kwargs})

    def get_attr(self, tx: Machine, name: str) -> Value:
        match name:
            case "func":
                return self.function
            case "args":
                return TupleValue(self.args)
            case "keywords":
                return named_dict(self.kwargs)
        if name in self.attributes:
            return self.attributes[name]
        if self.real is not None and self.source is not None:
            if name in self.real.__dict__:
                return wrap(tx, self.real.__dict__[name], AttrSource(self.source, name))
            watch.no_instance_attribute(tx, self.source, name)
        return super().get_attr(tx, name)

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if self.source is not None:
            raise self.refuse(f"setting attribute {name!r}")
        self.attributes[name] = value

    def reconstruct(self, out: Assembler) -> None:
        parts = TupleValue(self.args), named_dict(self.kwargs), named_dict(self.attributes)
        out.call(make_partial, self.function, *parts)


def make_partial(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """Rebuilds a partial."""
    made = functools.partial(function, *args, **kwargs)
    vars(made).update(attributes)
    return made


@builds(functools.partial, exact=True)
def build_partial(tx: Machine, obj: functools.partial[Any], source: Source) -> Value:
    """A partial is its function and its arguments."""
    watch.type_of(tx, source, type(obj))
    args_source, keywords_source = AttrSource(source, "args"), AttrSource(source, "keywords")
    watch.length(tx, args_source, len(obj.args))
    args = [wrap(tx, arg, ItemSource(args_source, index)) for index, arg in enumerate(obj.args)]
    watch.keys(tx, keywords_source, tuple(obj.keywords))
    kwargs = {name: wrap(tx, arg, ItemSource(keywords_source, name)) for name, arg in obj.keywords.items()}
    return PartialValue(wrap(tx, obj.func, AttrSource(source, "func")), args, kwargs, source=source, real=obj)


@handles(functools.partial)
def call_partial(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`functools.partial(function, …)`: nested partials are flattened, as Python does."""
    function, *rest = args
    if isinstance(function, PartialValue):
        return PartialValue(function.function, [*function.args, *rest], {**function.kwargs, **kwargs})
    return PartialValue(function, rest, dict(kwargs))
