"""Which kernels attention may use: guarded, left as it was, and what libraries are told of compilers because of it.

PyTorch's kernel on the CPU takes no mask of three dimensions, as the one on a GPU takes none at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import stator
from stator.base.errors import FallbackWarning, FaultWarning
from stator.capture.entry import versions_of

FLASH = SDPBackend.FLASH_ATTENTION
Q, K, V = torch.randn(3, 2, 2, 8, 16).unbind()
ALL = torch.ones(8, 8, dtype=torch.bool)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Breaks on the mask's data are wanted here, and PyTorch tells why it takes no kernel."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FallbackWarning)
        warnings.filterwarnings("ignore", message=".*(attention kernel not used|attn mask shapes).*")
        yield


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """As libraries write it: the mask is left out by its data, where no compiler would have to look at that."""
    left_out = not torch.compiler.is_compiling() and bool(mask.all())
    return F.scaled_dot_product_attention(q, k, v, None if left_out else mask.unsqueeze(0)).exp()


def inside(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    with sdpa_kernel(FLASH):
        return attention(q * 2, k, v, mask) + 1


def below(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    with sdpa_kernel(FLASH):
        q = q * 2
        stator.graph_break()
        return attention(q, k, v, mask) + 1


@pytest.mark.parametrize("function", [attention, inside, below])
@pytest.mark.parametrize("calls", [1, 3])
def test_no_exception_where_eager_raises_none(function: Callable[..., Tensor], calls: int) -> None:
    compiled = stator.compile(function, options={"strict": True})
    for _ in range(calls):
        with sdpa_kernel(FLASH):
            given = compiled(Q, K, V, ALL)
            torch.testing.assert_close(given, function(Q, K, V, ALL))
        torch.testing.assert_close(
            given.double(), function(Q.double(), K.double(), V.double(), ALL), atol=1e-4, rtol=1e-4
        )
    assert torch._C._get_math_sdp_enabled()


@pytest.mark.parametrize("function", [attention, inside, below])
def test_what_eager_raises_is_raised(function: Callable[..., Tensor]) -> None:
    compiled = stator.compile(function, options={"strict": True})
    some = ALL.tril()
    for _ in range(2):
        with sdpa_kernel(FLASH), pytest.raises(RuntimeError, match="No available kernel"):
            function(Q, K, V, some)
        with sdpa_kernel(FLASH), pytest.raises(RuntimeError, match="No available kernel"):
            compiled(Q, K, V, some)
        assert torch._C._get_math_sdp_enabled()


def test_versions_are_of_switches() -> None:
    compiled = stator.compile(attention, options={"strict": True})
    kernels: list[Any] = [[FLASH, SDPBackend.MATH], FLASH, SDPBackend.MATH, [FLASH, SDPBackend.MATH], SDPBackend.MATH]
    counts = []
    for which in kernels:
        with sdpa_kernel(which):
            torch.testing.assert_close(compiled(Q, K, V, ALL), attention(Q, K, V, ALL))
        counts.append(len(versions_of(compiled)))
    assert counts == [1, 2, 3, 3, 3]


def test_kernels_are_chosen_by_the_switches_of_the_call() -> None:
    compiled = stator.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), options={"strict": True})
    compiled(Q, K, V)
    with sdpa_kernel(SDPBackend.MATH):
        exact = F.scaled_dot_product_attention(Q.double(), K.double(), V.double())
        torch.testing.assert_close(compiled(Q, K, V).double(), exact, atol=1e-5, rtol=1e-5)
    assert len(versions_of(compiled)) == 2


def test_torch_itself_is_told_of_the_compiler() -> None:
    net = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(net.parameters())

    def step(x: Tensor) -> Tensor:
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with sdpa_kernel(FLASH):
        step(torch.randn(2, 3))  # Adam makes its state by the first
        explained = stator.explain(step)(torch.randn(2, 3))
    assert len(explained.graphs) == 1 and not explained.breaks


@pytest.mark.faults
def test_a_trace_that_fails_leaves_modes_alone() -> None:
    def fails(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        left_out = not torch.compiler.is_compiling() and bool(mask.all())
        mask = mask.unsqueeze(0)
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad(), sdpa_kernel(FLASH):
            return F.scaled_dot_product_attention(q, k, v, None if left_out else mask)

    compiled = stator.compile(fails)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FaultWarning)
        given = compiled(Q, K, V, ALL)
    torch.testing.assert_close(given, fails(Q, K, V, ALL))
    assert torch._C._get_math_sdp_enabled() and torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled()


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: BertModel(BertConfig(**SIZES)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_leave_their_mask_out_where_eager_does(name: str) -> None:
    model = MODELS[name]().eval()
    ids, mask = torch.randint(0, 50, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    found: list[Any] = []

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        calls = gm.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
        found.extend(node.kwargs["attn_mask"] for node in calls)
        return gm.forward

    with sdpa_kernel(FLASH), torch.no_grad():
        given = stator.compile(model, backend=backend, options={"strict": True})(ids, attention_mask=mask)
        torch.testing.assert_close(given[0], model(ids, attention_mask=mask)[0])
    assert found == [None, None]
