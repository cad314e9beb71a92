"""What of the standard library stands around models: re, random state aside, typing, inspect, copy, logging."""

import copy
import inspect
import logging
import os
import re
import typing
import uuid
import warnings

import torch

from tests.capture.programs.table import program, x

LOGGER = logging.getLogger("tests.capture.programs")
T = typing.TypeVar("T")


class Typed(typing.Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


@program()
def regular_expressions(x):
    found = re.match(r"layer\.(\d+)", "layer.12")
    return x * int(found.group(1)), re.sub("a", "b", "aa"), bool(re.search("z", "abc"))


@program()
def typing_helpers(x):
    value = typing.cast(torch.Tensor, x)
    return value + 1, typing.TYPE_CHECKING, typing.Optional[int] is not None


@program()
def generic_class(x):
    return Typed(x).value + 1, Typed[int](3).value


@program()
def signature(x):
    def f(a, b=2, *, c): ...

    return x + len(inspect.signature(f).parameters), inspect.isfunction(f)


@program()
def debug_log_vanishes(x):
    LOGGER.debug("size %s", x.shape)
    return x + 1


@program()
def environment(x):
    return x + int(os.environ.get("NOT_SET_ANYWHERE", "3")), os.path.join("a", "b")


@program()
def warnings_filtered(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x + 1


@program()
def warnings_filtered_twice(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="first")
        warnings.warn("first", stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            warnings.warn("second", stacklevel=1)
    return x + 1


@program(breaks="a message is written")
def break_while_warnings_are_filtered(x):
    y = x * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print("here")
        y = y + 1
    return y * 3


@program()
def shallow_copy_of_object(x):
    a = Typed([x])
    b = copy.copy(a)
    b.value = [x * 2]
    return a.value[0] + b.value[0]


@program()
def deep_copy_of_config(x):
    c = copy.deepcopy({"sizes": [1, 2], "name": "n"})
    c["sizes"].append(3)
    return x * sum(c["sizes"])


@program(breaks="it asks for the time")
def clock(x):
    import time

    start = time.perf_counter()
    y = x + 1
    return y, time.perf_counter() >= start


@program(breaks="it asks the system for random bytes")
def random_identifier(x):
    name = uuid.uuid4().hex
    return x + len(name)


@program()
def statistics_of_numbers(x):
    import fractions
    import statistics

    return x * float(fractions.Fraction(1, 2)) + statistics.mean([1, 3])


@program()
def pytree(x):
    from torch.utils import _pytree as pytree

    flat, spec = pytree.tree_flatten({"a": x, "b": [x * 2, 3]})
    return pytree.tree_unflatten([item + 1 for item in flat], spec)


@program()
def pytree_map(x):
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: leaf * 2, {"a": [x, x + 1], "b": (x,)})


@program(breaks="it writes to a stream")
def prints(x):
    y = x + 1
    print("size", y.shape, end="")
    return y * 2


@program()
def abstract_syntax_constant(x):
    import string

    return x + len(string.ascii_lowercase)


@program(breaks="an unknown function of C")
def json_text(x):
    import json

    return x + json.loads('{"a": 2}')["a"], json.dumps([1])
