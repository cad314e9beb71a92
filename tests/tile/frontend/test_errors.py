"""What kernels cannot do: each is refused with the kernel's line, a caret and what to do.

A row is a kernel's body, what the error says, and the text that the caret points at; `module` rows are refused by the
compiler alone, as Python itself runs the text in the other way.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

import numpy as np
import pytest

from stator.tile.errors import PlacedError

HEADER = """
import stator.tile as triton
import stator.tile.language as tl
GLOBAL = 4
NAMES = ["a"]
def plain(x):
    return x
@triton.jit
def helper(x, y):
    return x + y.missing
@triton.jit
def recursive(x):
    return recursive(x)
@triton.jit(noinline=True)
def again(x):
    return again(x)
@triton.jit
def kernel(out, n, x, SIZE: tl.constexpr):
    i = tl.arange(0, 8)
"""
ROWS = {
    # names
    "undefined": ("tl.store(out, missing)", "missing is not defined", "missing"),
    "global": ("tl.store(out, GLOBAL)", r"GLOBAL is a global variable.*GLOBAL = tl.constexpr\(4\)", "GLOBAL"),
    "list": ("tl.store(out, NAMES)", "NAMES is a global variable", "NAMES"),
    "later": ("tl.store(out, k)\n    k = 1", "k is not defined.*further down", "k"),
    "one branch": ("if n > 2:\n        k = 1\n    tl.store(out, k)", "k has a value in one branch only", "k"),
    "loop only": (
        "for j in range(n):\n        k = j\n    tl.store(out, k)",
        "k has a value inside of the loop only",
        "k",
    ),
    "counter": ("for j in range(n):\n        pass\n    tl.store(out, j)", "j has a value inside of the loop only", "j"),
    "constexpr twice": ("k: tl.constexpr = 1\n    k = 2", "k is a constexpr, and is assigned once", "k = 2"),
    "not constexpr": ("k: tl.constexpr = n", "annotated as constexpr, and .* not known", "k:"),
    # types that meet
    "branch types": (
        "k = n\n    if n > 2:\n        k = i\n    tl.store(out + i, k)",
        "k is not of one type in both branches",
        "if n",
    ),
    "carried": ("k = 0\n    for j in range(n):\n        k = k + i", "k is int32 before the loop, and .*8", "for j"),
    "carried kind": (
        "k = 0\n    for j in range(n):\n        k = k + 0.5",
        "k is int32 before .* fp32 at the end",
        "for j",
    ),
    "carried text": (
        "k = 'a'\n    for j in range(n):\n        k = 'b'",
        "k is known while compiling, and changes",
        "for j",
    ),
    "ternary": ("k = i if n > 2 else n\n    tl.store(out + i, k)", "must be of one type", "i if"),
    "returns": ("k = two(n)", "does not return one type", "if x"),
    # control flow
    "block condition": ("if i > 2:\n        pass", "has no one truth value.*tl.where", "i > 2"),
    "block while": ("while i > 2:\n        pass", "has no one truth value", "i > 2"),
    "endless": ("while True:\n        pass", "always true", "while"),
    "loop return": ("for j in range(n):\n        return", "return inside of a loop", "return"),
    "loop return if": (
        "for j in range(n):\n        if j > 2:\n            return",
        "return inside of a loop",
        "return",
    ),
    "float range": ("for j in range(0.5):\n        pass", "bounds and step are integers", "range"),
    "block range": ("for j in range(i):\n        pass", "bounds and step are integers", "range"),
    "static range": ("for j in tl.static_range(n):\n        pass", "known while compiling.*tl.constexpr", "tl.static"),
    "over": ("for j in n:\n        pass", "goes over a range", "for j"),
    # what the language takes
    "arange": ("tl.arange(0, 5)", "a power of 2.*, and not 5", "tl.arange"),
    "arange size": ("tl.arange(0, n)", "known while compiling.*tl.constexpr", "tl.arange"),
    "shape": ("tl.zeros((8, 3), tl.float32)", "power of 2, and 3 is none", "tl.zeros"),
    "broadcast": ("tl.store(out + i, i + tl.arange(0, 4))", "do not go together: dim 0 differs", "i + tl"),
    "load": ("tl.load(n)", "takes a pointer or a block of pointers, not int32", "tl.load"),
    "mask": ("tl.load(out + i, mask=i)", "a mask is int1, not int32", "tl.load"),
    "block mask": ("tl.load(out, mask=i < 4)", "the mask is a block .* single one", "tl.load"),
    "other": ("tl.load(out + i, other=0)", "`other` without a mask", "tl.load"),
    "cache": ("tl.load(out + i, cache_modifier='.xx')", "no cache modifier '.xx'", "tl.load"),
    "keyword": ("tl.load(out, masked=1)", "unexpected keyword argument 'masked'", "tl.load"),
    "dot": ("tl.dot(i, i)", "takes two matrices", "tl.dot"),
    "dot shapes": (
        "a = tl.zeros((16, 16), tl.float16)\n    tl.dot(a, tl.zeros((32, 16), tl.float16))",
        "16 columns and 32 rows",
        "tl.dot",
    ),
    "exp": ("tl.exp(i)", "exp takes fp32 or fp64, not int32", "tl.exp"),
    "reshape": ("tl.reshape(i, [4, 4])", "not as many elements", "tl.reshape"),
    "cat": ("tl.cat(i, i)", "can_reorder=True", "tl.cat"),
    "axis": ("tl.sum(i, axis=1)", "axis 1 is none", "tl.sum"),
    "subscript": ("i[0]", "only `:` and `None`", "i[0]"),
    "number subscript": ("n[0]", "only `:` and `None`", "n[0]"),
    "assigned subscript": ("i[:] = 0", "assignment to elements|item assignment", "i[:]"),
    "signedness": ("i // n.to(tl.uint32)", "differ in signedness", "i //"),
    "float division": ("x // 2", "// takes integers, not fp32.*tl.floor", "x //"),
    "float bits": ("x & 1", "& takes integers, not fp32", "x &"),
    "negative": ("n.to(tl.uint32) + -1", "-1 is negative", "n.to"),
    "range": ("n.to(tl.int8) + 300", "300 is no int8", "n.to"),
    "pointers": ("out + out", "two pointers cannot be added", "out + out"),
    "pointer float": ("out + x", "offsets of pointers are integers", "out + x"),
    "none": ("tl.store(out, None)", "is no number or tensor", "tl.store"),
    "compare none": ("n == None", "cannot be compared with", "n == None"),
    "power": ("n ** 2", r"int32 \*\* 2 has no meaning|unsupported operand type", "n **"),
    "attribute": ("n.shap", "has no attribute 'shap'", "n.shap"),
    "method": ("n.foo()", "has no attribute 'foo'", "n.foo"),
    "static assert": ("tl.static_assert(SIZE == 3, 'SIZE must be 3')", "SIZE must be 3", "tl.static"),
    "assert": ("assert SIZE == 3, 'SIZE is not 3'", "SIZE is not 3", "assert"),
    "arguments": ("helper(n)", "missing a required argument: 'y'", "helper"),
    "too many": ("n, k = 1, 2, 3", "values", "n, k"),
    "program id": ("tl.program_id(3)", "axes 0, 1 and 2", "tl.program_id"),
    "vector range": ("tl.load(out + 100000)", "load of 4 bytes outside of the memory of all arguments", "tl.load"),
}
MODULE = {
    "plain function": ("plain(n)", "plain is a Python function.*@triton.jit", "plain"),
    "recursion": ("recursive(n)", "calls itself without end", "recursive"),
    "noinline recursion": ("again(n)", "again calls itself", "again"),
    "int of a tensor": ("int(n)", "takes what is known while compiling", "int("),
    "contains": ("n in (1, 2)", "`in` on what is not known", "n in"),
    "starred": ("a, *b = n, n, n", "starred target", "a, *b"),
    "result": ("return n", "returns .* through pointers", "def kernel"),
    "for target": ("for a, b in [(1, 2)]:\n        pass", "one name for what it counts", "a, b"),
    "keywords": ("helper(**n)", r"\*\* in a call", "**n"),
}
CONSTRUCTS = {
    "lambda": ("f = lambda k: k", "a lambda; define a function with @triton.jit", "lambda"),
    "def": ("def f(k):\n        return k", "a function inside of a kernel", "def f"),
    "class": ("class A:\n        pass", "a class inside of a kernel", "class A"),
    "break": ("for j in range(n):\n        break", "kernels cannot use break", "break"),
    "continue": ("for j in range(n):\n        continue", "kernels cannot use continue", "continue"),
    "try": ("try:\n        pass\n    except ValueError:\n        pass", "kernels cannot use try", "try"),
    "raise": ("raise ValueError", "kernels cannot use raise", "raise"),
    "with": ("with n:\n        pass", "kernels cannot use with", "with"),
    "global": ("global GLOBAL", "does not change the program's variables", "global"),
    "import": ("import math", "import it in the file", "import"),
    "del": ("del n", "kernels cannot use del", "del"),
    "match": ("match n:\n        case 1:\n            pass", "match; use `if`", "match"),
    "dict": ("k = {1: n}", "a dict; use a tuple", "{1"),
    "set": ("k = {n}", "a set; use a tuple", "{n"),
    "generator": ("k = tuple(j for j in (1, 2))", "a generator; use a list", "(j for"),
    "walrus": ("if (k := n) > 2:\n        pass", ":=; assign in a line", "k :="),
    "chain": ("if 1 < n < 3:\n        pass", "several comparisons in one.*a < b and b < c", "1 < n"),
    "yield": ("yield n", "kernels cannot use yield", "yield"),
}
TAIL = """
@triton.jit
def two(x):
    if x > 2:
        return x
    return tl.arange(0, 4)
