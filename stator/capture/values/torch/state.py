"""What torch's questions, checks and mode switches do at capture.

Answers about the process (default dtype, available devices, autocast) are taken now; they are part of
the global state that every compiled entry checks. Mode switches change the modes of the interpreted
program, held by the graph builder.
Neighbours: `graph.py` (modes), `switches.py` (whether a compiler is tracing), `functions.py` (all else of torch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import overrides

from stator.base.errors import GraphBreak
from stator.capture.values.fold import all_constant, ask, fold
from stator.capture.values.python.constant import FALSE, NONE
from stator.capture.values.registry import CALLS, fresh, handles
from stator.capture.values.torch.tensor import TensorValue, answer, call_graph, tensor_flag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value


def _always(value: Value) -> Callable[..., Value]:
    return lambda tx, args, kwargs: value


#: Function -> its answer under capture.
ANSWERS: list[tuple[Any, Value]] = [
    (torch.compiler.is_exporting, FALSE),
    (torch._jit_internal.is_scripting, FALSE),
    (torch._C._get_tracing_state, NONE),
    (torch._C._is_tracing, FALSE),
    (overrides.has_torch_function, FALSE),
    (overrides.has_torch_function_unary, FALSE),
    (overrides.has_torch_function_variadic, FALSE),
    (overrides.is_tensor_method_or_property, FALSE),
    (torch.is_storage, FALSE),
    (torch._C._log_api_usage_once, NONE),
    (torch._C._functorch.peek_interpreter_stack, NONE),
    (torch._C._len_torch_function_stack, fresh(0)),
    (torch._C._is_torch_function_mode_enabled, FALSE),
    (torch.cuda.is_current_stream_capturing, FALSE),
]

#: Functions without tensors whose answer may change: guards ask again.
READ_AGAIN: tuple[Any, ...] = (
    torch.is_autocast_cache_enabled,
    torch.get_autocast_dtype,
    torch.get_autocast_gpu_dtype,
    torch.get_autocast_cpu_dtype,
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_num_threads,
    torch._C._get_default_device,
    torch.is_warn_always_enabled,
    torch.get_float32_matmul_precision,
    torch.cuda.current_device,
    torch.distributed.is_initialized,
    torch.cuda.is_initialized,
)

GUARDED = "every entry guards it"
MACHINE = "the devices of a process do not change"
COMPUTES = "it depends on its arguments alone"

#: Functions without tensors whose answer may be taken now, and why.
READ_STATE: dict[Any, str] = {
    torch.get_default_dtype: GUARDED,
    torch.are_deterministic_algorithms_enabled: GUARDED,
    torch.cuda.is_available: MACHINE,
    torch.cuda.device_count: MACHINE,
    torch.cuda.get_device_capability: MACHINE,
    torch.cuda.is_bf16_supported: MACHINE,
    torch.backends.mps.is_available: MACHINE,
    torch.mps.is_available: MACHINE,
    torch.xpu.is_available: MACHINE,
    torch._C._accelerator_getAccelerator: MACHINE,
    torch._utils._get_available_device_type: MACHINE,
    torch.distributed.is_available: "how torch was built",
    torch._C._get_privateuse1_backend_name: "a backend is named once, before its tensors exist",
    torch.promote_types: COMPUTES,
    torch.can_cast: COMPUTES,
    torch.typename: COMPUTES,
}

#: Questions about tensors that their fakes answer.
ASKED: tuple[Any, ...] = (
    torch.is_floating_point,
    torch.is_complex,
    torch.numel,
    torch.is_signed,
    torch.is_same_size,
    torch.is_conj,
    torch.is_neg,
    torch.result_type,
    torch.get_device,
    torch._C._nn._parse_to,
)


#: The same of a process group, where PyTorch is built for several processes.
if torch.distributed.is_available():
    READ_AGAIN += (torch.distributed.get_rank, torch.distributed.get_world_size)


def _register() -> None:
    for function, value in ANSWERS:
        CALLS[function] = _always(value)
    for function in READ_STATE:
        CALLS[function] = _reader(function)
    for function in READ_AGAIN:
        CALLS[function] = _asked_again(function)
    for function in ASKED:
        CALLS[function] = _asker(function)


def _reader(function: Any) -> Callable[..., Value]:
    return lambda tx, args, kwargs: fold(tx, function, args, kwargs)


def _asked_again(function: Any) -> Callable[..., Value]:
    return lambda tx, args, kwargs: ask(tx, function, args, kwargs)


def _asker(function: Any) -> Callable[..., Value]:
    return lambda tx, args, kwargs: answer(tx, function, args, kwargs)


@handles(torch.is_tensor)
def is_tensor(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.is_tensor(x)`."""
    return tensor_flag(args[0] if args else kwargs["obj"])


