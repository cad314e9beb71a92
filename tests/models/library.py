"""What the tests of the six models share: building, compiling, flattening, and the measure of error.

A result is right when it is as near to the same computation in float64 as eager's result is, give or take a small
factor. `FLOOR` is what rounding alone may do to a tensor, relative to its norm; gradients that are zero but for
rounding are measured against the size of the others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers

import stator
from benchmarks import registry
from benchmarks.worker import disable_dropout, flat_outputs

transformers.utils.logging.set_verbosity_error()

MODELS = ("gpt2", "bert", "llama", "t5", "vit", "resnet")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)

#: What our error may be, as a multiple of eager's.
FACTOR = 2.0
FLOOR = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 4e-3}
#: These models compute their norms or their loss in float32, whatever the dtype of their parameters.
WITH_FLOAT32 = ("gpt2", "llama", "t5")


def compiled(model: Any, **arguments: Any) -> Any:
    """The model compiled whole; a failure of stator is an error."""
    return stator.compile(model, fullgraph=True, options={"strict": True, **arguments.pop("options", {})}, **arguments)


def model_and_inputs(
    name: str, dtype: torch.dtype = torch.float32, *, train: bool = False, dropout: bool = False
) -> tuple[Any, registry.Inputs]:
    """A tiny model and its keyword arguments, labels among them when it trains."""
    model: Any = registry.build(name, "tiny", dtype)
    given = registry.inputs(name, model, 1, labels=train)
    model.train(train)
    if not dropout:
        disable_dropout(model)
    return model, given


def exact(model: Any, given: Mapping[str, torch.Tensor]) -> tuple[Any, registry.Inputs]:
    """The same model and inputs in float64."""
    return copy.deepcopy(model).double(), {k: v.double() if v.is_floating_point() else v for k, v in given.items()}


def floating(output: Any) -> list[torch.Tensor]:
    """The floating tensors of an output, in order."""
    return [tensor.detach() for tensor in flat_outputs(output) if tensor.is_floating_point()]


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers and gradients by name, copied."""
    found = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"{name}.grad"] = parameter.grad.clone()
    return found


def norm(tensor: torch.Tensor) -> float:
    return tensor.double().norm().item()


Tensors = Mapping[str, torch.Tensor]


def assert_near(got: Tensors, eager: Tensors, right: Tensors, name: str = "") -> None:
    """Every tensor of the model `name` is as near to `right` (float64) as eager's is."""
    assert got.keys() == eager.keys() == right.keys()
    floors = FLOOR | ({torch.float64: FLOOR[torch.float32]} if name in WITH_FLOAT32 else {})
    wrong = list(_far(got, eager, right, floors))
    assert not wrong, "\n".join(wrong)


def _far(got: Tensors, eager: Tensors, right: Tensors, floors: Mapping[torch.dtype, float]) -> Iterator[str]:
    common = sorted(norm(tensor) for tensor in right.values())[len(right) // 2]
    for name, mine in got.items():
        theirs, truth = eager[name], right[name]
        assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride()), name
        if not mine.is_floating_point():
            assert torch.equal(mine, theirs), name
            continue
        floor = floors[mine.dtype]
        ours, allowed = norm(mine - truth), norm(theirs - truth)
        if not ours <= FACTOR * allowed + floor * (norm(truth) + 1e-2 * common):
            yield f"{name}: error {ours:.2e}, eager's {allowed:.2e}, norm {norm(truth):.2e}"


def numbered(tensors: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"output {i}": tensor for i, tensor in enumerate(tensors)}
