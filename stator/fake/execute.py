"""Run one operator on fakes: the fake of each result, from a shape rule or from PyTorch's meta kernel.

The order: in-place operators give back the tensor they write to, operators whose result depends on data use known
constants or raise, `RULES` has the common operators, and everything else runs on the meta tensors.
What an operator is (in-place, view, data-dependent) is read once from its schema into a `OperatorFacts`.

Neighbours: `rules.py` fills `RULES`; `mode.py` calls `execute` for every operator; `tensor.py` has the tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._library import custom_ops

from stator.base.errors import DataDependent, InternalError, Unsupported
from stator.fake.effects import OURS, operator_effects
from stator.fake.overloads import Table
from stator.fake.symbolic import SYMBOLIC, FloatNode, is_symbolic
from stator.fake.tensor import FakeTensor, forget, install_executor, make, memory_of, wrap_meta
from stator.sizes import real

aten = torch.ops.aten

#: Shape rules by overload: called like the operator, give fakes, or NotImplemented to leave it to the meta kernel.
RULES = Table("shape rule")

#: Constants are carried through operators as long as all tensors involved are this small.
CONSTANT_ELEMENTS = 16

META = torch.device("meta")
CPU = torch.device("cpu")
_DATA_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class OperatorFacts:
    """What `execute` has to know about one operator, read from its schema and tags."""

    __slots__ = (
        "alone", "composite", "data_dependent", "dims", "draws", "has_device", "mixes", "numbers", "restrides",
        "unreturned", "view", "written",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = func._schema
        writes = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
        returned = [r.alias_info for r in schema.returns]
        #: Positions of the arguments that are written to and returned (in-place and out= operators).
        self.written = writes if writes and returned and all(r is not None and r.is_write for r in returned) else None
        #: Positions of what is written to and not returned (lists of tensors).
        self.unreturned = writes if self.written is None else []
        self.view = not writes and any(r is not None for r in returned)
        self.data_dependent = func in _BY_DATA or (bool(_DATA_TAGS & set(func.tags)) and func not in _BY_INTEGERS)
        random = torch.Tag.nondeterministic_seeded in func.tags
        #: Whether it may draw random numbers; operators of the program need not say so.
        self.draws = random or func.namespace not in OURS
        pure = not writes and not random
        self.restrides = torch.Tag.inplace_view in func.tags or func in _RESIZING
        self.has_device = any(a.name == "device" for a in schema.arguments)
        mixing = func._opname in _MIXING or func._opname.startswith(_MIXING_FAMILIES)
        #: Whether its tensors may be on different devices. What it is made of, if of others, is asked one by one.
        self.mixes = mixing or func.namespace != "aten" or func._can_decompose()
        #: Whether it takes tensors for which a program may pass numbers (`torch.div(7, 2)`).
        self.numbers = pure and bool(schema.arguments) and schema.arguments[0].type.isSubtypeOf(_TENSOR)
        #: Whether its first argument is the only tensor: PyTorch's maps pass it numbers that they take for tensors.
        kinds = [a.type for a in schema.arguments]
        self.alone = bool(kinds) and kinds[0].isSubtypeOf(_TENSOR) and not any("Tensor" in str(k) for k in kinds[1:])
        #: Positions of what names dims of the first argument; of a gradient's, it names those of another tensor.
        own = bool(schema.arguments) and schema.arguments[0].name in ("self", "tensors")
        dims = [i for i, a in enumerate(schema.arguments) if i and a.name in ("dim", "dim0", "dim1", "dims")]
        self.dims = dims if own else []
        #: Made of other operators. Autograd takes these apart, so they arrive only in inference mode.
        self.composite = func not in RULES and not writes and func._can_decompose()


_TENSOR = torch._C.TensorType.get()
#: The dtypes of tensors that stand for numbers.
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
_QUANTIZED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
_RESIZING = {aten.resize_.default, aten.resize_as_.default, aten.set_.source_Tensor, aten.set_.source_Storage}
#: Operators that take tensors of the host beside others: copies, positions, lengths, seeds, lists of separate tensors.
_MIXING = frozenset(
    "copy copy_ index _unsafe_index index_put index_put_ _index_put_impl_ _unsafe_index_put set_ is_set_to resize_as_ "
    "_pack_padded_sequence _ctc_loss _ctc_loss_backward _use_cudnn_ctc_loss bernoulli bernoulli_ is_same_size".split()
)
_MIXING_FAMILIES = ("_foreach_", "_fused_", "_amp_", "_cudnn_", "_scaled_dot_product_", "_flash_", "_efficient_")
#: Whose results have a dim more, which may be named.
_ADDING = {aten.unsqueeze.default, aten.stack.default}
#: That may be told a dim several times.
_REPEATING = {aten.roll.default}
#: Not tagged as data-dependent, although the shape depends on what is in a tensor.
_BY_DATA = {aten._pack_padded_sequence.default}
#: Tagged as data-dependent, but so only for boolean indices; their rule tells.
_BY_INTEGERS = {aten.index.Tensor, aten._unsafe_index.Tensor}


@functools.cache
def plan_of(func: Any) -> OperatorFacts:
    """The plan of an operator, made at its first use."""
    return OperatorFacts(func)


def execute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `func` on fakes. Real tensors among the arguments must have been converted before."""
    if _has_float(args) or (kwargs and _has_float(kwargs.values())):
        return _for_any_float(func, args, kwargs)
    plan = plan_of(func)
    if kwargs:
        _check_kind(func, kwargs.values())
    if not plan.mixes:
        _check_devices((*args, *kwargs.values()) if kwargs else args)
    if plan.written is not None:
        return _write(func, plan, args, kwargs)
    if plan.unreturned:
        _write_unreturned(func, plan, args, kwargs)
    rule = RULES.get(func)
    if rule is None:
        out = NotImplemented
    else:
        if plan.dims:
            _check_dims(func, plan.dims, args)
        out = rule(*args, **kwargs)
    if out is NotImplemented:
        if plan.data_dependent:
            return _known_value(func, args, kwargs)
        out = run_on_meta(func, plan, args, kwargs)
    if _may_be_constant(plan, args) and not operator_effects(func):
        _carry_constant(func, args, kwargs, out)
    return out


