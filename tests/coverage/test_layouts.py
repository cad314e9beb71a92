"""How results of a fixed part of the operators lie in memory; `python -m stator.coverage --layouts` runs all."""

from __future__ import annotations

import zlib

import pytest
import torch
from torch.nn import functional as F

import stator
from stator.coverage import database, layouts

PARTS = 24
#: What is open: (entry, label) → why.
OPEN: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize(
    "name", [n for n in database.names("float32") if zlib.crc32(n.encode()) % PARTS == 5 and "interpolate" not in n]
)
def test_results_on_fakes_lie_as_in_eager(name: str) -> None:
    found = {label: layouts.wrong(sample) for label, sample in layouts.cases(name)}
    assert not {label: why for label, why in found.items() if why and (name, label) not in OPEN}


@pytest.mark.parametrize("name", ["softshrink", "gelu", "hardswish", "elu", "hardshrink", "mish"])
def test_dims_of_one_element_that_lie_in_another_order_do_so_in_results(name: str) -> None:
    """What is made of such results and others follows their strides."""
    x = torch.rand(2, 10, 2)[::2, ::2, ::2].movedim(0, -1)
    y = torch.rand(1, 10, 1)
    function = getattr(F, name)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y + function(x)

    assert stator.compile(program, fullgraph=True)(x, y).stride() == program(x, y).stride() == (1, 5, 50)


PROGRAMS = {
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "conv1d": lambda x: F.conv1d(x[0], x[0, :, :, :3]),
    "conv2d": lambda x: F.conv2d(x, x[:, :, :3, :3]).relu() * 2,
    "batch_norm in training": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    "rand_like": lambda x: torch.rand_like(x),
    "flip": lambda x: x.flip(0),
    "power": lambda x: 2.0**x,
    "x + 1 of a row": lambda x: x[:1, 0, 0] + 1,
    "x - y": lambda x: torch.rsub(x, x.transpose(0, 1).contiguous().transpose(0, 1)),
    "as_strided": lambda x: F.conv2d(x, x[:, :, :3, :3]).as_strided((3,), (2,)) + 0,
    "empty": lambda x: x[:0].transpose(0, 1) * 2,
}


@pytest.mark.parametrize("present", ["contiguous", "reversed", "channels last", "rotated"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_results_lie_as_in_eager(name: str, present: str) -> None:
    x = layouts.PRESENTATIONS[present](torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    program = PROGRAMS[name]
    for dynamic in (False, True):
        compiled = stator.compile(program, options={"cache": False, "strict": True}, dynamic=dynamic)
        got, want = compiled(x), program(x)
        assert (got.shape, got.stride(), got.storage_offset()) == (want.shape, want.stride(), want.storage_offset())
        if name != "rand_like":
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
