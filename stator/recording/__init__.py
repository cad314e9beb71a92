"""Calls of compiled graphs recorded by the device, and replayed by one launch: see docs/cudagraphs.md.

A recording is a call in which a device has kept what was queued, with all addresses. `policy.py` decides at calls that
no recording fits whether and how to record; `capture.py` makes one recording; `lanes.py` has what the recordings of a
stream share; `parts.py` runs plans in which some steps cannot be recorded; `zeros.py` has zeros for them to read,
`overlays.py` has gradients take the memory of activations. Calls that fit run in C (`csrc/recorded.c`).

Invariant: memory that a recording writes is its own, memory that nobody has between calls, or a place that is idle;
so a replay changes nothing that anybody can see but results and what the graph writes for its caller.
"""

from stator.recording.front import lender_of, record_call, record_plan
from stator.recording.overlays import Overlays

__all__ = ["Overlays", "lender_of", "record_call", "record_plan"]
