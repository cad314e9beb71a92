"""Ahead-of-time autograd: one trace, two graphs, one runtime wrapper. Front door of the room."""

from stator.aot.trace import Joint, trace

__all__ = ["Joint", "trace"]
