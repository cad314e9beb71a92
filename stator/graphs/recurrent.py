"""Recurrent layers as a call of ATen's own kernel for each layer and direction, where eager runs that kernel.

PyTorch runs an LSTM on the CPU by oneDNN, one call for all time steps, and takes it apart into products and
activations of every step where sizes are symbolic. Here it is the same calls, in the same order, whatever the sizes
are; so the number of steps may be symbolic too. Everything else (double precision, projections, GRU and plain cells) is
PyTorch's own composition, in eager as well, which reads the lengths of packed sequences.
Neighbours: `composite.py` has the table; `rules_layers.py` has the shapes of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stator.base.errors import DataDependent
from stator.fake.tensor import FakeTensor

aten = torch.ops.aten

#: What the kernel calls an LSTM among its kinds of cells.
_LSTM = 2


def lstm(x: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.lstm(x, (h, c), weights, …)` for padded sequences [time, batch, features]."""
    if kwargs or len(args) != 8 or not isinstance(args[0], Sequence) or not runs_in_onednn(x):
        return NotImplemented
    states, weights, biases, layers, dropout, train, both_ways, batch_first = args
    directions = 2 if both_ways else 1
    given = 4 if biases else 2
    if len(states) != 2 or len(weights) != given * layers * directions:  # there are projections
        return NotImplemented
    hidden, cell = (state.contiguous() for state in states)
    flags = (biases, both_ways, batch_first, train)
    value = (x.transpose(0, 1) if batch_first else x).contiguous()
    last: list[Tensor] = []
    cells: list[Tensor] = []
    for layer in range(layers):
        results = []
        for direction in range(directions):
            i = layer * directions + direction
            own = _with_biases(weights[given * i : given * (i + 1)])
            out, h, c, _ = aten.mkldnn_rnn_layer(
                value, *own, hidden[i], cell[i], direction > 0, [], _LSTM, hidden.shape[2], layers, *flags
            )
            results.append(out)
            last.append(h)
            cells.append(c)
        value = results[0] if len(results) == 1 else torch.cat(results, -1)
        if dropout and train and layer < layers - 1:
            value = torch.dropout(value, dropout, train=True)
    return value.transpose(0, 1) if batch_first else value, torch.stack(last), torch.stack(cells)


def packed(name: str, *args: Any, **kwargs: Any) -> Any:
    """`torch.lstm`, `torch.gru` and the plain cells for packed sequences, whose steps are as long as a tensor says.

    PyTorch reads that tensor's memory directly. Of a fake of known sizes it finds that there is none, and raises; of
    symbolic sizes it reads all the same.
    """
    if "batch_sizes" in kwargs or (len(args) > 3 and isinstance(args[3], Sequence)):
        raise DataDependent(name)
    return NotImplemented


def _with_biases(weights: Sequence[Tensor]) -> Sequence[Tensor]:
    """The weights of one layer and direction; the kernel wants biases, which are zero where the layer has none."""
    if len(weights) == 4:
        return weights
    zeros = torch.zeros_like(weights[0], memory_format=torch.contiguous_format)
    return *weights, zeros, zeros


def runs_in_onednn(x: Any) -> bool:
    """Whether eager runs a recurrent layer of `x` by oneDNN."""
    if not isinstance(x, FakeTensor) or x.device.type != "cpu" or not torch._C._get_mkldnn_enabled() or 0 in x.shape:
        return False
    match x.dtype:
        case torch.float32:
            return bool(torch.backends.mkldnn.is_available())
        case torch.bfloat16:
            return torch.ops.mkldnn._is_mkldnn_bf16_supported()
        case torch.float16:
            return torch.ops.mkldnn._is_mkldnn_fp16_supported() and not torch.is_grad_enabled()
    return False
