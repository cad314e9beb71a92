"""`Tracer`: the mode that records a program as a graph of functional ATen overloads.

It sits below autograd, so it sees the operators of the forward and, when the autograd engine runs on fakes, those of
the backward pass. What happens to an operator is decided once per overload (`_action`): one of `SPECIAL`, a
decomposition, a random operator, a write, a view, or simply a node.

Invariant: every fake made here has a `handle`; no recorded node mutates. Neighbours: `functional.py` (values of
memory), `operators.py` (functional forms of mutating overloads), `overrides.py` (fills `SPECIAL`), `trace.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from stator.aot.checks import CHECKED
from stator.aot.foreach import is_foreach, run_foreach
from stator.aot.functional import Cell, Handle, Step, TracedGraph, check_whole, read, view_arguments, write
from stator.aot.fused import is_fused, run_fused
from stator.aot.operators import functional_form
from stator.aot.scaler import is_scaling, run_scaling
from stator.aot.written import written_form
from stator.base.effects import Effect
from stator.base.errors import DataDependent, Unsupported
from stator.fake import FakeMode, FakeTensor, make, refusals
from stator.fake.effects import operator_effects
from stator.fake.execute import CONSTANT_ELEMENTS, RULES, argument, execute, plan_of
from stator.fake.layout import is_contiguous
from stator.fake.mode import FACTORIES, Geometry, remember_value
from stator.fake.overloads import Respelling, Table
from stator.fake.starts import COUNTING
from stator.fake.tensor import memory_of
from stator.graphs.nodes import add_call, infer, positional
from stator.sizes import real

aten = torch.ops.aten
Action = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

#: Overload → (tracer, *args, **kwargs) → result; for what is not described by the schema.
SPECIAL = Table("special meaning")

#: Operators that are traced as steps: which those are, and their steps.
_IN_STEPS: tuple[tuple[Callable[[Any], bool], Action], ...] = (
    (is_foreach, run_foreach),
    (is_fused, run_fused),
    (is_scaling, run_scaling),
)

#: Composite overloads that stay whole: taken apart, a number in them would become a tensor.
WHOLE = {aten.where.ScalarSelf, aten.where.ScalarOther}


class Calls:
    """Which call of the program made which part of the history: autograd numbers its nodes in order.

    So the nodes of backward, and what is refused there, have the place of the call whose gradient they are.
    """

    def __init__(self) -> None:
        self.first: list[int] = []
        self.places: list[tuple[tuple[str, int] | None, int | None]] = []
        self.operators: list[str] = []

    def begin(self, location: tuple[str, int] | None, step: int | None, operator: str) -> None:
        """What is recorded from here on belongs to this call."""
        self.first.append(torch._C._autograd._get_sequence_nr())
        self.places.append((location, step))
        self.operators.append(operator)

    def of(self, function: Any) -> tuple[tuple[str, int] | None, int | None]:
        """The call that made a part of autograd's graph."""
        return self.described(function)[:2]

    def described(self, function: Any) -> tuple[tuple[str, int] | None, int | None, str]:
        """The same, and what the program calls it ("" where it made none)."""
        found = bisect_right(self.first, function._sequence_nr()) if function is not None else 0
        return (*self.places[found - 1], self.operators[found - 1]) if found else (None, None, "")


#: Dtypes for which not all kernels that derivatives call are written.
_SELDOM = {torch.bool, torch.float16, torch.bfloat16}


