"""Classes: attributes, descriptors, properties, special methods, inheritance, metaclasses."""

import abc
import functools
import typing
import weakref

import torch

from tests.capture.programs.table import program, x


class Scale:
    factor = 2

    def __init__(self, shift=1):
        self.shift = shift
        self.calls = []

    def __call__(self, x):
        self.calls.append(self.shift)
        return x * self.factor + self.shift

    @property
    def double(self):
        return 2 * self.shift

    @double.setter
    def double(self, value):
        self.shift = value // 2

    @double.deleter
    def double(self):
        self.shift = 0

    @classmethod
    def of(cls, shift):
        return cls(shift)

    @staticmethod
    def twice(n):
        return 2 * n


class Deep(Scale):
    factor = 3

    def __call__(self, x):
        return super().__call__(x) + 1


@program(lambda: (x(), Scale(4)))
def instance_argument(x, scale):
    return scale(x)


@program()
def instance_made_inside(x):
    return Scale(3)(x), Scale(1)


@program(lambda: (x(), Scale()))
def attribute_written(x, scale):
    scale.shift = scale.shift + 1
    scale.last = x * 2
    return scale(x)


@program(lambda: (x(), Scale()))
def attribute_deleted(x, scale):
    scale.extra = x + 1
    y = scale.extra
    del scale.extra
    return y, hasattr(scale, "extra")


@program(lambda: (x(), Scale()))
def property_read_write_delete(x, scale):
    scale.double = 10
    y = x * scale.double
    del scale.double
    return y, scale.shift


@program()
def class_and_static_methods(x):
    return Deep.of(2)(x), Scale.twice(3), Deep(1).twice(4)


@program()
def inherited_and_super(x):
    return Deep(5)(x), isinstance(Deep(), Scale), Deep.__mro__[1] is Scale, Deep.__name__


class Left:
    def name(self, x):
        return [*super().name(x), "left"]


class Right:
    def name(self, x):
        return [*super().name(x), "right"]


class Bottom:
    def name(self, x):
        return [x * 2]


class Diamond(Left, Right, Bottom):
    pass


@program()
def multiple_inheritance(x):
    return Diamond().name(x)


class Attributes:
    def __init__(self):
        self.known = 3

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)


@program()
def getattr_hook(x):
    a = Attributes()
    return x * a.known + a.dyn_abc, hasattr(a, "nothing")


class Recording:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        self.__dict__.setdefault("order", []).append(name)

    def __delattr__(self, name):
        self.order.append("del " + name)
        object.__delattr__(self, name)


@program(lambda: (x(), Recording()))
def setattr_hook(x, recording):
    recording.a = x + 1
    recording.b = 2
    del recording.b
    return recording.a


class Counting:
    def __init__(self):
        self.n = 0

    def __getattribute__(self, name):
        if name == "virtual":
            return 7
        return object.__getattribute__(self, name)


@program()
def getattribute_hook(x):
    c = Counting()
    return x * c.virtual + c.n


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        if instance is None:
            return self
        return getattr(instance, self.name)

    def __set__(self, instance, value):
        if value < 0:
            raise ValueError("negative")
        setattr(instance, self.name, value)


class Checked:
    size = Positive()

    def __init__(self, size):
        self.size = size


@program()
def data_descriptor(x):
    c = Checked(3)
    try:
        c.size = -1
    except ValueError as error:
        return x * c.size, str(error), Checked.size.name


class Lazy:
    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        value = self.function(instance)
        instance.__dict__[self.function.__name__] = value
        return value


class WithLazy:
    @Lazy
    def table(self):
        return [1, 2, 3]


@program()
def non_data_descriptor(x):
    w = WithLazy()
    return x * w.table[1], w.table is w.table, "table" in w.__dict__


class Meta(type):
    registry = {}

    def __new__(mcs, name, bases, namespace):
        made = super().__new__(mcs, name, bases, namespace)
        made.label = name.lower()
        return made

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.made_by = "meta"
        return made

    @property
    def upper(cls):
        return cls.__name__.upper()


class Registered(metaclass=Meta):
    def __init__(self, n):
        self.n = n


@program()
def metaclass(x):
    r = Registered(2)
    return x * r.n, r.made_by, Registered.label, Registered.upper, type(Registered) is Meta


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x): ...

    def twice(self, x):
        return 2 * self.area(x)


class Square(Shape):
    def area(self, x):
        return x * x


@program()
def abstract_base(x):
    try:
        Shape()
    except TypeError:
        return Square().twice(x), isinstance(Square(), Shape)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program(lambda: (x(), Slotted(2)))
def slots(x, s):
    s.b = x * s.a
    s.a += 1
    return s.b, hasattr(s, "c"), Slotted(5)


class Singleton:
    instance = None

    def __new__(cls, value):
        made = object.__new__(cls)
        made.first = value
        return made

    def __init__(self, value):
        self.value = value * 2


@program()
def new_and_init(x):
    s = Singleton(3)
    return x * s.first + s.value


class Settings:
    scale = 3


@program()
def class_attribute_read(x):
    return x * Settings.scale + Settings().scale


@program(breaks="a class is changed")
def class_attribute_written(x):
    before = Settings.scale
    Settings.scale = 9
    y = x * Settings.scale
    Settings.scale = before
    return y


