"""Tensors of sizes and dtypes that an operator does not take: fakes raise where eager does.

A shape rule is quicker than PyTorch's own shape function and must not take more. The calls are the operator database's,
with one tensor of another size or dtype.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stator.base.errors import StatorError
from stator.coverage import database
from stator.coverage.database import Sample
from stator.fake import FakeMode

NAMES = [
    *("scatter", "scatter_add", "scatter_reduce.amax", "gather", "index_copy", "index_put"),
    *(
        "index_select",
        "slice_scatter",
        "select_scatter",
        "diagonal_scatter",
        "masked_fill",
        "tril",
        "triu",
        "unsqueeze",
    ),
    *("cumprod", "logsumexp", "norm", "native_layer_norm", "nn.functional.layer_norm", "addmm", "bmm"),
    *("nn.functional.embedding", "nn.functional.nll_loss", "nn.functional.cross_entropy", "nn.functional.max_unpool2d"),
    *("addmv", "index_add", "index_fill", "index_reduce.amax", "nn.functional.soft_margin_loss"),
]
#: What a fake may raise: where it is not eager's error, the program itself is run to raise that.
KINDS = RuntimeError | ValueError | IndexError | TypeError | AssertionError | StatorError
#: What eager raises for the data.
BY_DATA = re.compile(r"out of bounds|out of range in self|out of DATA bounds")
#: (entry, number of the tensor) → what PyTorch's own shape function takes and its kernel does not.
OPEN = {("nn.functional.nll_loss", 1), ("nn.functional.nll_loss", 2), ("addmm", 0)}


def others(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.dim():
        yield tensor[0].clone() if tensor.shape[0] else tensor.sum(0)
    yield tensor[None].clone()
    for dim, extent in enumerate(tensor.shape):
        if extent > 1:
            yield tensor.narrow(dim, 0, extent - 1).clone()
    if tensor.dtype is torch.int64:
        yield tensor.double()


def raised(sample: Sample, leaves: list[Any]) -> Exception | None:
    args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
    try:
        sample.function(*args, **kwargs)
    except Exception as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_fakes_refuse_what_eager_refuses(name: str) -> None:
    refused = 0
    for sample in database.samples(name, "float32", 3):
        plain = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in sample.leaves]
        places = [place for place, leaf in enumerate(plain) if isinstance(leaf, Tensor)]
        for number, place in enumerate(places):
            for other in others(plain[place]):
                leaves = [*plain[:place], other, *plain[place + 1 :]]
                expected = raised(sample, [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves])
                masks = any(isinstance(leaf, Tensor) and leaf.dtype is torch.bool for leaf in leaves)
                if (
                    expected is None
                    or (masks and "index" in name)
                    or BY_DATA.search(str(expected))
                    or (name, number) in OPEN
                ):
                    continue
                refused += 1
                mode = FakeMode()
                with mode:
                    fakes = [mode.from_real(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
                    found = raised(sample, fakes)
                shapes = [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, Tensor)]
                assert found is not None, (shapes, expected)
                assert isinstance(found, KINDS)
    assert refused
