"""Tensors: methods, properties, indexing, in place, out=, views and aliasing."""

import torch

from tests.capture.programs.table import leaf, program, x


@program(operators=3)
def arithmetic(x):
    return x * 2 + 1 - x


@program()
def operators_of_all_kinds(x):
    n = (x * 4).to(torch.int64)
    return -x, +x, ~n, x // 2, x % 2, x**2, x @ x.T, n & 3, n | 1, n ^ 2, n << 1, n >> 1, 1 / x, 2 - x, 2**x


@program()
def comparisons(x):
    return x > 0, x <= 1, x == x, x != 0, (x > 0) & (x < 1), ~(x > 0), 0 < x


@program()
def in_place_operators(x):
    y = x.clone()
    y += 1
    y *= 2
    y -= x
    y /= 3
    y **= 2
    return y


@program()
def properties(x):
    return x + 1, x.shape, x.dtype, x.device, x.ndim, x.requires_grad, x.is_leaf, x.layout, x.itemsize, x.is_cuda


@program()
def transposes(x):
    return x.T, x.mT, x.H, x.t() + 1, x.transpose(0, 1).contiguous(), x.permute(1, 0), torch.randn(2).dim()


@program()
def questions(x):
    return x + 1, x.size(), x.size(0), x.stride(), x.is_contiguous(), x.numel(), x.is_floating_point(), x.element_size()


@program(lambda: (torch.randn(4, 5, 6), torch.tensor([0, 2])))
def indexing(x, index):
    return x[0], x[:, 1:3], x[..., -1], x[None], x[index], x[:, index], x[1, 2, 3], x[::2, ..., ::3], x[[0, 1]]


@program(lambda: (torch.randn(3, 3),), breaks="the size of the result depends on data")
def boolean_indexing(x):
    return x[x > 0]


@program(lambda: (torch.randn(4, 4),))
def item_assignment(x):
    y = x.clone()
    y[0] = 1
    y[:, 1] = y[:, 2]
    y[1:3, ::2] += 5
    y[y > 2] = 0
    return y


@program()
def argument_changed_in_place(x):
    x.add_(1)
    return x * 2


@program()
def argument_item_assignment(x):
    x[0] = 7
    x[:, 1] *= 2
    return x.sum()


@program()
def argument_returned(x):
    return x, x.add_(1)


@program()
def view_of_argument_returned(x):
    return x.view(-1), x[0], x.T, x.detach()


@program()
def view_changed_in_place(x):
    row = x[0]
    row.mul_(3)
    return x.sum(), row


@program()
def view_of_result(x):
    y = x * 2
    return y, y.view(-1), y[0]


@program(lambda: (torch.arange(6.0).reshape(2, 3),) * 2)
def same_tensor_twice(a, b):
    return a is b, a + b


@program(lambda: (t := torch.arange(6.0), t.view(2, 3)))
def arguments_share_memory(a, b):
    return a.sum() + b.sum()


@program()
def out_argument(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    torch.mul(y, 2, out=y)
    return y


@program(lambda: (x(), torch.zeros(2, 3)))
def out_argument_given(x, y):
    result = torch.sub(x, 1, out=y)
    return result is y, y * 2


@program(lambda: (x(), torch.zeros(2), torch.zeros(2, dtype=torch.int64)))
def out_argument_of_several(x, values, indices):
    torch.max(x, dim=1, out=(values, indices))
    return values + 1, indices


@program(lambda: (x(), torch.zeros(0)), breaks="the memory of a tensor is exchanged")
def out_argument_resized(x, y):
    torch.add(x, 1, out=y)
    return y * 2


@program()
def conversions(x):
    return (
        x.double(),
        x.half(),
        x.to(torch.float64),
        x.int(),
        x.bool(),
        x.type(torch.float16),
        x.to(x.double()),
        x.float(),
    )


@program()
def to_with_device(x):
    return x.to("cpu"), x.cpu(), x.to("cpu", torch.float64), x.to(device=x.device), x.type()


@program()
def factories(x):
    return (
        torch.zeros(2, 3) + x,
        torch.ones_like(x),
        torch.full((2,), 3.0),
        torch.arange(3),
        torch.eye(2),
        torch.linspace(0, 1, 3),
        torch.empty(2, 0),
        torch.tensor([1.0, 2.0]),
        x.new_zeros(2),
        x.new_tensor([1]),
    )


@program()
def tensor_from_python(x):
    scale = torch.tensor(3.0)
    return (
        x * scale,
        torch.as_tensor([1, 2]),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.float64),
        torch.scalar_tensor(2),
    )