def _check_kind(func: Any, values: Iterable[Any]) -> None:
    """Refuse results that no fake stands for: sparse and other layouts, and quantized numbers.

    Shape functions leave them out, or give plain tensors.
    """
    for value in values:
        kind = type(value)
        if (kind is torch.layout and value is not torch.strided) or (kind is torch.dtype and value in _QUANTIZED):
            raise Unsupported(func, f"its result is {value}")


def _check_dims(func: Any, positions: list[int], args: tuple[Any, ...]) -> None:
    """Raise as eager does where a dim is named that the first argument has not, nor gets; or one is named twice."""
    first = args[0]
    if type(first) is FakeTensor:
        rank = first.dim()
    else:
        ranks = [tensor.dim() for tensor in first if type(tensor) is FakeTensor] if type(first) is list else []
        if not ranks:
            return
        rank = max(ranks)
    rank = max(rank + (func in _ADDING), 1)
    for position in positions:
        dims = args[position] if position < len(args) else None
        named = dims if type(dims) is list else [dims]
        for i, dim in enumerate(named):
            if type(dim) is int and not -rank <= dim < rank:
                raise IndexError(
                    f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
                )
            if i and func not in _REPEATING and any((dim - other) % rank == 0 for other in named[:i]):
                raise RuntimeError(f"dim {dim % rank} appears multiple times in the list of dims")


def _has_float(args: Iterable[Any]) -> bool:
    for arg in args:
        kind = type(arg)
        if kind is torch.SymFloat or ((kind is list or kind is tuple) and torch.SymFloat in map(type, arg)):
            return True
    return False


