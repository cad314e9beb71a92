"""A fixed sample of the table of promotion, and the rows that were wrong once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from tests.differential import promotion
from tests.differential.promotion import Case, Operand, cases, compiled, differ, differences, eager, overloads, sample

BF16, I64, F32 = torch.bfloat16, torch.int64, torch.float32


@pytest.mark.filterwarnings("ignore")
def test_a_sample_promotes_as_eager_does() -> None:
    assert list(differences(sample(0.003, seed=11))) == []


def case(name: str, *operands: Operand, **keywords: Operand) -> Case:
    packet, overload = name.split(".")
    return Case(getattr(getattr(torch.ops.aten, packet), overload), operands, tuple(keywords.items()))


def dims(dtype: torch.dtype) -> Operand:
    return Operand("dims", dtype)


def single(dtype: torch.dtype) -> Operand:
    return Operand("single", dtype)


def number(value: object) -> Operand:
    return Operand("number", value)


FOUND = [
    case("ldexp.Tensor", dims(BF16), dims(I64)),
    case("addcmul.default", dims(I64), dims(I64), dims(I64), value=number(0.5)),
    case("addcmul.default", dims(torch.int32), dims(torch.int32), dims(torch.int32), value=number(2.5)),
    *[case(f"{name}.Tensor", dims(BF16), single(F32)) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    case("xlogy.Tensor", dims(torch.float16), single(F32)),
    case("add.Scalar", dims(I64), number(3), number(2)),
    case("sub.Scalar", single(F32), number(300), number(0.5)),
    case("bitwise_and.Scalar", dims(torch.uint8), number(300)),
    case("ne.Scalar", dims(torch.float64), number(1.5 + 2j)),
    case("__ilshift__.Tensor", dims(I64), dims(I64)),
]


@pytest.mark.parametrize("found", FOUND, ids=str)
def test_found(found: Case) -> None:
    want = eager(found)
    assert want is not None
    got = compiled([found])
    assert not isinstance(got, Exception), got
    assert differ(found, got[0], want) == ""


#: Integers that no half type holds: float16 makes infinities of some.
LARGE = torch.tensor([70001, 4099, -131071, 2**40 + 1, 257, 0])
MEETING = ("mul", "div", "add", "sub", "maximum", "fmod", "remainder", "atan2", "eq", "lt", "floor_divide")


@pytest.mark.parametrize("half", [torch.float16, BF16], ids=str)
@pytest.mark.parametrize("name", MEETING)
def test_integers_are_rounded_to_the_half_type_that_they_meet(name: str, half: torch.dtype) -> None:
    """Those of many elements; the only one of a tensor is a number for some kernels."""
    function = getattr(torch, name)
    x = torch.tensor([1.25, -2.0, 0.5, torch.inf, 0.0, 0.0], dtype=half)
    pairs = [(x, LARGE), (LARGE, x), (x, LARGE[:1]), (x, LARGE[0]), (LARGE[:1], x), (LARGE[0], x), (x[2], LARGE)]

    def program(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        return [function(a, b) for a, b in pairs]

    got = stator.compile(program, fullgraph=True, options={"strict": True})(pairs)
    for found, want in zip(got, program(pairs), strict=True):
        torch.testing.assert_close(found, want, rtol=0, atol=0, equal_nan=True)


def test_powers_of_two_are_exact() -> None:
    x = torch.tensor([1.5, 3e38, 1e-40, -0.0, float("nan"), 2.0, 1e-300, 1e300, 1.0000001, 3.0])
    x = torch.cat([x.double(), torch.tensor([1e-300, 1e300, 2.0**-1000 * 1.7], dtype=torch.float64)])
    n = torch.tensor([200, -200, 150, 4, 3, -149, 1030, -1080, -130, -26, 1030, -1080, -70])
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        got = stator.compile(torch.ldexp, fullgraph=True, options={"strict": True})(x.to(dtype), n)
        torch.testing.assert_close(got, torch.ldexp(x.to(dtype), n), rtol=0, atol=0, equal_nan=True)


def test_the_table_is_of_all_pointwise_overloads() -> None:
    found = overloads()
    assert len(found) > 190 and torch.ops.aten.add.Tensor in found and torch.ops.aten.lerp_.Scalar in found
    assert len(list(cases(torch.ops.aten.add.Tensor))) > 22 * 22


def test_a_wrong_dtype_and_a_wrong_value_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [case("add.Tensor", dims(F32), dims(F32))]
    for wrong in (Tensor.double, lambda t: t * 1.00001):
        monkeypatch.setattr(promotion, "compiled", lambda some, wrong=wrong: [wrong(eager(one)) for one in some])
        assert len(list(differences(chosen))) == 1


@pytest.mark.parametrize("of", [torch.float64, F32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("exponent", [torch.float64, F32, BF16, torch.float16], ids=str)
def test_a_power_of_one_number_has_the_dtype_of_both(of: torch.dtype, exponent: torch.dtype) -> None:
    """2**92 is no float16, but a number of bfloat16 and float16 together."""
    x = torch.tensor([1.5, -3.0, 0.7], dtype=of)
    for n in (torch.tensor(92.0, dtype=exponent), torch.tensor([92.0, 3.0, -7.0], dtype=exponent)):
        for given in (x, x[0]):
            got = stator.compile(torch.ldexp, fullgraph=True, options={"strict": True})(given, n)
            torch.testing.assert_close(got, torch.ldexp(given, n), rtol=0, atol=0, equal_nan=True)


#: Gradients of activations, most of which PyTorch does not call pointwise, with what they take besides two tensors.
GRADIENTS: dict[str, tuple[Any, ...]] = {
    "silu_backward": (), "mish_backward": (), "sigmoid_backward": (), "tanh_backward": (), "hardswish_backward": (),
    "hardsigmoid_backward": (), "softplus_backward": (1.0, 20.0), "leaky_relu_backward": (0.1, False),
    "threshold_backward": (0.1,), "hardtanh_backward": (-1.0, 1.0), "hardshrink_backward": (0.5,),
    "softshrink_backward": (0.5,), "logit_backward": (None,),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_two_dtypes_are_computed_in_the_one_that_both_promote_to(name: str) -> None:
    gradient, rest = getattr(torch.ops.aten, name), GRADIENTS[name]
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    made = [(torch.randn(50, dtype=a), torch.rand(50, dtype=b)) for a, b in itertools.permutations(kinds, 2)]
    pairs = [pair for pair in made if _takes(lambda pair: gradient(*pair, *rest), pair)]
    assert pairs

    def all_of(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        return [gradient(*pair, *rest) for pair in pairs]

    for got, want in zip(stator.compile(all_of, fullgraph=True)(pairs), all_of(pairs), strict=True):
        assert got.dtype is want.dtype
        eps = torch.finfo(want.dtype).eps
        torch.testing.assert_close(got, want, rtol=4 * eps, atol=4 * eps)


def _takes(function: Callable[..., Any], pair: tuple[Tensor, Tensor]) -> bool:
    """Whether eager does."""
    try:
        function(pair)
    except RuntimeError:
        return False
    return True
