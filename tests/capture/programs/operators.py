"""Operators beside the usual ones: control flow operators, custom operators, nn.functional."""

import torch
import torch.nn.functional as F
from torch._higher_order_ops.while_loop import while_loop

from tests.capture.programs.table import leaf, program, x


@torch.library.custom_op("stator_programs::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    ctx.factor = inputs[1]


scaled.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=_setup)


@torch.library.custom_op("stator_programs::bump_", mutates_args=("x",))
def bump_(x: torch.Tensor) -> None:
    x.add_(1)


LIBRARY_HANDLE = torch.library.Library("stator_programs", "FRAGMENT")
LIBRARY_HANDLE.define("plus(Tensor a, Tensor b) -> Tensor")
LIBRARY_HANDLE.impl("plus", lambda a, b: a + b, "CompositeExplicitAutograd")


@torch.library.register_fake("stator_programs::plus")
def _(a, b):
    return torch.empty_like(a)


@program(lambda: (leaf(),))
def custom_operator(x):
    return scaled(x, 3.0) + 1


@program(lambda: (leaf(),))
def custom_operator_by_name(x):
    return torch.ops.stator_programs.scaled(x, 2.0)


@program()
def custom_operator_changes_its_argument(x):
    y = x * 2
    bump_(y)
    return y


@program()
def library_definition(x):
    return torch.ops.stator_programs.plus(x, x)


@program()
def aten_operators(x):
    return torch.ops.aten.add.Tensor(x, x), torch.ops.aten.relu(x), torch.ops.aten.sum.dim_IntList(x, [0])


@program(lambda: (x(),))
def cond(x):
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


@program(lambda: (x(),))
def cond_on_a_number(x):
    return torch.cond(x.shape[0] > 1, lambda y: y * 2, lambda y: y, (x,))


@program(lambda: (x(),))
def cond_with_closure(x):
    w = x * 3
    return torch.cond(x.sum() > 0, lambda: w + x, lambda: w - x, ())


@program(lambda: (torch.tensor(3), torch.ones(2)))
def while_loop_operator(n, x):
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y * 2), (n, x))


@program()
def activations(x):
    return (
        F.relu(x),
        F.gelu(x),
        F.silu(x),
        F.leaky_relu(x, 0.1),
        F.softmax(x, -1),
        F.log_softmax(x, 0),
        F.elu(x),
        F.glu(x[:, :2]),
    )


@program(lambda: (torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)))
def linear(x, w, b):
    return F.linear(x, w, b), F.layer_norm(x, (4,)), F.normalize(x), F.cosine_similarity(x, x)


@program(lambda: (torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)))
def convolutions(x, w):
    return (
        F.conv2d(x, w, padding=1),
        F.max_pool2d(x, 2),
        F.avg_pool2d(x, 2),
        F.adaptive_avg_pool2d(x, 1),
        F.pad(x, (1, 1)),
    )


@program(lambda: (torch.randn(1, 2, 4, 4),))
def resampling(x):
    return (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(3, 3), mode="bilinear"),
        F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2),
        F.unfold(x, 2),
    )


@program(lambda: (torch.randn(4, 3), torch.tensor([0, 1, 2, 1])))
def losses(x, t):
    return (
        F.cross_entropy(x, t),
        F.mse_loss(x, x * 2),
        F.nll_loss(x, t),
        F.binary_cross_entropy_with_logits(x, x.sigmoid()),
        F.smooth_l1_loss(x, x + 1),
        F.kl_div(x, x.softmax(-1), reduction="batchmean"),
        F.triplet_margin_with_distance_loss(x, x + 1, x * 2, distance_function=torch.nn.PairwiseDistance(p=1)),
        F.triplet_margin_with_distance_loss(x, x + 1, x * 2, distance_function=lambda a, b: (a - b).abs().sum(-1)),
    )


@program(lambda: (torch.tensor([1, 2]), torch.randn(4, 3)))
def embeddings(ids, w):
    return F.embedding(ids, w), F.one_hot(ids, 4), F.embedding_bag(ids, w, torch.tensor([0, 1]))


@program(lambda: (torch.randn(1, 2, 4, 8),))
def attention(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True), F.scaled_dot_product_attention(
        x, x, x, dropout_p=0.0
    )


@program()
def dropout_of_nothing(x):
    return F.dropout(x, 0.5, training=False), F.dropout(x, 0.0)


@program()
def special_functions(x):
    return (
        torch.special.expit(x),
        torch.erf(x),
        torch.special.entr(x.abs()),
        torch.lgamma(x.abs()),
        torch.special.logsumexp(x, 0),
    )


@program(lambda: (torch.randn(5), torch.tensor([1, 2, 2, 0, 1])))
def counting(x, ids):
    return (
        torch.bucketize(x, torch.tensor([0.0])),
        torch.searchsorted(torch.tensor([0.0, 1.0]), x),
        torch.zeros(3).index_add(0, ids, x),
    )


@program(lambda: ([torch.randn(2), torch.randn(3)],))
def foreach_operators(tensors):
    return torch._foreach_add(tensors, 1.0), torch._foreach_mul(tensors, tensors), torch._foreach_norm(tensors)


@program(lambda: ([torch.randn(2), torch.randn(3)],))
def foreach_in_place(tensors):
    torch._foreach_mul_(tensors, 0.5)
    return tensors[0] + 1


@program()
def signal_windows(x):
    return x + 1, torch.hann_window(4), torch.signal.windows.cosine(3)


@program(lambda: (torch.randn(3, 4),), breaks="the size of the result depends on data")
def nonzero(x):
    return torch.nonzero(x > 0)


@program(lambda: (torch.tensor([3, 1, 3]),), breaks="the size of the result depends on data")
def unique(x):
    return x.unique()
