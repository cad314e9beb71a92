"""A model under each of the compilers that the table compares, as a step that is called without arguments.

Neighbours: `worker.py` runs one of them in a process of its own; `benchmarks/registry.py` has the models.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import registry
from benchmarks.worker import DTYPES, disable_dropout, flat_outputs

FROZEN = "stator, freezing"
COMPILERS = ("eager", "stator", FROZEN, "torch.compile", "openvino")

#: mode → dtype of parameters and inputs.
MODES = {"inference": "float32", "bfloat16": "bfloat16", "training": "float32"}

Step = Callable[[], list[Tensor]]


class Flat(torch.nn.Module):
    """A model as a function of tensors to a tuple of its floating results, for what has to be traced."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.masked = "decoder_input_ids" if "decoder_input_ids" in names else "input_ids"

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, given, strict=True))
        if self.masked in named:  # without a mask, decoders look for sequences that are packed into one
            named[self.masked.replace("input_ids", "attention_mask")] = torch.ones_like(named[self.masked])
        return tuple(_floating(self.model(**named)))


def _floating(output: Any) -> list[Tensor]:
    return [value for value in flat_outputs(output) if value.is_floating_point()]


def make_step(
    compiler: str,
    name: str,
    size: str,
    mode: str,
    *,
    dropout: bool = True,
    forwarded: Callable[[], None] = lambda: None,
) -> Step:
    """A step of `mode` under `compiler`, which its first call compiles: results, and the gradients in training, where
    `forwarded` is called between forward and backward.
    """
    training = mode == "training"
    # OpenVINO is told the precision that it may use, and is given float32.
    dtype = "float32" if compiler == "openvino" else MODES[mode]
    model = registry.build(name, size, DTYPES[dtype])
    given = registry.inputs(name, model, 1, labels=training)
    if not dropout:
        disable_dropout(model)
    if compiler == "openvino":
        return _openvino_step(Flat(_convertible(model), list(given)), list(given.values()), MODES[mode])
    holder: list[Any] = []

    def inference() -> list[Tensor]:
        with torch.no_grad():
            return _floating(_compiled_once(holder, compiler, model)(**given))

    def train() -> list[Tensor]:
        output = _compiled_once(holder, compiler, model)(**given)
        forwarded()
        output.loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        model.zero_grad(set_to_none=True)
        return [value.detach() for value in _floating(output)] + gradients

    model.train(training)
    return train if training else inference


def exact_results(name: str, size: str, mode: str, *, dropout: bool) -> list[Tensor]:
    """What the step gives in eager in float64."""
    model = registry.build(name, size, torch.float64).train(mode == "training")
    given = registry.inputs(name, model, 1, labels=mode == "training")
    if not dropout:
        disable_dropout(model)
    with torch.set_grad_enabled(mode == "training"):
        output = model(**given)
    if mode != "training":
        return _floating(output)
    output.loss.backward()
    return [value.detach() for value in _floating(output)] + [p.grad for p in model.parameters() if p.grad is not None]


def _compiled_once(holder: list[Any], compiler: str, model: torch.nn.Module) -> Any:
    """The compiled model; it is made, and its compiler imported, by the first call."""
    if not holder:
        holder.append(_compiled(compiler, model))
    return holder[0]


def _compiled(compiler: str, model: torch.nn.Module) -> Any:
    match compiler:
        case "eager":
            return model
        case "torch.compile":
            return torch.compile(model)  # breaks graphs where it has to
    import stator  # its import is part of what is measured

    return stator.compile(model, fullgraph=True, options={"freezing": True} if compiler == FROZEN else {})


def _convertible(model: torch.nn.Module) -> torch.nn.Module:
    """The model without what OpenVINO cannot convert: caches, a pool whose window is larger than the image, packing."""
    for module in list(model.modules()):
        if hasattr(module, "config"):
            module.config.use_cache = False
        for name, child in module.named_children():
            if isinstance(child, torch.nn.AvgPool2d) and child.ceil_mode:
                setattr(module, name, torch.nn.AdaptiveAvgPool2d(1))
    return model


def _openvino_step(model: Flat, given: list[Tensor], dtype: str) -> Step:
    """The model converted by tracing, static in shape, and run by OpenVINO on as many threads as torch has."""
    holder: list[Any] = []
    arrays = [value.numpy() for value in given]

    def build() -> Any:
        import openvino  # its import is part of what is measured

        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracer's, of each shape that becomes a constant
            shapes = [list(value.shape) for value in given]
            converted = openvino.convert_model(model, example_input=tuple(given), input=shapes)
        hints = {"INFERENCE_PRECISION_HINT": "f32" if dtype == "float32" else "bf16", "PERFORMANCE_HINT": "LATENCY"}
        hints["CACHE_DIR"] = str(Path(os.environ["STATOR_CACHE_DIR"]) / "openvino")
        return openvino.compile_model(
            converted, "CPU", {**hints, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        ).create_infer_request()

    def step() -> list[Tensor]:
        if not holder:
            holder.append(build())
        results = holder[0].infer(arrays, share_inputs=True, share_outputs=True)
        return [torch.from_numpy(value) for value in results.values()]

    return step