def _for_any_float(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result where some numbers are symbolic floats: its geometry does not depend on them, its values do."""
    if func.namespace != "aten" or func._opname in _FLOATS_SHAPE:
        number: Callable[[torch.SymFloat], float] = float
    else:
        number = _hint
    plan = plan_of(func)
    if plan.written is not None:
        for position in plan.written:
            target = argument(func, args, kwargs, position)
            forget(*target if isinstance(target, (list, tuple)) else (target,))
    named = {name: _with_numbers(value, number) for name, value in kwargs.items()}
    out = execute(func, tuple([_with_numbers(arg, number) for arg in args]), named)
    _check_range([*kwargs.values(), *(() if func._opname in _ARITHMETIC else args)], out)
    for tensor in out if isinstance(out, (list, tuple)) else (out,):
        if isinstance(tensor, FakeTensor) and plan.written is None and not plan.view:
            tensor.constant = None
    return out


def _check_range(numbers: Iterable[Any], out: Any) -> None:
    """Most operators raise for a number that is too great for the type of the result."""
    first = out[0] if isinstance(out, (list, tuple)) and out else out
    dtype = first.dtype if isinstance(first, FakeTensor) else torch.float64
    if not dtype.is_floating_point or dtype is torch.float64:
        return
    limit = torch.finfo(dtype).max
    for number in numbers:
        if isinstance(number, torch.SymFloat):
            node: FloatNode = number.node
            real.within(node.value, limit, node.environment, f"it becomes a number of {dtype}")


def _with_numbers(arg: Any, number: Callable[[torch.SymFloat], float]) -> Any:
    if isinstance(arg, torch.SymFloat):
        return number(arg)
    return [_with_numbers(item, number) for item in arg] if isinstance(arg, (list, tuple)) else arg


def _hint(number: torch.SymFloat) -> float:
    """The float in the call at hand, of which nothing is assumed."""
    node: FloatNode = number.node
    return node.hint()


#: Operators whose result has a size that a float decides.
_FLOATS_SHAPE = {"arange", "range"}
#: Operators whose operands may be any numbers.
_ARITHMETIC = {
    *("add", "sub", "rsub", "mul", "div", "pow", "remainder", "fmod", "floor_divide"),
    *("add_", "sub_", "mul_", "div_", "pow_", "remainder_", "fmod_", "floor_divide_"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
}


def argument(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], position: int) -> Any:
    """The argument at a position of the schema, however it was passed."""
    return args[position] if position < len(args) else kwargs.get(func._schema.arguments[position].name)


# ---- operators that write --------------------------------------------------------------------------------------------


def _write(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    assert plan.written is not None
    targets = [argument(func, args, kwargs, position) for position in plan.written]
    if plan.restrides:
        return _restride(func, plan, targets[0], args, kwargs)
    for target in targets:
        _note_write(target)
    if any(isinstance(target, FakeTensor) and target.constant is not None for target in targets):
        _write_constants(func, args, kwargs, targets)
    return targets[0] if len(func._schema.returns) == 1 else tuple(targets)


def _write_unreturned(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    targets: list[Any] = []
    for position in plan.unreturned:
        target = argument(func, args, kwargs, position)
        _note_write(target)
        targets += target if isinstance(target, (list, tuple)) else (target,)
    if any(isinstance(target, FakeTensor) and target.constant is not None for target in targets):
        _write_constants(func, args, kwargs, targets)


def _note_write(target: Any) -> None:
    if isinstance(target, FakeTensor):
        memory_of(target).written = True
    elif isinstance(target, (list, tuple)):
        for item in target:
            _note_write(item)


def _restride(
    func: Any, plan: OperatorFacts, target: FakeTensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> FakeTensor:
    """An in-place operator that changes the geometry (`t_`, `unsqueeze_`): give the wrapper the new one."""
    if func in _RESIZING:
        raise Unsupported(func, "it changes the memory of a tensor in place")
    unfake(func, plan, args, kwargs)
    meta = target.meta
    with torch._C._DisableTorchDispatch():
        torch.Tensor.as_strided_(target, meta.size(), meta.stride(), meta.storage_offset())
    if target.constant is not None:
        target.constant = _restrided(func, target.constant, args)
    return target


def _restrided(func: Any, constant: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor | None:
    """Another tensor over the memory of a constant (other fakes may have this one), in the new geometry."""
    with torch._C._DisableTorchDispatch():
        constant = constant.detach()
    return None if is_symbolic(args) else on_cpu(func, (constant, *args[1:]), {})


def _write_constants(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Any]) -> None:
    """Keep known values true under writes, by the same write on the real tensors; where that fails, forget them."""
    reals = _constants(args)
    random = torch.Tag.nondeterministic_seeded in func.tags
    if reals is None or kwargs or random or func.namespace != "aten":
        forget(*targets)
        return
    try:
        on_cpu(func, reals, kwargs)
    except RuntimeError:  # as in `_carry_constant`
        if any(target.device.type == "cpu" for target in targets if isinstance(target, FakeTensor)):
            raise
        forget(*targets)


# ---- constants -------------------------------------------------------------------------------------------------------


def _may_be_constant(plan: OperatorFacts, args: tuple[Any, ...]) -> bool:
    """Whether the first tensor among the arguments is a constant: the cheap test that keeps the common path short."""
    for arg in args:
        if type(arg) is FakeTensor:
            return arg.constant is not None
        if type(arg) is list and arg and isinstance(arg[0], FakeTensor):
            return arg[0].constant is not None
    return plan.numbers and not any_symbolic(args)


def _constants(args: tuple[Any, ...]) -> list[Any] | None:
    """The arguments with fakes replaced by their constants; None if a fake has none, or a number is symbolic."""
    reals: list[Any] = []
    for arg in args:
        if isinstance(arg, FakeTensor):
            if arg.constant is None:
                return None
            arg = arg.constant
        elif isinstance(arg, SYMBOLIC):
            return None
        elif isinstance(arg, (list, tuple)) and arg:
            inner = _constants(tuple(arg))
            if inner is None:
                return None
            arg = inner
        reals.append(arg)
    return reals


def is_small(fake: FakeTensor) -> bool:
    """Whether a value of this kind is carried along, where it is known: of other devices, only whole numbers.

    Constants are on the CPU whatever device the fake claims, and floats may be rounded otherwise there.
    """
    if fake._has_symbolic_sizes_strides or fake.numel() > CONSTANT_ELEMENTS:
        return False
    return fake.device.type == "cpu" or not (fake.dtype.is_floating_point or fake.dtype.is_complex)


def on_cpu(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What an operator gives for constants: whatever runs on real tensors while compiling runs here.

    A kernel that is given a symbolic number where it takes a tensor computes with a number that torch makes up.
    """
    if is_symbolic(args) or is_symbolic(kwargs.values()):
        raise InternalError("an operator is computed while compiling", f"{func} is given a symbolic number")
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": CPU}
    with torch._C._DisableTorchDispatch():
        return func(*args, **kwargs)


def _carry_constant(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    if type(out) is not FakeTensor or not is_small(out):
        return
    reals = _constants(args)
    if reals is not None and not any(isinstance(value, (torch.Tensor, *SYMBOLIC)) for value in kwargs.values()):
        try:
            out.constant = on_cpu(func, reals, kwargs)
        except RuntimeError:  # whole numbers by zero, for which other devices raise nothing
            if out.device.type == "cpu":
                raise


def _known_value(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A data-dependent operator: compute it where all inputs are constants, refuse it otherwise."""
    reals = _constants(args)
    if reals is None or kwargs or operator_effects(func):
        raise DataDependent(func)
    out = on_cpu(func, reals, kwargs)
    if not isinstance(out, torch.Tensor):
        return out
    if any(isinstance(arg, FakeTensor) and arg.device.type != "cpu" for arg in args):
        raise DataDependent(func)  # its strides are those of another kernel
    fake = make(out.size(), out.dtype, out.device, out.stride())
    fake.constant = out
    return fake


def _is_one_device(one: torch.device, other: torch.device) -> bool:
    """Whether these are the same though only one has a number: the other is the current one of its type."""
    numbers = {one.index, other.index} - {None}
    if one.type != other.type or len(numbers) != 1:
        return False
    return numbers == {torch.get_device_module(one.type).current_device()}


def _check_devices(args: Sequence[Any]) -> None:
    """Raises, as eager does, where tensors are on different devices; numbers of the host go anywhere."""
    found = None
    for arg in args:
        for tensor in arg if type(arg) is list or type(arg) is tuple else (arg,):
            if not isinstance(tensor, FakeTensor):
                continue
            device = tensor.device
            if device == found or (device.type == "cpu" and not tensor.dim()):
                continue
            if found is not None:
                if _is_one_device(device, found):
                    continue
                told = f"but found at least two devices, {found} and {device}!"
                raise RuntimeError(f"Expected all tensors to be on the same device, {told}")
            found = device


# ---- meta kernels ----------------------------------------------------------------------------------------------------


def unfake(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, torch.device]:
    """Run the meta kernel; its result (meta tensors) and the device that the result claims."""
    devices: list[FakeTensor] = []
    metas = [_to_meta(arg, devices) for arg in args]
    if kwargs:
        kwargs = {name: _to_meta(value, devices) for name, value in kwargs.items()}
    device = common_device(devices)
    if plan.has_device:
        named = kwargs.get("device")
        if named is not None:
            device = torch.device(named)
        kwargs = {**kwargs, "device": META}
        kwargs.pop("pin_memory", None)
    return func(*metas, **kwargs), device


def run_on_meta(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The fakes of an operator's results by PyTorch's meta kernel."""
    _check_kind(func, args)
    try:
        out, device = unfake(func, plan, args, kwargs)
    except NotImplementedError as error:
        raise without_shape_function(func) from error
    except RuntimeError as error:
        if is_without_shape_function(func):
            raise without_shape_function(func) from error
        # Some kernels take plain numbers only; where the shapes do not fit, the kernel says so again.
        if not (any_symbolic(args) or any_symbolic(kwargs.values())):
            raise
        fixed = {name: specialised(value) for name, value in kwargs.items()}
        out, device = unfake(func, plan, tuple([specialised(arg) for arg in args]), fixed)
    if plan.view:
        return _wrap_views(out, device, _first_fake(args))
    if isinstance(out, torch.Tensor):
        _check_kind(func, (out.layout,))
    return _wrap_all(out, device)


def is_without_shape_function(func: Any) -> bool:
    """Whether a user has made the operator by `torch.library.custom_op`, which fakes raise for until one is given."""
    made = custom_ops.OPDEFS.get(func._schema.name)
    return made is not None and made._abstract_fn is None


def without_shape_function(func: Any) -> Unsupported:
    """The refusal of an operator that nobody has said the shapes of."""
    name = func._schema.name
    hint = "" if func.namespace == "aten" else f"give it one: @torch.library.register_fake({name!r})"
    return Unsupported(func, "it has no shape function", hint)


def any_symbolic(args: Iterable[Any]) -> bool:
    """Whether an argument is a symbolic size, or a tensor that has one."""
    for arg in args:
        if isinstance(arg, torch.SymInt) or (isinstance(arg, FakeTensor) and arg._has_symbolic_sizes_strides):
            return True
        if isinstance(arg, (list, tuple)) and any_symbolic(arg):
            return True
    return False


def specialised(arg: Any) -> Any:
    """The argument with the numbers that its sizes are in the call at hand; they become fixed."""
    if isinstance(arg, torch.SymInt):
        return int(arg)
    if isinstance(arg, FakeTensor):
        if not arg._has_symbolic_sizes_strides:
            return arg
        size, stride, offset = [int(n) for n in arg.size()], [int(n) for n in arg.stride()], int(arg.storage_offset())
        return make(size, arg.dtype, arg.device, stride, offset)
    return [specialised(item) for item in arg] if isinstance(arg, (list, tuple)) else arg


def _to_meta(arg: Any, devices: list[FakeTensor]) -> Any:
    kind = type(arg)
    if kind is FakeTensor:
        devices.append(arg)
        return arg.meta
    if kind is list or kind is tuple:
        return [_to_meta(item, devices) for item in arg]
    if isinstance(arg, FakeTensor):
        devices.append(arg)
        return arg.meta
    return arg


def common_device(tensors: Sequence[torch.Tensor]) -> torch.device:
    """The device of the result: that of the tensors, where CPU scalars give way to any other device."""
    if not tensors:
        return CPU
    device = tensors[0].device
    if device.type == "cpu":
        for tensor in tensors[1:]:
            if tensor.device.type != "cpu":
                return tensor.device
    return device


def _wrap_all(out: Any, device: torch.device) -> Any:
    if isinstance(out, torch.Tensor):
        return wrap_meta(out, device)
    if isinstance(out, (list, tuple)):
        return type(out)(_wrap_all(item, device) for item in out)
    return out


def _wrap_views(out: Any, device: torch.device, base: FakeTensor) -> Any:
    if isinstance(out, torch.Tensor):
        fake = wrap_meta(out, device)
        fake.memory = memory_of(base)
        return fake
    if isinstance(out, (list, tuple)):
        return type(out)(_wrap_views(item, device, base) for item in out)
    return out


def _first_fake(args: tuple[Any, ...]) -> FakeTensor:
    for arg in args:
        if isinstance(arg, FakeTensor):
            return arg
    raise Unsupported("view", "no tensor among its arguments")


install_executor(execute)
