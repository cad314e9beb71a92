from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

class GuardTree:
    """Guards as a tree; see csrc/tree.c for the specification."""

    def __new__(cls, state: tuple[Any, ...], nodes: tuple[Any, ...], relations: tuple[Any, ...]) -> GuardTree: ...
    def check(self, *slots: object) -> bool: ...
    def explain(self, *slots: object) -> str | None: ...

class RunOriginal(BaseException):
    """Raised by an entry that has done nothing yet: the original runs then.

    What it is given is told before and after: `begin()` and `end(raised)`, which may raise instead of the result.
    """

class Continuation:
    """The rest of a call: returned by an entry that ends in the middle, called by who made the call."""

    def __new__(cls, target: Callable[..., Any], args: tuple[Any, ...], /) -> Continuation: ...
    @property
    def target(self) -> Callable[..., Any]: ...
    @property
    def args(self) -> tuple[Any, ...]: ...

class Dispatcher:
    """Calls the entry whose guards pass, else `fallback(args, kwargs)`."""

    def __new__(
        cls,
        original: FunctionType,
        fallback: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        settings: object = None,
    ) -> Dispatcher: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...
    def add(
        self,
        tree: GuardTree,
        function: Callable[..., Any],
        watch: bool = False,
        straight: Straight | None = None,
        /,
    ) -> None: ...
    def retire(self, tree: GuardTree, told: Callable[[], object], /) -> None: ...
    def clear(self) -> None: ...
    def bind(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]: ...
    @property
    def entries(self) -> list[tuple[GuardTree, Callable[..., Any]]]: ...
    @property
    def original(self) -> FunctionType: ...
    @property
    def settings(self) -> Any: ...

class Straight:
    """An entry that is a graph and no more: `places` are (parameter, -1 or the item of it); see csrc/straight.c."""

    def __new__(
        cls,
        graph: Callable[..., tuple[Any, ...]],
        recovery: Callable[..., object] | None,
        places: tuple[tuple[int, int], ...],
        results: int,
        result: int,
    ) -> Straight: ...

#: What a call of an `EagerGraph` takes: the number of an input or of an earlier call's value, or (a constant,).
EagerOperand = int | tuple[Any]

class EagerGraph:
    """A captured graph that runs in eager; see csrc/eager.c.

    A call is (kind, target, operands, names of the last of them, values that are let go of after it); a value has the
    number of its call, counted from the inputs on. The kinds: "function", "method", "list", "tuple".
    """

    def __new__(
        cls,
        inputs: int,
        calls: tuple[tuple[str, Any, tuple[EagerOperand, ...], tuple[str, ...], tuple[int, ...]], ...],
        results: tuple[EagerOperand, ...],
    ) -> EagerGraph: ...
    def __call__(self, *placeholders: Any) -> tuple[Any, ...]: ...

#: handler(settings, function, slots, entries), for a frame that no version matches.
#: What it gives, if anything, is told before and after the frame runs as it is: `begin()`, `end(raised)`.
FrameHandler = Callable[[Any, FunctionType, tuple[Any, ...], "FrameEntries | None"], object]

class FrameEntries:
    """The compiled versions of the frames of one code object, under one choice of settings, of one instance or all."""

    owner: Any
    closed: bool
    def add(self, tree: GuardTree, code: CodeType | None, watch: bool, /) -> None: ...
    def retire(self, tree: GuardTree, told: Callable[[], object], /) -> None: ...
    def clear(self) -> None: ...
    def detach(self) -> None: ...
    @property
    def entries(self) -> list[tuple[GuardTree, CodeType | None, bool]]: ...

class Kernel:
    """A compiled kernel: call it with tensors and, as integers, raw addresses."""

    def __call__(self, *arguments: torch.Tensor | int) -> None: ...
    def at(self, *moves: int) -> Kernel: ...
    @property
    def address(self) -> int: ...

def device_kernel(
    name: str,
    aligned: tuple[bool, ...],
    sizes: int,
    grid: Any,
    limits: tuple[tuple[Any, int], ...],
    rounds: tuple[int, ...],
    overlaps: bool,
    device: int,
    driver: tuple[int, int, int, int],
    build: Callable[[bool, bool, bool], tuple[int, ...]],
    refused: Callable[[str, int], None],
) -> Kernel:
    """A kernel that a device runs; see csrc/device.c."""

