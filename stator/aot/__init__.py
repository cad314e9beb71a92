"""Ahead-of-time autograd: one trace, two graphs, one runtime wrapper. Front door of the room."""

from stator.aot.metadata import Metadata
from stator.aot.partition import Partitioned, partition
from stator.aot.reference import by_python, reference
from stator.aot.runtime import bind
from stator.aot.trace import Joint, lifted, trace

__all__ = ["Joint", "Metadata", "Partitioned", "bind", "by_python", "lifted", "partition", "reference", "trace"]
