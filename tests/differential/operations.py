"""What random programs are made of: one template a line, by family. `programs.py` fills the slots.

A slot is `{name:kind}`. Kinds of tensor: t any but complex, f floating point, r the same with rows (kernels of
PyTorch's end the process where there are none), i integer (no bool), b bool, c complex, with a digit for the least
number of dimensions or =digit for the exact one. Kinds that depend on a tensor chosen before, written `{:kind@name}`:
dim a dimension, like another tensor that broadcasts with it, same one of the same size, size a size of as many
elements, perm an order of its dimensions, cut a piece by slicing, pick an index tensor for dimension 0, wide a size it
expands to. Kinds of number: s float, n small integer, k True or False, dt a dtype, ft a floating dtype. The same named
slot gives the same text again. What eager refuses is thrown away, so that a template may be wrong now and then.
"""

from __future__ import annotations

UNARY = (
    "abs neg sin cos tanh exp sigmoid relu sqrt rsqrt log log1p expm1 erf floor ceil round trunc sign square "
    "reciprocal frac atan asinh sinh cosh tan exp2 log2 log10 isnan isinf isfinite signbit logical_not erfc digamma "
    "positive sgn asin acos acosh atanh lgamma nan_to_num special.logit special.expit special.ndtr special.i0 "
    "deg2rad rad2deg special.erfcx"
).split()
ACTIVATIONS = (
    "relu gelu silu elu selu softplus leaky_relu mish hardswish hardsigmoid hardtanh relu6 softsign tanhshrink "
    "logsigmoid celu hardshrink softshrink"
).split()
BINARY = "add sub mul div maximum minimum atan2 fmod remainder hypot floor_divide true_divide fmax fmin".split()
PLAIN_LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div poisson_nll_loss "
    "soft_margin_loss"
).split()
COMPARE = "eq ne lt le gt ge logical_and logical_or logical_xor".split()
BITS = "bitwise_and bitwise_or bitwise_xor".split()
IN_PLACE_UNARY = (
    "relu_ neg_ abs_ sigmoid_ tanh_ exp_ zero_ sqrt_ sin_ floor_ clamp_(0,1) fill_(2) add_(1) mul_(0.5)".split()
)

POINTWISE = [
    *[f"torch.{name}({{x:t}})" for name in UNARY],
    *[f"F.{name}({{x:f}})" for name in ACTIVATIONS],
    *[f"torch.{name}({{x:t}}, {{:like@x}})" for name in [*BINARY, *BINARY, *COMPARE]],
    *[f"torch.{name}({{x:t}}, {{:s}})" for name in (*BINARY[:4], "eq", "lt", "ge", "fmod", "remainder")],
    *[f"torch.{name}({{x:i}}, {{:like@x}})" for name in BITS],
    "{x:t} + {:n}", "{:n} - {x:t}", "{x:t} * {:s}", "{:s} / {x:f}", "{x:t} // {:n}", "{x:t} % {:n}", "{x:f} ** 2",
    "{x:f} ** {:s}", "-{x:t}", "~{x:b}", "{x:f} ** {:like@x}", "{x:b} & {:like@x}", "{x:b} | {:like@x}",
    "{:n} ** {x:f}",
    "torch.where({c:b}, {x:t}, {:like@x})", "torch.where({c:b}, {x:t}, {:s})", "torch.where({x:f} > 0, {x:f}, 0)",
    "torch.clamp({x:t}, -1, 2)", "torch.clamp({x:t}, min={:like@x})", "{x:f}.clamp_min(0)",
    "torch.lerp({x:f}, {:same@x}, 0.3)",
    "torch.addcmul({x:f}, {:like@x}, {:like@x}, value=0.5)", "torch.addcdiv({x:f}, {:like@x}, {:like@x})",
    "torch.add({x:t}, {:like@x}, alpha=2)", "torch.sub({x:f}, {:like@x}, alpha=0.5)", "torch.rsub({x:t}, {:n})",
    "torch.div({x:t}, {:like@x}, rounding_mode='floor')", "torch.div({x:t}, {:like@x}, rounding_mode='trunc')",
    "torch.masked_fill({x:t}, {:like@x}.bool(), {:n})", "F.gelu({x:f}, approximate='tanh')", "F.glu({x:f1}, {:dim@x})",
    "torch.heaviside({x:f}, {:like@x})", "torch.copysign({x:f}, {:like@x})", "torch.xlogy({x:f}, {:like@x})",
    "torch.logaddexp({x:f}, {:like@x})", "F.threshold({x:f}, 0.1, 0.5)", "F.dropout({x:f}, 0.0)",
    "F.prelu({x:f}, torch.full((1,), 0.1))",
    "torch.ldexp({x:f}, {:like@x})", "torch.nextafter({x:f}, {:like@x})", "torch.bitwise_left_shift({x:i}, 2)",
    "{x:i} >> 1",
    "torch.bitwise_not({x:i})", "torch.isclose({x:f}, {:like@x})", "torch.float_power({x:f}, 2)",
    "torch.special.xlog1py({x:f}, {:like@x})",
]  # fmt: skip

