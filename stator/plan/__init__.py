"""The execution plan: what a call of a compiled graph runs, as data. Front door of the package; no torch.

`make(schedule)` gives a plan, `module_text(plan)` its Python text, `to_bytes` and `from_bytes` keep it; `sources` says
which lines of the program kernels compute.
"""

from stator.plan.build import make
from stator.plan.data import from_bytes, to_bytes
from stator.plan.ir import Plan
from stator.plan.text import module_text
from stator.plan.verify import verify

__all__ = ["Plan", "from_bytes", "make", "module_text", "to_bytes", "verify"]
