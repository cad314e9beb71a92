"""What a target is asked: the functions of its three modules, and of a fourth where its devices record calls.

A module of a target has these functions at its top; nothing is subclassed and no object made. `record` and `toolchain`
are also imported where everything is found in the store, so they import no printer and nothing that only compiling
needs; none imports torch while it is imported itself.
Neighbours: `cpu/`, `cuda/`; `base/device.py` has the record that decisions are made by.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from stator.base.device import Device
    from stator.base.options import Options
    from stator.base.store import Store
    from stator.loop.kernel import Kernel
    from stator.runtime.artifact import Unit


class Record(Protocol):
    """`record.py`: what the machine is. Decisions take what is read, which is the same in every process."""

    def read(self, device: str, threads: int = 0) -> Device:
        """The record of a device of this machine; a kernel may take so many threads, where that is not 0."""

    def typical(self, cores: int = 0) -> Device:
        """The record of a machine that is the same everywhere."""

    def describe(self, store: Store) -> Mapping[str, str]:
        """What people are told, by a word, of the device itself by none; what has to be timed is so once."""


class Printer(Protocol):
    """`printer.py`: kernels as text."""

    #: Of its texts: how files end that hold one, and what a comment begins with.
    SUFFIX: str
    COMMENT: str

    def emit(self, kernels: Sequence[Kernel], names: Sequence[str], device: Device, options: Options) -> list[Unit]:
        """Functions of these names, in one unit or several that compile side by side."""

    def reason(self, kernel: Kernel, device: Device, options: Options) -> str:
        """How a kernel runs and why, in a line."""


class Building(Protocol):
    """Units that are compiled while their caller goes on."""

    def expect(self, device: str) -> None:
        """Units for a device will come: what takes long to start may start."""

    def begin(self, units: Sequence[Unit], device: str, remarks: Mapping[str, str]) -> tuple[Unit, ...]:
        """Have units compiled for a device; the same with what they are found by when they are loaded.

        `remarks` say of kernels by name what of the program they compute, for errors.
        """

    def finish(self) -> None:
        """Wait until all can be loaded."""

    def close(self) -> None:
        """End what still runs."""


class Toolchain(Protocol):
    """`toolchain.py`: text to kernels, and where calls of a device are queued."""

    def building(self, options: Options) -> Building: ...

    def load(self, units: Sequence[Unit], device: str, options: Options) -> dict[str, Any]:
        """Kernels by name: `_native.Kernel`s, or callables of tensors and sizes, with which plans run as Python."""

    def number(self, device: str) -> int:
        """Which device of its type it is; without a number in its name the current one, as for PyTorch."""

    def current_stream(self, number: int) -> int:
        """The stream on which a call to the device of this number is queued now."""

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """How long a call takes on the current device, of so many in a row, without what the host does beside it."""

    def stream_getter(self) -> int:
        """The address of the C function that tells it; 0 where calls are done when they return.

        NotImplementedError where kernels cannot be launched from C.
        """


class Recorder(Protocol):
    """`recorder.py`, which a target may have: calls that the device keeps, and launches again as one.

    What `capture` gives is let go of like any object; its memory then goes back, once nobody has results in it.
    """

    #: The type of its devices.
    KIND: str
    #: Operators that cannot be kept, by name, and why; and those that check data where it is, and can.
    REFUSED: Mapping[str, str]
    QUEUED: Container[str]

    def driver(self) -> tuple[int, int, int, int, int, int]:
        """Addresses of what launches, moves a copy, gives and sets the context, tells whether a stream is being
        captured, and gives the current stream (`csrc/recording.h`). NotImplementedError where there are none.
        """

    def refusal(self) -> str:
        """Why no calls are kept as PyTorch's allocator is set up now; "" where they are."""

    def is_capturing(self, number: int) -> bool:
        """Whether what is queued on the current stream of a device is being captured, by whomever."""

    def context(self, number: int) -> int:
        """The context of a device."""

    def side_stream(self, number: int, stream: int) -> Any:
        """A stream of a device that nobody else has, on which calls on a stream of that number are kept."""

    def close_stream(self, side: Any, stream: int) -> None:
        """Gives it back."""

    def stream_number(self, side: Any) -> int:
        """Its number."""

    def wait_for(self, stream: Any) -> None:
        """What is queued on the current stream from now on comes after what is queued on this one of its device."""

    def new_pool(self, number: int) -> Any:
        """Memory of a device that captures have in common."""

    def release(self, number: int) -> None:
        """Gives back what the allocator of a device keeps that nobody has."""

    def empty(self, number: int, forms: Sequence[tuple[tuple[int, ...], tuple[int, ...], Any]]) -> list[Any]:
        """A tensor in new memory for each size, stride and dtype, from as few pieces of the device as possible."""

    def zeros(self, number: int, nbytes: int, mapped: bool) -> Any:
        """So many bytes of a device that are zero, as a tensor that nobody may write to. They may be `mapped` from less
        memory: then a copy that a capture has cannot be told to begin there, if it began elsewhere, or the other way.
        """

    def memory(self, number: int, address: int, nbytes: int, keeper: object) -> Any:
        """Bytes of a device that somebody else has, as a tensor with a storage of its own, which keeps the keeper."""

    def capture(
        self,
        side: Any,
        pool: Any,
        apart: bool,
        before: Sequence[tuple[Any, Any]],
        call: Callable[[list[Any]], Any],
        inputs: list[Any],
        after: Callable[[Sequence[Any]], Sequence[tuple[Any, Any]]],
        random: bool,
    ) -> tuple[Any, tuple[Any, ...], list[int]]:
        """What a call queues, kept and not run, with its results.

        What it allocates comes from the pool or, `apart`, from one of its own; what libraries have to work in always
        comes from the pool.

        `before` are copies that come first, as pairs of rows of memory, to and from; `after(results)` those that come
        last. They have a step each, which is given for all in order, and may be told other addresses. `random`: the
        call draws numbers of PyTorch's generator, other ones each time.
        However the call ends, nothing is being captured when this returns or raises.
        """

    def executable(self, graph: Any) -> int:
        """What is launched of a capture."""

    def replay(self, graph: Any) -> Callable[[], object] | None:
        """What launches a capture that draws random numbers: each time the next ones. None for others."""

    def draws(self, number: int) -> object:
        """How many random numbers have been drawn; equal as long as none is."""