def _check_derivative(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse what a derivative computes where eager's kernel raises in backward: differences of truth values, say."""
    for arg in args:
        if type(arg) is FakeTensor and arg.dtype in _SELDOM:
            break
    else:
        return
    try:
        refusals.check(func, plan_of(func), args, kwargs)
    except refusals.ERRORS as error:
        raise Unsupported(func, f"a derivative calls it, and eager's kernel raises in backward: {error}") from error


class Tracer(FakeMode):
    """Records what runs inside it; `graph` and the inputs are read by `trace.py` when it is over."""

    def __init__(self, decompositions: Mapping[Any, Any], random_operators: Mapping[Any, Any]) -> None:
        super().__init__()
        self.graph = TracedGraph()
        self.decompositions = decompositions
        self.random_operators = random_operators
        self.phase = "forward"
        #: (file, line) of the user's program that the next nodes come from.
        self.location: tuple[str, int] | None = None
        #: What the program calls the operator that they compute, for the names of kernels.
        self.operator = ""
        #: Which instruction of the captured frame that was.
        self.step: int | None = None
        #: The checkpointed call of the program that the next nodes belong to.
        self.region: int | None = None
        self.calls = Calls()
        #: The memory of the gradients that backward is given.
        self.given: list[Cell] = []
        #: Zeros that are gradients, whatever the tangent, by the nodes of autograd that make them: that of `trunc`.
        self.zero_gradients: dict[fx.Node, Any] = {}
        #: Real tensors that the program holds itself, in the order of their placeholders `constant_k`.
        self.constants: list[torch.Tensor] = []
        self.constant_nodes: list[fx.Node] = []
        #: The input int64[draws]: one seed for every draw.
        self.seeds: fx.Node | None = None
        self.seed_device: torch.device | None = None
        #: Whether an input takes gradients.
        self.takes_gradients = False
        #: Inputs whose geometry the program changes in place, by their identity.
        self.restrided: dict[int, FakeTensor] = {}
        #: By their expressions, the floats that are computed from numbers among the inputs.
        self.floats: dict[str, fx.Node] = {}
        #: The memory of zeros that eager keeps without memory (`overrides.py`).
        self.absent: list[Cell] = []
        #: Called with each node of an operator, once it is there.
        self.recorded: Callable[[fx.Node], None] | None = None
        self._draws = 0
        #: How many decompositions it is inside of.
        self._depth = 0
        #: And of how many formulas of PyTorch's own, of operators that have kernels.
        self._composed = 0
        self._actions: dict[Any, Action] = {}
        self._overridden: set[Any] = set()
        self._last_placeholder: fx.Node | None = None
        self._placeholder_names: dict[str, int] = {}

    # ---- dispatch ----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        action = self._actions.get(func)
        if action is None:
            action = self._actions[func] = self._action(func)
        check = CHECKED.get(func)
        if check is not None and self._depth == 0 and self.phase == "forward":
            self._check(check, args, kwargs or {})
        try:
            if self.phase == "backward" and self._depth == 0:
                _check_derivative(func, args, kwargs or {})
            return action(func, self.lifted(func, args), kwargs or {})
        except (Unsupported, DataDependent) as error:
            if self.phase == "backward":
                error.refused_at(*self.calls.of(torch._C._current_autograd_node()))
            raise

    @property
    def formulating(self) -> bool:
        """Whether what runs is a formula in place of a kernel, in which eager calls no operators."""
        return self._depth + self._composed > 0

    def run(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Trace one operator from inside the tracer."""
        return self.__torch_dispatch__(func, (), args, kwargs)

    def override(self, func: Any, around: Callable[[Action, Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        """From here on, call `around` with what is otherwise done with an overload; the first one stays."""
        if func not in self._overridden:
            self._overridden.add(func)
            self._actions[func] = partial(around, self._action(func))

    def _action(self, func: Any) -> Action:
        special = SPECIAL.get(func)
        if special is not None:
            return lambda func, args, kwargs: special(self, *args, **kwargs)
        decomposition = self.decompositions.get(func)
        if isinstance(decomposition, Respelling):
            spell = decomposition.spell
            return lambda func, args, kwargs: self.run(*spell(*args, **kwargs))
        return self._plain_action(func) if decomposition is None else self.decompose

    def _plain_action(self, func: Any) -> Action:
        """What to do with an overload that has no decomposition, or whose decomposition declined."""
        plan = plan_of(func)
        if func in self.random_operators:
            return self._random
        steps = next((run for applies, run in _IN_STEPS if applies(func)), None)
        if steps is not None:
            return partial(self._in_steps, steps)
        if plan.written is not None:
            return self._in_place
        if any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments):
            return self._written
        if func not in WHOLE and func._can_decompose():
            return self._composite
        if plan.view:
            return self.view
        if Effect.RANDOM in operator_effects(func) and self.random_operators:
            return self._random
        return self._data_dependent if plan.data_dependent else self.compute

    def _check(self, check: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record what an operator of the program checks of its data."""
        with self:
            found = check(*self.fakes(args), **kwargs)
        for func, tensor, bounds in found:
            self.compute(func, (tensor, *bounds), {})

    def decompose(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the overload's decomposition gives; where it declines, the overload is treated as one without."""
        self._depth += 1
        try:
            with self:
                out = self.decompositions[func](*args, **kwargs)
        finally:
            self._depth -= 1
        if out is NotImplemented:
            return self._plain_action(func)(func, args, kwargs)
        return self._laid_out(self._rooted(out, args), func, args, kwargs) if self._depth == 0 else out

    def _rooted(self, out: Any, args: tuple[Any, ...]) -> Any:
        """What a formula gives; what it cuts from memory that it made itself is no view."""
        for made in out if isinstance(out, tuple) else (out,):
            handle = getattr(made, "handle", None)
            if handle is not None and handle.steps and handle.origin is None:
                operands = [arg for arg in pytree.tree_leaves(args) if isinstance(arg, FakeTensor) and arg.handle]
                if all(handle.cell is not arg.handle.cell for arg in operands):
                    self._own(made, self.node(made))
        return out

    def _laid_out(self, out: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a formula gives, in the layout of the operator's own result, as capture has it."""
        if not isinstance(out, FakeTensor | tuple):
            return out
        try:
            promised = self._promised(out, func, self.fakes(args), kwargs)
        except (DataDependent, Unsupported):  # the formula knew more
            return out
        if isinstance(out, tuple) and isinstance(promised, tuple):
            return tuple([self._as(one, like) for one, like in zip(out, promised, strict=True)])
        return self._as(out, promised)

    def _promised(self, out: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Fakes of an operator's own results, by its rule; without one, PyTorch is asked where anything is permuted."""
        rule = RULES.get(func)
        promised = rule(*args, **kwargs) if rule is not None else NotImplemented
        if promised is not NotImplemented or self.phase == "backward" or plan_of(func).composite:
            return promised
        met = pytree.tree_leaves((out, args, tuple(kwargs.values())))
        if all(is_contiguous(tensor) for tensor in met if isinstance(tensor, FakeTensor)):
            return promised
        return execute(func, args, kwargs)

    def _as(self, out: Any, like: Any) -> Any:
        """The value with the strides of another fake; what is promised as a view, or is one of an input, stays."""
        if not isinstance(out, FakeTensor) or not isinstance(like, FakeTensor) or out.stride() == like.stride():
            return out
        if out.handle.origin is not None or like.memory is not None or out.shape != like.shape:
            return out
        made = make(out.shape, out.dtype, out.device, like.stride())
        packed = {"memory_format": torch.contiguous_format} if is_contiguous(made) else {}
        self._own(made, self.record(aten.clone.default, (self.node(out),), packed, made))
        return made

    def _composite(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        has_kernel = _has_kernel(func)
        self._composed += has_kernel
        try:
            with self:
                out = func.decompose(*args, **kwargs)
        finally:
            self._composed -= has_kernel
        return self._laid_out(out, func, args, kwargs) if self._depth == 0 and func in RULES else out

    def _in_steps(self, run: Action, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            return run(func, args, dict(kwargs))

    def _random(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """By the functional form; without one eager's kernel draws when the graph runs, and checks its operands."""
        if kwargs.get("generator") is not None:
            raise Unsupported(func, "it has a generator of its own", "seed torch's default generator instead")
        if func not in self.random_operators:
            return self.compute(func, args, kwargs)
        with self:
            out = self.random_operators[func](self.draw, *args, **kwargs)
        if out is NotImplemented:
            raise Unsupported(func, "these arguments have no functional form")
        return self._laid_out(out, func, args, kwargs)

    def _data_dependent(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensor = args[0] if args else None
        if isinstance(tensor, FakeTensor) and tensor.handle is not None and tensor.handle.cell.version:
            raise DataDependent(func)
        out = execute(func, args, kwargs)
        return self.lift(out.constant) if isinstance(out, FakeTensor) and out.constant is not None else out

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a functional operator; its results have memory of their own."""
        args = self.fakes(args)
        if kwargs:
            kwargs = dict(zip(kwargs, self.fakes(tuple(kwargs.values())), strict=True))
            args, kwargs = positional(func, args, kwargs)
        out = execute(func, args, kwargs)
        if func in FACTORIES:
            remember_value(func, args, kwargs, out)
        if type(out) is tuple and out and all(item is None for item in out):  # a backward without gradients
            return out
        named = {name: self._argument(value) for name, value in kwargs.items()} if kwargs else kwargs
        nodes = self.nodes(args)
        if func in COUNTING:
            check_whole(func, args[0], nodes[0])
        self._own(out, self.record(func, nodes, named, out))
        return out

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> fx.Node:
        """Add the node of one functional operator."""
        name = func._opname if func is not getitem else "getitem"
        node = add_call(self.graph, func, args, kwargs, name)
        node.meta["val"] = value
        node.meta["phase"] = self.phase
        location, step, operator = self.location, self.step, self.operator
        if self.phase != "forward":
            function = torch._C._current_autograd_node()
            location, step, operator = self.calls.described(function)
            operator = operator and f"{operator}_backward"
            if func is aten.full.default and function is not None and _is_zeros(value, args[1]):
                self.zero_gradients[node] = function
        if location is not None:
            node.meta["location"], node.meta["step"] = location, step
        if operator:
            node.meta["operator"] = operator
        if self.region is not None:
            node.meta["recompute"] = self.region
        if self.recorded is not None:
            self.recorded(node)
        return node

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a node whose arguments are nodes; its value's geometry follows from theirs."""
        return self.record(func, args, kwargs, infer(func, args, kwargs))

    def node(self, fake: FakeTensor) -> fx.Node:
        """The node of a fake's present value."""
        handle = fake.handle
        if handle is None:
            raise Unsupported("a fake tensor", "it was made outside this trace")
        node: fx.Node = handle.node if handle.version == handle.cell.version else read(handle, self.emit)
        return node

    def nodes(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments with fakes replaced by the nodes of their values."""
        return tuple([self._argument(arg) for arg in args])

    def _argument(self, arg: Any) -> Any:
        kind = type(arg)
        if kind is FakeTensor:
            return self.node(arg)
        if kind is list or kind is tuple:
            return [self._argument(item) for item in arg]
        if kind is torch.SymFloat:
            self._number(arg)
        return arg

    def _number(self, number: torch.SymFloat) -> None:
        """A float that is computed from others is an input of its own: Python computes it before the graph runs."""
        value = number.node.value
        text = real.written(value)
        if not isinstance(value, float) and real.plain(value) is None and text not in self.floats:
            self.floats[text] = self.placeholder("float", number)

    def _own(self, out: Any, node: fx.Node) -> None:
        """Give fresh results memory of their own."""
        if type(out) is FakeTensor:
            out.handle = Handle(Cell(node), (), node)
        elif isinstance(out, (list, tuple)):
            for i, item in enumerate(out):
                if isinstance(item, FakeTensor):
                    self._own(item, self.record(getitem, (node, i), {}, item))

    # ---- views and writes --------------------------------------------------------------------------------------------

    def view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a view; its handle is on the cell of what it views."""
        args, kwargs = positional(func, self.fakes(args), kwargs)
        base = args[0]
        out = execute(func, args, kwargs)
        if not isinstance(out, FakeTensor):
            raise Unsupported(func, "a view with several results needs a decomposition")
        value, *arguments = self.nodes(args)
        placed, alike = view_arguments(func, tuple(arguments), value, base, out, self.emit)
        node = self.record(func, placed, kwargs, out if alike else infer(func, placed, kwargs))
        handle = base.handle
        step = Step(func, tuple(arguments), kwargs, base)
        out.handle = Handle(handle.cell, (*handle.steps, step), node, handle.origin)
        out.handle.born = None if base.is_inference() else base._version
        return out

    def same(self, tensor: FakeTensor) -> FakeTensor:
        """Another tensor object over the same memory, with the same geometry (detach, alias)."""
        tensor = self.fakes((tensor,))[0]
        out: FakeTensor = execute(aten.alias.default, (tensor,), {})
        handle = tensor.handle
        out.handle = Handle(handle.cell, handle.steps, self.node(tensor), handle.origin)
        out.handle.born = None if tensor.is_inference() else tensor._version
        return out

    def _in_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plan = plan_of(func)
        assert plan.written is not None
        if plan.restrides:
            return self._restride(func, args, kwargs)
        targets = [argument(func, args, kwargs, position) for position in plan.written]
        form = functional_form(func)
        if form is None:
            raise Unsupported(func, "it has no functional form")
        args, kwargs = form.arguments(args, kwargs)
        outs = self.run(form.func, *args, **kwargs)
        outs = (outs,) if isinstance(outs, FakeTensor) else outs
        for target, out in zip(targets, outs, strict=True):
            self.assign(self.fakes((target,))[0], out)
        return targets[0] if len(targets) == 1 and len(func._schema.returns) == 1 else tuple(targets)

    def _written(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of an operator of the program that writes to arguments and returns none of them."""
        form = written_form(func)
        if form is None:
            raise Unsupported(func, "it mutates an argument without returning it")
        args, kwargs = positional(func, args, kwargs)
        outs = self.compute(form.func, args, kwargs)
        outs = (outs,) if isinstance(outs, FakeTensor) else tuple(outs)
        results, values = outs[: -len(form.positions)], outs[-len(form.positions) :]
        for position, value in zip(form.positions, values, strict=True):
            self.assign(self.fakes((args[position],))[0], value)
        return results if len(results) > 1 else results[0] if results else None

    def assign(self, target: FakeTensor, value: FakeTensor) -> None:
        """The target's value is from now on `value`: cast and laid out as the target is."""
        if value.shape != target.shape:
            raise RuntimeError(
                f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
            )
        if any(target.handle.cell is cell for cell in self.given):
            raise Unsupported("this backward", "it writes to a gradient that the caller may hold")
        node = self.node(value)
        if value.dtype is not target.dtype:
            node = self.emit(aten._to_copy.default, node, dtype=target.dtype)
        handle = target.handle
        if not handle.steps and node.meta["val"].stride() != target.stride():
            node = self.emit(aten.copy.default, self.node(target), node)
        write(target, handle, node, self.emit)
        memory_of(target).unknown = True

    def _restride(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FakeTensor:
        """`x.t_()` --> x is from now on the view `x.t()` of its former self."""
        target: FakeTensor = args[0]
        form = functional_form(func)
        if form is None:
            raise Unsupported(func, "it has no functional form")
        handle = target.handle
        if handle.origin is target:
            self._check_restride(func, target)
            self.restrided[id(target)] = target
        elif handle.origin is None:
            handle.cell.restrided = True
        self._check_views(func, target)
        former = self.same(target)
        self._keep_geometry(target, former)
        target.handle = self.run(form.func, former, *args[1:], **kwargs).handle
        execute(func, args, kwargs)
        return target

    def _check_restride(self, func: Any, target: FakeTensor) -> None:
        if target.requires_grad and not torch.is_grad_enabled():
            raise Unsupported(func, "it changes the geometry of an input that needs gradients, where none are recorded")
        if target._has_symbolic_sizes_strides:
            raise Unsupported(func, "it changes the geometry of an input of symbolic size")

    def _check_views(self, func: Any, target: FakeTensor) -> None:
        """Autograd repeats the views of a fake on what their base is by then; on a real tensor it strides them."""
        if target._is_view():
            if target.requires_grad:  # what the program itself calls so is made otherwise: `restriding.py`
                raise Unsupported(func, "a function of PyTorch's changes the geometry of a view that needs gradients")
            return
        if not (target.requires_grad or self.takes_gradients):
            return
        for node in self.graph.nodes:
            value = node.meta["val"]
            handle = value.handle if type(value) is FakeTensor and value is not target else None
            if handle is not None and any(step.parent is target for step in handle.steps):
                raise Unsupported(func, "views of the tensor were taken before", "take them after it")

    def _keep_geometry(self, tensor: FakeTensor, former: FakeTensor) -> None:
        """The nodes described by a tensor that changes now are described by its former self."""
        for node in self.graph.nodes:
            value = node.meta["val"]
            if value is tensor:
                node.meta["val"] = former
            elif isinstance(value, (tuple, list)):
                node.meta["val"] = type(value)(former if item is tensor else item for item in value)

    # ---- inputs ------------------------------------------------------------------------------------------------------

    def placeholder(self, name: str, fake: FakeTensor | torch.SymInt | torch.SymFloat) -> fx.Node:
        """A graph input, after the inputs so far and before all operators."""
        if self._last_placeholder is not None:
            point: Any = self.graph.inserting_after(self._last_placeholder)
        else:
            point = self.graph.inserting_before(next(iter(self.graph.nodes), None))
        name = re.sub(r"\W", "_", name)
        name = f"p_{name}" if name[:1].isdigit() else name
        seen = self._placeholder_names[name] = self._placeholder_names.get(name, -1) + 1
        with point:
            node = self.graph.placeholder(f"{name}_{seen}" if seen else name)
        self._last_placeholder = node
        node.meta["val"] = fake
        node.meta["phase"] = self.phase
        return node

    def _convert(self, tensor: torch.Tensor, geometry: Geometry, requires_grad: bool) -> FakeTensor:
        """A real tensor that nobody declared as an input: a constant of the program."""
        fake = super()._convert(tensor, geometry, False)
        node = self.placeholder(f"constant_{len(self.constants)}", fake)
        self.constants.append(tensor)
        self.constant_nodes.append(node)
        fake.handle = Handle(Cell(node), (), node)
        return fake

    def declare(self, tensor: torch.Tensor, fake: FakeTensor) -> None:
        """Let `fake` stand for a real tensor wherever the program meets it."""
        self._memo[id(tensor)] = (tensor, fake)

    def lift(self, tensor: torch.Tensor) -> FakeTensor:
        """`torch.tensor(…)`: a creation node for a scalar, else a constant input."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.dim() == 0 and tensor.device.type == "cpu":
            with torch._C._DisableTorchDispatch():
                number = tensor.item()
            fake: FakeTensor = self.run(aten.full.default, [], number, dtype=tensor.dtype, device=tensor.device)
        else:
            with torch._C._DisableTorchDispatch():
                tensor = tensor.detach().clone()
            held = self.from_real(tensor)
            # Each call makes it anew, so what is written to it, or given back, is no input.
            fake = make(held.shape, held.dtype, held.device, held.stride())
            fake.handle = Handle(Cell(held.handle.node), (), held.handle.node)
        if tensor.numel() <= CONSTANT_ELEMENTS and tensor.device.type == "cpu":
            fake.constant = tensor
        return fake

    def draw(self, size: Sequence[int], kind: str, device: torch.device) -> FakeTensor:
        """Fresh float32 random numbers: a pure function of a seed that belongs to this draw."""
        if self.seeds is None:
            self.seed_device = device
            self.seeds = self.placeholder("seeds", make((1,), torch.int64, device))
        out = make(size, torch.float32, device)
        kwargs = {"kind": kind, "dtype": torch.float32, "device": device}
        node = self.record(torch.ops.stator.random.default, (self.seeds, self._draws, list(size)), kwargs, out)
        self._draws += 1
        self.seeds.meta["val"] = make((self._draws,), torch.int64, self.seeds.meta["val"].device)
        self._own(out, node)
        return out


def _is_zeros(tensor: torch.Tensor, value: Any) -> bool:
    """Whether these may be a gradient: no positions, and no number that is known only when the graph runs."""
    return (tensor.is_floating_point() or tensor.is_complex()) and isinstance(value, int | float) and value == 0


@cache
def _has_kernel(func: Any) -> bool:
    """Whether eager has a kernel for an operator that PyTorch has a formula of as well."""
    name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in ("CPU", "CUDA"))
