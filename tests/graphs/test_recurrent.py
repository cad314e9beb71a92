"""Recurrent layers on packed sequences, whose steps and lengths change from call to call."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import stator

pytestmark = pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")

LENGTHS = ([7, 3, 2, 5], [4, 4, 1, 7], [1, 2, 3, 4], [6, 6, 6, 6, 2])


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("dynamic", [None, True])
def test_lengths_change(kind: type[torch.nn.Module], dynamic: bool | None) -> None:
    layer = kind(8, 5, batch_first=True)

    def program(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x.tanh(), lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(layer(packed)[0], batch_first=True)[0].relu()

    compiled = stator.compile(program, dynamic=dynamic)
    for lengths in LENGTHS:
        x = torch.randn(len(lengths), 7, 8)
        torch.testing.assert_close(compiled(x, torch.tensor(lengths)), program(x, torch.tensor(lengths)))


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_a_tensor_of_lengths_of_unknown_size_is_not_read(name: str) -> None:
    """PyTorch reads the memory of the lengths directly, of which a fake of symbolic sizes has none."""
    gates = {"lstm": 4, "gru": 3}.get(name, 1)
    weights = [torch.randn(gates * 5, 8), torch.randn(gates * 5, 5), torch.randn(gates * 5), torch.randn(gates * 5)]

    def program(x: torch.Tensor, steps: torch.Tensor, rows: int) -> torch.Tensor:
        start = torch.zeros(1, rows, 5)
        state = (start, start) if name == "lstm" else start
        return getattr(torch, name)(x, steps, state, weights, True, 1, 0.0, False, False)[0] + 1

    compiled = stator.compile(program, dynamic=True)
    for steps in ([4, 2], [4, 3, 2], [4, 4, 1, 1]):
        x = torch.randn(sum(steps), 8)
        torch.testing.assert_close(compiled(x, torch.tensor(steps), 4), program(x, torch.tensor(steps), 4))
