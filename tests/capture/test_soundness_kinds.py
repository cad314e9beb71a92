"""Each kind of guard has a change between two calls that only it notices: without it the old result would be given.

A row is a kind of `csrc/guard_kinds.h`, the fact that capture reads, and a change of that fact alone. What the version
holds is taken apart: all its guards refuse the changed call, all but those of the kind accept it.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import Any, NamedTuple

import pytest

import stator
from stator.capture.entry import versions_of
from stator.capture.guard_kinds import KINDS
from stator.capture.guards import Guard, Roots, compile_tree
from tests.capture.changing import IMPORTS, Calls, observers, x

pytestmark = pytest.mark.filterwarnings("ignore::Warning")


class Mutation(NamedTuple):
    """A program, what it is called on, and what happens between the calls; `after` are the later arguments."""

    program: str
    change: str = ""
    setup: str = ""
    args: str = "x()"
    after: str = ""
    undo: str = ""


WRITES = "def f(y, z):\n y.zero_()\n return z * 2"

MUTATIONS: dict[str, Mutation] = {
    "TYPE": Mutation("lambda y, a: y * a.n", setup="class A: n = 2\nclass B: n = 3", args="x(), A()", after="x(), B()"),
    "ID": Mutation("lambda y: y * m.g(4.0)", "m.g = math.exp", "m = types.ModuleType('m'); m.g = math.sqrt"),
    "EQUALS": Mutation("lambda y, n: y * n", args="x(), 2.0", after="x(), 3.0"),
    "CODE": Mutation("lambda y: g(y)", "g.__code__ = (lambda y: y * 3).__code__", "def g(y): return y * 2"),
    "LENGTH": Mutation("lambda y, a: y * len(a)", args="x(), [1]", after="x(), [1, 2]"),
    "MRO": Mutation(
        "lambda y: y * (2 if isinstance(A(), C) else 3)",
        "A.__bases__ = (B, C)",
        "class B: pass\nclass C: pass\nclass A(B): pass",
    ),
    "PRESENT": Mutation("lambda y: y * (2 if 'k' in d else 3)", "del d['k']", "d = {'k': 1, 'j': 2}"),
    "ABSENT": Mutation("lambda y: y * (2 if 'k' in d else 3)", "d['k'] = 1", "d = {'j': 2}"),
    "LACKS": Mutation("lambda y: y * (2 if hasattr(a, 'n') else 3)", "A.n = 1", "class A: __slots__ = ()\na = A()"),
    "EMPTY": Mutation("lambda y: m(y)", "m.register_forward_hook(lambda *_: x() * 0)", "m = nn.Linear(3, 3)"),
    "STATE": Mutation(
        "lambda y: y.exp()",
        "torch.set_grad_enabled(False)",
        undo="torch.set_grad_enabled(True)",
        args="x().requires_grad_()",
    ),
    "TENSOR": Mutation("lambda y: y * y.size(0)", after="x()[:1]"),
    "KEYS": Mutation("lambda y: y * len([*d][0])", "d.pop('a'); d['a'] = 1", "d = {'a': 1, 'bc': 1}"),
    "MEMBERS": Mutation("lambda y, s: y * sum(s)", args="x(), {1, 2}", after="x(), {1, 3}"),
    "CALL": Mutation(
        "lambda y: y * (2 if os.environ.get('STATOR_ROW') else 3)",
        "os.environ['STATOR_ROW'] = '1'",
        undo="os.environ.pop('STATOR_ROW', None)",
    ),
    "SAME": Mutation(
        "lambda y, a, b: y * (2 if a is b else 3)",
        setup="a, b = object(), object()",
        args="x(), a, a",
        after="x(), a, b",
    ),
    "NOT_SAME": Mutation(
        "lambda y, a, b: y * (2 if a is b else 3)",
        setup="a, b = object(), object()",
        args="x(), a, b",
        after="x(), a, a",
    ),
    "ALIASED": Mutation(WRITES, setup="t = x()", args="t, t.view(2, 3)", after="x(), x().view(2, 3)"),
    "NOT_ALIASED": Mutation(WRITES, setup="t = x()", args="x(), x().view(2, 3)", after="t, t.view(2, 3)"),
    "CONDITION": Mutation(
        "lambda y: y * 2 if y.size(0) > 4 else y * 3",
        setup="t = torch.ones(3, 3); stator.mark_dynamic(t, 0)",
        args="t",
        after="torch.ones(5, 3)",
    ),
    "TOGETHER": Mutation(
        "lambda y: y * 2 if y.size(0) / y.size(1) > 1.5 else y * 3",
        setup="t = torch.ones(6, 3); stator.mark_dynamic(t, (0, 1))",
        args="t",
        after="torch.ones(3, 6)",
    ),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"changes-{kind}")
def test_only_this_kind_notices(kind: str) -> None:
    calls, mutation = Calls(), MUTATIONS[kind]
    made = types.ModuleType("mutated")
    space: dict[str, Any] = vars(made)
    space.update(x=x, stator=stator)
    sys.modules[made.__name__] = made
    exec(IMPORTS + mutation.setup, space)
    if mutation.program.startswith("lambda"):
        space["f"] = eval(mutation.program, space)
    else:
        exec(mutation.program, space)
    fn = space["f"]
    try:
        calls(fn, *eval(f"({mutation.args},)", space))
        ((tree, _),) = versions_of(calls.of(fn))
        exec(mutation.change, space)
        slots = calls.of(fn).bind(*eval(f"({mutation.after or mutation.args},)", space))
        guards = [held for held in gc.get_referents(tree) if isinstance(held, Guard)]
        assert not tree.check(*slots)
        others = compile_tree([guard for guard in guards if guard.kind != kind], Roots.of(fn))
        assert others.check(*slots), others.explain(*slots)
        calls(fn, *eval(f"({mutation.after or mutation.args},)", space))
        for observe in observers:
            observe(calls)
        assert calls.captured == [True, True]
    finally:
        exec(mutation.undo, space)
