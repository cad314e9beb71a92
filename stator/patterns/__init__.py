"""Rewriting captured graphs: a search and a replacement, both written as Python functions (docs/patterns.md).

`register` is public. The driver calls `rewrite.rewrite` on every captured graph.
"""

from stator.patterns.registry import register, unregister

__all__ = ["register", "unregister"]
