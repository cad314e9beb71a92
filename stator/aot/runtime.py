"""What runs at every call: flat inputs in, compiled forward, user's outputs out, compiled backward when asked.

`bind` joins metadata, two compiled callables (from a list of tensors to a tuple) and the live attributes into the
callable that the rewritten code calls. All decisions are read from the metadata once, at bind time.

Invariant: results are what eager would give, in values, strides, aliasing, version counters and differentiability.
Neighbours: `metadata.py` is its input; `results.py` makes the user's results; `partition.py` says what is saved where.
"""

from __future__ import annotations

import re
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Protocol

import torch
from torch import fx
from torch.autograd import forward_ad

from stator._native import Backward, Empty, Plan, backward, record, tensor_facts
from stator.aot.batches import is_batched, mapped
from stator.aot.casts import active
from stator.aot.eager_replay import EagerReplay
from stator.aot.generators import restoring
from stator.aot.keeping import Record, counter_of, needs_record
from stator.aot.metadata import Metadata, Output, TensorSpec
from stator.aot.results import aging, geometry_of, outputs_of, result, results, sized
from stator.aot.symbols import read
from stator.base import artifacts, faults
from stator.base.errors import InternalError, Location, StatorError, Unsupported
from stator.base.files import called_back
from stator.base.options import Options
from stator.graphs.lineage import set_versions
from stator.sizes.real import NAMES, bits_of

Tensor = torch.Tensor
Compiled = Callable[[list[Tensor]], Sequence[Any]]
_INT64_MAX = (1 << 63) - 1
#: How many combinations of sizes one function keeps the geometry of its results for.
_GEOMETRIES = 128
#: PyTorch 2.11 excludes the dispatch key of named tensors while a node runs; later versions have no such key.
_NAMED = torch._C._parse_dispatch_key("Named")
_NAMED_KEY = 0 if _NAMED is None else torch._C.DispatchKeySet(_NAMED).raw_repr()


