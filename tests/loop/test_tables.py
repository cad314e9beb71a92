"""What is interned lives as long as somebody compiles, and no longer."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

from stator.loop import tables
from stator.loop.deps import analyse, facts_of
from stator.loop.expr import op
from stator.loop.index import ZERO, Axis, Index
from stator.loop.nest import Nest
from tests.loop.build import Build, get

MANY = """
import torch
import stator
from stator import lowering
from stator.aot.trace import trace
from stator.loop import tables
from stator.loop.index import ZERO, Index
from stator.loop.schedule import schedule
from stator.prims import DECOMPOSITIONS
from stator.targets import typical

empty, most, CPU = tables.size(), 0, typical("cpu")
for n in range(2, 52):
    gm = torch.fx.symbolic_trace(lambda x: torch.softmax(x * 2 + n, -1).sum(0))
    with tables.session():
        joint = trace(gm, [torch.randn(n, 3 * n)], decompositions=DECOMPOSITIONS, need_backward=False)
        made = schedule(lowering.lower(torch.fx.GraphModule({}, joint.graph), "g", CPU), CPU)
        most = max(most, tables.size())
    assert len(made.kernels) == 2 and tables.size() == empty, (len(made.kernels), tables.size())
assert empty + 10 < most < 2000, most
stator.compile(lambda x: x.sin().sum(), fullgraph=True, options={"strict": True})(torch.randn(5))
assert tables.size() == empty and Index.of(0) is ZERO
print("bounded")
"""


def test_compiling_many_graphs_does_not_grow_the_tables() -> None:
    done = subprocess.run([sys.executable, "-c", MANY], check=False, capture_output=True, text=True)
    assert done.stdout == "bounded\n", done.stderr


def test_the_last_session_empties_the_tables() -> None:
    """The tests run in a session of their own, so nothing may go while they do."""
    before = Axis("of this test", 7)
    inside, leave = threading.Event(), threading.Event()

    def compiling() -> None:
        with tables.session():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=compiling)
    thread.start()
    inside.wait(10)
    with tables.session():
        assert Axis("of this test", 7) is before
    leave.set()
    thread.join()
    assert Axis("of this test", 7) is before and Index.of(0) is ZERO


def test_a_nest_is_looked_at_once_whatever_programs_have_it() -> None:
    build = Build()
    x = build.input(4, 6)
    y = build.pointwise((4, 6), lambda i, j: op("exp", get(x, i, j)))
    one = build.program(y)
    build.pointwise((4, 6), lambda i, j: op("neg", get(y, i, j)))  # which nobody needs
    other = build.program(y, build.pointwise((4, 6), lambda i, j: op("add", get(x, i, j), get(y, i, j))))
    first, second, nest = analyse(one), analyse(other), build.nodes[0]
    assert isinstance(nest, Nest) and first.nests[0] is second.nests[0] is facts_of(nest) and second.live == [0, 2]
    assert first.readers == {x.name: [0]} and second.readers == {x.name: [0, 2], y.name: [2]}
    again = analyse(replace(other, nodes=(replace(nest), *other.nodes[1:])))
    assert again.nests[0] is not second.nests[0] and again.nests[2] is second.nests[2]
