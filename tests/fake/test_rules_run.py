"""Operators that are run on zeros: real data give results of the same geometry."""

import pytest
import torch

from stator.fake import FakeMode
from stator.fake.rules_run import RUN

aten = torch.ops.aten


def numbers(*size, dtype=torch.float32):
    return torch.randn(*size, dtype=torch.float64).to(dtype)


def bag(mode, dtype, **kwargs):
    offsets = torch.tensor([0, 2, 2, 5])
    return (numbers(7, 4, dtype=dtype), torch.tensor([1, 3, 0, 6, 6, 2]), offsets, False, mode), kwargs


CASES = {
    "geqrf": [((numbers(2, 4, 3),), {}), ((numbers(3, 5).t(),), {})],
    "histogram.bin_ct": [((numbers(9), 4), {"range": [-1.0, 1.0]}), ((numbers(2, 3), 5), {"density": True})],
    "histogram.bins_tensor": [((numbers(9), torch.tensor([0.0, 0.5, 1.0])), {})],
    "_histogramdd_bin_edges": [((numbers(9, 2), [3, 4]), {})],
    "_histogramdd_from_bin_cts": [((numbers(9, 2), [3, 4]), {})],
    "_histogramdd_from_bin_tensors": [((numbers(9, 1), [torch.tensor([0.0, 0.5, 1.0])]), {})],
    "multi_margin_loss_backward": [((numbers(()), numbers(4, 5), torch.tensor([1, 0, 4, 3]), 1, 1.0), {})],
    "multilabel_margin_loss_backward": [
        ((numbers(()), numbers(2, 3), torch.tensor([[1, -1, 0], [2, 0, -1]]), 1, torch.ones(2, 3)), {})
    ],
    "_embedding_bag": [
        bag(mode, dtype, **kwargs)
        for mode in (0, 1, 2)
        for dtype in (torch.float32, torch.float64)
        for kwargs in ({}, {"padding_idx": 3}, {"include_last_offset": True})
    ],
}
CASES["_embedding_bag_forward_only"] = CASES["_embedding_bag"]


def geometry(out):
    if isinstance(out, torch.Tensor):
        return out.shape, out.stride(), out.dtype
    return [geometry(item) for item in out]


@pytest.mark.parametrize("func", RUN, ids=str)
def test_as_with_data(func):
    for args, kwargs in CASES[str(func).removeprefix("aten.").removesuffix(".default")]:
        mode = FakeMode()
        expected = func(*args, **kwargs)
        with mode:
            got = func(*mode.fakes(args), **kwargs)
        assert geometry(got) == geometry(expected), (args, kwargs)
