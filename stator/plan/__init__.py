"""The execution plan: what a call of a compiled graph runs, as data. Front door of the package; no torch.

`to_bytes` and `from_bytes` keep a plan, `module_text(plan)` prints it as Python, `runtime/executor.py` runs it.
`build.make(schedule)` makes it and `sources` says which lines of the program kernels compute; they are imported where a
graph is compiled only.
"""

from stator.plan.data import from_bytes, to_bytes
from stator.plan.ir import Plan
from stator.plan.text import module_text
from stator.plan.verify import verify

__all__ = ["Plan", "from_bytes", "module_text", "to_bytes", "verify"]
