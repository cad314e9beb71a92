"""Gradients asked for inside, and tensors that the program makes take gradients."""

import torch
from torch import nn

from tests.capture.programs.table import leaf, program, x


def layer_and(make):
    return lambda: (nn.Linear(3, 3), make())


# -- requires_grad_ ----------------------------------------------------------------------------------------


@program(lambda: (x(),))
def input_takes_gradients(x):
    x.requires_grad_()
    return (x * x).sum()


@program(lambda: (x(),))
def input_takes_gradients_by_attribute(x):
    x.requires_grad = True
    return x.sin(), x.requires_grad, x.is_leaf


@program(lambda: (leaf(),))
def input_takes_no_gradients_any_more(x):
    x.requires_grad_(False)
    return x * 2


@program(lambda: (x(), leaf()))
def one_input_takes_gradients_beside_another(x, y):
    x.requires_grad_()
    return x * y, x


@program(lambda: (x(),), breaks="something was computed before")
def input_takes_gradients_in_the_middle(x):
    y = x * 2
    x.requires_grad_()
    return y + x


@program(lambda: (x(),))
def written_input_takes_gradients_by_another_name(x):
    x.add_(1)
    _, same = torch.broadcast_tensors(x, x)
    same.requires_grad_()
    return x, x.requires_grad, same is x


@program(lambda: (x(), x()))
def input_in_a_list_takes_gradients_by_another_name(x, y):
    x.mul_(2)
    _, (first, _) = torch.atleast_1d(y), torch.atleast_1d([x, y])
    first.requires_grad_()
    return x, y, x.requires_grad, y.requires_grad, first is x


@program(lambda: (torch.arange(3),), breaks="eager raises")
def integers_take_no_gradients(x):
    x.requires_grad_()
    return x * 2


@program(lambda: (leaf(),), breaks="eager raises")
def result_cannot_stop_taking_gradients(x):
    y = x * 2
    y.requires_grad_(False)
    return y


@program(lambda: (x(),), breaks="the result hangs on a tensor that leaves")
def result_takes_gradients_and_is_used(x):
    y = (x * 2).requires_grad_()
    return (y * y).sum(), y


@program(lambda: (x(),))
def result_takes_gradients(x):
    y = x * 2
    y.requires_grad = True
    return y


@program(lambda: (x(), leaf()))
def results_take_gradients_side_by_side(x, w):
    y = (x * 2).requires_grad_()
    return y, x * w


@program(lambda: (leaf(),))
def view_takes_no_place_of_its_own(x):
    y = x.detach() * 2
    y.requires_grad_()
    return (y[0] * x).sum()


@program(lambda: (x(),), breaks="the result hangs on a tensor that leaves")
def made_to_take_gradients(x):
    w = torch.ones(3, requires_grad=True)
    return (w * x).sum(), w


@program(lambda: (leaf(),), breaks="the result hangs on a tensor that leaves")
def made_to_take_gradients_with_another(x):
    w = x.new_full((3,), 2.0, requires_grad=True)
    return (w * x).sum(), w


@program(lambda: (x(),), breaks="it shares the memory of the input")
def view_takes_gradients(x):
    y = x[0]
    y.requires_grad_()
    return y


# -- torch.autograd.grad -----------------------------------------------------------------------------------


@program(lambda: (leaf(),))
def gradient_of_a_sum(x):
    (g,) = torch.autograd.grad((x**3).sum(), x)
    return g * 2, g.requires_grad, g.is_leaf


@program(lambda: (leaf(),))
def gradient_with_history(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    return (g * g).sum() + (h.sin()).sum()


@program(layer_and(x))
def gradient_penalty(layer, x):
    x.requires_grad_()
    y = layer(x).sin()
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


@program(layer_and(x))
def gradient_penalty_between(layer, x):
    mixed = (x * 0.3 + x.flip(0) * 0.7).detach().clone().requires_grad_()
    y = layer(mixed).tanh()
    (g,) = torch.autograd.grad(y, mixed, grad_outputs=torch.ones_like(y), create_graph=True, retain_graph=True)
    return ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean() + y.mean()


@program(layer_and(x))
def gradients_of_parameters(layer, x):
    loss = layer(x).square().mean()
    grads = torch.autograd.grad(loss, list(layer.parameters()))
    return loss, grads


@program(layer_and(x))
def inner_step(layer, x):
    loss = layer(x).square().mean()
    w, b = torch.autograd.grad(loss, tuple(layer.parameters()), create_graph=True)
    return nn.functional.linear(x, layer.weight - 0.1 * w, layer.bias - 0.1 * b).square().mean()


@program(lambda: (leaf(), leaf()))
def gradient_of_unused(x, y):
    found = torch.autograd.grad((x * 2).sum(), (x, y), allow_unused=True)
    zeros = torch.autograd.grad((x * 2).sum(), (x, y), materialize_grads=True)
    return found, zeros


@program(lambda: (leaf(), leaf()), breaks="eager raises")
def gradient_of_unused_raises(x, y):
    return torch.autograd.grad((x * 2).sum(), (x, y))


@program(lambda: (leaf(),), breaks="eager raises")
def gradient_of_no_scalar_raises(x):
    return torch.autograd.grad(x * 2, x)


@program(lambda: (leaf(),), breaks="eager raises")
def gradient_twice_raises(x):
    y = (x * x).sum()
    torch.autograd.grad(y, x)
    return torch.autograd.grad(y, x)


@program(lambda: (leaf(),))
def gradient_twice(x):
    y = (x * x).sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x)
    return first + second


