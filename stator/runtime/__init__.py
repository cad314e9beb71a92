"""What runs: kernels built and cached, graphs linked from plain data, and the memory of their intermediates.

`artifact.GraphArtifact` is the data, `toolchain` makes libraries of its C++ units, `link.link` gives the callable
by `executor`, which has the C core run the plan, or as the plan's Python text, which calls `arena` and `extern`. Torch
is only touched when something is linked or run.
"""

from stator.runtime.artifact import GraphArtifact, Unit
from stator.runtime.link import Building, build, link
from stator.runtime.toolchain import Cpp

__all__ = ["Building", "Cpp", "GraphArtifact", "Unit", "build", "link"]
