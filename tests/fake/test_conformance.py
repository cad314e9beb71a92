"""Shape functions say what operators give: on the CPU for some entries of the database, on a GPU for all of them."""

from __future__ import annotations

import itertools

import pytest
import torch

import stator
from stator.coverage import database
from stator.fake import FakeMode, FakeTensor, make
from stator.fake.execute import RULES
from tests.fake.conformance import Conformance, check

aten = torch.ops.aten

#: `python -m tests.fake.conformance` has all of them.
ENTRIES = (
    "nn.functional.scaled_dot_product_attention", "nn.functional.conv2d", "nn.functional.batch_norm", "sort",
    "nn.functional.layer_norm", "nn.functional.max_pool2d", "linalg.svd", "nn.functional.interpolate.bilinear", "cdist",
    "std_mean",
    "nn.functional.cross_entropy", "index_put", "stft", "nn.functional.embedding_bag", "masked_scatter", "einsum",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENTRIES)
def test_entries(name: str) -> None:
    found = check(name, "float32", "cpu", 2)
    assert found.compared and not found.found


@pytest.mark.parametrize("name", ["_batch_norm_with_update", "nn.functional.group_norm"])
def test_statistics_of_half_types(name: str) -> None:
    found = check(name, "bfloat16", "cpu", 2)
    assert found.compared and not found.found


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_all_entries_on_a_gpu(dtype: str) -> None:
    found: dict[str, str] = {}
    for name in database.names(dtype, "", "cuda"):
        found |= {f"{operator} in {name}": why for operator, why in check(name, dtype, "cuda", 2).found.items()}
    assert not found


#: Of signals, sizes and whether channels are innermost; of weights, likewise.
SIGNALS = [((7, 17, 9), False), ((7, 17, 9), True), ((2, 17, 1), False), ((1, 4, 9), True)]
WEIGHTS = [((2, 3), False), ((2, 3), True), ((1, 1), True), ((3, 2), "part")]


def _signal(size: tuple[int, ...], last: object, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    if not last:
        return torch.rand(size, dtype=dtype, device=device)
    whole = torch.rand(size[0], size[2] + (last == "part"), size[1], dtype=dtype, device=device).transpose(1, 2)
    return whole[..., : size[2]]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_convolved_signals_lie_as_the_weight_does(device: str, dtype: torch.dtype) -> None:
    wrong = []
    for (size, last), ((channels, length), weight_last) in itertools.product(SIGNALS, WEIGHTS):
        x = _signal(size, last, dtype, device)
        weight = _signal((channels, size[1], length), weight_last, dtype, device)
        for padding in (1, 2):
            rest = None, [1], [padding], [1], False, [0], 1
            want = aten.convolution(x, weight, *rest)
            found = RULES[aten.convolution.default](*[_fake(t, t.device) for t in (x, weight)], *rest)
            if found is not NotImplemented and found.stride() != want.stride():
                wrong.append((size, last, weight.shape, weight_last, found.stride(), want.stride()))
    assert not wrong


def _fake(tensor: torch.Tensor, device: torch.device) -> FakeTensor:
    return make(tuple(tensor.shape), tensor.dtype, device, tensor.stride())


def test_signals_of_a_gpu_lie_as_its_library_has_them() -> None:
    """The channel innermost where the weight has it so; of doubles cuDNN has one layout."""
    for dtype, strides in ((torch.float32, (14, 1, 2)), (torch.bfloat16, (14, 1, 2)), (torch.float64, None)):
        x = _fake(_signal((7, 17, 7), True, dtype), torch.device("cuda"))
        weight = _fake(_signal((2, 17, 2), "part", dtype), torch.device("cuda"))
        found = RULES[aten.convolution.default](x, weight, None, [1], [1], [2], False, [0], 1)
        assert found is NotImplemented if strides is None else found.stride() == strides


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_without_gradients_on_a_gpu(dtype: torch.dtype) -> None:
    """Its sums of exponentials are undefined, and nothing reads them."""
    q, k, v = (torch.randn(2, 4, 64, 64, device="cuda", dtype=dtype) for _ in range(3))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    with torch.no_grad():
        found = stator.compile(attend, fullgraph=True, options={"strict": True})(q, k, v)
        torch.testing.assert_close(found, attend(q, k, v), rtol=2e-2, atol=2e-2)


def test_sums_that_are_not_wanted_are_undefined() -> None:
    with FakeMode():
        q, k, v = (make((2, 4, 64, 64), torch.bfloat16, torch.device("cuda")) for _ in range(3))
        for wanted in (False, True):
            out = aten._scaled_dot_product_cudnn_attention.default(q, k, v, None, wanted)
            assert isinstance(out[0], FakeTensor) and (out[1] is not None) is wanted


WRONG = {
    "strides": lambda x: make(x.shape, x.dtype, x.device, tuple(reversed(x.stride()))),
    "size": lambda x: make((*x.shape, 1), x.dtype, x.device),
    "dtype": lambda x: make(x.shape, torch.float64, x.device),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, aten.sin.default, WRONG[what])
    x = torch.randn(3, 4)
    with Conformance() as mode:
        torch.sin(x)
    assert list(mode.found) == ["aten.sin.default"] and not Conformance().found


def test_a_result_that_is_undefined_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a layer norm's input is not asked for, and said to be made."""
    rule = lambda grad, x, *args: tuple(make(x.shape, x.dtype, x.device) for _ in range(3))  # noqa: E731
    monkeypatch.setitem(RULES, aten.native_layer_norm_backward.default, rule)
    x, weight = torch.randn(4, 4), torch.randn(4)
    out, mean, rstd = aten.native_layer_norm(x, [4], weight, weight, 1e-5)
    with Conformance() as mode:
        aten.native_layer_norm_backward(out, x, [4], mean, rstd, weight, weight, [False, False, False])
    assert "said to be a tensor" in mode.found["aten.native_layer_norm_backward.default"]
