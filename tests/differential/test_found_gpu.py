"""Programs that once gave a wrong result on a GPU, shortened."""

from __future__ import annotations

import pytest
import torch

from tests.differential.__main__ import BACKENDS, FACTORS, judge
from tests.differential.inputs import Input
from tests.differential.programs import Program

pytestmark = pytest.mark.gpu

RIGHT = {
    "a range whose end is on the GPU is on the host": Program(
        (Input((), seed=33, device="cuda"),), ("v0 = torch.linspace(x0, 3, 5)",), ("v0",)
    ),
    "what is next above a number below the normal ones is 1": Program(
        (Input((7, 8), values="edges", seed=24, device="cuda"),),
        ("v0 = torch.ceil(x0)", "v1 = torch.remainder(v0, v0)"),
        ("v1",),
    ),
    "positions of 64 bits along an axis in one block": Program(
        (Input((2,), seed=1, device="cuda"),), ("v0 = torch.arange(2, device=x0.device) * 2**61",), ("v0",)
    ),
    "a number of the host is a result in many places": Program(
        (Input((17, 8), torch.uint8, "transposed", seed=99, device="cuda"), Input((4, 2), seed=78, device="cuda")),
        ("x0.clamp_(0,1)", "v0 = torch.tensor(1.7).expand_as(x1)"),
        ("x0", "v0"),
    ),
}

#: Also with other sizes, by both backends.
RIGHT_OF_ANY_SIZE = {
    "sizes of rms norm that autograd keeps addresses of": Program(
        (Input((2, 3, 3), grad="leaf", seed=7, device="cuda"),),
        ("v0 = F.rms_norm(x0.sum(0), x0.shape[-1:])",),
        ("v0",),
    ),
    "rms norm of doubles whose squares overflow": Program(
        (Input((7,), torch.float64, values="edges", seed=8, device="cuda"),),
        ("v0 = F.rms_norm(x0, x0.shape[-1:])", "v1 = v0.isnan().long()"),
        ("v1",),
    ),
    "rms norm of infinities": Program(
        (Input((4, 7), values="special", seed=12, device="cuda"),), ("v5 = F.rms_norm(x0, x0.shape[-1:])",), ("v5",)
    ),
    "running products of neighbours that overflow": Program(
        (Input((8, 16, 8), values="edges", seed=70, device="cuda"),),
        ("x0.abs_()", "v4 = torch.cumprod(x0, 1)", "v11 = F.pad(v4, (1, 1), mode='reflect')"),
        ("v11",),
    ),
    "running sums of exponentials, as whole numbers": Program(
        (Input((7, 7, 16), torch.float16, values="positive", seed=3, device="cuda"),),
        ("v1 = torch.logcumsumexp(x0, -1)", "v3 = v1.to(torch.int8)"),
        ("v3",),
    ),
    "distances of infinities": Program(
        (
            Input((2, 2), values="edges", grad="leaf", seed=53, device="cuda"),
            Input((1,), torch.bfloat16, values="edges", grad="leaf", seed=59, device="cuda"),
        ),
        (
            "v3 = torch.cumsum(x0, -2)",
            "v10_0, v10_1, = torch.broadcast_tensors(v3, x1)",
            "v11 = torch.cdist(v10_0, v3, p=1)",
        ),
        ("v11",),
    ),
    "signals by a weight whose channels are innermost": Program(
        (Input((7, 17, 7), layout="transposed", values="normal", grad="leaf", seed=52, device="cuda"),),
        ("v8 = F.conv1d(x0, x0[:2, :, :2], padding=1, dilation=2)",),
        ("v8",),
    ),
    "a difference of truth values in a gradient": Program(
        (
            Input((1, 1), values="positive", grad="leaf", seed=63, device="cuda"),
            Input((1, 4, 7), torch.complex64, values="positive", seed=32, device="cuda"),
        ),
        ("v0 = torch.isclose(x1, x1)", "v1 = torch.logaddexp(x0, v0)"),
        ("v1",),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_were_wrong(name: str) -> None:
    assert judge(RIGHT[name]) == ("right", "")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", BACKENDS)
@pytest.mark.parametrize("name", RIGHT_OF_ANY_SIZE)
def test_programs_that_were_wrong_of_some_sizes(name: str, way: str) -> None:
    verdict, why = judge(RIGHT_OF_ANY_SIZE[name], way, FACTORS)
    assert verdict == ("refused" if "truth values" in name else "right"), why
