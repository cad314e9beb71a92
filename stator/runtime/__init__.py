"""What runs: kernels built and cached, graphs linked from plain data, and the memory of their intermediates.

`artifact.GraphArtifact` is the data, `toolchain` makes libraries of its C++ units, `link.link` gives the callable;
`arena` and `extern` are what the linked wrapper text calls. Torch is only touched when something is linked or run.
"""

from stator.runtime.artifact import GraphArtifact, Unit
from stator.runtime.link import Building, build, link
from stator.runtime.toolchain import Cpp

__all__ = ["Building", "Cpp", "GraphArtifact", "Unit", "build", "link"]