@program()
def known_constant_decides(x):
    flag = torch.tensor(3)
    return x + 1 if flag.item() > 2 else x


@program()
def reductions(x):
    return x.sum(), x.mean(0), x.max(), x.min(dim=1), x.argmax(-1), x.std(), x.var(0, keepdim=True), x.prod(), x.norm()


@program()
def multiple_results(x):
    values, indices = x.sort()
    top = x.topk(2)
    return values, indices, top.values, top[1], torch.max(x, 0).indices, x.aminmax()


@program()
def shapes(x):
    return (
        x.reshape(3, 2),
        x.view(-1),
        x.flatten(),
        x.unsqueeze(0),
        x[None].squeeze(),
        x.expand(4, 2, 3),
        x.repeat(2, 1),
        x.chunk(3, 1),
        x.split([1, 2], 1),
        x.unbind(),
        x.view_as(x),
        x.unflatten(1, (3, 1)),
        x.movedim(0, 1),
        x.tile(2),
    )


@program()
def joins(x):
    return (
        torch.cat([x, x]),
        torch.stack((x, x), -1),
        torch.hstack([x, x]),
        torch.vstack([x, x]),
        torch.meshgrid(x[0], x[1], indexing="ij"),
    )


@program()
def iteration_and_len(x):
    total = 0
    for row in x:
        total = total + row
    a, b = x
    return total, len(x), a + b, list(x.unbind(1))


@program()
def einsum(x):
    return torch.einsum("ij,kj->ik", x, x), torch.einsum("ij->j", x)


@program(lambda: (leaf(),))
def detach_and_data(x):
    return (x * 2).detach(), x.detach() + 1, x.data * 2


@program(lambda: (leaf(),))
def clone_and_contiguous(x):
    return x.clone(), x.T.contiguous(), x.clone(memory_format=torch.contiguous_format)


@program(breaks="what autograd records is changed")
def requires_grad_method(x):
    y = (x * 2).detach().requires_grad_()
    return y * 3, y.requires_grad


class Frozen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3).requires_grad_(False)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.first(x)
        if self.training:
            hidden.requires_grad = True
        return self.second(hidden.detach().requires_grad_() + hidden)


@program(lambda: (Frozen(), x()), operators=6)
def requires_grad_in_the_middle(model, x):
    return model(x)


@program(lambda: (x(),), breaks="what autograd records is changed")
def requires_grad_of_argument(x):
    x.requires_grad_(True)
    return x * 2


@program(lambda: (leaf(),))
def requires_grad_facts(x):
    y = x * 2
    return y, y.requires_grad, y.is_leaf, x.is_leaf, y.grad_fn is not None, x.grad_fn


@program(lambda: (leaf(),))
def grad_read(x):
    return x.grad is None, x * 2


def with_grad():
    t = leaf()
    t.grad = torch.ones(2, 3)
    return t


@program(lambda: (with_grad(),))
def grad_used(x):
    return x.detach() - 0.1 * x.grad


@program(lambda: (with_grad(),))
def grad_changed_in_place(x):
    x.grad.mul_(0.5)
    return x.detach() + 1


@program(lambda: (with_grad(),))
def grad_set_to_none(x):
    y = x.detach() + x.grad if x.grad is not None else x.detach()
    x.grad = None
    return y


@program(lambda: (leaf(),))
def update_under_no_grad(x):
    with torch.no_grad():
        x.sub_(0.1)
        x.copy_(x * 2)
    return x * 3


@program(lambda: (x(),), breaks="the memory of a tensor is exchanged")
def data_assigned(x):
    x.data = x.data * 2
    return x + 1


@program()
def where_and_masks(x):
    return (
        torch.where(x > 0, x, -x),
        x.masked_fill(x < 0, 0.0),
        x.clamp(min=0),
        x.nan_to_num(),
        torch.where(x > 0, 1.0, 0.0),
    )


@program(lambda: (x(), torch.tensor([[0, 1, 0]])))
def gather_and_scatter(x, index):
    return (
        x.gather(0, index),
        torch.zeros(2, 3).scatter_(0, index, 1.0),
        x.index_select(1, index[0]),
        x.scatter_add(0, index, x),
    )


@program()
def chained_in_place(x):
    y = x.clone().add_(1).mul_(2).relu_()
    y.zero_().fill_(3)
    return y


