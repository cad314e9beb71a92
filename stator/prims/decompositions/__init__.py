"""Decompositions, one file a family; importing this package fills `stator.prims.table`."""

from __future__ import annotations

from stator.prims.decompositions import (
    activation,
    copies,
    creation,
    folding,
    indexing,
    linear,
    loss,
    margin,
    normalization,
    padding,
    pointwise,
    pooling,
    reduction,
    resampling,
    shape,
    softmax,
    special,
    unpooling,
)

FAMILIES = (
    activation,
    copies,
    creation,
    folding,
    indexing,
    linear,
    loss,
    margin,
    normalization,
    padding,
    pointwise,
    pooling,
    reduction,
    resampling,
    shape,
    softmax,
    special,
    unpooling,
)