REDUCTIONS = [
    *[f"torch.{name}({{x:t}})" for name in "sum mean prod amax amin any all max min std var".split()],
    *[
        f"torch.{name}({{x:t1}}, {{:dim@x}}, keepdim={{:k}})"
        for name in "sum mean prod amax amin any all argmax argmin logsumexp max min std var median cummax".split()
    ],
    "torch.sum({x:t2}, ({:dim@x}, {:dim@x}))", "torch.mean({x:f2}, (0, 1), keepdim={:k})", "torch.argmax({x:t1})",
    "torch.var({x:f1}, {:dim@x}, correction=0)", "torch.var_mean({x:f1}, {:dim@x})",
    "torch.std_mean({x:f1}, {:dim@x}, keepdim=True)",
    "torch.norm({x:f1})", "torch.linalg.vector_norm({x:f1}, {:n}, {:dim@x})", "torch.norm({x:f2}, dim={:dim@x})",
    "torch.softmax({x:f1}, {:dim@x})", "torch.log_softmax({x:f1}, {:dim@x})", "torch.cumsum({x:t1}, {:dim@x})",
    "torch.cumprod({x:t1}, {:dim@x})", "torch.sum({x:t1}, {:dim@x}, dtype={:dt})",
    "torch.mean({x:t1}, {:dim@x}, dtype={:ft})",
    "torch.softmax({x:f1}, {:dim@x}, dtype={:ft})", "torch.logcumsumexp({x:f1}, {:dim@x})",
    "torch.count_nonzero({x:t1}, {:dim@x})",
    "torch.nansum({x:f1}, {:dim@x})", "torch.nanmean({x:f1}, {:dim@x})", "torch.aminmax({x:t1}, dim={:dim@x})",
    "torch.dist({x:f}, {:like@x})",
    "F.normalize({x:f1}, dim={:dim@x})", "F.softmin({x:f1}, {:dim@x})",
    "F.cosine_similarity({x:f2}, {:same@x}, dim={:dim@x})",
    "torch.trace({x:t=2})", "torch.sum({x:t}, ())", "{x:t2}.amax(({:dim@x}, {:dim@x}))",
]  # fmt: skip

NORMS = [
    "F.layer_norm({x:f1}, {x:f1}.shape[-1:])", "F.layer_norm({x:f2}, {x:f2}.shape[-1:], {w:f=1}, {w:f=1})",
    "F.layer_norm({x:f2}, {x:f2}.shape[-2:])", "F.batch_norm({x:f2}, None, None, training=True)",
    "F.instance_norm({x:f3})",
    "F.group_norm({x:f3}, 1)", "F.rms_norm({x:f1}, {x:f1}.shape[-1:])", "F.local_response_norm({x:f3}, 2)",
    "F.group_norm({x:f3}, {x:f3}.shape[1])",
]  # fmt: skip

LINEAR = [
    "{x:f} @ {y:f}", "torch.mm({x:f=2}, {y:f=2})", "torch.mm({x:f=2}, {x:f=2}.t())", "torch.mm({x:f=2}.t(), {:same@x})",
    "torch.bmm({x:f=3}, {x:f=3}.transpose(1, 2))", "torch.addmm({b:f}, {x:f=2}, {x:f=2}.t(), beta=0.5, alpha=2)",
    "torch.einsum('ij,kj->ik', {x:f=2}, {y:f=2})", "torch.einsum('bij,bkj->bik', {x:f=3}, {:same@x})",
    "torch.outer({x:t=1}, {y:t=1})",
    "torch.einsum('...i,...i->...', {x:f1}, {:same@x})", "F.linear({x:f1}, {w:f=2})",
    "F.linear({x:f1}, {w:f=2}, {b:f=1})",
    "torch.dot({x:f=1}, {:same@x})", "torch.mv({x:f=2}, {y:f=1})", "torch.matmul({x:f2}, {x:f2}.mT)",
    "torch.baddbmm({b:f}, {x:f=3}, {x:f=3}.mT)",
    "torch.kron({x:t=2}, {y:t=2})", "torch.tensordot({x:f2}, {:same@x}, 2)", "torch.cdist({x:f=2}, {x:f=2} + 1)",
    "F.scaled_dot_product_attention({x:f3}, {:same@x}, {:same@x})", "torch.addmv({b:f=1}, {x:f=2}, {y:f=1})",
    "torch.linalg.norm({x:f=2})",
    "F.scaled_dot_product_attention({x:f=4}, {:same@x}, {:same@x}, is_causal=True)",
    "F.bilinear({x:f=2}, {x:f=2}, {w:f=3})",
]  # fmt: skip