@program()
def linear_algebra(x):
    a = x @ x.T + torch.eye(2) * 3
    return torch.linalg.inv(a), torch.linalg.norm(x), torch.linalg.cholesky(a), torch.linalg.det(a)


@program()
def complex_tensors(x):
    z = torch.complex(x, x * 2)
    return z.real, z.imag, z.abs(), z.conj(), torch.view_as_real(z), z * 1j


@program(lambda: (torch.randn(8),))
def fourier(x):
    return torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x))


@program()
def dtype_arithmetic(x):
    return (
        x.dtype == torch.float32,
        torch.promote_types(torch.int8, torch.float16),
        torch.finfo(x.dtype).max * x,
        torch.iinfo(torch.int8).min,
        x.dtype.is_floating_point,
        str(x.dtype).split(".")[1],
    )


@program()
def result_types(x):
    return x + 1, x.long() + 1.5, torch.result_type(x, 1), torch.can_cast(torch.int32, torch.float32), x.double() + x


@program()
def memory_formats(x):
    y = torch.zeros(1, 3, 2, 2).to(memory_format=torch.channels_last)
    return y.is_contiguous(memory_format=torch.channels_last), y.stride(), x + 1


@program()
def strided_views(x):
    return (
        x.as_strided((2, 2), (3, 1)),
        x.unfold(1, 2, 1),
        x.diagonal(),
        x.narrow(1, 0, 2),
        x.select(0, 1),
        x.storage_offset(),
    )


@program()
def cumulative(x):
    return x.cumsum(1), x.cumprod(0), x.diff(), x.flip(0), x.roll(1, 1), x.tril(), x.triu(1)


@program()
def size_object(x):
    s = x.size()
    batch, *rest = s
    return x.new_ones(batch, *rest), s.numel(), tuple(s), list(s), s[0] * s[1], torch.Size((1,)) + s


@program()
def tensor_as_index_and_bool_facts(x):
    n = x.shape[0]
    return x[n - 1], x[-n], x[:n], x[n:], x[: n // 2]


@program()
def tensor_in_containers_truth(x):
    items = [x]
    return items[0] is x, x is None, bool(items), x + 1


@program()
def apply_methods_by_name(x):
    for name in ("relu", "exp", "tanh"):
        x = getattr(x, name)()
    return getattr(torch, "sum")(x)


@program()
def unbound_tensor_methods(x):
    return torch.Tensor.add(x, 1), torch.Tensor.sum(x, dim=0), list(map(torch.Tensor.relu, [x]))


@program()
def keyword_arguments(x):
    return torch.sum(input=x, dim=0, keepdim=True), x.sum(dim=(0, 1)), torch.add(x, other=x, alpha=2), x.sum(axis=0)


@program(lambda: (torch.nn.Parameter(torch.ones(2, 3)), x()))
def parameter_argument(p, x):
    return p * x, isinstance(p, torch.nn.Parameter), type(p).__name__


class Marked(torch.Tensor):
    pass


@program(lambda: (x().as_subclass(Marked),), breaks="a tensor subclass")
def tensor_subclass(x):
    return x + 1


class Intercepting(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is torch.relu else result


@program(lambda: (x().as_subclass(Intercepting),), breaks="a tensor subclass")
def torch_function_subclass(x):
    return torch.relu(x)


@program(lambda: (x(), 3, 2.5, True, "relu"))
def python_arguments(x, n, f, flag, name):
    return getattr(torch, name)(x) * n + f if flag else x


@program()
def tensor_attributes(x):
    y = x * 2
    y.tag = "mine"
    return y + 1, y.tag


def tagged():
    t = x()
    t.tag = 5
    return t


@program(lambda: (tagged(),))
def tensor_attribute_read(x):
    return x * x.tag, hasattr(x, "other")


@program(breaks="sparse tensors")
def sparse_result(x):
    return x.to_sparse().to_dense() + 1


@program()
def deterministic_fill(x):
    return (
        torch.empty(3).fill_(2.0),
        torch.zeros(2, dtype=x.dtype, device=x.device),
        torch.zeros_like(x, dtype=torch.int8),
    )


@program()
def broadcasting_helpers(x):
    a, b = torch.broadcast_tensors(x, x[0])
    return a + b, torch.broadcast_shapes((2, 1), (3,)), torch.atleast_2d(x[0]), torch.is_tensor(x)
