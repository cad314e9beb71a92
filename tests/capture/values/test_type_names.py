"""How messages name a class: as Python's own do, for every class that a message may be about."""

from __future__ import annotations

import array
import collections
import datetime
import functools
import io
import itertools
import operator
import re
import struct
import types
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
import torch

from stator.capture.values.methods import type_name


class Written:
    pass


class Row(NamedTuple):
    x: int


OBJECTS = [
    1, "a", [], (), slice(1), range(2), len, print, iter([]), Written(), Row(1), Fraction(1), types.SimpleNamespace(),
    re.compile("a"), re.match("a", "a"), collections.deque(), functools.partial(int),
    functools.cmp_to_key(int), functools.lru_cache(int), operator.itemgetter(1), itertools.count(),
    itertools.tee("a")[0], array.array("i"), datetime.date(2020, 1, 1), struct.Struct("i"), io.StringIO(),
    torch.float32, torch.Size([1]), torch.ones(1), torch.nn.ReLU(), torch.Generator(),
]  # fmt: skip


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_a_class_is_named_as_python_does(obj: Any) -> None:
    with pytest.raises(TypeError, match="object is not a mapping") as raised:
        _ = {**obj}
    assert f"'{type_name(type(obj))}'" in str(raised.value)
