"""What is interned lives as long as somebody compiles, and no longer."""

from __future__ import annotations

import subprocess
import sys
import threading

from stator.loop import tables
from stator.loop.index import ZERO, Axis, Index

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