@program()
def bound_methods(x):
    method = Scale(2).__call__
    function = Scale.__call__
    return method(x), function(Scale(1), x), method.__self__.shift, method.__func__ is function


@program(lambda: (x(), Scale()))
def method_as_value(x, scale):
    return [f(x) for f in (scale, scale.__call__, torch.relu)]


@program(lambda: (x(), Scale()))
def dict_of_instance(x, scale):
    scale.__dict__["fresh"] = x * 2
    scale.__dict__.update(shift=5)
    return scale.fresh + scale.shift, sorted(vars(scale))


@program(lambda: (x(), Scale()))
def aliased_objects(x, scale):
    pair = [scale, scale]
    pair[0].shift = 7
    return x + pair[1].shift, pair


@program()
def cyclic_objects(x):
    a, b = Scale(1), Scale(2)
    a.other, b.other = b, a
    return a, x + a.other.other.shift


@program(lambda: (x(), Scale()))
def weak_reference(x, scale):
    reference = weakref.ref(scale)
    return x + reference().shift


class Node:
    def __init__(self, parent=None):
        self.parent = None if parent is None else weakref.ref(parent)
        self.depth = 0 if parent is None else parent.depth + 1


ROOT = Node()


@program(lambda: (x(), Node(ROOT)))
def weak_reference_held(x, node):
    return x + node.depth + node.parent().depth


@program(lambda: (x(), weakref.WeakKeyDictionary()))
def weak_dictionary(x, cache):
    return x + len(cache)


class Managed:
    def __init_subclass__(cls, scale=1, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.scale = scale


class Big(Managed, scale=4):
    pass


@program()
def init_subclass(x):
    return x * Big.scale + Big().scale


@program()
def class_getitem(x):
    return x + 1, list[int], dict[str, int].__args__


class Callbacks:
    def __init__(self):
        self.items = []

    def register(self, f):
        self.items.append(f)
        return self


@program()
def fluent_interface(x):
    c = Callbacks().register(torch.relu).register(lambda y: y * 2)
    for f in c.items:
        x = f(x)
    return x


class Default:
    def __format__(self, spec):
        return f"<{spec}>"

    def __str__(self):
        return "text"

    def __index__(self):
        return 1

    def __int__(self):
        return 4

    def __float__(self):
        return 0.5


@program()
def conversion_methods(x):
    d = Default()
    return x * int(d) + float(d), str(d), f"{d:abc}", [5, 6][d]


class Iterator:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program()
def iterator_protocol(x):
    return [x * n for n in Iterator(3)], list(Iterator(2)), sum(Iterator(4))


class Sequence:
    def __getitem__(self, index):
        if index > 2:
            raise IndexError
        return index * 2

    def __len__(self):
        return 3

    def __reversed__(self):
        return iter([9])


@program()
def sequence_protocol(x):
    return [x + n for n in Sequence()], 4 in Sequence(), list(reversed(Sequence())), len(Sequence())


class Private:
    def __init__(self):
        self.__hidden = 3

    def read(self):
        return self.__hidden


@program()
def mangled_names(x):
    return x * Private().read(), Private()._Private__hidden


class InstanceOf(type):
    def __instancecheck__(cls, instance):
        return instance == 3


@program(breaks="a metaclass decides what is an instance")
def instance_check_hook(x):
    class Three(metaclass=InstanceOf):
        pass

    return x + isinstance(3, Three)


@program()
def type_comparisons(x):
    s = Deep()
    return x + (type(s) is Deep) + (s.__class__ == Scale) + issubclass(type(s), Scale)


@program()
def object_default_methods(x):
    a, b = Callbacks(), Callbacks()
    return a == a, a == b, a != b, x + 1


class Point(typing.TypedDict, total=False):
    """A class whose metaclass makes dicts, and refuses to say what its instances are."""

    x: torch.Tensor
    n: int
    name: typing.NotRequired[str]


@program(lambda: (x(), Point(n=2)))
def typed_dict(x, given):
    made = Point(**given, x=x * given["n"])
    made.setdefault("name", "none")
    return made, type(made) is dict, {**made, "n": 3}, Point.__required_keys__, Point()


class CalledByAnObject(type):
    __call__ = functools.partial(dict, made=True)


class MadeByAPartial(metaclass=CalledByAnObject):
    pass


class CalledAsStatic(type):
    @staticmethod
    def __call__(*args, **kwargs):
        return args, kwargs


class MadeByAStaticMethod(metaclass=CalledAsStatic):
    pass


@program()
def metaclass_called_without_the_class(x):
    return MadeByAPartial(x=x + 1), MadeByAStaticMethod(x * 2, n=1)


class SaysNothingOfInstances(type):
    def __instancecheck__(cls, obj):
        raise TypeError("no instances")

    def __subclasscheck__(cls, other):
        raise TypeError("no subclasses")


class Wrapped(metaclass=SaysNothingOfInstances):
    def __init__(self, value):
        self.value = value


@program()
def made_without_asking_the_metaclass(x):
    return Wrapped(x + 1).value


class Stranger:
    value = 0


class Registering(abc.ABC):
    def __new__(cls):
        return Stranger()

    def __init__(self):
        self.value = 1


Registering.register(Stranger)


@program()
def made_of_a_registered_class(x):
    """What is a subclass by registration alone is not initialised."""
    return x + Registering().value, isinstance(Stranger(), Registering)
