"""What PyTorch's kernels refuse though a shape rule would not: dtypes without a kernel, casts, numbers out of range.

Which dtypes an operator takes is written nowhere but in its kernels, and changes between releases. So where an operator
meets dtypes or numbers for the first time, its kernel is asked: it runs on stand-ins, tensors of zeros that have the
arguments' dtypes, and few elements where no argument speaks of sizes. If that raises, while other dtypes, or whole
numbers for those of other types, pass with the same sizes, the error is the operator's and is raised here, as eager
raises it. Answers are kept. Of other devices no
kernel is asked: an elementwise operator refuses there what it refuses on the host before a kernel is chosen (truth
values that are subtracted, casts in place).

Invariant: nothing of the program is read or written, and no random number is taken from its generator.
Neighbours: `mode.py` asks for the program's own operators; `options.py` has options that are wrong; `execute.py` has
what they give; `overlap.py` has what is refused where an operator writes to memory that another operand shares.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from stator.fake import options, overlap
from stator.fake.execute import OperatorFacts
from stator.fake.symbolic import FloatNode, size_of
from stator.fake.tensor import FakeTensor
from stator.sizes import hint

#: What operators raise for arguments that they do not take.
ERRORS = (RuntimeError, TypeError, ValueError, IndexError)
#: What stand-ins are filled with: positions are in range, and if that will not do, no divisor is zero.
VALUES = (0, 1)
#: Arguments that are whole numbers and go with tensors of any size.
ANY_SIZE = {
    "dim",
    "dims",
    "dim0",
    "dim1",
    "dim2",
    "n",
    "decimals",
    "reduction",
    "low",
    "high",
    "dtype",
    "layout",
    "memory_format",
}
#: How long their dims are then. What has one element is an edge of its own: it has no variance.
LONGEST = 2
#: What says how large random numbers without an operand are, and what it is then.
SMALL: dict[str, Any] = {"size": [LONGEST], "n": LONGEST}
#: How many elements stand-ins have together at most.
ELEMENTS = 1 << 18
#: Operators that no program calls check less; these are what public functions become.
INTERNAL = {
    *("_softmax", "_log_softmax", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_prelu_kernel", "_cdist_forward"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "_native_batch_norm_legit", "_fused_rms_norm"),
    *("_fft_r2c", "_fft_c2r", "_fft_c2c", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d"),
}
#: Kernels that write where pivots say, which count from 1: they run on no stand-ins.
TRUSTING = {"linalg_ldl_solve", "linalg_lu_solve", "lu_solve", "lu_unpack"}
#: Kernels that trust the sizes of their operands, and so run on no stand-ins → the dtypes that they are written for.
WRITTEN_FOR = {"_pdist_backward": (torch.float32, torch.float64)}
#: What a kernel itself says: which dtypes it is written for, and what it finds in the data.
_OF_KERNELS = re.compile(r"not implemented for '|ZeroDivisionError")
#: What the schema calls parameters that take numbers of any kind.
_NUMBERS = {"number", "Optional[number]", "Tensor", "Optional[Tensor]"}
#: How many answers are kept.
KEPT = 20_000

#: The dtype to take instead of one, of the tensor at a place among those of the call.
Others = Callable[[torch.dtype, int], torch.dtype]
#: The place of an argument that is a dtype.
NO_TENSOR = 1 << 16
#: Tensors that meet in no dtype, as the positions and weights of a loss, are each tried in one of these by itself.
KINDS = (torch.float32, torch.int64)
#: Of how many tensors at most.
MOST_KINDS = 4
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_RANDOM = torch.Tag.nondeterministic_seeded
_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_known: dict[Any, str | None] = {}
_classes: dict[Any, type[Exception]] = {}


def check(func: Any, plan: OperatorFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises what the operator raises for arguments of these kinds, if it does."""
    if func.namespace != "aten" or plan.view or plan.restrides:
        return
    if plan.written is not None:
        overlap.check(func, plan, args, kwargs, _run)
    signs: list[Any] = [func]
    _sign(args, signs)
    if kwargs:
        _sign(kwargs.values(), signs)
    key = tuple(signs)
    try:
        known = _known[key]
    except KeyError:
        known = _ask(func, key, args, kwargs)
    except TypeError:  # an argument that is compared by nobody
        return
    if known is not None:
        raise _classes[key](known)