LAYERS = [
    "F.conv1d({x:f=3}, {x:f=3}[:1])", "F.conv2d({x:f=4}, {x:f=4}[:2, :, :2, :2], padding=1)",
    "F.conv2d({x:f=4}, {x:f=4}[:1, :, :1, :1], stride=2)",
    "F.conv2d({x:f=4}, {x:f=4}[:1, :1, :2, :2].expand({x:f=4}.shape[1], 1, -1, -1), groups={x:f=4}.shape[1])",
    "F.conv1d({x:f=3}, {x:f=3}[:2, :, :2], padding=1, dilation=2)",
    "F.max_pool2d({x:f=4}, 2)", "F.max_pool2d({x:f=4}, 2, 1, 1)", "F.avg_pool2d({x:f=4}, 2, ceil_mode=True)",
    "F.avg_pool1d({x:f=3}, 2)",
    "F.adaptive_avg_pool2d({x:f=4}, 1)", "F.adaptive_avg_pool2d({x:f=4}, (2, 3))", "F.max_pool1d({x:f=3}, 2)",
    "F.avg_pool2d({x:f=4}, 2, 1, 1, count_include_pad=False)",
    "F.adaptive_max_pool2d({x:f=4}, 2)", "F.interpolate({x:f=4}, scale_factor=2)",
    "F.interpolate({x:f=4}, size=(3, 5), mode='bilinear')",
    "F.interpolate({x:f=4}, scale_factor=1.5, mode='bilinear', align_corners=True)", "F.unfold({x:f=4}, 2)",
    "F.pixel_shuffle({x:f=4}, 2)",
    "F.conv_transpose2d({x:f=4}, {x:f=4}[:, :1, :1, :1].transpose(0, 1).expand({x:f=4}.shape[1], 2, 1, 1))",
    "F.lp_pool2d({x:f=4}, 2, 2)",
    "F.pad({x:t1}, (1, 2))", "F.pad({x:t2}, (1, 0, -1, 2), value={:s})", "F.pad({x:f3}, (1, 1), mode='reflect')",
    "F.pad({x:f3}, (2, 0), mode='replicate')",
    "F.pad({x:f=4}, (1, 1, 1, 1), mode='circular')", "F.pad({x:t1}, (-1, 0))",
    "F.grid_sample({x:f=4}, {x:f=4}[:, :1, :, :2].expand(-1, 2, -1, -1).transpose(1, 2)[..., :2])",
]  # fmt: skip

LOSSES = [
    *[f"F.{name}({{x:f}}, {{:same@x}})" for name in PLAIN_LOSSES],
    "F.mse_loss({x:f}, {:same@x}, reduction='none')", "F.cross_entropy({x:f=2}, {x:f=2}.argmax(1))",
    "F.cross_entropy({x:f=2}, {:same@x})",
    "F.cross_entropy({x:f=2}, {x:f=2}.argmin(1), label_smoothing=0.1, reduction='sum')",
    "F.nll_loss({x:f=2}, {x:f=2}.argmax(1), reduction='none')",
    "F.cross_entropy({x:f3}, {x:f3}.argmax(1), ignore_index=1)",
    "F.binary_cross_entropy(torch.sigmoid({x:f}), torch.sigmoid({:same@x}))",
    "F.multilabel_soft_margin_loss({x:f=2}, {:same@x})",
    "F.cosine_embedding_loss({x:f=2}, {:same@x}, torch.ones({x:f=2}.shape[0]))",
    "F.margin_ranking_loss({x:f}, {:same@x}, {:same@x}.sign())", "F.hinge_embedding_loss({x:f}, {:same@x}.sign())",
    "F.triplet_margin_loss({x:f=2}, {:same@x}, {:same@x})",
]  # fmt: skip

