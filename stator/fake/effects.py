"""Which effects an operator has: what everybody goes by who drops calls, merges, repeats or moves them.

Of PyTorch's own operators the schema and the tags tell. One of the program says it by a schema without results, by one
that writes to arguments, by the tag of random numbers, or in `torch.library`'s register of effects; one that says
nothing only computes. Neighbours: `base/effects.py` (the set), `execute.py` (runs nothing with an effect while
compiling), `graphs/calls.py` (the effects of one call).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._library.simple_registry import singleton as register

from stator.base.effects import WRITTEN, Effect

#: Namespaces of operators that do nothing but what their schemas and tags say; those of others are code of the program.
OURS = frozenset({"aten", "prims", "stator", "mkl", "mkldnn", "onednn", "quantized", "_quantized"})
_COLLECTIVES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d"})


def operator_effects(func: Any) -> tuple[Effect, ...]:
    """The effects of an overload, in the order of the set. What is registered may change, so it is asked each time."""
    known = _by_schema(func)
    if func.namespace in OURS or Effect.CUSTOM in known:
        return known
    return (*known, Effect.CUSTOM) if register.find(func._name).effect.effect is not None else known


@cache
def _by_schema(func: Any) -> tuple[Effect, ...]:
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
    only_acts = not func._schema.returns and not writes
    has = {
        Effect.RANDOM: torch.Tag.nondeterministic_seeded in func.tags,
        Effect.WRITE: writes or func.namespace == WRITTEN,
        Effect.CHECK: only_acts and func.namespace in OURS,
        Effect.COLLECTIVE: func.namespace in _COLLECTIVES,
        Effect.CUSTOM: only_acts and func.namespace not in OURS | _COLLECTIVES,
    }
    return tuple([effect for effect in Effect if has[effect]])
