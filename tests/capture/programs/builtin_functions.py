"""Builtin functions, types as functions, and reflection."""

import math
import operator

import torch

from tests.capture.programs.table import program, x


@program()
def numbers(x):
    return x * abs(-2) + round(2.567, 1) + pow(2, 3) + divmod(7, 2)[1] + int("3") + float("1.5")


@program()
def tensor_abs_and_pow(x):
    return abs(x), pow(x, 2), x.round(), divmod(7, 2)


@program()
def isinstance_of_many(x):
    return (
        x + isinstance(x, torch.Tensor),
        isinstance(3, (str, int)),
        isinstance([], list | tuple),
        isinstance(True, int),
    )


@program()
def issubclass_and_type(x):
    return x * issubclass(bool, int), type(x), type(3) is int, type([1]).__name__


@program()
def hasattr_and_getattr(x):
    return x + hasattr(x, "shape") + hasattr(x, "nothing"), getattr(x, "ndim"), getattr(x, "nothing", 5)


class Box:
    pass


@program()
def setattr_and_delattr(x):
    box = Box()
    setattr(box, "value", x * 2)
    value = box.value
    delattr(box, "value")
    return value, hasattr(box, "value"), vars(box)


@program()
def callable_objects(x):
    return x + callable(len) + callable(3) + callable(Box) + callable(x)


@program()
def identity(x):
    y = x
    z = x + 0
    return y is x, z is x, z is not None, x is None


@program()
def id_of_argument(x):
    y = x
    return x + 1, id(x) == id(y)


@program()
def hash_of_values(x):
    return x + 1, hash((1, "a")) == hash((1, "a")), hash(3)


@program()
def length_of_things(x):
    return x * len(x) + len("abc") + len({}) + len(range(4)), len(x.shape)


@program()
def slices(x):
    s = slice(1, None)
    return x[s], [1, 2, 3][s], s.indices(5), slice(0, 4, 2).step


@program()
def operator_module(x):
    pick = operator.itemgetter(1)
    shape = operator.attrgetter("shape")
    return operator.mul(x, 2), pick([1, 2]), shape(x), operator.methodcaller("sum")(x), operator.index(3)


@program()
def math_module(x):
    return x * math.sqrt(4.0) + math.floor(2.7) + math.prod([2, 3]), math.isclose(0.1 + 0.2, 0.3), math.inf


@program()
def boolean_conversions(x):
    return x * bool([]) + bool("a"), bool(None), not [], str(True)


@program()
def complex_numbers(x):
    z = complex(1, 2)
    return x * z, z.real, z.imag, z.conjugate(), abs(3 + 4j), 1j * 1j


@program()
def bytes_values(x):
    b = b"abc"
    return x + len(b) + b[0], b.decode(), b[1:], "é".encode(), bytes([1, 2])


@program()
def ranges(x):
    r = range(2, 10, 3)
    return x * r[1] + len(r), 5 in r, list(r), r.start, r == range(2, 11, 3), r[::-1]


@program()
def int_and_float_methods(x):
    return (
        x + (5).bit_length() + (2.0).is_integer(),
        (0.5).as_integer_ratio(),
        (7).__add__(1),
        float("nan") != float("nan"),
    )


@program()
def type_constructors(x):
    return (
        list("ab"),
        tuple([1]),
        set([1, 1]),
        dict(a=1),
        frozenset({2}),
        x + int(True),
        list(range(2)),
        dict([("k", 2)]),
    )


@program()
def short_circuit(x):
    return (x is None or x + 1), (None and x), (0 or [] or x * 2), (1 and x * 3)


@program()
def chained_comparison(x):
    n = x.shape[0]
    return x + 1 if 1 < n <= 2 < x.shape[1] else x


@program()
def conditional_on_size(x):
    if x.shape[0] == 2 and x.dim() == 2:
        return x * 2
    return x


@program()
def arithmetic_on_sizes(x):
    a, b = x.shape
    return x.reshape(b, a) + (a * b - a // b + a % b + a**b)


@program()
def bit_operations(x):
    flags = 0b1010
    flags |= 1
    flags &= ~2
    flags ^= 4
    return x * (flags << 2 >> 1)


@program()
def dir_of_class(x):
    return x + ("forward" in dir(torch.nn.Linear))


@program()
def isinstance_protocols(x):
    from collections.abc import Callable, Iterable, Mapping, Sequence

    return (
        x + 1,
        isinstance([], Sequence),
        isinstance({}, Mapping),
        isinstance("a", Iterable),
        isinstance(len, Callable),
    )
