"""Shape functions say what operators give: on the CPU for some entries of the database, on a GPU for all of them."""

from __future__ import annotations

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