def bind(
    metadata: Metadata,
    forward: Compiled,
    backward: Compiled | None,
    attributes: Sequence[Tensor],
    gm: fx.GraphModule | None = None,
    lender: Lender | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """The callable over the caller's tensors (the placeholders of the captured graph `gm`)."""
    bound = Bound(metadata, forward, backward, attributes)
    bound.lender = lender
    if gm is not None and metadata.has_backward:
        bound.again = EagerReplay(gm, metadata)
    return bound.plan()


class Lender(Protocol):
    """Who has zeros for tangents that do not come (`recording/zeros.py`)."""

    def lend(self, wanted: Mapping[int, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]) -> dict[int, Tensor]:
        """Zeros for some of the tangents, by number, each of this size, these strides and this dtype."""

    def keep(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients without memory that is lent."""


class Bound:
    """One compiled function: its data, and its two ways to be called."""

    __slots__ = (
        "again",
        "age",
        "anchor",
        "attributes",
        "backward",
        "bare",
        "casts",
        "changed",
        "constants",
        "draws",
        "fixed",
        "flags",
        "floats",
        "forward",
        "generators",
        "geometries",
        "keeps",
        "lender",
        "metadata",
        "mutated",
        "non_differentiable",
        "outputs",
        "plain",
        "reach",
        "reals",
        "saved",
        "sized",
        "seed_device",
        "straight",
        "symbols",
        "unsaved",
        "values",
    )

    def __init__(
        self, metadata: Metadata, forward: Compiled, backward: Compiled | None, attributes: Sequence[Tensor]
    ) -> None:
        self.metadata = metadata
        self.forward = forward
        self.backward = backward
        self.attributes = list(attributes)
        self.values = len(metadata.values)
        #: The outputs are the values in order: nothing to rebuild.
        self.plain = tuple(metadata.outputs) == tuple(Output("value", i) for i in range(self.values))
        #: What counts, in its values, how often the program has written to them; None where it has to none.
        self.age = aging(metadata.values)
        #: Inputs whose version counters rise, once for each time.
        self.mutated = [i for i, count in metadata.writes for _ in range(count)]
        #: Whether the runtime itself changes inputs after the kernels: their geometry, or writes that autograd records.
        self.changed = bool(metadata.assigned or metadata.restrided)
        self.saved = metadata.saved
        #: Whether each call has a record of what it keeps, beside what PyTorch saves.
        self.keeps = metadata.has_backward and needs_record(metadata)
        #: Computes gradients that can be differentiated, if the captured graph is at hand.
        self.again: EagerReplay | None = None
        self.lender: Lender | None = None
        #: Flat inputs that backward does not keep.
        self.unsaved = _unsaved(metadata)
        #: The types of devices whose autocast matters in backward.
        self.casts = sorted({torch.device(spec.device).type for spec in metadata.tangents} | {"cpu"})
        self.draws = metadata.draws
        self.seed_device = torch.device(metadata.seed_device) if metadata.uses_random else None
        #: Put back if a call fails.
        self.generators = [torch.device(name) for name in metadata.generators]
        self.non_differentiable = [i for i, value in enumerate(metadata.values) if not value.differentiable]
        #: Whether no saved tensor has a history that reaches all inputs. Then an empty extra result is saved as well:
        #: unpacked in backward it has this node as its history, without keeping an input alive.
        self.anchor = bool(metadata.saved) and not _leads_back(metadata)
        #: Groups of values of which backward is told whether a tangent is given, with the tensors for yes and no.
        devices = [metadata.values[group[0]].spec.device for group in metadata.flags]
        told = {device: _truths(torch.device(device)) for device in set(devices)}
        self.flags = [(group, *told[device]) for group, device in zip(metadata.flags, devices, strict=True)]
        #: Flat inputs on which only some values depend: these values, and the number of the input among the tensors.
        self.reach = {i: (values, _tensors_before(metadata, i)) for i, values in metadata.reach}
        self.symbols = metadata.symbols
        self.floats = metadata.floats
        self.reals = _reals(metadata) if metadata.reals else None
        #: The symbols on which the geometry of results and tangents depends, and that geometry: one for all calls, or
        #: one for each combination of the symbols' values.
        self.sized = sized(metadata)
        self.fixed = None if self.sized else geometry_of(metadata, (), ())
        self.geometries = lru_cache(maxsize=_GEOMETRIES)(partial(geometry_of, metadata, self.sized))
        #: What makes the results in C, where they are no more than the values, or None.
        self.outputs = None if self.plain or self.fixed is None else outputs_of(self.fixed.outputs)
        #: Whether a call is the forward graph, and results that C makes.
        self.bare = (self.plain or self.outputs is not None) and not (
            self.mutated or self.changed or metadata.bases or metadata.floats or metadata.reals or metadata.generators
        )
        #: Backward in C, where that may be a graph and no more.
        self.straight = self._straight() if metadata.has_backward else None

    def plan(self) -> Plan:
        """The callable in C: it makes a call that is the graph and no more by itself, and calls back for any other."""
        metadata = self.metadata
        graded = metadata.has_backward
        places = {"input": 0, "value": len(metadata.inputs), "extra": len(metadata.inputs) + self.values}
        return Plan(
            self,
            self.forward,
            tuple(self.attributes),
            _call_with_grad if graded else _call,
            vars(forward_ad),
            _own,
            self.values,
            self.bare,
            age=self.age,
            outputs=self.outputs,
            apply=_apply if graded else None,
            anchor=Empty((0,), (1,), torch.float32) if self.anchor else None,
            after=_after if self.mutated or self.symbols or self.reach or metadata.inner else None,
            record=Record if self.keeps else None,
            hooks=torch._C._autograd._top_saved_tensors_default_hooks if self.keeps else None,
            counter=counter_of if self.keeps else None,
            saved=tuple([places[saved.source] + saved.index for saved in self.saved]),
            constant=tuple(self.non_differentiable),
            watched=tuple(self.unsaved) if self.again is not None and not self.again.refusal else (),
            looks=tuple([places[look.source] + look.index for look in metadata.looks]),
            held=tuple([saved.index for saved in self.saved if saved.source == "input"]),
            enables_grad=metadata.enables_grad,
        )

    def _straight(self) -> Backward | None:
        """Backward in C, unless it always has more to do than to run the graph."""
        metadata, fixed = self.metadata, self.fixed
        # What is let go of result by result, only Python knows.
        apart = self.keeps and not metadata.one_fate and bool(metadata.saved or metadata.fates)
        more = self.symbols or self.flags or self.reach or metadata.inner or apart
        if self.backward is None or fixed is None or more:
            return None
        tangents = tuple([(i, form.stride, *_plain(form.dtype, form.device)) for i, form in fixed.tangents])
        freed = frozenset(metadata.differentiable) if self.keeps and metadata.one_fate else None
        unseen: list[None] = [None] * len(metadata.looks)
        return Backward(self.backward, Bound.refail, tangents, len(self.saved), self.keeps, _NAMED_KEY, freed, unseen)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def flat(self, placeholders: tuple[Tensor, ...]) -> list[Tensor]:
        """The flat inputs of one call."""
        inputs: list[Any] = [*self.attributes, *placeholders]
        if forward_ad._current_level >= 0:
            _refuse_tangents(inputs)
        for position in self.floats:
            inputs[position] = bits_of(inputs[position])
        for base in self.metadata.bases:
            inputs.append(result(base, inputs, ()))
        if self.reals is not None:
            inputs += self.reals(inputs)
        if self.seed_device is not None:
            inputs.append(draw_seeds(self.draws, self.seed_device))
        return inputs

    def call(self, *placeholders: Tensor) -> tuple[Any, ...]:
        """Without autograd."""
        return restoring(self.generators, self._call, *placeholders) if self.generators else self._call(*placeholders)

    def _call(self, *placeholders: Tensor) -> tuple[Any, ...]:
        inputs = self.flat(placeholders)
        with torch.no_grad():
            values = tuple([_own(value) for value in self.forward(list(inputs))[: self.values]])
        if self.age is not None:
            self.age(values)
        if self.mutated:
            self.bump(inputs)
        return self.results(inputs, values)

    def call_with_grad(self, plan: Plan, *placeholders: Tensor) -> tuple[Any, ...]:
        """Recorded by autograd, if grad mode is on or the program turns it on."""
        if not torch.is_grad_enabled():
            if not self.metadata.enables_grad:
                return self.call(*placeholders)
            with torch.enable_grad():
                return self.call_with_grad(plan, *placeholders)
        if self.generators:
            return restoring(self.generators, self._call_with_grad, plan, *placeholders)
        return self._call_with_grad(plan, *placeholders)

    def _call_with_grad(self, plan: Plan, *placeholders: Tensor) -> tuple[Any, ...]:
        inputs = self.flat(placeholders)
        values: tuple[Any, ...] = _apply(plan, *inputs)
        if self.anchor:
            values = values[: self.values]
        results = self.results(inputs, values)
        if self.keeps and self.changed:
            node: Any = next(value.grad_fn for value in values if value.grad_fn is not None)
            node.record.settle()
        return results

    def bump(self, inputs: Sequence[Tensor]) -> None:
        """Raise the version counters of inputs that kernels have written to, of which autograd does not know."""
        for index in self.mutated:
            if not inputs[index].is_inference():
                torch.autograd.graph.increment_version(inputs[index])

    def results(self, inputs: list[Tensor], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The user's outputs from inputs and values, once the inputs are what they are after the call."""
        if self.plain and not self.changed:
            return values
        geometry = self.fixed or self.geometries(read(self.sized, inputs))
        for output in geometry.restrided:
            size: Any = output.size  # numbers by now
            stride: Any = output.stride
            offset: Any = output.offset
            tensor = inputs[output.index]
            tensor.as_strided_(size, stride, tensor.storage_offset() + offset)
        for target, value in self.metadata.assigned:  # a write that gives them their new place in the autograd graph
            inputs[target].copy_(values[value])
        return values if self.plain else results(geometry, inputs, values)

    # ---- backward ----------------------------------------------------------------------------------------------------

    def arguments(self, ctx: Any, saved: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> list[Any]:
        """What the backward graph takes."""
        geometry = self.fixed or self.geometries(ctx.sized)
        lent: dict[int, Tensor] = {}
        if self.lender is not None:
            forms = enumerate(geometry.tangents)
            lent = self.lender.lend({k: form.geometry for k, (i, form) in forms if tangents[i] is None})
        fitted = [lent[k] if k in lent else form.fit(tangents[i]) for k, (i, form) in enumerate(geometry.tangents)]
        if self.flags:
            missing = {i for i, tangent in enumerate(tangents) if tangent is None}
            fitted += [no if missing.issuperset(group) else yes for group, yes, no in self.flags]
        return [*saved[: len(self.saved)], *fitted, *(ctx.symbols if self.symbols else ())]

    def gradients(self, ctx: Any, arguments: list[Any], tangents: Sequence[Tensor | None]) -> Sequence[Any]:
        """One gradient or None for each flat input."""
        if self.backward is None:
            return [None] * len(self.metadata.inputs)
        try:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    gradients = self.backward(arguments)
            else:  # as autograd calls it, unless a graph of the gradients is asked for
                gradients = self.backward(arguments)
        except Exception as error:
            self.refail(ctx, tangents, error)
            raise
        if self.lender is not None and None in tangents:
            gradients = self.lender.keep(gradients)
        return _reached(ctx, self, tangents, gradients) if self.reach else gradients

    def refail(self, ctx: Any, tangents: Sequence[Tensor | None], error: Exception) -> None:
        """Raise what the program is told of an exception of the backward graph, if that is another one."""
        if not _is_fault(error):
            return
        theirs = _raised_again(ctx, self, tangents, error)
        if theirs is not None:
            raise theirs from (error if theirs is not error else None)
        raise self._failure(error) from error

    def _failure(self, error: Exception) -> InternalError:
        """What is said of an exception of the backward graph that eager does not raise."""
        gm = self.again.gm if self.again is not None else None
        name = type(gm).__name__ if gm is not None else "backward"
        folder = artifacts.for_failure(Options.from_user(None, None), name)
        if gm is not None:
            folder.write("graph", str(gm.graph), "txt")
        folder.write("failure", "".join(traceback.format_exception(error)), "txt")
        what = f"{type(error).__name__}: {error}"
        places = [node.meta.get("location") for node in gm.graph.nodes] if gm is not None else []
        place = next((Location(*place) for place in places if place), None)
        faults.report(faults.Fault("backward", name, place, what, str(folder.path)))
        failure = InternalError("backward", f"the compiled backward graph raised {what}", str(folder.path))
        failure.refused_at(place, None)
        return failure


def _unsaved(metadata: Metadata) -> list[int]:
    saved = {place.index for place in metadata.saved if place.source == "input"}
    return [i for i in range(len(metadata.inputs)) if i not in saved]


def _call(plan: Plan, *placeholders: Tensor) -> tuple[Any, ...]:
    result: tuple[Any, ...] = plan.bound.call(*placeholders)
    return result


def _call_with_grad(plan: Plan, *placeholders: Tensor) -> tuple[Any, ...]:
    result: tuple[Any, ...] = plan.bound.call_with_grad(plan, *placeholders)
    return result


def _after(ctx: Any, inputs: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    """What is recorded for backward only by functions that need it."""
    bound: Bound = ctx.bound
    bound.bump(inputs)
    ctx.symbols = read(bound.symbols, inputs)
    ctx.sized = read(bound.sized, inputs)
    ctx.inner = [weakref.ref(values[i]) for i, _ in bound.metadata.inner]
    ctx.hooked = {i for i in bound.reach if inputs[i]._backward_hooks}


def _tensors_before(metadata: Metadata, index: int) -> int:
    return sum(isinstance(spec, TensorSpec) for spec in metadata.inputs[:index])


@cache
def _plain(dtype: torch.dtype, device: torch.device) -> tuple[int, int]:
    """The number of the dtype, and the dispatch keys of plain tensors of it."""
    with torch.inference_mode(False):
        _, _, number, _, keys, _ = tensor_facts(torch.empty(0, dtype=dtype, device=device))
    return number, keys


@cache
def _truths(device: torch.device) -> tuple[Tensor, Tensor]:
    """True and false as tensors, for graphs to read."""
    with torch.inference_mode(False):
        return torch.tensor(True, device=device), torch.tensor(False, device=device)


def _refuse_tangents(inputs: list[Any]) -> None:
    """Kernels do not propagate tangents of forward-mode derivatives; they would be lost silently."""
    for value in inputs:
        if isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise Unsupported(
                "forward-mode automatic differentiation",
                "a compiled function carries no tangents",
                "call the function uncompiled inside forward_ad.dual_level()",
            )


def _leads_back(metadata: Metadata) -> bool:
    """Whether the histories of what is saved reach all inputs: a result is among it, or all inputs are."""
    inputs = {saved.index for saved in metadata.saved if saved.source == "input"}
    results = [metadata.values[saved.index] for saved in metadata.saved if saved.source == "value"]
    return any(result.differentiable for result in results) or inputs.issuperset(metadata.gradients)


def _own(value: Tensor) -> Tensor:
    """The same memory as no view of another tensor: autograd forbids writing to views made inside a function."""
    if not value._is_view():
        return value
    owned = torch.empty(0, dtype=value.dtype, device=value.device)
    owned.set_(value.untyped_storage(), value.storage_offset(), value.size(), value.stride())
    set_versions([(owned, value._version)])
    return owned


def draw_seeds(count: int, device: torch.device) -> Tensor:
    """Fresh seeds from torch's default generator of the device, so that `torch.manual_seed` governs them."""
    return torch.randint(_INT64_MAX, (count,), dtype=torch.int64, device=device)


def _reals(metadata: Metadata) -> Callable[[list[Any]], list[int]]:
    """From the flat inputs so far to the bits of the floats that are computed from them."""
    count = len(metadata.inputs) - len(metadata.reals) - metadata.uses_random
    places = [place for place in metadata.symbols if place.input < count]
    names = ", ".join([place.symbol.name for place in places])
    made = ", ".join([f"bits_of(float({text}))" for text in metadata.reals])
    compute: Callable[..., list[int]] = eval(f"lambda {names}: [{made}]", {**NAMES, "bits_of": bits_of})
    return lambda inputs: compute(*read(places, inputs))


class CompiledFunction(torch.autograd.Function):
    """The compiled function in the autograd graph. Its first argument is the `Plan`."""

    forward = staticmethod(record)

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> Any:
        bound: Bound = ctx.bound
        if bound.metadata.inner:
            _check_hooks(ctx, bound.metadata, tangents)
        if bound.keeps:
            saved = ctx.record.take(ctx, bound.metadata, tangents)
        else:
            saved = ctx.saved_tensors if bound.saved else ()  # where nothing was saved, backward may run again
        why = ""
        cast = torch._C._is_any_autocast_enabled() and active(bound.casts) not in ((), bound.metadata.casts)
        if cast or torch.is_grad_enabled():
            gradients, why = _again(ctx, bound, saved, tangents)
            if gradients is not None:
                return (None, *gradients)
            if cast:
                raise Unsupported("backward under autocast", f"{why} and cannot run again", _OUTSIDE)
        elif torch.is_anomaly_enabled():
            _again(ctx, bound, saved, tangents)  # raises what eager raises, with the user's line
        # What the gradients depend on, so that a second derivative finds its way to the refusal.
        origins = (*tangents, *saved) if torch.is_grad_enabled() else ()
        depends = [tensor for tensor in origins if tensor is not None and tensor.requires_grad]
        if torch.is_grad_enabled() and not depends:
            raise Unsupported("double backward", "what the gradient depends on was freed", "pass retain_graph=True")
        del origins
        if any(map(is_batched, tangents)):
            gradients = mapped(lambda given: bound.gradients(ctx, bound.arguments(ctx, saved, given), given), tangents)
        else:
            arguments = bound.arguments(ctx, saved, tangents)
            del saved
            # Unless the graph is kept, backward is the only one who holds what was saved: it frees each where it dies.
            ctx.maybe_clear_saved_tensors()
            gradients = bound.gradients(ctx, arguments, tangents)
        if depends:
            gradients = _Once.apply(why, len(depends), *depends, *gradients)  # type: ignore[no-untyped-call]
        return (None, *gradients)


def _check_hooks(ctx: Any, metadata: Metadata, tangents: Sequence[Tensor | None]) -> None:
    """Hooks of a result see what comes from outside, not what comes from other results of the same call."""
    for (_, others), reference in zip(metadata.inner, ctx.inner, strict=True):
        value = reference()
        watched = value is not None and (value._backward_hooks or value.retains_grad)
        if watched and any(tangents[other] is not None for other in others):
            raise Unsupported(
                "a hook (or retain_grad) on a result of a compiled function that other results are computed from",
                "its whole gradient is never there",
                "register the hook inside the function, right after the result is computed",
            )


def _reached(ctx: Any, bound: Bound, tangents: Sequence[Tensor | None], gradients: Sequence[Any]) -> list[Any]:
    """The gradients, None for inputs on which no differentiated value depends, but for those whose hooks need zeros."""
    kept = list(gradients)
    for i, (values, position) in bound.reach.items():
        if all(tangents[value] is None for value in values) and i not in ctx.hooked:
            function = ctx.next_functions[position][0]
            leaf = getattr(function, "variable", None)
            if leaf is None or not leaf._backward_hooks:
                kept[i] = None
    return kept


def _again(
    ctx: Any, bound: Bound, saved: Sequence[Tensor | None], tangents: Sequence[Tensor | None]
) -> tuple[Sequence[Any] | None, str]:
    """Gradients that can be differentiated, or why there are none."""
    again = bound.again
    if again is None or again.refusal:
        return None, again.refusal if again is not None else "the captured graph is not at hand"
    inputs: list[Any] = [None] * len(bound.metadata.inputs)
    for place, tensor in zip(bound.saved, saved, strict=False):
        if place.source == "input":
            inputs[place.index] = tensor
    for i, entry in zip(bound.unsaved, ctx.unsaved if bound.unsaved else (), strict=True):
        if not isinstance(entry, tuple):
            inputs[i] = entry
            continue
        version, reference = entry
        value = bound.attributes[i] if reference is None else reference()
        if value is None:  # autograd keeps a tensor that gradients are accumulated in
            value = getattr(ctx.next_functions[_tensors_before(bound.metadata, i)][0], "variable", None)
        if value is None:
            return None, "an input of the compiled function is no longer there"
        if value._version != version:
            return None, "an input of the compiled function has been written to since"
        inputs[i] = value
    gradients = again.gradients(inputs, tangents)
    return gradients, "the compiled function draws random numbers"


#: What PyTorch's kernels say of positions, which are the program's, where forward did not look at them.
_OUT_OF_RANGE = re.compile(r"element is out of DATA bounds|index out of range|is out of bounds for dim")


def _is_fault(error: Exception) -> bool:
    """Whether an exception of the backward graph may be a fault of ours: no data error told as such, nor a refusal."""
    told = isinstance(error, StatorError | IndexError | MemoryError | torch.OutOfMemoryError)
    return not told and not _OUT_OF_RANGE.search(str(error)) and not called_back(error)


def _raised_again(ctx: Any, bound: Bound, tangents: Sequence[Tensor | None], error: Exception) -> Exception | None:
    """What eager raises for these tangents where the compiled backward raises `error`; None where it raises nothing.

    Where it cannot be asked, a kernel's word that it is not written for a dtype is taken to be eager's too: it does not
    depend on data.
    """
    unasked = error if isinstance(error, NotImplementedError) else None
    saved: list[Tensor | None] = []
    for place in bound.saved:
        value = None
        if place.source == "input" and place.index < bound.metadata.attributes:
            value = bound.attributes[place.index]
        elif place.source == "input":  # autograd keeps a leaf
            node = ctx.next_functions[_tensors_before(bound.metadata, place.index)][0]
            value = getattr(node, "variable", None)
        if value is None and place.source == "input":
            return unasked
        saved.append(value)
    try:
        gradients, _ = _again(ctx, bound, saved, tangents)
    except Exception as raised:
        return raised
    return unasked if gradients is None else None


CompiledFunction._backward_cls.apply = backward  # type: ignore[attr-defined]  # falls back to `CompiledFunction.backward`

_OUTSIDE = "call backward outside of torch.autocast, as PyTorch recommends"

#: `CompiledFunction.apply` without its way through Python, which only transforms of torch.func need: these are refused.
_apply: Callable[..., tuple[Any, ...]] = super(torch.autograd.Function, CompiledFunction).apply


class _Once(torch.autograd.Function):
    """Gradients made with `create_graph=True`: usable as values, refused when differentiated again."""

    @staticmethod
    def forward(ctx: Any, why: str, origins: int, *tensors: Any) -> Any:
        ctx.why = why
        return tensors[origins:]

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        raise Unsupported(
            "double backward",
            f"the gradient of a compiled function has no derivative where {ctx.why}",
            "compute higher derivatives outside the compiled function",
        )