@program(lambda: (leaf(),))
def gradient_of_a_part(x):
    y = x * 2
    z = y.sin()
    (g,) = torch.autograd.grad(z.sum(), y, retain_graph=True)
    return g, z


@program(lambda: (leaf(),))
def history_kept_in_a_result(x):
    y = (x * x).sum()
    (g,) = torch.autograd.grad(y, x, retain_graph=True)
    return y + g.sum()


@program(lambda: (leaf(),))
def history_without_anything_saved(x):
    y = (x * 2).sum()
    (g,) = torch.autograd.grad(y, x)
    return y, g


@program(lambda: (x(),))
def gradient_where_they_are_off(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (g,) = torch.autograd.grad(y.exp().sum(), y)
        return x + g


def together():
    x = leaf()
    return x, (x * 3).exp()


@program(together, breaks="other inputs may come from this one")
def gradient_through_the_outside(x, y):
    return torch.autograd.grad((x * y).sum(), x, retain_graph=True)


# -- backward() --------------------------------------------------------------------------------------------


@program(lambda: (leaf(),))
def backward_and_gradient(x):
    (x**2).sum().backward()
    return x.grad + 1


@program(lambda: (leaf(),))
def backward_with_a_gradient(x):
    y = x.sin()
    y.backward(torch.ones_like(y) * 2)


@program(lambda: (leaf(), leaf()))
def backward_for_some(x, y):
    (x * y).sum().backward(inputs=[x])
    return y.grad is None


@program(lambda: (leaf(), leaf()))
def backward_shares_no_memory(x, y):
    (x + y).sin().sum().backward()


@program(lambda: (torch.randn(3, 2).t().requires_grad_(), torch.randn(2, 6)[:, ::2].requires_grad_()))
def backward_lays_out_as_the_leaf(x, y):
    (x.contiguous() * 2 + y.exp()).sum().backward()


@program(layer_and(x))
def backward_twice(layer, x):
    layer(x).sin().sum().backward()
    layer(x).cos().sum().backward()
    return layer.weight.grad.norm()


@program(layer_and(x))
def backward_and_loss(layer, x):
    loss = layer(x).sin().sum()
    loss.backward()
    return loss


@program(layer_and(x))
def backward_and_loss_and_middle(layer, x):
    y = layer(x).sin()
    loss = y.square().sum()
    loss.backward()
    return loss, y


@program(lambda: (leaf(),), breaks="a view of what the history ended in")
def backward_and_views(x):
    y = x.sin()
    y.square().sum().backward()
    return y, y[0]


@program(lambda: (leaf(),))
def backward_of_a_tensor_made_inside(x):
    y = x.detach().clone().requires_grad_()
    (y * y * x).sum().backward()
    return y.grad


@program(lambda: ((leaf() * 2),), breaks="the history goes on outside")
def backward_out_of_the_graph(x):
    x.sin().sum().backward()
    return x * 2


def hooked():
    x = leaf()
    x.register_hook(lambda g: g * 2)
    return (x,)


@program(hooked, breaks="hooks")
def backward_with_a_hook(x):
    (x * x).sum().backward()
    return x.grad


def hooked_after():
    x = leaf()
    x.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(3))
    return (x,)


@program(hooked_after, breaks="hooks")
def backward_with_a_hook_after(x):
    (x * x).sum().backward()
    return x.grad


@program(lambda: (leaf(),), breaks="anomaly mode")
def gradient_in_anomaly_mode(x):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        return torch.autograd.grad((x * x).sum(), x)
