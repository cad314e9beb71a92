"""What classes agree on: protocols, abstract bases, slots, and the hooks that run when a class is made."""

import collections.abc
import functools
import typing

from tests.capture.programs.table import program, x


@typing.runtime_checkable
class Scaling(typing.Protocol):
    def scale(self): ...


class Doubling:
    def scale(self):
        return 2


@program()
def runtime_protocol(x):
    return x * Doubling().scale() + isinstance(Doubling(), Scaling) + 2 * isinstance(3, Scaling)


@program()
def abstract_bases(x):
    found = [
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        isinstance(range(3), collections.abc.Iterable),
        isinstance(len, collections.abc.Callable),
        isinstance(x, collections.abc.Iterable),
        isinstance({1}, collections.abc.Hashable),
        issubclass(dict, collections.abc.MutableMapping),
    ]
    return x * sum(found), found


@program()
def cast(x):
    return typing.cast("list[int]", x) * 2


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 1


class MoreSlots(Slotted):
    __slots__ = ("b",)

    def __init__(self):
        super().__init__()
        self.b = 2


class WithDict(MoreSlots):
    pass


@program(lambda: (MoreSlots(), WithDict(), x()))
def inherited_slots(slotted, both, x):
    slotted.b += 1
    both.c = 5
    made = WithDict()
    made.d = 3
    return x * slotted.a + slotted.b + both.c, made


class Registered:
    def __init_subclass__(cls, tag=None, **options):
        super().__init_subclass__(**options)
        cls.tag = tag


class Named:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return len(self.name)


class Tagged(Registered, tag=3):
    four = Named()


@program()
def hooks_of_classes(x):
    return x * Tagged.tag + Tagged().four + Tagged.four


@program(breaks="a class is made")
def hooks_of_a_class_made_inside(x):
    class Inner(Registered, tag=4):
        name = Named()

    return x * Inner.tag + Inner().name


class Once:
    def __init__(self):
        self.count = 2

    @functools.cached_property
    def value(self):
        self.count += 1
        return self.count


@program(lambda: (Once(), x()))
def cached_property_of_argument(once, x):
    return x * once.value + once.value
