"""What a captured graph compiles to depends on exactly this: its cache key.

The text of a key names every node with its target and arguments (by position, never by name), every tensor by its
metadata and aliasing, every symbolic size by its range, its order of magnitude and what was assumed of it, the ambient
modes of PyTorch, the options that enter keys, and the versions of everything that takes part. Two processes that print
the same text compile the same artifact; nothing live is in it.
Neighbours: `driver.py` asks for it, `base/store.py` files by it.
"""

from __future__ import annotations

import functools
import os
import platform
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from stator import targets
from stator.aot import casts
from stator.aot.attributes import attribute
from stator.base import processor
from stator.base.device import HOST, kind_of
from stator.base.errors import Unsupported
from stator.base.options import Options
from stator.base.store import key_of
from stator.fake import FakeTensor
from stator.fake.mode import views_constant
from stator.fake.symbolic import extents, size_of
from stator.graphs.lineage import lineage, together
from stator.graphs.mapped import Mapped
from stator.sizes import Symbol, python
from stator.sizes.real import written

_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))
_TORCH_PLAIN = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# Whose functions are known by name: namespaces of operators, modules of C functions, folders of Python functions.
_NAMESPACES = {"aten", "prim", "prims", "quantized", "stator"}
_MODULES = {"torch", "_operator", "operator", "math", "builtins"}
_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)