# -- modes ---------------------------------------------------------------------------------------------


@handles(torch.is_grad_enabled)
def is_grad_enabled(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The grad mode of the interpreted program."""
    return fresh(tx.graph.grad_enabled)


@handles(torch._C._set_grad_enabled)
def set_grad_enabled(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Every grad context manager comes down to this."""
    if tx.graph.inference and args[0].constant():
        raise GraphBreak("gradients are turned on in inference mode, which records none")
    tx.graph.set_grad_enabled(bool(args[0].constant()), tx.location())
    return NONE


@handles(torch.is_autocast_enabled)
def is_autocast_enabled(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Innermost autocast context of the program for the device type, else the process's state."""
    device = args[0].constant() if args else "cuda"
    for device_type, _, enabled, _ in reversed(tx.graph.autocasts):
        if device_type == device:
            return fresh(enabled)
    return ask(tx, torch.is_autocast_enabled, args, kwargs)


# -- checks --------------------------------------------------------------------------------------------


@handles(torch._assert, torch._check)
def check(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A known condition is checked; one in a tensor is a promise of the program and is not looked at."""
    condition = args[0] if args else kwargs.get("cond", kwargs.get("condition"))
    assert condition is not None
    if isinstance(condition, TensorValue):
        return NONE
    if not condition.truth(tx):
        message = args[1] if len(args) > 1 else kwargs.get("message")
        text = "check failed" if message is None or not message.is_constant() else str(message.constant())
        tx.raise_roughly(RuntimeError, text)
    return NONE


@handles(torch._check_tensor_all, *([torch._check_tensor_all_with] if hasattr(torch, "_check_tensor_all_with") else []))
def check_tensor(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A promise about the data."""
    return NONE


@handles(torch._check_with)
def check_with(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`_check_with(error type, condition, message)`."""
    kind, condition = args[0], args[1]
    if not isinstance(condition, TensorValue) and not condition.truth(tx):
        message = args[2].call(tx, (), {}) if len(args) > 2 else fresh("check failed")
        tx.raise_exception(kind.constant(), message)
    return NONE


@handles(torch.cond)
def call_cond(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.cond(condition, true, false, operands)` of a condition that is known: one of the functions is called."""
    given = {**dict(zip(("pred", "true_fn", "false_fn", "operands"), args, strict=False)), **kwargs}
    if isinstance(given["pred"], TensorValue):
        raise GraphBreak("torch.cond on a tensor runs one of its functions, by the data")
    function = given["true_fn" if given["pred"].truth(tx) else "false_fn"]
    return function.call(tx, given["operands"].unpack(tx) if "operands" in given else (), {})


# -- constructors --------------------------------------------------------------------------------------


for _cls in (torch.Size, torch.device, torch.finfo, torch.iinfo):
    CALLS[_cls] = _reader(_cls)


@handles(torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
def make_tensor(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor constructors."""
    if all_constant(args) and not kwargs and len(args) == 1 and args[0].python_type() in (list, tuple):
        return call_graph(tx, "call_function", torch.tensor, args, {"dtype": fresh(torch.get_default_dtype())})
    raise GraphBreak("making tensors by their class is not supported", "use torch.tensor, torch.zeros, …")


_register()