VIEWS = [
    "{x:t2}.transpose({:dim@x}, {:dim@x})", "{x:t1}.permute({:perm@x})", "{x:t}.reshape({:size@x})",
    "{x:t}.view({:size@x})",
    "{x:t}.unsqueeze({:dim@x})", "{x:t}.squeeze()", "{x:t1}.squeeze({:dim@x})", "{x:t1}{:cut@x}", "{x:t1}{:cut@x}",
    "{x:t1}.flatten()",
    "{x:t1}.select({:dim@x}, {:n})", "{x:t1}.narrow({:dim@x}, 1, 2)", "{x:t}.expand({:wide@x})", "{x:t2}.diagonal()",
    "{x:t=2}.t()",
    "{x:t1}.unfold({:dim@x}, 2, 1)", "{x:t1}[-1]", "{x:t1}[None]", "{x:t2}[..., 0]", "{x:t2}[:, None, ::2]",
    "{x:t}.view_as({:same@x})",
    "{x:t}.expand_as({:like@x})", "{x:t}.detach()", "{x:t1}.movedim(0, -1)", "{x:t2}.flatten(0, 1)",
    "{x:t1}.unflatten(0, (-1, 1))",
    "torch.split({x:t1}, 2, {:dim@x})", "torch.chunk({x:t1}, 2, {:dim@x})", "{x:t1}.unbind({:dim@x})",
    "{x:i}.view(torch.int32)",
    "{x:t2}.mT", "{x:t3}.swapaxes(0, 2)", "{x:t1}.tensor_split(2)", "torch.atleast_2d({x:t})",
    "{x:t1}.as_strided((2,), (1,), 1)",
    "{x:t2}.diagonal(1, 0, 1)", "torch.broadcast_tensors({x:t}, {:like@x})", "{x:t}.alias()", "torch.hsplit({x:t2}, 2)",
    "{x:t}.adjoint()",
    "{x:t=4}.contiguous(memory_format=torch.channels_last)", "{x:t}.data",
]  # fmt: skip

SHAPES = [
    "torch.cat([{x:t1}, {:same@x}], {:dim@x})", "torch.stack([{x:t}, {:same@x}], {:dim@x})",
    "torch.cat([{x:t1}, {y:t1}])", "torch.roll({x:t1}, 1, {:dim@x})",
    "torch.flip({x:t1}, ({:dim@x},))", "{x:t}.repeat({:wide@x})", "torch.tile({x:t}, (2,))",
    "{x:t1}.repeat_interleave(2, {:dim@x})", "{x:t}.clone()",
    "{x:t}.contiguous()", "torch.triu({x:t2})", "torch.tril({x:t2}, -1)", "torch.diag({x:t=1})",
    "torch.diag_embed({x:t1})", "torch.rot90({x:t2})",
    "torch.hstack([{x:t1}, {:same@x}])", "torch.meshgrid({x:t=1}, {y:t=1}, indexing='ij')", "torch.zeros_like({x:t})",
    "torch.ones_like({x:t}, dtype={:dt})",
    "torch.full_like({x:t}, {:n})", "{x:t}.new_zeros(2, 3)", "torch.arange({x:t1}.shape[0])",
    "torch.cat([{x:t1}, {:same@x}, {:same@x}], -1)", "torch.empty_like({x:t}).fill_(1)",
    "torch.vander({x:t=1})", "torch.cat([{x:t1}[:0], {:same@x}])", "torch.linspace(0, 1, 5)", "torch.eye(3)",
    "torch.tensor([1.0, 2.0])", "torch.tensor({:s})",
    "torch.block_diag({x:t=2}, {y:t=2})", "torch.combinations({x:t=1})", "torch.dstack([{x:t}, {:same@x}])",
    "torch.scalar_tensor({:n})", "{x:t}.new_full((3,), {:s})",
]  # fmt: skip

CASTS = [
    "{x:t}.to({:dt})", "{x:f}.to({:ft})", "{x:t}.float()", "{x:t}.to({y:t})", "{x:t}.type_as({y:t})", "{x:t}.bool()",
    "{x:i}.double()", "{x:f}.half()", "{x:f}.to({:ft}, copy=True)", "{x:f}.bfloat16()",
]  # fmt: skip

