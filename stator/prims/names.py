"""The primitives under short names, bound once, for the bodies of decompositions.

Binding the overloads here keeps attribute look-ups on `torch.ops` out of tracing, and makes it
visible that a decomposition only uses the closed set. Comparisons, `minimum`, `maximum` and `where`
take a number too: the dispatcher wants another overload then. Neighbours: `set.py`, `decompositions/`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_aten = torch.ops.aten

absolute = _aten.abs.default
neg = _aten.neg.default
exp = _aten.exp.default
expm1 = _aten.expm1.default
log = _aten.log.default
log2 = _aten.log2.default
log1p = _aten.log1p.default
sqrt = _aten.sqrt.default
rsqrt = _aten.rsqrt.default
reciprocal = _aten.reciprocal.default
sin = _aten.sin.default
cos = _aten.cos.default
tanh = _aten.tanh.default
erf = _aten.erf.default
sigmoid = _aten.sigmoid.default
sign = _aten.sign.default
floor = _aten.floor.default
trunc = _aten.trunc.default
round_ = _aten.round.default
isnan = _aten.isnan.default
isinf = _aten.isinf.default
logical_not = _aten.logical_not.default
bitwise_not = _aten.bitwise_not.default
add = _aten.add.Tensor
sub = _aten.sub.Tensor
mul = _aten.mul.Tensor
div = _aten.div.Tensor
div_mode = _aten.div.Tensor_mode
power = _aten.pow.Tensor_Tensor
power_scalar = _aten.pow.Tensor_Scalar
remainder = _aten.remainder.Tensor
fmod = _aten.fmod.Tensor
clamp = _aten.clamp.default
atan2 = _aten.atan2.default
logical_and = _aten.logical_and.default
logical_or = _aten.logical_or.default
bitwise_and = _aten.bitwise_and.Tensor
bitwise_or = _aten.bitwise_or.Tensor
bitwise_xor = _aten.bitwise_xor.Tensor
shift_left = _aten.bitwise_left_shift.Tensor
shift_right = _aten.bitwise_right_shift.Tensor
clone = _aten.clone.default
to_copy = _aten._to_copy.default
sum_ = _aten.sum.dim_IntList
mean = _aten.mean.dim
prod = _aten.prod.dim_int
amax = _aten.amax.default
amin = _aten.amin.default
any_ = _aten.any.dims
argmax = _aten.argmax.default
argmin = _aten.argmin.default
view = _aten.view.default
view_dtype = _aten.view.dtype
permute = _aten.permute.default
expand = _aten.expand.default
slice_ = _aten.slice.Tensor
select = _aten.select.int
unsqueeze = _aten.unsqueeze.default
squeeze = _aten.squeeze.dims
as_strided = _aten.as_strided.default
diagonal = _aten.diagonal.default
unfold = _aten.unfold.default
alias = _aten.alias.default  # another tensor over the same memory: the tracer makes it without a node
view_as_real = _aten.view_as_real.default
view_as_complex = _aten.view_as_complex.default
cat = _aten.cat.default
constant_pad = _aten.constant_pad_nd.default
flip = _aten.flip.default
index = _aten.index.Tensor
index_select = _aten.index_select.default
gather = _aten.gather.default
slice_scatter = _aten.slice_scatter.default
select_scatter = _aten.select_scatter.default
index_put = _aten.index_put.default
scatter = _aten.scatter.src
scatter_add = _aten.scatter_add.default
scatter_reduce = _aten.scatter_reduce.two
index_add = _aten.index_add.default
index_reduce = _aten.index_reduce.default
cumsum = _aten.cumsum.default
sort = _aten.sort.stable
searchsorted = _aten.searchsorted.Tensor
vector_norm = _aten.linalg_vector_norm.default
full = _aten.full.default
full_like = _aten.full_like.default
arange = _aten.arange.start_step
mm = _aten.mm.default
bmm = _aten.bmm.default


def _comparison(tensors: Callable[..., Tensor], number: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compare(a: Tensor, b: Tensor | float) -> Tensor:
        return tensors(a, b) if isinstance(b, Tensor) else number(a, b)

    return compare


eq = _comparison(_aten.eq.Tensor, _aten.eq.Scalar)
ne = _comparison(_aten.ne.Tensor, _aten.ne.Scalar)
lt = _comparison(_aten.lt.Tensor, _aten.lt.Scalar)
le = _comparison(_aten.le.Tensor, _aten.le.Scalar)
gt = _comparison(_aten.gt.Tensor, _aten.gt.Scalar)
ge = _comparison(_aten.ge.Tensor, _aten.ge.Scalar)

_maximum, _minimum = _aten.maximum.default, _aten.minimum.default
_where, _where_left, _where_right = _aten.where.self, _aten.where.ScalarSelf, _aten.where.ScalarOther


def maximum(a: Tensor, b: Tensor | float) -> Tensor:
    return _maximum(a, b) if isinstance(b, Tensor) else clamp(a, b)


def minimum(a: Tensor, b: Tensor | float) -> Tensor:
    return _minimum(a, b) if isinstance(b, Tensor) else clamp(a, None, b)


def where(mask: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """One of `a` and `b` is a tensor."""
    if not isinstance(a, Tensor):
        return _where_left(mask, a, b)
    return _where(mask, a, b) if isinstance(b, Tensor) else _where_right(mask, a, b)
