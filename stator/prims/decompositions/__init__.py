"""Decompositions, one file a family; importing this package fills `stator.prims.table`."""

from __future__ import annotations

from stator.prims.decompositions import (  # noqa: F401  (they fill the table)
    activation,
    complex,
    copies,
    creation,
    distance,
    folding,
    indexing,
    linear,
    loss,
    margin,
    maxima,
    normalization,
    padding,
    pointwise,
    pooling,
    reduction,
    resampling,
    shape,
    softmax,
    special_functions,
    unpooling,
)