def _sign(args: Iterable[Any], signs: list[Any]) -> None:
    """Adds what tells kinds of calls apart: the dtypes and dims of tensors, and other arguments."""
    for arg in args:
        kind = type(arg)
        if kind is FakeTensor:
            signs += arg.dtype, arg.dim(), arg.device.type
        elif kind is list or kind is tuple:
            signs.append(len(arg))
            _sign(arg, signs)
        elif kind is torch.SymInt or kind is torch.SymFloat:
            signs.append(kind)
        else:
            signs += kind, arg


def _ask(func: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What the operator says to arguments of these kinds, or None where it takes them or nobody can tell."""
    if len(_known) > KEPT:
        _known.clear()
    found = options.refused(func, args, kwargs) or _refusal(func, args, kwargs)
    if found is not None:
        _classes[key] = type(found)
    _known[key] = None if found is None else str(found)
    return _known[key]


def _refusal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    tensors = [item for item in overlap.flat((args, tuple(kwargs.values()))) if isinstance(item, FakeTensor)]
    devices = [tensor.device for tensor in tensors] + [torch.device(kwargs.get("device") or "cpu")]
    for tensor in tensors if func._opname in WRITTEN_FOR else ():
        if tensor.dtype not in WRITTEN_FOR[func._opname] and tensor.device.type == "cpu":
            return NotImplementedError(f"{func._opname} is not implemented for {tensor.dtype}")
    if not _is_public(func):
        return None
    if any(device.type != "cpu" for device in devices):
        if torch.Tag.pointwise not in func.tags or all(tensor.dtype.is_floating_point for tensor in tensors):
            return None
        error = _refusal_of_host(func, args, kwargs, tensors)
        return None if error is None or _OF_KERNELS.search(str(error)) else error
    return _refusal_of_host(func, args, kwargs, tensors)


def _refusal_of_host(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[FakeTensor]
) -> Exception | None:
    if _RANDOM in func.tags and len(tensors) < 2 and _takes_any_size(func):  # nothing can be wrong with sizes
        args = tuple([SMALL.get(p.name, arg) for p, arg in zip(func._schema.arguments, args, strict=False)])
        return _attempt(func, args, kwargs, LONGEST, _same)
    if not tensors:
        return None
    numel = sum([hint(size_of(tensor.numel())) for tensor in tensors])
    unusual = numel <= ELEMENTS and any(tensor.dtype is not torch.float32 for tensor in tensors)
    for longest in [LONGEST] * _takes_any_size(func) + [None] * unusual:
        error = _attempt(func, args, kwargs, longest, _same)
        if error is None:
            return None
        if "not implemented for '" in str(error):  # whatever the sizes are
            return error
        others = _other_kinds(func, args, kwargs, [tensor.dtype for tensor in tensors])
        if any(_attempt(func, *given, longest, dtypes) is None for given, dtypes in others):
            return error
    return None


def _same(dtype: torch.dtype, place: int) -> torch.dtype:
    return dtype


def _other_kinds(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[torch.dtype]
) -> Iterator[tuple[Arguments, Others]]:
    """Arguments of the same sizes: where some of them pass, it was not the sizes that the operator refused."""
    for dtypes in _references(given[0]):
        yield (args, kwargs), dtypes
    plain = _with_plain_numbers(func, args, kwargs)
    if plain is not None:
        for dtypes in (_same, *_references(given[0])):
            yield plain, dtypes
    if 1 < len(given) <= MOST_KINDS:
        for chosen in itertools.product(*[dict.fromkeys((dtype, *KINDS)) for dtype in given]):
            yield (args, kwargs), partial(_chosen, tuple(chosen))


def _chosen(chosen: tuple[torch.dtype, ...], dtype: torch.dtype, place: int) -> torch.dtype:
    return dtype if place == NO_TENSOR else chosen[place]


def _with_plain_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """The arguments with 1 for numbers of other types (`x - True`, `x < 1j`, `n & 1.5`), if there are any."""
    parameters = func._schema.arguments
    numbers = {p.name for p in parameters if str(p.type) in _NUMBERS}

    def plain(name: str, arg: Any) -> Any:
        other = isinstance(arg, bool | complex | torch.SymFloat) or (isinstance(arg, float) and math.isfinite(arg))
        return 1 if other and name in numbers else arg

    others = tuple([plain(p.name, arg) for p, arg in zip(parameters, args, strict=False)])
    named = {name: plain(name, arg) for name, arg in kwargs.items()}
    changed = any(a is not b for a, b in zip((*args, *kwargs.values()), (*others, *named.values()), strict=True))
    return (others, named) if changed else None


def _attempt(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], longest: int | None, others: Others
) -> Exception | None:
    """What the kernel raises for all values; None if it takes one."""
    error = None
    for value in VALUES:
        error = _run(func, args, kwargs, _StandIns(longest, value, others).one)
        if error is None:
            break
    return error


def _is_public(func: Any) -> bool:
    name = func._opname
    if name in TRUSTING or name.endswith("_backward") or not _DATA.isdisjoint(func.tags):
        return False
    return name in INTERNAL or not name.startswith("_") or name.startswith("__")


def _takes_any_size(func: Any) -> bool:
    """Whether no argument but tensors says how large these are."""
    known = ANY_SIZE | SMALL.keys() if _RANDOM in func.tags else ANY_SIZE
    parameters = func._schema.arguments  # a variance is warned of if a correction is as large as the elements are many
    return all(p.name in known or ("int" not in str(p.type) and p.name != "correction") for p in parameters)


def _references(first: torch.dtype) -> Iterator[Others]:
    """Other dtypes than those of the arguments."""
    yield lambda dtype, place: dtype if place else torch.float32
    yield lambda dtype, place: torch.float32 if dtype is first else dtype
    for other in (torch.float32, torch.int64, torch.bool, torch.complex64):
        yield lambda dtype, place, other=other: other  # type: ignore[misc]
    yield lambda dtype, place: torch.float32 if dtype.is_floating_point or dtype.is_complex else torch.int64


class _StandIns:
    """Real arguments in place of fakes: dims up to `longest`, every element `value`, of `others` than their dtypes."""

    def __init__(self, longest: int | None, value: int, others: Others) -> None:
        self.longest = longest
        self.value = value
        self.others = others
        self.made = 0

    def one(self, arg: Any) -> Any:
        """That of an argument; symbolic numbers are those of the call at hand."""
        match arg:
            case FakeTensor():
                size = [hint(size_of(n)) for n in arg.shape]
                if self.longest is not None:
                    size = [min(n, self.longest) for n in size]
                self.made += 1
                return torch.full(size, self.value, dtype=self.others(arg.dtype, self.made - 1))
            case list() | tuple():
                return [self.one(item) for item in arg]
            case torch.dtype():
                return self.others(arg, NO_TENSOR)
            case torch.SymInt():
                return hint(size_of(arg))
            case torch.SymFloat():
                node: FloatNode = arg.node
                return node.hint()
            case torch.Generator():
                return None
        return arg


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stand_in: Callable[[Any], Any]) -> Exception | None:
    """What the kernel raises for real arguments in place of these: past every mode, and past autograd."""
    random = _RANDOM in func.tags
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd(), torch.inference_mode(False):
        state = torch.get_rng_state() if random else None
        try:
            func(*[stand_in(arg) for arg in args], **{name: stand_in(arg) for name, arg in kwargs.items()})
        except ERRORS as error:
            return error
        finally:
            if state is not None:
                torch.set_rng_state(state)
    return None
