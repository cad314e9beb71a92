"""Values that a trace knows, as of tensors made of numbers: operators that ask for them get them until a write."""

import pytest
import torch

import stator


def views_and_writes(x):
    zeros = torch.zeros(2, dtype=torch.long)
    first = zeros[0]
    zeros.fill_(3)
    twos = torch.full((2,), 2)
    last = twos[1:]
    last.add_(5)
    return x * (first + 1), twos * 2, twos.sum() + last, first


@pytest.mark.parametrize("function", [torch.cov, torch.corrcoef, views_and_writes])
def test_as_eager(function):
    x = torch.randn(3, 5)
    compiled = stator.compile(lambda x: function(x), fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))


RESTRIDED = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.unsqueeze_(1).squeeze_(1),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, -1),
    "as_strided_": lambda x: x.as_strided_((2, 1), (1, 1)),
}


@pytest.mark.parametrize("name", RESTRIDED)
def test_a_known_value_in_another_geometry(name):
    def function(x):
        known = torch.tensor([[1, 2, 3], [4, 5, 6]])
        same = known.view_as(known)
        RESTRIDED[name](known)
        known.add_(x.dim())
        return known.mT + x, known[0] * 2, same * 1, same + x

    x = torch.randn(())
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    for got, want in zip(compiled(x), function(x), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)


def _fused(x):
    weight, moment, second, steps = torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.zeros(())
    torch._fused_adam_(
        [weight], [x], [moment], [second], [], [steps],
        lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1.0, amsgrad=False, maximize=False,
    )  # fmt: skip
    return moment.tolist(), second.tolist(), moment * 1


def _normalised(x):
    mean, var = torch.zeros(3), torch.ones(3)
    y = torch.nn.functional.batch_norm(x.repeat(4, 1) * torch.arange(4.0)[:, None], mean, var, training=True)
    return y, mean.tolist(), var.tolist()


def _viewed(x):
    known = torch.full((), 3.0)
    torch._foreach_mul_([x.clone(), known.view(1)], 2.0)
    return known.item(), known * 1


def _copied(x):
    known = torch.full((3,), 3.0)
    torch._foreach_copy_([known], [x])
    return known.tolist(), known * 1


def _added(x):
    known, other = torch.tensor(1), torch.tensor([2.0])
    torch._foreach_add_([known], 1)
    torch._foreach_addcmul_([other], [x[:1]], [x[:1]], value=2.0)
    return x[known.item() :], known.item(), other.item(), other * 1


def _checked(x):
    found = torch.full((), 0.0)
    torch._amp_foreach_non_finite_check_and_unscale_([x / 0], found, torch.full((), 2.0))
    return found.item(), found * 1


def _scaled(x):
    scale, steps = torch.full((), 4.0), torch.zeros((), dtype=torch.int32)
    torch._amp_update_scale_(scale, steps, (x[0] > 100).float(), 2.0, 0.5, 1)
    return scale.item(), steps.item(), scale * 1


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", [_fused, _normalised, _viewed, _copied, _added, _checked, _scaled])
def test_writes_that_an_operator_does_not_return(function):
    """Lists, statistics, flags: what is written to and not given back is not what it was."""
    x = torch.tensor([1.5, -2.0, 3.0])
    compiled = stator.compile(lambda x: function(x), options={"strict": True})
    torch.testing.assert_close(compiled(x), function(x))
