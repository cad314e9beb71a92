"""Each rule of the kernel IR: a text that breaks it is refused, with the statement."""

from __future__ import annotations

import pytest

from stator.kernel.parse import ParseError, parse
from stator.kernel.verify import verify
from stator.loop.verify import GrammarError

HEAD = "def k(p0: In[f32, 8], p1: Out[f32, 8], p2: In[i64, 8], p3: InOut[f32, 4]):\n"
RIGHT = """
    for x0 in parallel(8):
        t0: f32 = p0[x0]
        a0: Var[f32] = 0.0
        for r0 in range(3):
            t1: f32 = mul(t0, 2.0)
            a0 = add(a0, t1)
        p1[x0] = a0
"""
BROKEN = {
    "is defined already": "    t0: f32 = p0[0]\n    t0: f32 = p0[1]\n",
    "x0 is defined already": "    for x0 in range(2):\n        for x0 in range(2):\n            pass\n",
    "is not known here": "    for x0 in range(2):\n        t0: f32 = p0[x0]\n    p1[0] = t0\n",
    "gives another dtype": "    t0: f32 = p0[0]\n    t1: f64 = neg(t0)\n",
    "add does not take": "    t0: f32 = p0[0]\n    t1: i64 = p2[0]\n    t2: f32 = add(t0, t1)\n",
    "unknown operator": "    t0: f32 = p0[0]\n    t1: f32 = addd(t0, t0)\n",
    "bitcast does not take": "    t0: f32 = p0[0]\n    t1: i64 = bitcast(t0)\n",
    "only variables are assigned to": "    t0: f32 = p0[0]\n    t0 = neg(t0)\n",
    "share the variable": "    a0: Var[f32] = 0.0\n    for x0 in parallel(2):\n        a0 = add(a0, 1.0)\n",
    "a variable starts from another dtype": "    a0: Var[f32] = f64(0.0)\n",
    "leaves 0 … 8-1": "    for x0 in range(9):\n        t0: f32 = p0[x0]\n",
    "p1 is out": "    t0: f32 = p1[0]\n",
    "p0 is in": "    p0[0] = f32(1.0)\n",
    "p0 is f32, not f64": "    t0: f64 = p0[0]\n",
    "a mask is a bool": "    t0: i64 = p2[0]\n    t1: f32 = p0[9] if t0 else 0\n",
    "is no axis of a loop around it": "    for x0 in range(2):\n        pass\n    t0: f32 = p0[x0]\n",
    "write one place": "    for x0 in parallel(2):\n        p1[0] = f32(1.0)\n",
    "may write one place": "    for x0 in parallel(8):\n        add(p3[x0//2], f32(1.0))\n",
    "an unknown mode": "    sub(p3[0], f32(1.0))\n",
    "the pieces are not the whole axis": (
        "    for x1 in range(2):\n        for x0 in range(3*x1, min(3*x1 + 3, 8)):\n            p1[x0] = f32(1.0)\n"
    ),
    "an integer lies within a bound": "    t0: f32 = p0[0]\n    i0: f32 = within(t0, 4)\n",
    "a position is an i64, or an i32": "    for x0 in range(2):\n        t0: i16 = index(x0)\n",
    "lanes do not only add": "    a0: Var[f32] = 0.0\n    for x0 in lanes(4, 8):\n        a0 = neg(1.0)\n",
    "looks at what others add": (
        "    a0: Var[f32] = 0.0\n    for x0 in lanes(4, 8):\n        a0 = add(a0, 1.0)\n        p1[x0] = a0\n"
    ),
    "no lanes": "    for x0 in lanes(0, 8):\n        p1[x0] = f32(1.0)\n",
    "unknown mode": "    for x0 in parallel(8):\n        atomic_store(p1[x0], f32(1.0))\n",
    "no variable to flush": "    t0: f32 = p0[0]\n    flush(t0)\n",
    "no variable that a scan may change": (
        "    a0: Var[f32] = 0.0\n    for x0 in parallel(8):\n        t0: f32 = scan(sum, a0, 1.0)\n"
    ),
    "the block is not the scratch": (
        "    for x2 in parallel(1):\n        for x3 in parallel(1):\n            s0: Scratch[f32, 9]\n"
        "            turn(s0[2], p0[2*x0 + x1], x0, 4*x2, 4, x1, 2*x3, 2)\n"
    ),
}


def test_what_is_right_passes() -> None:
    verify(parse(HEAD + RIGHT))


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_broken_is_refused(message: str) -> None:
    with pytest.raises(GrammarError) as raised:
        verify(parse(HEAD + BROKEN[message]))
    assert message in str(raised.value) and str(raised.value).startswith("k: `")


UNREADABLE = {
    "line 2: no statement of the kernel IR": HEAD + "    while True: pass\n",
    "line 2: t1 is not defined": HEAD + "    t0: f32 = neg(t1)\n",
    "line 3: t0 is no axis, no symbol, and not known to lie within a bound": (
        HEAD + "    t0: i64 = p2[0]\n    t1: f32 = p0[t0]\n"
    ),
    "line 2: what is indexed is a parameter or scratch": HEAD + "    t0: f32 = p9[0]\n",
    "line 2: a loop runs over an extent, or a piece of one": HEAD + "    for x0 in range(1, 2, 3):\n        pass\n",
    "line 1: one function is expected": "a = 1\n",
    "line 1: a parameter is In, Out or InOut of memory, or a Size": "def k(p0: int):\n    pass\n",
    "line 1: invalid syntax": "def k(:\n",
}


@pytest.mark.parametrize("message", UNREADABLE)
def test_what_is_no_function_says_where(message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse(UNREADABLE[message])
    assert str(raised.value) == message
