"""Programs that once gave a wrong result, shortened: each is compared with eager in everything a caller can see."""

from __future__ import annotations

import pytest
import torch

import stator
from tests.differential.__main__ import BACKENDS, judge
from tests.differential.inputs import Input
from tests.differential.programs import Program

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
LEAF = {"grad": "leaf"}

RIGHT = {
    "no products of another dtype": Program(
        (Input((3, 4), F16, seed=1), Input((0, 3, 5), F64, seed=2), Input((0, 5, 4), F64, seed=3)),
        ("v0 = torch.addbmm(x0, x1, x2, alpha=0.5)",),
        ("v0",),
    ),
    "products that overflow beside infinities in distances": Program(
        (Input((3, 33, 5), F64, values="edges", seed=90),), ("v0 = torch.cdist(x0, x0 * 2 + 1)",), ("v0",)
    ),
    "infinities beside a sum of the diagonal that overflows": Program(
        (Input((16, 16), BF16, values="edges", seed=61),), ("v0 = torch.isinf(torch.trace(x0))",), ("v0",)
    ),
    "rows in the reverse order, whose kernel g++ 12 left out": Program(
        (Input((16, 16), torch.int8, values="positive", seed=64),),
        ("v0 = (x0 > 0).long()", "v1 = torch.flip(v0, (-2,))", "v2 = torch.addcmul(v1, v0, v1, value=1.7)"),
        ("v2",),
    ),
    "a view of an input, changed in place and written to": Program(
        (Input((4, 5, 5), layout="offset", values="special", grad="inner", seed=52),),
        ("v0 = x0.squeeze()", "v0.unsqueeze_(0)", "v0.abs_()", "v1 = x0 * 1"),
        ("v1",),
    ),
    "a view that no_grad made of a leaf": Program(
        (Input((7, 4, 7), F16, values="special", seed=9, **LEAF),),
        (
            "with torch.no_grad(): v0 = x0.view_as(x0)",
            "v1 = v0.half()",
            "v2, v3 = torch.std_mean(v0, -1, keepdim=True)",
        ),
        ("v1", "v3"),
    ),
    "gradients of running products whose sums overflow": Program(
        (Input((32, 32, 14), values="edges", seed=32, **LEAF),),
        ("v0 = torch.cumprod(x0, 2).to(torch.float16)",),
        ("x0", "v0"),
    ),
    "zeros that are a gradient meet NaN": Program(
        (Input((4, 8, 8, 4), values="special", seed=7, grad="inner"),),
        (
            "v0 = x0.movedim(0, -1)",
            "v0.triu_()",
            "v2 = F.group_norm(v0, 1)",
            "v4 = torch.ceil(torch.trunc(torch.logsumexp(v2, 0, keepdim=True)))",
        ),
        ("v4",),
    ),
    "sums of products of three that overflow": Program(
        (Input((16, 7, 7), F64, values="edges", seed=37), Input((5, 7), F64, values="positive", seed=62)),
        ("v0 = F.bilinear(x1, x1, x0)",),
        ("v0",),
    ),
    "a mean of remainders by infinities and denormals": Program(
        (
            Input((24, 24), values="special", seed=42),
            Input((24,), torch.int64, values="positive", seed=37),
        ),
        ("v0, v1 = torch.std_mean(torch.remainder(x1, x0), 1, keepdim=True)",),
        ("v0", "v1"),
    ),
    "zeros of an interpolation that cancels": Program(
        (Input((10, 10, 8, 10), torch.int16, values="normal", seed=63),),
        (
            "v0 = F.interpolate(torch.asin(x0), size=(3, 5), mode='bilinear')",
            "v1 = F.interpolate(v0, scale_factor=1.5, mode='bilinear', align_corners=True)",
            "v2 = torch.count_nonzero(v1, -3)",
        ),
        ("v2",),
    ),
    "two norms that are equal or nearly": Program(
        (Input((16, 16, 16), values="normal", seed=33),),
        ("v0 = torch.eq(F.layer_norm(x0, x0.shape[-1:]), F.instance_norm(x0))",),
        ("v0",),
    ),
    "the inverse of a gelu far below zero": Program(
        (Input((6, 8, 8), F64, values="edges", seed=94, **LEAF),),
        ("v0 = torch.reciprocal(F.gelu(x0, approximate='tanh'))",),
        ("v0",),
    ),
    "an input that is returned and meets its conjugate": Program(
        (Input((17, 33, 7), torch.complex128, values="edges", seed=17, **LEAF),),
        ("v0 = x0.conj() * x0", "v1 = torch.sub(v0, v0)", "v2 = torch.sub(v0, v1)"),
        ("x0", "v1", "v2"),
    ),
    "complex sums multiply by their factor, be it 1": Program(
        (Input((17, 5), torch.complex64, values="edges", seed=55), Input((8,), torch.complex64, values="special")),
        ("v0 = torch.sub(torch.scalar_tensor(1), x0)", "v1 = torch.isclose(x1 + x1, x1)", "v2 = x0 * 1"),
        ("v0", "v1", "v2"),
    ),
    "complex quotients are added without a factor": Program(
        (
            Input((7, 7, 1), torch.complex64, values="positive", seed=23),
            Input((1, 7, 1, 1), torch.int8, values="positive", seed=81),
            Input((14,), torch.complex128, values="edges", seed=17),
        ),
        ("v0 = torch.addcdiv(x2, x1, x0)", "v1 = torch.addcmul(x2, x2, x0)", "v2 = torch.addcdiv(x1, x2, x0)"),
        ("v0", "v1", "v2"),
    ),
    "complex numbers at the ends of a dtype": Program(
        (Input((6,), torch.complex128, values="edges", seed=37), Input((), torch.complex128, values="edges", seed=73)),
        ("v0 = torch.sgn(x0)", "v1 = x1**3"),
        ("v0", "v1"),
    ),
    "signs of NaN that are computed": Program(
        (Input((33, 33), BF16, values="special", seed=57), Input((17, 17), values="positive", seed=9)),
        (
            "v0 = torch.signbit(torch.mean(x0, -1, dtype=torch.bfloat16))",
            "v1 = torch.signbit(torch.cummax(torch.remainder(x1, 0.0), 1)[0].sum().amin())",
            "v2 = torch.copysign(x1, x1 * 0 / (x1 * 0))",
        ),
        ("v0", "v1", "v2"),
    ),
    "sums in a dtype of less range": Program(
        (Input((16, 16), BF16, values="edges", seed=8),),
        ("v0 = torch.sum(x0, 1, dtype=torch.float16)", "v1 = torch.prod(x0, 1, dtype=torch.float16)"),
        ("v0", "v1"),
    ),
    "products that overflow before they are added": Program(
        (Input((8, 8, 8, 8), values="edges", seed=74), Input((1, 8), F16, values="edges", seed=8)),
        ("v0 = torch.addcmul(x0, x1, x0, value=0.5)",),
        ("v0",),
    ),
    "a gradient of no pixels that are shuffled": Program(
        (Input((1, 0, 1, 1), **LEAF), Input((2, 4, 0, 2))),
        ("v0 = F.pixel_shuffle(torch.index_select(x0, 0, torch.tensor([0])), 2)", "v1 = F.pixel_unshuffle(x1, 2)"),
        ("v0", "v1"),
    ),
    "repeated elements read in other units": Program(
        (Input((8, 8, 4), torch.int64, "expanded"),),
        ("v0 = x0.view(torch.int32).long().clamp(0, 4)", "v1 = (x0 + x0)[:1].expand(8, 8, 4).view(torch.float64)"),
        ("v0", "v1"),
    ),
    "whole numbers read as complex ones": Program(
        (Input((4, 4, 4), torch.int64, "permuted"),), ("v0 = x0.view(torch.complex64)",), ("v0",)
    ),
    "squares that overflow little by little": Program(
        (Input((7, 3, 3), layout="expanded", values="edges", seed=25),),
        ("v0 = F.batch_norm(x0.bfloat16(), None, None, training=True)",),
        ("v0",),
    ),
    "norms along dims that are counted from the end": Program(
        (Input((2, 3, 4)), Input((2, 2), torch.complex64)),
        ("v0 = torch.norm(x0, dim=-2)", "v1 = v0.sum(-1).unsqueeze(v0.dim() - 1)", "v2 = torch.norm(x1, dim=-1)"),
        ("v0", "v1", "v2"),
    ),
    "factors are converted before they are multiplied": Program(
        (Input((5,)), Input((5,), torch.uint8, values="positive"), Input((), F64), Input((5,), torch.bool)),
        ("v0 = torch.addcmul(x0, x1 + 100, x1 + 50)", "v1 = torch.addcmul(x2, x3, x3, value=0.5)"),
        ("v0", "v1"),
    ),
    "powers of a number are contiguous": Program(
        (Input((3, 4), layout="transposed"),), ("v0 = 2 ** x0", "v1 = 1 ** x0"), ("v0", "v1")
    ),
    "logarithms of means that are nothing but rounding": Program(
        (Input((16, 32), seed=5, **LEAF), Input((8, 16), seed=2, **LEAF)),
        tuple(f"v{i} = torch.log10(torch.nanmean(F.layer_norm(x{i}, x{i}.shape[-1:]), -1))" for i in range(2)),
        ("v0", "v1"),
    ),
    "distances of a row from itself, by squares that cancel": Program(
        (Input((33, 7), F64, values="special", seed=25),), ("v0 = torch.cdist(x0, x0, p=2.0)",), ("v0",)
    ),
    "the largest difference passes over NaN": Program(
        (Input((3, 9), values="special", **LEAF), Input((4, 9), values="special", seed=1)),
        ("v0 = torch.cdist(x0, x1, p=float('inf'))",),
        ("v0",),
    ),
    "what is read at positions lies as the positions do": Program(
        (Input((4, 8, 8), torch.int64, "permuted", "positive"), Input((3, 5, 4), layout="transposed")),
        ("v0 = x0[x0 % 4, x0 % 3]", "v1 = x1[:, x0[0] % 5]", "v2 = x1[x0[0] % 3, :, x0[1] % 4]"),
        ("v0", "v1", "v2"),
    ),
    "counts of differences have no slope": Program(
        (Input((3, 4), values="special", **LEAF), Input((2, 4), seed=1)), ("v0 = torch.cdist(x0, x1, p=0.0)",), ("v0",)
    ),
    "a copy for backward of what has gaps": Program(
        (Input((3, 4, 4, 7), layout="stepped", **LEAF), Input((7, 7), torch.int64)),
        ("v0 = torch.take(torch.exp2(x0.mT), x1)",),
        ("v0",),
    ),
    "a copy for backward of what repeats": Program(
        (Input((3, 4, 7), layout="expanded", **LEAF), Input((7,), torch.int64, seed=2)),
        ("v0 = torch.softmax(torch.std_mean(torch.exp2(x0.mT), -1)[0], 0)", "v1 = torch.take(v0.t().exp(), x1)"),
        ("v1",),
    ),
    "a source longer than the one position it is written at": Program(
        (Input((5,)), Input((5,), seed=1), Input((), torch.int64, values="positive")),
        (
            "v0 = torch.scatter_add(x0, 0, x2, x1)",
            "v1 = torch.scatter_reduce(x0[2], 0, x2 * 0, x1, 'amax')",
            "v2 = torch.scatter(x0, 0, x2, x1)",
        ),
        ("v0", "v1", "v2"),
    ),
    "what is filled under a mask is contiguous": Program(
        (Input((3, 4), layout="transposed"),), ("v0 = torch.masked_fill(x0, x0 > 0, 1)",), ("v0",)
    ),
    "a scan over rows that end within a vector": Program(
        (Input((3, 2, 3, 2), F64, seed=62),),
        ("v0 = torch.gather(x0, -1, x0.long() % 1)", "v1 = v0.masked_scatter(v0.sum().bool(), x0)"),
        ("v1",),
    ),
    "a copy is no other name of an input": Program((Input((4, 5)),), ("v0 = x0.repeat(1, 1)",), ("v0",)),
    "results of operators with other strides than said": Program(
        (Input((5, 3), **LEAF),), ("v0 = torch.linalg.svdvals(x0)",), ("v0",)
    ),
    "zeros without memory": Program(
        (Input((7,), F64, values="positive", **LEAF),),
        ("v1 = torch.norm(x0)", "v3 = torch.xlogy(v1, v1)", "v4 = torch.sgn(v3)"),
        ("v4",),
    ),
    "a reduction that all lanes share": Program(
        (Input((1, 2, 3), **LEAF), Input((2, 1, 3), seed=1, **LEAF)),
        ("v0 = F.cosine_similarity(x0, x1, -1)",),
        ("v0",),
    ),
    "an index loaded under a mask of lanes": Program(
        (Input((4, 17), torch.uint8),),
        ("v3 = torch.take(x0, torch.tensor([-2, 3, -4, 1]))", "v8 = torch.vander(torch.rsqrt(v3 + 1))"),
        ("v8",),
    ),
    "in-place power": Program((Input((4, 5), values="positive"),), ("v0 = x0 + 1", "v0.pow_(2.5)"), ("v0",)),
    "squares of bool are integers": Program((Input((5,), torch.bool),), ("v0 = torch.square(x0)",), ("v0",)),
    "distances promote": Program((Input((5,), F16), Input((5,), seed=1)), ("v0 = torch.dist(x0, x1)",), ("v0",)),
    "hypot of infinity and NaN": Program(
        (Input((33,), values="special"), Input((33,), values="special", seed=1)), ("v0 = torch.hypot(x0, x1)",), ("v0",)
    ),
    "integers stay integers": Program(
        (Input((9,), torch.int64), Input((9,), torch.int64, seed=2)),
        (
            "v0 = torch.heaviside(x0, x1)",
            "v1 = F.hardtanh(x0)",
            "v2 = torch.arange(0.1, -7.9, -4.0, dtype=torch.int64)",
        ),
        ("v0", "v1", "v2"),
    ),
    "geometry changed in place after a use": Program(
        (Input((4, 3)),), ("v0 = x0 * 2", "v1 = v0.view(12)", "v0.t_()", "v1.add_(1)", "v2 = v0 * 1"), ("v2",)
    ),
    "writing through strides into what lies in the arena": Program(
        (Input((7, 3, 3), torch.uint8), Input((3, 7), BF16, seed=49)),
        (
            "v0 = torch.triu(x1)",
            "v1 = v0[0, :-1]",
            "v0.fill_diagonal_(2)",
            "x0.put_(torch.tensor([1, 1]), x0.flatten()[torch.tensor([4, 6])])",
            "v6 = torch.stack([v1, v1], -1)",
            "v8 = torch.cat([v6, v6], 0)",
        ),
        ("v8",),
    ),
    "strides of an input that begins later in its memory": Program(
        (Input((17,), layout="offset"),),
        ("v0 = x0.as_strided((2, 3), (1, 4), 5)", "x0.add_(1)", "v1 = v0 * 1"),
        ("v1",),
    ),
    "complex gradients": Program((Input((4, 4), **LEAF),), ("v0 = torch.fft.hfft(x0)",), ("v0",)),
    "geometry of an input": Program((Input((3, 4)),), ("v0 = x0 * 2", "x0.unsqueeze_(0)"), ("v0",)),
    "a result with holes": Program(
        (Input((17,), torch.int32),),
        (
            "v2 = torch.dstack([x0, x0]).flatten(0, 1)",
            "v5_0, v5_1, = torch.chunk(v2, 2, -1)",
            "v11 = torch.select_scatter(v5_0, v5_0[0], 0, -1)",
        ),
        ("v11",),
    ),
    "two half types promote": Program(
        (Input((9,), F16), Input((9,), BF16)), ("v0 = torch.logaddexp(x0, x1)",), ("v0",)
    ),
    "asinh of what has no square": Program(
        (Input((33,), values="special"),), ("v0 = torch.asinh(x0)", "v1 = torch.asinh(x0 * 1e30)"), ("v0", "v1")
    ),
    "an empty gather of another rank": Program(
        (Input((5,)),), ("v0 = torch.gather(x0, 0, torch.zeros(2, 0, dtype=torch.int64))",), ("v0",)
    ),
    "a sum of truth values": Program(
        (Input((3, 4), values="special"),), ("v0 = torch.sum(x0, 1, dtype=torch.bool)",), ("v0",)
    ),
    "matrices of a decomposition": Program(
        (Input((2, 3, 5)),),
        ("v0, v1, v2 = torch.linalg.svd(x0)", "v3, v4, v5 = torch.linalg.svd(x0, False)"),
        ("v0", "v1", "v2", "v3", "v4", "v5"),
    ),
    "a diagonal replaced in what is not contiguous": Program(
        (Input((3, 4)), Input((3,), seed=1)), ("v0 = torch.diagonal_scatter(x0.t(), x1)",), ("v0",)
    ),
    "unpooled images with channels last": Program(
        (Input((2, 3, 6, 6)),),
        (
            "v0 = x0.contiguous(memory_format=torch.channels_last)",
            "v1, v2 = F.max_pool2d(v0, 2, return_indices=True)",
            "v3 = F.max_unpool2d(v1, v2, 2)",
        ),
        ("v3",),
    ),
    "a power of two, scaled, keeps its dtype under distances": Program(
        (Input((32, 1), BF16), Input((32, 1), torch.int64, values="positive")),
        ("v0 = x0 @ x0.mT", "v1 = torch.ldexp(v0, x1)", "v2 = torch.cdist(v0, v1)"),
        ("v1", "v2"),
    ),
    **{
        f"differences of what is permuted beside a quotient of sums in {dtype}": Program(
            (Input((4, 5, 6), dtype, values="special", **LEAF), Input((4, 5, 6), dtype, seed=1, **LEAF)),
            (
                "v0 = torch.diff(x0.permute(2, 0, 1), n=2, dim=1)",
                "v1 = x0.sum(0) / x1.sum(0)",
                "v2 = torch.diff(v1.t(), dim=0)",
            ),
            ("v0", "v1", "v2"),
        )
        for dtype in (F32, BF16)
    },
    "numbers scattered into digamma": Program(
        (
            Input((6, 5), BF16, values="positive", **LEAF),
            Input((6, 5), BF16, seed=1, **LEAF),
            Input((6, 5), torch.bool),
        ),
        (
            "v0 = torch.digamma(x0)",
            "v1 = torch.arange(6).flip(0)[:, None].expand(6, 5)",
            "v2 = v0.scatter(0, v1, x1)",
            "v3 = torch.digamma(x0).scatter_add(0, x2.long() * 3, x1)",
        ),
        ("v2", "v3"),
    ),
    "chains of floored quotients at edges": Program(
        (Input((9, 7), values="special"), Input((9, 7), values="special", seed=1)),
        ("v0 = torch.floor_divide(x0, x1)", "v1 = torch.floor_divide(v0, x1 - 1) // (x0 + 1)"),
        ("v0", "v1"),
    ),
    "an addcmul of int32 that wraps around": Program(
        (Input((40,), torch.int32, values="edges"), Input((40,), torch.int32, values="edges", seed=1)),
        ("v0 = torch.addcmul(x0, x0, x1, value=3)",),
        ("v0",),
    ),
    "the first of equal extremes is found in whatever order memory is read": Program(
        (Input((34, 51), torch.uint8, values="positive", seed=2), Input((8, 9), torch.int64)),
        ("v0 = x0.mT.argmax()", "v1 = x0.double().mT.argmin()", "v2 = x1.expand(2, 8, 9).permute(2, 0, 1).argmin()"),
        ("v0", "v1", "v2"),
    ),
    "running products overflow where eager's do": Program(
        (Input((7, 17), F64, values="edges", seed=84), Input((33, 16), values="edges", seed=3)),
        ("v0 = torch.cumprod(x0, 1)", "v1 = torch.cumprod(x1, 1)", "v2 = torch.cumprod(x1.double() ** 8, 1)"),
        ("v0", "v1", "v2"),
    ),
    "running products of half types are kept in float32": Program(
        (Input((6, 14, 4, 4), values="edges", seed=62),),
        ("v0 = torch.cumprod(torch.add(x0, x0), 0, dtype=torch.bfloat16)", "v1 = torch.cumprod(x0.bfloat16(), 1)"),
        ("v0", "v1"),
    ),
    "deviations of numbers that have no square": Program(
        (Input((33, 33), values="edges", seed=87), Input((6, 6), values="edges", seed=59)),
        ("v0, v1 = torch.std_mean(x0, 1)", "v2, v3 = torch.var_mean(x1, -1)", "v4 = torch.std(x1 * 1e-19, 0)"),
        ("v0", "v1", "v2", "v3", "v4"),
    ),
    "a write that autograd is not told of": Program(
        (Input((2, 3, 2), F64, **LEAF),),
        ("v0 = x0 * 2", "v1, v2, v3 = v0.unbind(1)", "v1.data.add_(1)", "v4 = v2 + 1"),
        ("v0", "v4"),
    ),
    "a product with several zeros has no slope": Program(
        (Input((7, 7), values="edges", seed=50, **LEAF),), ("v3 = torch.prod(x0)",), ("v3",)
    ),
    "a product without zeros is divided by its factors": Program(
        (Input((3, 4), F16, values="positive", seed=57, **LEAF),),
        ("v0 = torch.prod(x0 * 40, 0)", "v1 = torch.cumprod(x0 * 40, 0)"),
        ("v0", "v1"),
    ),
    "products of half types that overflow on the way, or not": Program(
        (Input((6, 6, 4), F16, seed=99, **LEAF), Input((66, 66, 1), F16, values="positive", seed=30, **LEAF)),
        ("v0 = torch.prod(x0)", "v1 = torch.prod(torch.scatter_add(x1, 0, torch.zeros_like(x1).long(), x1))"),
        ("v0", "v1"),
    ),
    "running products with zeros, infinities and NaN": Program(
        (Input((33,), values="special", seed=65, **LEAF), Input((7, 17), F64, values="special", seed=84, **LEAF)),
        ("v0 = torch.cumprod(torch.remainder(x0, 3), -1)", "v1 = torch.cumprod(torch.roll(x1, 1, -2), 1)"),
        ("v0", "v1"),
    ),
    "the greatest of all under an infinite tangent": Program(
        (Input((5,), F16, values="positive", **LEAF), Input((5,), F16, seed=1, **LEAF)),
        ("v0 = torch.max(x0) * 60000 * 60000", "v1 = torch.median(x1) * 60000 * 60000"),
        ("v0", "v1"),
    ),
    "gradients at NaN are those of a vector or of a number": Program(
        (Input((33,), values="special", seed=21, **LEAF), Input((), F16, values="special", seed=54, **LEAF)),
        ("v0 = F.hardshrink(x0)", "v1 = F.hardtanh(x0)", "v2 = F.selu(torch.atanh(x1))", "v3 = F.celu(x0[:3])"),
        ("v0", "v1", "v2", "v3"),
    ),
    "a gradient of NaN at NaN": Program(
        (Input((33, 16), layout="stepped", values="edges", seed=49, **LEAF),),
        ("v2 = F.relu6(x0)", "v5 = torch.log(v2)", "v7 = 3 ** v5"),
        ("v7",),
    ),
    "an input that is given a history": Program(
        (Input((2, 1, 33)), Input((1, 1), seed=67, grad="inner")),
        ("x0.mul_(x1)", "v4 = torch.sin(x0.swapaxes(0, 2))"),
        ("v4",),
    ),
    "what eager overwrites unnoticed": Program(
        (Input((5,), **LEAF),), ("v0 = x0 * 1", "v1 = torch.kron(v0, v0)", "v0.abs_()"), ("v1",)
    ),
    "distances from what is not finite": Program(
        (Input((3, 5), values="special", **LEAF), Input((4, 5), values="special", seed=1, **LEAF)),
        tuple(
            f"v{i} = torch.cdist(x0, x1, p={order})" for i, order in enumerate((1, 1.5, 2, 3, 0.5, "float('inf')", 0.0))
        ),
        tuple(f"v{i}" for i in range(7)),
    ),
    "margins of what is not finite": Program(
        (
            Input((6, 5), values="special", **LEAF),
            Input((6, 5), values="special", seed=1, **LEAF),
            Input((5,), values="special", seed=2),
        ),
        (
            "v0 = torch.tensor([0, 1, 2, 3, 4, 0])",
            "v1 = F.multi_margin_loss(x0, v0, p=2, weight=x2, reduction='none')",
            "v2 = F.multi_margin_loss(x1, v0, reduction='none')",
            "v3 = F.multilabel_margin_loss(x1, torch.stack([v0, v0 - 1], 1).repeat(1, 3)[:, :5], reduction='none')",
        ),
        ("v1", "v2", "v3"),
    ),
    "a function of the largest numbers": Program(
        (Input((67,), F64, values="edges", **LEAF),), ("v0 = torch.special.erfcx(x0)",), ("v0",)
    ),
    "gradients that cancel": Program(
        (Input((2, 16, 16), values="positive", seed=20, **LEAF), Input((16, 3), values="positive", seed=60, **LEAF)),
        (
            "v0 = torch.lgamma(x0)",
            "v1 = torch.div(v0, v0)",
            "v2 = F.cosine_embedding_loss(x1, x1, torch.ones(x1.shape[0]))",
        ),
        ("v1", "v2"),
    ),
    "a formula on a truth value that is known": Program(
        (Input((3,)),), ("v0 = torch.tensor(3)", "v1 = torch.special.logit(torch.le(v0, v0)) + x0"), ("v1",)
    ),
    "a loss of nothing": Program(
        (Input((8, 0, 0, 8), F64, grad="inner"),),
        ("v0 = F.mse_loss(x0, x0 * 2)", "v1 = F.smooth_l1_loss(x0, x0 * 2)", "v2 = F.huber_loss(x0, x0 * 2)"),
        ("v0", "v1", "v2"),
    ),
    "what is written lies where it lay": Program(
        (Input((7, 5, 3), torch.int16, "permuted", "positive", seed=10), Input((3, 4, 5), layout="permuted")),
        ("x0.triu_()", "v0 = torch.logical_not(x0)", "x1.tril_()", "v1 = torch.stack([x1, x1])", "v2 = v1 * x1"),
        ("v0", "v2"),
    ),
    "kernels whose results are contiguous": Program(
        (Input((6, 7), layout="transposed", **LEAF), Input((4, 3, 2), layout="permuted")),
        ("v0 = F.logsigmoid(x0)", "v1 = F.interpolate(x1, 5)", "v2 = torch.special.multigammaln(x0.abs() + 3, 2)"),
        ("v0", "v1", "v2"),
    ),
    "positions along dims of one element": Program(
        (Input((2, 8, 7, 2)),),
        (
            "v0 = torch.bucketize(x0.unfold(3, 2, 1).tanh(), torch.tensor([-1.0, 0.0, 1.0]))",
            "v1 = v0.diagonal(1, 0, 1)",
            "v2 = v0[v1.long() % v0.shape[0], v1.long() % v0.shape[1]]",
        ),
        ("v2",),
    ),
    "a diagonal of what repeats": Program(
        (Input((2, 7, 7), torch.int16),),
        ("v0 = x0.amax((-2, 2)).expand((2, 2))", "v1 = torch.diagonal_scatter(v0, torch.zeros_like(v0.diagonal()))"),
        ("v1",),
    ),
    "a gradient that is cast after its formula": Program(
        (Input((8, 17), F16, values="positive", **LEAF),), ("v0 = torch.cumprod(x0, -1, dtype=torch.float32)",), ("v0",)
    ),
    "a view that nothing records of what is not returned": Program(
        (Input((4, 6), **LEAF),),
        ("v0 = x0 * 2", "v1 = v0[0]", "with torch.no_grad(): v2, v3 = v0[1], v1.view(2, 3)"),
        ("v3",),
    ),
    "a geometry that changes beside a write": Program(
        (Input((4, 5)), Input((5,))), ("x0[::2] += 1", "x1.unsqueeze_(0)", "v0 = x1.unflatten(0, (-1, 1))"), ("v0",)
    ),
    "nothing, read in other units": Program(
        (Input((0,), torch.int64),), ("v0 = torch.acos(x0.view(torch.int32))",), ("v0",)
    ),
    "the mean of what the dtype that is asked for does not hold": Program(
        (Input((6, 32, 6), values="edges", seed=38),), ("v0 = torch.mean(x0, -2, dtype=torch.bfloat16)",), ("v0",)
    ),
    "truth of nothing, as a number": Program(
        (Input((8, 0), torch.uint8), Input((3, 0))),
        ("v0 = torch.any(x0)", "v1 = torch.all(x0, 1)", "v2 = torch.any(x1, 1).long() + 1"),
        ("v0", "v1", "v2"),
    ),
    "a constant that repeats": Program(
        (Input((2,)),), ("v0 = torch.tensor([1.0, 2.0])", "v1 = v0.expand(2, 2)", "v2 = v1 + x0"), ("v1", "v2")
    ),
}