class Empty:
    """Gives a new tensor of this geometry on the CPU whenever it is called."""

    def __new__(cls, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Empty: ...
    def __call__(self) -> torch.Tensor: ...

class Executor:
    """The steps of a plan, from a list of inputs, which it empties, to a tuple; see csrc/executor.c."""

    def __new__(
        cls,
        registers: int,
        numbers: int,
        inputs: tuple[int, ...],
        reads: tuple[tuple[int, int, bool, int], ...],
        unused: tuple[int, ...],
        scratch: tuple[Any, ...] | None,
        steps: tuple[tuple[Any, ...], ...],
        results: tuple[Any, ...],
        retype: Callable[..., torch.Tensor],
        fail: Callable[[int, BaseException, Any], None],
        keep: Callable[..., Any] | None,
        kept: tuple[int, ...],
        begin: int,
        device: str,
        brief: bool = False,
    ) -> Executor: ...
    def __call__(self, inputs: list[Any], /) -> tuple[Any, ...]: ...
    def into(self, inputs: list[Any], places: tuple[torch.Tensor | None, ...], /) -> tuple[Any, ...]:
        """The same with memory for allocations that have a place."""

class Place:
    """Memory that recordings write and calls give out; see csrc/place.c."""

    def __new__(cls, *tensors: torch.Tensor) -> Place: ...
    def tensor(
        self, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], offset: int, /
    ) -> torch.Tensor: ...
    def use(self, stream: Any, /) -> None: ...
    def lie_over(self, base: Place, /) -> None: ...
    def only_in(self, inputs: list[Any], numbers: tuple[int, ...], /) -> bool: ...
    @property
    def base(self) -> Place | None: ...
    @property
    def lies_over(self) -> bool: ...
    @property
    def covered(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    @property
    def intact(self) -> bool: ...
    @property
    def storage(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...

class Recording:
    """A call that a device has recorded; see csrc/recording.c."""

    def __new__(
        cls,
        graph: object,
        executable: int,
        replay: Callable[[], object] | None,
        wait: Callable[[Any], object],
        driver: tuple[int, int, int, int, int, int],
        kind: str,
        device: int,
        context: int,
        stream: int,
        inputs: tuple[tuple[Any, ...], ...],
        places: tuple[Place, ...],
        copies: tuple[tuple[int, int, int], ...],
        results: tuple[tuple[Any, ...], ...],
        overlays: tuple[tuple[int, tuple[int, ...]], ...],
        held: object,
    ) -> Recording: ...
    def fits(self, inputs: list[Any], stream: int, /) -> bool: ...
    def alone(self, inputs: list[Any], /) -> bool: ...
    def mismatches(self, inputs: list[Any], /) -> list[int]: ...
    def replay(self, inputs: list[Any], /) -> tuple[Any, ...] | None: ...
    @property
    def idle(self) -> bool: ...
    @property
    def refused(self) -> bool: ...
    @property
    def places(self) -> tuple[Place, ...]: ...
    @property
    def overlays(self) -> tuple[tuple[int, tuple[int, ...]], ...]: ...

class Recorded:
    """A graph whose calls are recorded, called like the graph; see csrc/recorded.c."""

    def __new__(
        cls,
        call: Callable[[list[Any]], tuple[Any, ...]],
        decide: Callable[[list[Any], int], tuple[Any, ...]],
        recordings: list[Recording],
        driver: tuple[int, int, int, int, int, int],
        device: int,
    ) -> Recorded: ...
    def __call__(self, inputs: list[Any], /) -> tuple[Any, ...]: ...
    @property
    def call(self) -> Callable[[list[Any]], tuple[Any, ...]]: ...
    @property
    def decide(self) -> Callable[[list[Any], int], tuple[Any, ...]]: ...
    @property
    def recordings(self) -> list[Recording]: ...

class Plan:
    """One compiled function, called with its placeholders; see csrc/plan.c."""

    def __new__(
        cls,
        bound: Any,
        forward: Callable[[list[Any]], Sequence[Any]],
        attributes: tuple[torch.Tensor, ...],
        general: Callable[..., tuple[Any, ...]],
        levels: dict[str, Any],
        own: Callable[[torch.Tensor], torch.Tensor],
        values: int,
        bare: bool,
        *,
        outputs: Outputs | None = None,
        apply: Callable[..., tuple[Any, ...]] | None = None,
        age: Callable[[tuple[Any, ...]], None] | None = None,
        anchor: Callable[[], torch.Tensor] | None = None,
        after: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], None] | None = None,
        record: Callable[[list[tuple[torch.Tensor, int] | None]], Any] | None = None,
        hooks: Callable[[bool], Any] | None = None,
        counter: Callable[[torch.Tensor], torch.Tensor] | None = None,
        saved: tuple[int, ...] = (),
        constant: tuple[int, ...] = (),
        watched: tuple[int, ...] = (),
        looks: tuple[int, ...] = (),
        held: tuple[int, ...] = (),
        enables_grad: bool = False,
    ) -> Plan: ...
    def __call__(self, *placeholders: Any) -> tuple[Any, ...]: ...
    @property
    def bound(self) -> Any: ...

