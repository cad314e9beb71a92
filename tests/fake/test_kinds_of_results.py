"""Results that no fake stands for, sparse and quantized ones: the graph ends there, and what follows runs for real."""

import warnings

import pytest
import torch

import stator

pytestmark = pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")

POSITIONS = torch.tensor([[4, 2]])
aten = torch.ops.aten
PROGRAMS = {
    "sparse, dense again": lambda i, x: torch.sparse_coo_tensor(i, x, (9, 8)).to_dense(),
    "sparse, returned": lambda i, x: torch.sparse_coo_tensor(i, x, (9, 8)),
    "sparse, unchecked": lambda i, x: aten._sparse_coo_tensor_unsafe(i, x, (9, 8)).to_dense(),
    "sparse, of nothing": lambda i, x: aten.sparse_coo_tensor.size([2, 3], layout=torch.sparse_coo).to_dense(),
    "sparse, asked": lambda i, x: x * torch.sparse_coo_tensor(i, x, (9, 8)).is_sparse,
    "sparse product": lambda i, x: torch.sparse_coo_tensor(i, x, (9, 8)) @ torch.ones(8, 2),
    "zeros": lambda i, x: torch.zeros(2, 3, layout=torch.sparse_coo),
    "zeros like": lambda i, x: torch.zeros_like(x, layout=torch.sparse_coo),
    "new zeros": lambda i, x: x.new_zeros(3, layout=torch.sparse_coo),
    "refused layout": lambda i, x: torch.empty_like(x, layout=torch.sparse_coo),
    "rows": lambda i, x: torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), x[:, 0], (2, 2)),
    "converted": lambda i, x: x.to_sparse().to_dense() + 1,
    "quantized": lambda i, x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(),
    "quantized, asked": lambda i, x: x * torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).is_quantized,
    "quantized, its dtype": lambda i, x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).int_repr(),
    "quantized by channel": lambda i, x: torch.quantize_per_channel(
        x, torch.ones(2), torch.zeros(2), 0, torch.qint8
    ).dequantize(),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_those_of_eager(name: str) -> None:
    def program(positions: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return PROGRAMS[name](positions, y)

    compiled = stator.compile(program)
    for _ in range(2):
        x = torch.randn(2, 8)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR|Sparse invariant|torch.quantize")
            found, expected = outcome(compiled, POSITIONS, x), outcome(program, POSITIONS, x)
        if isinstance(expected, Exception):
            assert type(found) is type(expected)
            continue
        assert found.layout is expected.layout and found.dtype is expected.dtype
        torch.testing.assert_close(found, expected)


def outcome(program, *args):
    try:
        return program(*args)
    except (RuntimeError, NotImplementedError) as error:
        return error