def graph_key(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> str:
    """The store key of `gm` compiled for `example_inputs` in today's ambient state.

    Raises `Unsupported` where an argument has no stable text; the graph is then compiled without the store.
    """
    graph, devices = graph_text(gm, example_inputs), devices_text(gm, example_inputs, options)
    return key_of(graph, modes_text(), options.key(), devices, versions_text())


def graph_text(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> str:
    """The graph as canonical text, one line a node."""
    numbers: dict[fx.Node, int] = {}
    tensors: dict[int, int] = {}
    storages: dict[int, int] = {}
    lines = []
    names = _Names()
    values: list[Any] = []
    inputs = iter(example_inputs)
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        match node.op:
            case "placeholder":
                values.append(next(inputs))
                body = f"input {_input(node, values[-1], tensors, storages, names)}"
            case "get_attr":
                values.append(attribute(gm, node.target))
                body = f"attribute {_value(values[-1], tensors, storages)}"
            case "call_function":
                body = f"{_name(node.target)}{_argument(node.args, numbers)}{_argument(node.kwargs, numbers)}"
            case "call_method":
                body = f".{node.target}{_argument(node.args, numbers)}{_argument(node.kwargs, numbers)}"
            case "output":
                body = f"output {_argument(node.args, numbers)}"
            case _:
                raise Unsupported(node.op, "a captured graph holds function calls, method calls and attributes only")
        lines.append(f"{body} again {node.meta['recompute']}" if "recompute" in node.meta else body)
    lines += _related(values)
    environment = gm.meta.get("sizes")
    if environment is not None:
        lines += [f"assumed {recorded.condition.python(names)}" for recorded in environment.conditions]
    lines += [f"symbol {name} {s.low} {s.high} {s.hint.bit_length()}" for s, name in names.items()]
    return "\n".join(lines)


class _Names(dict[Symbol, str]):
    """Symbols by their order of appearance."""

    def __missing__(self, symbol: Symbol) -> str:
        return self.setdefault(symbol, f"n{len(self)}")


def _input(node: fx.Node, value: Any, tensors: dict[int, int], storages: dict[int, int], names: _Names) -> str:
    """What each call passes; where the placeholder describes it by symbols, these stand for the numbers.

    The inputs of a function that is mapped have no value: what they are follows from the graph around it.
    """
    described = node.meta.get("val")
    if isinstance(described, torch.SymFloat):
        return f"float {written(described.node.value, names)}"
    if isinstance(described, torch.SymInt):
        return f"number {python(size_of(described), names)}"
    if value is None or not isinstance(described, FakeTensor) or not described._has_symbolic_sizes_strides:
        return _value(value, tensors, storages)
    geometry = [
        [python(extent, names) for extent in extents(numbers)] for numbers in (described.shape, described.stride())
    ]
    return f"{_tensor(value, tensors, storages)} {geometry} +{python(size_of(described.storage_offset()), names)}"


def _related(values: list[Any]) -> list[str]:
    """Of tensors in one storage, which are views of one another in autograd, and how."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    shared = Counter([tensor.untyped_storage()._cdata for tensor in tensors])
    tensors = [tensor for tensor in tensors if shared[tensor.untyped_storage()._cdata] > 1]
    groups = [f"related {' '.join(map(str, group))}" for group in together(tensors)]
    return [*groups, *[f"lineage {lineage(tensor)}" for tensor in tensors]]


def _value(value: Any, tensors: dict[int, int], storages: dict[int, int]) -> str:
    """A tensor by metadata and by which earlier tensor or storage it shares; a plain value by itself."""
    if isinstance(value, torch.Tensor):
        text = _tensor(value, tensors, storages)
        return f"{text} {tuple(value.size())} {tuple(value.stride())} +{value.storage_offset()}"
    return _argument(value, {})


def _tensor(value: torch.Tensor, tensors: dict[int, int], storages: dict[int, int]) -> str:
    """A tensor but for its geometry."""
    if value.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {value.layout}", "it has no strides to name it by")
    number = tensors.setdefault(id(value), len(tensors))
    storage = storages.setdefault(value.untyped_storage()._cdata, len(storages))
    kind = "parameter" if isinstance(value, torch.nn.Parameter) else type(value).__qualname__
    return (
        f"t{number} s{storage} {kind} {value.dtype} {value.device} grad={value.requires_grad} leaf={value.is_leaf}"
        f" of={value.requires_grad and views_constant(value)}"
        f" conj={value.is_conj()} neg={value.is_neg()} inference={value.is_inference()}"
    )


def _name(target: Any) -> str:
    """The name of a function that PyTorch, Python or this package defines.

    Their versions are in the key. Any other function may change its code and keep its name, so it has no stable text.
    """
    match target:
        case torch._ops.OpOverload() | torch._ops.OpOverloadPacket():
            if str(target).partition(".")[0] in _NAMESPACES:
                return str(target)
        case types.FunctionType():
            if target.__code__.co_filename.startswith(_FOLDERS) and "<" not in target.__qualname__:
                return f"{target.__module__}.{target.__qualname__}"
            if target in vars(F).values():  # made by `boolean_dispatch` of two functions and plain data
                held = [cell.cell_contents for cell in target.__closure__ or ()]
                return f"{target.__name__} of {[_name(x) if callable(x) else repr(x) for x in held]}"
        case types.BuiltinFunctionType():
            owner = target.__self__ if isinstance(target.__self__, type) else None
            module = target.__module__ or getattr(owner, "__module__", None) or ""
            if module.partition(".")[0] in _MODULES:
                return f"{module}.{target.__qualname__}"
        case types.MethodDescriptorType() | types.WrapperDescriptorType() | types.GetSetDescriptorType():
            owner = target.__objclass__
            if owner.__module__.partition(".")[0] in _MODULES:
                return f"{owner.__module__}.{target.__qualname__}"
        case Mapped():
            body = graph_text(target.body, [None] * len(target.in_dims))
            return f"vmap {target.in_dims} {target.out_dims} of {body!r}"
        case type():
            if target.__module__.partition(".")[0] in _MODULES:
                return f"class {target.__module__}.{target.__qualname__}"
    raise Unsupported(getattr(target, "__qualname__", target), "its code may change without its name changing")


def _argument(value: Any, numbers: dict[fx.Node, int]) -> str:
    if isinstance(value, fx.Node):
        return f"%{numbers[value]}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({','.join(_argument(v, numbers) for v in value)})"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{_argument(v, numbers)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice{_argument((value.start, value.stop, value.step), numbers)}"
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, _TORCH_PLAIN):
        return str(value)
    if callable(value):
        return _name(value)
    raise Unsupported(type(value).__qualname__, "an argument of this type has no stable text")


def modes_text() -> str:
    """The ambient state of PyTorch that changes what operators do."""
    autocast = [
        f"{kind}:{torch.is_autocast_enabled(kind)}:{torch.get_autocast_dtype(kind)}"
        for kind in casts.DEVICES
        if torch.is_autocast_enabled(kind)
    ]
    state = (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        torch._C._get_deterministic_fill_uninitialized_memory(), torch.get_float32_matmul_precision(),
        torch.get_num_threads(), torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled(),
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark, torch._C._get_cudnn_deterministic(),
        torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.cudnn_sdp_enabled(),
        tuple(torch._C._get_sdp_priority_order()),
    )  # fmt: skip
    return repr(state)


def devices_text(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> str:
    """The records of the devices that the graph touches, by which it is decided how it is compiled."""
    found = {torch.device(HOST)}
    for value in (*example_inputs, *[node.meta.get("val") for node in gm.graph.nodes]):
        if isinstance(value, torch.Tensor):
            found.add(value.device)
        elif isinstance(value, tuple | list):
            found.update([part.device for part in value if isinstance(part, torch.Tensor)])
    names = [name for name in sorted(map(str, found)) if targets.has(kind_of(name))]
    return repr([targets.record(name).read(name, options.threads) for name in names])


@functools.cache
def versions_text() -> str:
    """PyTorch, Python, the processor, and this package's own files by content: two megabytes, five milliseconds."""
    root = Path(__file__).parent
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    parts: list[str | bytes] = []
    for path in sorted(path for path in paths if path.endswith((".py", ".h", ".so"))):
        with open(path, "rb") as file:
            parts += [path.removeprefix(str(root)), file.read()]
    versions = torch.__version__, torch.version.git_version, platform.python_version()
    return repr((*versions, processor.identity(), key_of(*parts)))
