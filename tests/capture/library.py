"""Calls of pure-Python parts of the standard library: thousands of instructions written by others."""

from __future__ import annotations

import argparse
import ast
import calendar
import colorsys
import configparser
import copy
import datetime
import difflib
import fractions
import heapq
import html
import inspect
import io
import json
import pprint
import random
import re
import shlex
import statistics
import string
import textwrap
import tokenize
from typing import Any


def wrapping() -> Any:
    return textwrap.wrap("the quick brown fox jumps over the lazy dog " * 5, 30)


def encoding() -> Any:
    return json.dumps({"a": [1, 2, {"b": None}], "c": 1.5}, indent=2, sort_keys=True)


def comparing() -> Any:
    return list(difflib.unified_diff("a b c d".split(), "a c d e".split()))


def averaging() -> Any:
    return statistics.stdev([1, 2, 3, 4.5]), statistics.quantiles([1, 2, 3, 4, 5])


def adding() -> Any:
    return fractions.Fraction(3, 4) + fractions.Fraction(1, 3)


def unparsing() -> Any:
    return ast.unparse(ast.parse("def f(x, *a, **k):\n  with a as b:\n    return [x for x in y if z]\n"))


def substituting() -> Any:
    return string.Template("$a ${b}").substitute(a=1, b=2)


def scanning() -> Any:
    return [token.string for token in tokenize.generate_tokens(io.StringIO("x = 1 + (2,\n 3)\n").readline)]


def parsing() -> Any:
    parser = argparse.ArgumentParser(prog="x")
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("f")
    return vars(parser.parse_args(["q", "--n", "5"])), parser.format_help()


def matching() -> Any:
    match = re.compile(r"(a|b)*c[0-9]+(?P<x>z)?").match("abc12z")
    return match and match.groupdict()


def merging() -> Any:
    return heapq.nlargest(3, [5, 1, 4, 9, 2]), list(heapq.merge([1, 3], [2, 4]))


def printing() -> Any:
    return calendar.TextCalendar().formatmonth(2024, 2), pprint.pformat({"a": list(range(30)), "b": {"c": "d" * 50}})


def quoting() -> Any:
    return shlex.split("a 'b c' d\\ e"), shlex.quote("x y"), html.unescape("&lt;&amp;&#39;")


def copying() -> Any:
    return copy.deepcopy({"a": [1, (2, 3)], "b": {4}}), colorsys.rgb_to_hls(0.1, 0.2, 0.3)


def reflecting() -> Any:
    return str(inspect.signature(argparse.ArgumentParser.add_argument))


def sampling() -> Any:
    return random.Random(3).sample(range(100), 5), random.Random(1).gauss(0, 1)


def configuring() -> Any:
    parser = configparser.ConfigParser()
    parser.read_string("[a]\nx=1\ny=%(x)s2\n")
    return parser["a"]["y"]


def dating() -> Any:
    return datetime.datetime(2024, 1, 1).isoformat(), str(datetime.timedelta(days=3) * 2)


CALLS = (
    wrapping, encoding, comparing, averaging, adding, unparsing, substituting, scanning, parsing, matching, merging,
    printing, quoting, copying, reflecting, sampling, configuring, dating,
)  # fmt: skip
