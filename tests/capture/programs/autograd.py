"""Autograd from inside: custom functions, checkpointing, transforms."""

import warnings

import torch
from torch.utils.checkpoint import checkpoint

from tests.capture.programs.table import leaf, program, x


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor, x + 1

    @staticmethod
    def backward(ctx, first, second):
        return first * ctx.factor + second, None


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad


@program(lambda: (leaf(),))
def custom_function(x):
    return Double.apply(x) + 1


@program(lambda: (leaf(),))
def custom_function_with_constants(x):
    a, b = Scale.apply(x, 3.0)
    return a * b


@program(lambda: (leaf(),))
def custom_function_with_setup(x):
    return Straight.apply(x * 2)


@program(lambda: (leaf(),))
def custom_function_in_no_grad(x):
    with torch.no_grad():
        return Double.apply(x)


@program(lambda: (leaf(), torch.nn.Linear(3, 3)))
def checkpointed(x, layer):
    return checkpoint(lambda y: torch.relu(layer(y)), x, use_reentrant=False).sum()


@program(lambda: (leaf(), torch.nn.Linear(3, 3)))
def checkpointed_with_keywords(x, layer):
    def block(y, scale):
        return layer(y) * scale

    return checkpoint(block, x, scale=2.0, use_reentrant=False, preserve_rng_state=False)


@program(lambda: (leaf(), torch.nn.Linear(3, 3)))
def checkpointed_reentrant(x, layer):
    return checkpoint(layer, x, use_reentrant=True)


@program(lambda: (x(), torch.nn.Linear(3, 3)), breaks="eager gives no gradients here")
def checkpointed_reentrant_without_gradient(x, layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return checkpoint(layer, x, use_reentrant=True) + 1


@program(lambda: (leaf(), [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]))
def checkpointed_layers(x, layers):
    def block(layer, y, factor):
        return torch.sin(layer(y)) * factor, factor

    for layer in layers:
        x, other = checkpoint(block, layer, x, 3, use_reentrant=True)
    with torch.no_grad():
        more = checkpoint(block, layers[0], x, 2, use_reentrant=True)
    return x, other, more


@program(lambda: (leaf(), torch.nn.BatchNorm1d(3)), breaks="eager counts batches twice")
def checkpointed_with_statistics(x, norm):
    y = checkpoint(norm, x * 2, use_reentrant=False) * 2
    y.sum().backward()
    return norm.num_batches_tracked.clone()


@program(lambda: (x(), x()))
def vmap(a, b):
    return torch.vmap(lambda p, q: (p * q).sum())(a, b)


@program(lambda: (x(),))
def vmap_over_dims(a):
    return torch.vmap(lambda p: p * 2, in_dims=1, out_dims=1)(a)


@program(lambda: (x(),), breaks="function transforms")
def func_grad(x):
    return torch.func.grad(lambda y: (y**2).sum())(x)


@program(lambda: (x(),), breaks="function transforms")
def func_vjp(x):
    out, pull = torch.func.vjp(torch.sin, x)
    return out, pull(torch.ones_like(x))


@program(lambda: (x(), x()), breaks="function transforms")
def func_jvp(x, t):
    return torch.func.jvp(torch.sin, (x,), (t,))


@program(lambda: (torch.randn(3),), breaks="function transforms")
def func_jacobian(x):
    return torch.func.jacrev(lambda y: y**2)(x)


@program(lambda: (leaf(),), breaks="a hook on a tensor")
def tensor_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y


@program(lambda: (leaf(),))
def detach_in_the_middle(x):
    y = (x * 2).detach()
    return y * x


@program(lambda: (leaf(),))
def in_place_with_grad(x):
    y = x * 2
    y.add_(1).relu_()
    return y * y


@program(lambda: (leaf(),))
def view_in_place_with_grad(x):
    y = x.clone()
    y[0].mul_(3)
    y[:, 1] = 0
    return y


@program(lambda: (leaf(), leaf()))
def some_inputs_need_no_grad(a, b):
    return a * 2, b.detach() * 3


@program(lambda: (leaf(),))
def double_use(x):
    y = x.exp()
    return y * y + y.detach()


@program(lambda: (leaf(),))
def grad_mode_asked(x):
    return x * 2 if torch.is_grad_enabled() else x * 3


@program(lambda: (leaf(),), breaks="hooks on saved tensors")
def saved_tensor_hooks(x):
    with torch.autograd.graph.save_on_cpu():
        return (x * x).sum()
