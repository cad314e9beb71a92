"""Writers that count no version: each that PyTorch has is made to count, or is listed with a reason."""

from __future__ import annotations

import torch

from stator.aot.writers import WRITERS, count_writes, uncounted

#: What writes in place without PyTorch counting it where it dispatches, and need not be made to.
OTHERS = {
    "aten::_foreach_": "counts in its gradient's or in its backend's kernel",
    "aten::_amp_foreach_": "writes gradients, not parameters",
    "aten::detach_": "writes nothing",
    "mkldnn::": "is called by generated code on results of its own",
    "symm_mem::": "writes symmetric memory, which other processes hold: is_shared",
    "prims::": "is PyTorch's own reference of operators that count",
    "quantized::": "has results of its own",
    "inductor::": "is called by generated code on results of its own",
}


def is_writer(name: str) -> bool:
    packet, _, overload = name.partition(".")
    schema = torch._C._get_schema(packet, overload)
    return any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)


def test_every_operator_in_place_counts_or_has_a_reason() -> None:
    count_writes()
    left = uncounted(("",))
    assert not [name for name in left if name.startswith(WRITERS)]
    strange = [name for name in left if is_writer(name) and not name.startswith(tuple(OTHERS))]
    assert not strange, f"name these in stator.aot.writers, or say why not: {strange}"


def test_one_write_counts_at_least_once_and_errors_stay() -> None:
    count_writes()
    weight, gradient = torch.zeros(4), torch.ones(4)
    rest = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False}
    rest |= {"maximize": False, "is_first_step": False}
    torch._fused_sgd_([weight], [gradient], [], lr=0.5, **rest)
    assert weight._version == 1 and gradient._version == 0 and torch.equal(weight, torch.full((4,), -0.5))
    torch.ops.aten._fused_sgd_.tensor_lr([weight], [gradient], [], lr=torch.tensor(0.5), **rest)
    assert weight._version == 2 and torch.equal(weight, torch.full((4,), -1.0))
    with torch.inference_mode():
        inference = torch.zeros(4)
        torch._fused_sgd_([inference, weight], [gradient, gradient], [], lr=0.5, **rest)
    assert weight._version == 3 and torch.equal(inference, torch.full((4,), -0.5))