class Outputs:
    """Results that are inputs, views of inputs or values, or constants; see csrc/outputs.c.

    An item is (kind of `Output`, index, size, stride, offset, whether autograd does not see it made, constant).
    """

    def __new__(
        cls, items: tuple[tuple[str, int, tuple[int, ...], tuple[int, ...], int, bool, Any], ...]
    ) -> Outputs: ...

class Backward:
    """A backward that is a graph and no more where the tangents fit; see csrc/backward.c.

    A tangent is (position, strides, dtype number, dispatch keys); `named_key` are keys that may be excluded meanwhile.
    """

    def __new__(
        cls,
        graph: Callable[[list[Any]], Sequence[Any]],
        failed: Callable[[Any, Any, tuple[Any, ...], Exception], None],
        tangents: tuple[tuple[int, tuple[int, ...], int, int], ...],
        saved: int,
        keeps: bool,
        named_key: int,
        freed: frozenset[int] | None = None,
        unseen: list[None] | None = None,
    ) -> Backward: ...

class Frozen:
    """A graph whose last inputs are values of parameters, computed when these are written to; see csrc/frozen.c.

    An attribute is (tensor, how many bytes are looked at, whether all of them are compared).
    """

    def __new__(
        cls,
        forward: Callable[[list[Any]], Sequence[Any]],
        attributes: tuple[tuple[torch.Tensor, int, bool], ...],
        hold: Callable[[], object | None],
        compute: Callable[[bool, bool], tuple[torch.Tensor, ...]],
        samples: tuple[torch.Tensor, torch.Tensor],
    ) -> Frozen: ...
    def __call__(self, inputs: list[Any], /) -> Sequence[Any]: ...
    @property
    def fresh(self) -> bool: ...

def record(context: Any, plan: Plan, /, *inputs: Any) -> tuple[Any, ...]: ...
def backward(context: Any, /, *tangents: torch.Tensor | None) -> tuple[Any, ...]: ...
def scratch_bytes() -> int: ...
def storage_of(tensor: torch.Tensor, /) -> int: ...
def scratch_blocks(device: int, stream: int, /) -> list[torch.Tensor]: ...
def scratch_move(device: int, source: int, to: int, /) -> None: ...
def scratch_forget(device: int, stream: int, /) -> None: ...
def scratch_release() -> None: ...
def results_bytes() -> int: ...
def results_release() -> None: ...
def load_kernels(path: str, names: Iterable[str], /) -> list[Kernel]: ...
def tensor_facts(tensor: torch.Tensor, /) -> tuple[tuple[int, ...], tuple[int, ...], int, int, int, bool]: ...
def tensor_access() -> str: ...
def matches(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, /) -> bool: ...
def read_state(name: str, /) -> int | None: ...
def ask_for_huge_pages(address: int, bytes: int, /) -> None: ...

#: The rows of csrc/guard_kinds.h: (name, cost, payload, whether a relation, meaning, text).
GUARD_KINDS: tuple[tuple[str, int, str, bool, str, str], ...]

def watched(settings: object, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...
def set_frame_handler(handler: FrameHandler | None, /) -> FrameHandler | None: ...
def frame_entries(code: CodeType, settings: object, instance: object, /) -> FrameEntries: ...
def frame_hook_active() -> bool: ...
def skip_code(code: CodeType, /) -> None: ...
def skip_recursively(code: CodeType, /) -> None: ...
def forget(code: CodeType, /) -> None: ...
def suspend() -> int: ...
def resume() -> int: ...
def suspended() -> bool: ...

class TileLauncher:
    """The launches of one kernel of the tile language on devices; see csrc/tiles.c."""

    def __new__(
        cls,
        names: tuple[str, ...],
        flags: tuple[int, ...],
        defaults: dict[str, Any],
        positions: dict[str, int],
        hooks: list[Any],
        types: tuple[type, ...],
        switches: tuple[bytes, ...],
        absent: object,
    ) -> TileLauncher: ...
    def bind(self, owner: Any, grid: Any, /) -> Callable[..., Any]: ...
    def learn(self, args: tuple[Any, ...], named: dict[str, Any], entry: tuple[Any, ...], /) -> bool: ...
