"""Named tuples, dataclasses, enums."""

import collections
import dataclasses
import enum
import typing

import torch

from tests.capture.programs.table import program, x

Pair = collections.namedtuple("Pair", ["first", "second"], defaults=[2])


class Typed(typing.NamedTuple):
    value: object
    scale: float = 3.0

    def scaled(self):
        return self.value * self.scale


@dataclasses.dataclass
class Config:
    size: int = 4
    names: list = dataclasses.field(default_factory=list)
    scale: float = dataclasses.field(default=2.0, repr=False)

    def __post_init__(self):
        self.area = self.size**2


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: object = None


@dataclasses.dataclass(slots=True, order=True)
class Slots:
    n: int
    m: int = 0


@dataclasses.dataclass
class Child(Config):
    extra: str = "e"


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"

    def pick(self, x):
        return x * 2 if self is Colour.RED else x


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@program(lambda: (Pair(x(), 3),))
def namedtuple_argument(p):
    return p.first * p.second, p[0] is p.first, len(p), p._fields


@program()
def namedtuple_made(x):
    p = Pair(x + 1)
    return p, p._replace(second=5), p._asdict(), Pair._make([1, 2])


@program()
def namedtuple_unpacked(x):
    a, b = Pair(x, 2)
    return a * b, Pair(1, 2) == (1, 2)


@program()
def typed_namedtuple(x):
    return Typed(x).scaled(), Typed(x, 1.0)


@program(lambda: (x(), Config(3)))
def dataclass_argument(x, c):
    c.names.append("a")
    c.size += 1
    return x * c.size + c.area


@program()
def dataclass_made(x):
    c = Config(size=2)
    c.names.append(x)
    return c, x * c.area


@program()
def dataclass_equality(x):
    return x + (Frozen(1) == Frozen(1)) + (Slots(1) < Slots(2)), Config() == Config()


@program()
def dataclass_frozen(x):
    f = Frozen(2, x)
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as error:
        return f.b * f.a, str(error), hash(Frozen(1)) == hash(Frozen(1))


@program(lambda: (x(), Slots(2)))
def dataclass_slots(x, s):
    s.m = 5
    return x * s.n + s.m, Slots(1)


@program(lambda: (x(), {Frozen(1): 5}))
def dataclass_as_key(x, d):
    return x * d[Frozen(1)] + d.get(Frozen(2), 0), Frozen(1, "b") in d


@program()
def dataclass_replace(x):
    f = dataclasses.replace(Frozen(1, x), a=7)
    return f.b * f.a


@program()
def dataclass_asdict(x):
    return x + 1, dataclasses.asdict(Config(2)), dataclasses.astuple(Slots(1, 2))


@program()
def dataclass_fields(x):
    return x + len(dataclasses.fields(Config)), [f.name for f in dataclasses.fields(Child())]


@program()
def dataclass_inherited(x):
    c = Child(2, extra="z")
    return x * c.area, c.extra, dataclasses.is_dataclass(c)


@program()
def dataclass_repr(x):
    return x + 1, repr(Config(2)), str(Slots(3))


@program(lambda: (x(), Colour.RED))
def enum_argument(x, colour):
    return colour.pick(x), colour.value, colour.name, colour == Colour.BLUE


@program()
def enum_lookup(x):
    return Colour("b").pick(x) + 1, Colour["RED"].value, [c.name for c in Colour], Colour.RED in Colour, len(Colour)


@program()
def enum_of_ints(x):
    return x * Level.HIGH + (Level.LOW < Level.HIGH), Level(1).name, int(Level.HIGH)


@program()
def enum_flags(x):
    f = Flags.A | Flags.B
    return x + (Flags.A in f), (f & Flags.B) is Flags.B, bool(f)


@program()
def enum_as_key(x):
    return {Colour.RED: x * 2}[Colour.RED]


class Edges(typing.NamedTuple):
    index: object
    count: int = 3

    def doubled(self):
        return self.index * 2


class Shadowing(collections.namedtuple("Shadowing", ["value", "scale"])):
    """Has a property in the place of a field, and methods in the place of a tuple's."""

    @property
    def value(self):
        return 5

    def index(self, item):
        return item + 1


EDGES = (Edges(1, 2), Edges(3))


@program()
def named_tuple_with_fields_called_as_methods_of_tuples(x):
    edges = Edges(x * 2)
    for given in EDGES:
        x = x * given.index + given.count + given._replace(count=given.count + 1).count
    return edges.index * edges.count + edges.doubled(), edges, x


@program(lambda: (torch.ones(2), Edges(torch.ones(3), 2)))
def named_tuple_with_such_fields_given(x, edges):
    return x * edges.index.sum() + edges.count


@program()
def named_tuple_whose_class_shadows_a_field(x):
    shadowing = Shadowing(x, 2)
    return x * shadowing.value + shadowing.index(shadowing.scale), shadowing[0]


class Activation(str, enum.Enum):
    """Members are texts, and functions."""

    RELU = "relu"
    TANH = "tanh"

    def __call__(self, x, *, scale=1.0):
        return getattr(torch, self.value)(x) * scale


@program(lambda: (x(), "tanh"))
def enum_member_called(x, name):
    return Activation.RELU(x) + Activation(name)(x, scale=2.0), [member(x).sum() for member in Activation]