INDEXING = [
    "{x:t1}[{:pick@x}]", "torch.index_select({x:t1}, 0, {:pick@x})",
    "torch.gather({x:t1}, {:dim@x}, {:same@x}.argsort(0).clamp(0, 0))", "{x:t2}[:, {:pick@x}]",
    "torch.gather({x:f1}, 0, {x:f1}.argsort(0))", "torch.take_along_dim({x:f1}, {x:f1}.argsort(0), 0)",
    "torch.sort({x:t1}, {:dim@x}, stable=True)", "torch.topk({x:f1}, 2, {:dim@x})",
    "{x:f1}.argsort({:dim@x}, stable=True)", "torch.scatter({x:f1}, 0, {x:f1}.argsort(0, stable=True), {:same@x})",
    "torch.scatter_add({x:f1}, 0, torch.zeros_like({x:f1}, dtype=torch.int64), {:same@x})",
    "torch.index_add({x:t1}, 0, {:pick@x}, {:same@x}[{:pick@x}])", "{x:t1}.index_fill(0, {:pick@x}, {:n})",
    "torch.index_copy({x:t1}, 0, torch.arange({x:t1}.shape[0]), {:same@x})",
    "F.embedding({x:f=2}.argmax(0), {x:f=2})", "F.one_hot({x:f1}.argmax(0), 40)",
    "torch.scatter_reduce({x:f1}, 0, torch.zeros_like({x:f1}, dtype=torch.int64), {:same@x}, 'amax')",
    "{x:t1}.index_put(({:pick@x},), {:same@x}[0])", "{x:t1}.index_put(({:pick@x},), {:same@x}[0], accumulate=True)",
    "torch.take({x:t1}, {:pick@x})", "torch.bucketize({x:f}, torch.tensor([-1.0, 0.0, 1.0]))",
    "torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), {x:f})", "torch.slice_scatter({x:t1}, {:same@x}[1:2], 0, 1, 2)",
    "torch.select_scatter({x:t1}, {:same@x}[0], 0, -1)", "{x:t2}[{:pick@x}, 0]",
    "torch.diagonal_scatter({x:t=2}, torch.zeros_like({x:t=2}.diagonal()))", "{x:t1}.kthvalue(1, {:dim@x})",
    "torch.isin({x:i}, torch.tensor([1, 2]))", "{x:t2}[{:pick@x}, :, None]", "torch.masked.sum({x:f1}, -1)",
    "F.embedding_bag({x:f=2}.argmax(0)[None], {x:f=2})",
    "torch.index_reduce({x:f1}, 0, {:pick@x}, {:same@x}[{:pick@x}], 'amax')",
    "{x:t3}[{:pick@x}, :, {:pick@x}.clamp(0, 0)]", "{x:t2}[{:pick@x}.unsqueeze(1), {:pick@x}.clamp(0, 0)]",
]  # fmt: skip

#: Statements: they change what a variable holds.
IN_PLACE = [
    *[f"{{x:t}}.{name}" + ("" if name.endswith(")") else "()") for name in IN_PLACE_UNARY],
    *[f"{{x:t}}.{name}_({{:like@x}})" for name in "add sub mul div copy maximum".split()],
    "{x:t} += {:like@x}", "{x:t} *= {:n}", "{x:t1}[0] = {:n}", "{x:t1}[0] = {:like@x}[0]", "{x:t1}{:cut@x} = {:s}",
    "{x:t1}{:cut@x} += 1", "{x:t2}[:, 0].zero_()",
    "{x:t1}{:cut@x}.mul_(2)", "{x:t2}.t().add_(1)", "{x:t}.view(-1)[:2].fill_(3)",
    "{x:t}.masked_fill_({:like@x}.bool(), {:n})", "{x:t1}.index_fill_(0, {:pick@x}, {:n})",
    "{x:t1}.index_add_(0, {:pick@x}, {:same@x}[{:pick@x}])", "{x:t1}[{:pick@x}] = {:n}", "{x:t1}[{:pick@x}] += 1",
    "{x:t2}.transpose(0, 1)[0].copy_({:like@x}[:, 0])", "{x:f}.clamp_(min=0)",
    "{x:t}.unsqueeze(0).add_({:like@x})", "{x:t2}.diagonal().fill_(1)",
    "{x:t1}.scatter_(0, torch.zeros_like({x:t1}, dtype=torch.int64), {:n})", "{x:f}.detach().mul_(2)",
    "{x:t2}[0][0] = {:n}",
    "{x:t1}.unbind(0)[0].add_(1)", "{x:t1}.chunk(2)[0].mul_(3)", "{x:t2}.squeeze_()", "{x:t2}.t_()",
    "{x:t}.unsqueeze_(0)", "{x:f1}.cumsum_(0)", "{x:t1}[{x:t1} > 0] = 0", "torch.add({x:t}, 1, out={x:t})",
    "{x:t}.copy_({:like@x})", "{x:f}.lerp_({:same@x}, 0.5)", "{x:f}.addcmul_({:like@x}, {:like@x})", "{x:t2}.triu_()",
    "{x:t=2}.fill_diagonal_(2)", "{x:t1}.expand_as({x:t1}).add_(1)", "{x:f}.requires_grad_()",
    "{x:t1}.flatten()[1:].add_(1)", "{x:t1}.put_({:pick@x}, {:same@x}.flatten()[{:pick@x}])", "{x:f}.data.add_(1)",
    "{x:t3}.permute(2, 0, 1)[1].sub_(1)", "{x:f}.nan_to_num_()",
]  # fmt: skip