REFUSED = {
    "written to, and repeats elements": Program(
        (Input((9, 9), layout="expanded"),), ("x0.index_fill_(0, torch.tensor([7]), 0)", "v4 = torch.max(x0)"), ("v4",)
    ),
    "saved for backward, then written to": Program(
        (Input((), seed=77, **LEAF), Input((2, 2, 4), layout="stepped")),
        ("v0 = torch.maximum(x1, x0)", "x1.clamp_(0, 1)", "v7 = torch.amin(v0, -3)"),
        ("v7",),
    ),
    "a view of what repeats elements": Program(
        (Input((4, 3), layout="expanded", **LEAF),), ("v0 = x0[None]",), ("v0",)
    ),
    "a view beyond a tensor": Program(
        (Input((3, 0), layout="offset"),), ("v0 = x0.as_strided((2,), (1,), 1)",), ("v0",)
    ),
    "a gradient that negates truth values": Program(
        (Input((5,), torch.bool), Input((5,), seed=1, **LEAF)), ("v0 = torch.atan2(x0, x1)",), ("v0",)
    ),
    "a gradient that subtracts truth values": Program(
        (Input((4,), F16, **LEAF), Input((4,), torch.bool)), ("v0 = torch.logaddexp(x0, x1)",), ("v0",)
    ),
    "a leaf made inside, beside an input that takes gradients": Program(
        (Input((), **LEAF), Input((5, 3), torch.int16)),
        ("v0 = torch.div(x1, 1)", "v0.requires_grad_()", "v1 = torch.maximum(v0, x1)"),
        ("x0", "v1"),
    ),
    "memory read in other units": Program((Input((4,), torch.int64),), ("v0 = x0.view(torch.int32)",), ("v0",)),
    "a view of what has another geometry since": Program(
        (Input((16, 1, 5), **LEAF),), ("v0 = x0 * 2", "v1 = v0[1::2, -1]", "v0.unsqueeze_(0)"), ("v1",)
    ),
    "a complex gradient of what is real": Program(
        (Input((4,), **LEAF), Input((0, 4), torch.complex64)), ("v0 = torch.ldexp(x0, x1)",), ("v0",)
    ),
    "a derivative without a kernel for the dtype": Program(
        (Input((1, 5), F16, **LEAF),), ("v0 = torch.pdist(x0)", "v1 = torch.special.i1(x0)"), ("v0", "v1")
    ),
    "a derivative whose formula stops at the dtype": Program(
        (Input((5,), BF16, **LEAF),), ("v0 = torch.special.i1(x0)",), ("v0",)
    ),
    "a view of a view that nothing records": Program(
        (Input((7, 4), **LEAF),),
        ("v0 = x0 * 2", "with torch.no_grad(): v1 = v0.narrow(0, 1, 2)", "v2 = v1.transpose(0, 1)"),
        ("v0", "v2"),
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str, backend: str) -> None:
    assert judge(RIGHT[name], backend) == ("right", "")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors:UserWarning")
def test_refused(name: str, backend: str) -> None:
    """What cannot be given like eager gives it is left to eager, and says why."""
    verdict, why = judge(REFUSED[name], backend)
    assert verdict == "refused" and why


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_within_no_rows(order: float) -> None:
    """Eager ends with a segmentation fault, so there is nothing to compare with."""
    compiled = stator.compile(lambda x: torch.pdist(x, order), fullgraph=True, options={"strict": True})
    for rows in (3, 5, 0, 1):
        x = torch.randn(rows, 4, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.shape == (rows, 4)


def test_a_result_that_is_laid_out_as_a_view_can_be_written_to() -> None:
    compiled = stator.compile(lambda x: (x * 2).t(), fullgraph=True, options={"strict": True})
    x = torch.randn(3, 4, requires_grad=True)
    y = compiled(x)
    y.mul_(5)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == torch.full((3, 4), 10.0).tolist()


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_parts_of_a_recurrent_cell_keep_their_memory(cell: type[torch.nn.RNNBase]) -> None:
    torch.manual_seed(5)
    network = cell(4, 6, num_layers=2)
    compiled = stator.compile(lambda x: network(x)[0], fullgraph=True, options={"strict": True})
    inputs = [torch.randn(3, 2, 4, requires_grad=True) for _ in range(2)]
    results = [[run(x) for x in inputs] for run in (compiled, lambda x: network(x)[0])]
    parameters = [*inputs, *network.parameters()]
    gradients = [torch.autograd.grad([y.square().sum() for y in found], parameters) for found in results]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)
