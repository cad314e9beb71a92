"""Max unpooling: each value is written to the position that max pooling recorded for it; all others are zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from stator.prims import names as p
from stator.prims.decompositions.layout import laid_out, reshaped
from stator.prims.table import decompose


@decompose("max_unpool2d", "max_unpool3d")
def max_unpool(
    x: Tensor, places: Tensor, size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = ()
) -> Tensor:
    """The last of several values for one place wins, as in eager, which has no channels-last form on CUDA."""
    rank = len(size)
    lead, window = list(x.shape[:-rank]), math.prod(x.shape[-rank:])

    def flat(t: Tensor) -> Tensor:
        return reshaped(t, [*lead, window])

    empty = p.full([*lead, math.prod(size)], 0, dtype=x.dtype, device=x.device)
    value = p.view(p.scatter(empty, -1, flat(places), flat(x)), [*lead, *size])
    return laid_out(value, x) if rank == 2 and x.device.type == "cpu" else value