SCANS = [
    *[
        f"torch.{name}({{x:t1}}, {{:dim@x}})"
        for name in "cumsum cumprod cummax cummin logcumsumexp cumulative_trapezoid diff".split()
    ],
    *[f"torch.{name}({{x:t1}}, {{:dim@x}}, dtype={{:dt}})" for name in ("cumsum", "cumprod")],
    "torch.cumsum({x:t1} * {:s}, {:dim@x}) - {x:t1}", "torch.cummax({x:t1}, {:dim@x})[0].sum()",
    "torch.cumsum({x:t1}, {d:dim@x}).amax({d:dim@x})", "torch.cumsum(torch.flip({x:t1}, ({d:dim@x},)), {d:dim@x})",
    "torch.cummin(torch.where({x:f1} > 0, {x:f1}, 0), {:dim@x})", "torch.cumsum(torch.softmax({x:f1}, -1), -1)",
    "torch.cumsum(torch.cumsum({x:t2}, 0), 1)", "torch.trapezoid({x:f1}, dim={:dim@x})",
    "torch.cumsum({x:b1}, {:dim@x})[{:like@x}.bool()].sum()",
]  # fmt: skip

#: Reads and writes at positions that are computed.
POSITIONS = [
    "{x:t1}[{y:i}.long()]", "{x:t1}[{y:i}.long() % {x:t1}.shape[0]]", "{x:t1}[{y:i}.long() % 3 - 1]",
    "{x:t1}[{y:f}.nan_to_num(0, 0, 0).clamp(-1, 0).long()]", "{x:t1}[torch.where({y:b}, -1, 0)]",
    "{x:t1}[torch.cumsum({y:b1}, 0) % {x:t1}.shape[0]]", "{x:t1}[torch.arange({x:t1}.shape[0]) // 2]",
    "{x:t1}[torch.arange({x:t1}.shape[0]).flip(0)]", "{x:t1}[torch.arange({x:t1}.shape[0]) * 3 % {x:t1}.shape[0]]",
    "{x:t1}[{y:t1}.argmax({:dim@y}) % {x:t1}.shape[0]]", "{x:t1}[torch.bitwise_and({y:i}, 1).long()]",
    "{x:t2}[:, {y:i}.long() % {x:t2}.shape[1]]", "torch.take({x:t}, {y:i}.long())",
    "torch.take({x:t}, {y:i}.long().clamp(0, {x:t}.numel() - 1))", "{x:t1}.index_select(0, {y:i=1}.clamp(0, 1))",
    "{x:t2}[{y:i}.long() % {x:t2}.shape[0], {y:i}.long() % {x:t2}.shape[1]]",
    "F.embedding({y:i} % {x:f=2}.shape[0], {x:f=2})", "torch.gather({x:t1}, {:dim@x}, {:same@x}.long() % 1)",
    "torch.gather({x:t1}, {d:dim@x}, torch.cumsum({:same@x}.bool(), {d:dim@x}).clamp(max={x:t1}.size({d:dim@x}) - 1))",
    "torch.scatter({x:t1}, 0, torch.zeros_like({x:t1}, dtype=torch.int64), {:n})",
    "torch.scatter_add({x:t1}, {:dim@x}, {y:i}.long() % 2, {:same@x})",
    "{x:t1}.index_add(0, {y:i=1}.long() % {x:t1}.shape[0], {x:t1}[{y:i=1}.long() % {x:t1}.shape[0]])",
    "{x:t1}.index_put(({y:i}.long() % {x:t1}.shape[0],), {x:t1}[0], accumulate=True)",
    "torch.nonzero_static({x:t1}, size=4)", "{x:t}.masked_scatter({:like@x}.bool(), {:same@x})",
    "torch.bucketize({x:t}, torch.tensor([-1, 0, 2]), right={:k})", "torch.searchsorted({x:t1}.sort(-1)[0], {:same@x})",
    "torch.full((4,), {:s})[torch.randint(0, 4, {x:t}.shape)]", "torch.tril_indices(4, 3) % {x:t}.numel()",
    "torch.where({y:b}, {x:t1}[torch.where({y:b}, 0, -1)], 0)",
]  # fmt: skip