"""


def kernel_of(body: str, name: str) -> Any:
    """The kernel with a body, whose text Python can find."""
    text = f"{HEADER}    {body}\n{TAIL}"
    file = f"<kernel {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, file, "exec"), names)
    return names["kernel"]


def launch(body: str, name: str) -> str:
    """The error of a launch, whose caret is checked to stand at the text that is to blame."""
    with pytest.raises(PlacedError) as caught:
        kernel_of(body, name)[(1,)](np.zeros(8, np.int32), 6, 1.5, SIZE=4)
    return str(caught.value)


def blamed(text: str) -> list[str]:
    """What stands above each caret."""
    lines = text.splitlines()
    return [lines[n - 1][line.index("^") :] for n, line in enumerate(lines) if line.strip() == "^"]


@pytest.mark.parametrize("name", ROWS)
def test_misuse_is_refused_at_its_place(name: str, way: str) -> None:
    body, message, place = ROWS[name]
    if way == "text" and name in LENIENT:
        kernel_of(body, name)[(1,)](np.zeros(8, np.int32), 6, 1.5, SIZE=4)
        return
    text = launch(body, name)
    assert re.search(TEXT.get(name, message) if way == "text" else message, text, re.DOTALL), text
    if way == "module":
        assert any(line.startswith(place) for line in blamed(text)), text


#: Rows that run where Python itself goes through the text: it needs no common type, and keeps what a loop has assigned.
LENIENT = {"constexpr twice", "not constexpr", "branch types", "loop only", "counter", "carried kind", "carried text",
           "carried", "global", "ternary", "one branch", "returns", "loop return", "loop return if"}  # fmt: skip
#: What Python says of a row in its own words.
TEXT = {
    "undefined": "name 'missing' is not defined",
    "list": "is no number or tensor",
    "later": "cannot access local variable 'k'",
    "over": "not a sequence of Python's",
    "arguments": "missing a required argument: 'y'",
}


@pytest.mark.parametrize("name", MODULE)
def test_what_the_compiler_refuses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "0")
    body, message, place = MODULE[name]
    text = launch(body, name)
    assert re.search(message, text, re.DOTALL), text
    assert any(line.startswith(place) for line in blamed(text)), text


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs_that_kernels_cannot_use(name: str, way: str) -> None:
    body, message, place = CONSTRUCTS[name]
    text = launch(body, name)
    assert re.search(message, text, re.DOTALL), text
    assert any(line.startswith(place) for line in blamed(text)), text