COMPLEX = [
    *[
        f"torch.{name}({{x:c}})"
        for name in (
            "abs angle conj conj_physical resolve_conj real imag exp log sqrt sin cos tan sinh cosh tanh reciprocal "
            "sgn neg square sum mean prod isnan isinf isfinite view_as_real logical_not positive sigmoid log2 log10 "
            "rsqrt expm1 log1p atan asinh any all clone zeros_like flatten"
        ).split()
    ],
    *[f"torch.{name}({{x:c}}, {{:like@x}})" for name in "add sub mul div eq ne logical_and".split() * 2],
    *[f"torch.{name}({{x:c1}}, {{:dim@x}})" for name in "sum mean cumsum cumprod prod flip any softmax".split()],
    "torch.complex({x:f}, {:same@x})", "torch.polar({x:f}, {:same@x})", "{x:f} * 1j", "{x:f} + (1 + 2j)",
    "torch.view_as_complex({x:f1}[..., :2].contiguous())", "{x:c} * {:s}", "{:s} - {x:c}", "{x:c} / {:s}",
    "{:s} / {x:c}", "{x:c} ** 2", "{x:c} ** {:s}", "{x:c} ** {:like@x}", "{x:c} * (0.5 - 1j)",
    "{x:c}.conj() * {:like@x}",
    "torch.where({y:b}, {x:c}, {:like@x})", "{x:c}.real + {x:c}.imag", "{x:c}.to(torch.complex64)", "{x:c}.mH",
    "{x:c1}[{:pick@x}]", "torch.cat([{x:c1}, {:same@x}], {:dim@x})", "torch.stack([{x:c}, {:same@x}])",
    "{x:c}.reshape({:size@x})", "{x:c1}{:cut@x}", "{x:c2}.transpose({:dim@x}, {:dim@x})", "{x:c}.expand({:wide@x})",
    "{x:c=2} @ {x:c=2}.mH", "torch.fft.fft({x:f1})", "torch.fft.ifft({x:c1}).real", "{x:t}.to(torch.complex64)",
    "torch.addcmul({x:c}, {:same@x}, {:same@x}, value=0.5)", "torch.linalg.vector_norm({x:c1}, 2, {:dim@x})",
    "torch.roll({x:c1}, 1, {:dim@x})", "torch.tril({x:c2})", "{x:c}.abs().sum()", "torch.view_as_real({x:c})[..., 0]",
    "torch.lerp({x:c}, {:same@x}, 0.3)", "F.pad({x:c1}, (1, 2))", "torch.isclose({x:c}, {:same@x})", "{x:c}.conj()",
    "torch.nan_to_num({x:c}.real)", "{x:c}.masked_fill({y:b}, {:n})", "{x:c1}.unbind({:dim@x})", "{x:c}.contiguous()",
]  # fmt: skip

DISTANCES = [
    "torch.cdist({x:f2}, {:same@x}, p={:s})", "torch.cdist({x:f2}, {:same@x} * 2 + 1)", "torch.pdist({x:r=2}, {:s})",
    "F.pairwise_distance({x:f2}, {:same@x}, p={:n}, keepdim={:k})", "F.pdist({x:r=2})",
    "torch.cdist({x:f2}, {y:f2}, p=float('inf'))", "F.bilinear({x:f1}, {:same@x}, {w:f=3})",
    "F.bilinear({x:f1}, {y:f1}, {w:f=3}, {b:f=1})", "F.max_pool3d({x:f4}, 2, 1, {:k} * 1, return_indices={:k})",
    "F.max_pool3d({x:f4}, (1, 2, 2), dilation=(1, 1, 2), ceil_mode={:k})", "F.max_pool3d({x:f4}, (1, 2, 1))",
    "torch.addbmm({b:f}, {x:f=3}, {x:f=3}.mT, alpha=0.5)", "torch.linspace(-3, 7, 6, dtype={:dt})",
    "torch.linspace({:n}, {:s}, 9, dtype=torch.int64)", "torch.linspace(5, -20, 33, dtype=torch.int32)",
    "torch.linspace({x:f=0}, {:n}, 5)", "torch.triu({x:t2}, {:n})", "torch.logspace(0, 2, 5)",
]  # fmt: skip

#: Integers of which a compiler may prove where they lie, and what is done with them.
DERIVED = [
    "({x:t} > 0).long()", "({x:t} > 0).to({:dt})", "{x:t}.long().clamp(-2, 3)", "{x:i} % 5", "{x:i} % 5 - 9",
    "{x:i} & 7", "torch.where({x:b}, 3, -2)", "torch.where({x:b}, {y:i}.clamp(0, 4), 9)", "{x:i}.clamp(0, 4) - 2**31",
    "2**31 - 1 - {x:i}.long().clamp(0, 4)", "torch.full_like({x:t}, {:n}, dtype={:dt})", "{x:t}.isnan().long()",
    "torch.arange({x:t1}.shape[0]).to({:dt})", "torch.arange({x:t1}.shape[0]) * 3 % 7", "{x:i}.to(torch.int8).long()",
    "torch.arange({x:t1}.shape[0]) * 2**61", "{x:t1}.argsort({:dim@x}, stable=True)",
    "{x:t}.bool().to(torch.uint8) - 1", "torch.bucketize({x:f}, torch.tensor([-1.0, 0.0, 1.0]))", "torch.sign({x:i})",
    "{x:t}.long().abs().clamp(max=6)", "{x:b}.long() << 33", "({x:i} & 127) >> 40",
    "{x:t}.nan_to_num(0, 0, 0).clamp(-3, 3).long()", "(torch.arange({x:t1}.shape[0]).float() * 0.7).ceil().long()",
    "{x:b1}.long().cumsum({:dim@x})", "~{x:i}.clamp(0, 3)",
    *[f"{{x:i1}}.{name}({{:dim@x}}, keepdim={{:k}})" for name in "argmin argmax min max amin amax sum prod".split()],
    *[f"{{x:i}}.{name}()" for name in "argmin argmax min max sum prod".split()],
    "torch.sort({x:i1}, {:dim@x}, stable=True)", "{x:i1}.cummax({:dim@x})", "{x:i1}.cummin({:dim@x})",
    "torch.topk({x:i1}.unique_consecutive(), 1)[0]", "torch.gcd({x:i}, {:like@x}.clamp(1, 9))", "{x:i} ** 3",
    "torch.addcmul({x:i}, {:like@x}, {:like@x}, value={:s})", "torch.floor_divide({x:t}, 3)",
    "{x:i} // 3 * 3 + {x:i} % 3", "torch.remainder({x:f}, {:s})", "torch.div({x:i}, 3, rounding_mode='trunc')",
    "torch.fmod({x:i}, 5)", "{x:f}.to({:dt})", "{x:f}.to({:dt}).to({:ft})", "torch.ldexp({x:f}, {y:i}.clamp(-9, 9))",
    "{x:i} << {:n}", "{x:i} >> 70",
]  # fmt: skip

FAMILIES: list[tuple[int, list[str]]] = [
    (30, POINTWISE), (14, REDUCTIONS), (4, NORMS), (8, LINEAR), (6, LAYERS), (4, LOSSES), (18, VIEWS), (9, SHAPES),
    (7, CASTS), (10, INDEXING), (14, IN_PLACE), (6, SCANS), (7, POSITIONS), (5, COMPLEX), (3, DISTANCES),
    (16, DERIVED),
]  # fmt: skip

#: Where inputs are on another device than the host: tensors of both, and what brings them together.
DEVICES = [
    "{x:t}.cpu()", "({x:t}.cpu() * 2).to({x:t}.device)", "{x:t}.cpu().expand(2, *{x:t}.shape)", "{x:t1}.cpu()[::2]",
    "{x:t2}.cpu().mT", "{x:t} * torch.tensor(1.5)", "{x:t} + torch.ones(()) * 3", "{x:t}.cpu().sum() + {y:t}",
    "{x:t1}[torch.arange({x:t}.shape[0]).flip(0)]", "{x:t1}[torch.arange({x:t}.shape[0], device={x:t}.device) // 2]",
    "{x:t1}[torch.arange({x:t}.shape[0]) % 2 == 0]", "torch.tensor(1.5).expand({x:t}.shape)",
    "{x:t2}[torch.arange({x:t}.shape[0]), torch.arange({x:t}.shape[0]) * 0]", "{x:t1}.cpu().sort(0).values",
    "torch.where({x:t} > 0, torch.tensor(2.0), {y:t=0})", "torch.arange(3, device={x:t}.device)[:, None] * 2**40",
    "torch.arange({x:t1}.shape[0], device={x:t}.device) * 2**33 + 2**31", "torch.full_like({x:i}, 9, device='cpu') + 1",
    "torch.index_put({x:t1}, (torch.arange({x:t}.shape[0]) % 3 == 1,), {x:t}.flatten()[0])",
    "torch.index_put({x:t1}, (torch.arange({x:t}.shape[0]).flip(0),), {x:t})", "{x:t}.to('cpu').clamp(-1, 1)",
    "torch.zeros_like({x:t}, device='cpu').mT.contiguous()", "{x:t}.double().cpu().to({x:t}.device, torch.float32)",
    "torch.linspace(0, 1, 5)[1::2]", "torch.stack([{x:t}.cpu(), torch.ones_like({x:t}.cpu())])",
    "({x:t2}.cpu()[:, ::2] + 1).to({x:t}.device)", "{x:i}.long() * 2**40 + 2**62",
]  # fmt: skip
