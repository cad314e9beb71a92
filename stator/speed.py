"""Whether what was compiled is slower than eager: both are timed on the inputs of the call that is being compiled.

Timing must not be seen: only graphs that write nothing, draw no random numbers and hold no code but PyTorch's are run
again, on tensors of the same memory whose gradients go nowhere, and where no hook would see it. It happens while the
function is compiled, so the calls that follow carry nothing of it. The option `check_speed` says when and how long:
"auto" measures what took long to compile (loops that unrolled, mostly), and adds a twentieth to that, and one call. It
also measures, for some milliseconds, graphs of a few operators on small tensors with gradients, and of views and
library calls alone: autograd enters and leaves a compiled graph by way of Python, which an operator's own node does not
need, and what views and PyTorch's own kernels take is all that eager takes, so it may be faster.
Neighbours: `driver.py`, `stator/inspect/explain.py` (which always asks), docs/speed.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import fx

from stator.aot.attributes import lifted
from stator.aot.eager_graph import runner
from stator.base import log
from stator.base.announce import announce
from stator.base.device import HOST
from stator.base.effects import Effect
from stator.base.errors import SlowWarning
from stator.base.options import Options
from stator.base.store import Store
from stator.compiled import Compiled

Call = Callable[..., Any]

#: Under "auto": from how many seconds of compiling on, which part of them may be added, and the memory of a call.
LONG = 2.0
SHARE = 0.05
MEMORY = 256 << 20
#: Also under "auto": how many operators, and how much memory beside the inputs, a graph with gradients may have to be
#: timed for so many seconds, and by which factor eager has to be faster to run it: guards, which cost compiled code
#: more, are in neither time. For `PATIENTLY` so many seconds where samples do not agree.
FEW, SMALL, BRIEFLY, PATIENTLY, CLEARLY = 4, 4 << 20, 0.01, 0.03, 1.0
#: Otherwise: seconds to measure, but at least `LEAST` rounds.
SECONDS = 1.0
LEAST = 2
ROUNDS = 9
#: A sample is no shorter than this: the clock is not exact.
SAMPLE = 2e-4
#: The two least samples agree when they differ by less than this part. Other work on the machine, with a thread of ours
#: that waits for its core, makes a call of microseconds take milliseconds, of either.
AGREEING = 0.25


class Measured(NamedTuple):
    """Seconds a call, backward included where there is one; the least of a few samples in turn.

    `settled`: samples agree. What does not is not kept for other processes.
    """

    compiled: float
    eager: float
    settled: bool = True

    def slower(self, sure: bool) -> bool:
        """Whether compiled code loses more than a measurement may be wrong by; `sure` is for a verdict unasked for."""
        factor, least = (1.3, 5e-5) if sure else (1.1, 1e-5)
        return self.compiled > factor * self.eager and self.compiled - self.eager > least


def checked(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    found: Compiled,
    call: Call,
    options: Options,
    known: Known,
    seconds: float,
) -> Call:
    """What is to run: `call`, or the captured graph in eager where that is faster and was asked for.

    `seconds` is how long compiling took, 0 where the artifact was found in the store.
    """
    asked = options.check_speed
    auto = asked == "auto"
    small = asked in ("auto", "measure") and is_small(gm, found)
    name = type(gm).__name__
    measured = known.read() if auto and not seconds else None
    if measured is None and (not auto or small or (seconds >= LONG and found.metadata.memory.peak <= MEMORY)):
        if why := objection(gm, inputs, found):
            log.record(log.SPEED, graph=name, compiled=0.0, eager=0.0, slower=False, why=why)
            return call
        longest = BRIEFLY if small else SHARE * seconds if auto else SECONDS
        patient = max(longest, PATIENTLY if small else 0.0)
        measured = measure(call, gm, inputs, (longest, patient), 0 if auto and not small else LEAST)
        known.write(measured)
    if measured is None:
        return call
    slower = measured.slower(sure=auto)
    back = (slower and asked == "eager") or (small and measured.compiled > CLEARLY * measured.eager)
    log.record(log.SPEED, graph=name, compiled=measured.compiled, eager=measured.eager, slower=slower, runs_eager=back)
    if slower and asked != "measure" and not small:
        announce(_sentence(name, measured, back), SlowWarning, key=f"speed {name}")
    return runner(gm) if back else call


def is_small(gm: fx.GraphModule, found: Compiled) -> bool:
    """Whether entering a compiled graph into autograd, or a graph without kernels of ours, may cost more than is won by
    it; for known sizes.
    """
    metadata = found.metadata
    if (
        metadata.memory.peak > SMALL
        or "sizes" in gm.meta
        or not (metadata.has_backward or not found.forward.plan.launches)
    ):
        return False
    calls = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
    return sum(node.target is not getitem for node in calls) <= FEW


def _sentence(name: str, measured: Measured, back: bool) -> str:
    figures = f"{measured.compiled * 1e3:.3g} ms a call, where eager PyTorch took {measured.eager * 1e3:.3g} ms"
    if back:
        return f"{name} runs in eager PyTorch: compiled, it took {figures}"
    advice = "options={'check_speed': 'eager'} lets it run in eager; stator.explain shows what it was compiled to"
    return f"{name} is slower than eager: compiled, it took {figures}; {advice}"


class Known:
    """What was measured of an artifact when it was made, kept beside it."""

    __slots__ = ("key", "store")

    def __init__(self, store: Store, place: str) -> None:
        self.store = store
        self.key = f"speed-{place}" if place else ""

    def read(self) -> Measured | None:
        """What is kept; what another version has written is nothing."""
        data = self.store.get(self.key) if self.key else None
        try:
            return Measured(**json.loads(data)) if data is not None else None
        except (ValueError, TypeError):
            return None

    def write(self, measured: Measured | None) -> None:
        """Keep it for processes that find the artifact."""
        if self.key and measured is not None and measured.settled:
            self.store.put(self.key, json.dumps(measured._asdict()).encode())


# -- may it be run again ---------------------------------------------------------------------------------------


def objection(gm: fx.GraphModule, inputs: Sequence[Any], found: Compiled) -> str | None:
    """Why running the graph once more, compiled or in eager, could be seen; None where it cannot."""
    metadata = found.metadata
    plans = [graph.plan for graph in (found.forward, found.backward) if graph is not None]
    tensors = [*(value for value in inputs if not isinstance(value, (int, float))), *lifted(gm).values()]
    if metadata.overwritten or metadata.writes or metadata.bases:
        return "it writes to tensors that are not its own"
    if metadata.uses_random or any(effect.kind == Effect.RANDOM for plan in plans for effect in plan.effects):
        return "it draws random numbers"
    if metadata.enables_grad or not all(_is_plain(n.target) for n in gm.graph.nodes if n.op == "call_function"):
        return "it does more than call operators of PyTorch"
    if not all(type(t) in (torch.Tensor, torch.nn.Parameter) and not t._backward_hooks for t in tensors):
        return "hooks or tensors of another class would see it"
    accelerators = [torch.get_device_module(kind) for kind in {t.device.type for t in tensors} - {HOST}]
    if torch.is_anomaly_enabled() or any(getattr(a, "is_current_stream_capturing", bool)() for a in accelerators):
        return "anomaly detection or a stream that is recorded would see it"
    return None


def _is_plain(target: Any) -> bool:
    """Whether a function of the graph is an operator: no code of the user, no context that an error leaves open."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).partition(".")[0] == "aten"
    module = str(getattr(target, "__module__", None) or "").partition(".")
    if module[0] not in ("torch", "_operator", "math", "builtins") and not hasattr(target, "__objclass__"):
        return False
    words = f"{module[2]} {getattr(target, '__name__', '')}"
    return not any(word in words for word in ("autograd", "autocast", "set_grad", "checkpoint", "library"))


# -- timing ----------------------------------------------------------------------------------------------------


def measure(
    call: Call, gm: fx.GraphModule, inputs: Sequence[Any], seconds: tuple[float, float], least: int
) -> Measured | None:
    """Both in turn, in so many seconds (in the second number where samples do not agree) and at least so many rounds;
    None where that is too little to say anything.
    """
    own = [detached(value) for value in inputs]
    attributes = [value for value in lifted(gm).values() if value.requires_grad]
    leaves = [value for value in own if isinstance(value, torch.Tensor) and value.requires_grad] + attributes
    grad, state = torch.is_grad_enabled(), torch.get_rng_state()
    try:
        with unseen_by_hooks():
            eager = runner(gm)
            return _in_turn(lambda: _step(call, own, leaves), lambda: _step(eager, own, leaves), seconds, least)
    except Exception:  # the call itself will raise it
        return None
    finally:
        torch.set_grad_enabled(grad)
        if not torch.equal(state, torch.get_rng_state()):  # a draw whose result nothing needs
            torch.set_rng_state(state)


@contextmanager
def unseen_by_hooks() -> Iterator[None]:
    """No hooks on saved tensors: neither the caller's nor those that capture runs under."""
    autograd: Any = torch._C._autograd
    found = []
    while (top := autograd._top_saved_tensors_default_hooks(False)) is not None:
        found.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(found):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


def detached(value: Any) -> Any:
    """A tensor on the same memory whose history and gradient are its own."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return value
    return value.detach().requires_grad_()


def _step(call: Call, inputs: list[Any], leaves: list[torch.Tensor]) -> None:
    """One call, and its gradients where it has any; nothing is accumulated anywhere."""
    made = [value for value in call(*inputs) if isinstance(value, torch.Tensor)]
    results = [value for value in made if value.requires_grad]
    if results and leaves:
        torch.autograd.grad(results, leaves, [torch.ones_like(value) for value in results], allow_unused=True)
    for kind in {value.device.type for value in made} - {HOST}:
        torch.get_device_module(kind).synchronize()


def _in_turn(
    compiled: Callable[[], None], eager: Callable[[], None], seconds: tuple[float, float], least: int
) -> Measured | None:
    """Samples of both; the first of each warms up, and is what decides how many calls a sample has."""
    start = time.perf_counter()
    first = _sample(compiled, 1)
    if not least and time.perf_counter() + 3 * first > start + seconds[0]:
        return None
    first = min(first, _sample(eager, 1))
    count = max(1, int(SAMPLE / max(first, 1e-7)))
    samples: list[tuple[float, float]] = []
    while len(samples) < ROUNDS or not _agree(samples):
        last = sum(samples[-1]) if samples else 2 * first
        end = start + seconds[not _agree(samples)]
        if len(samples) >= least and time.perf_counter() + count * last > end:
            break
        samples.append((_sample(compiled, count), _sample(eager, count)))
    if len(samples) < max(least, LEAST):
        return None
    ours, theirs = [min(times) for times in zip(*samples, strict=True)]
    return Measured(ours, theirs, _agree(samples))


def _agree(samples: Sequence[tuple[float, float]]) -> bool:
    """Whether the least sample of each has another one beside it."""
    if len(samples) < LEAST:
        return False
    least = [sorted(times)[:2] for times in zip(*samples, strict=True)]
    return all(second <= (1 + AGREEING) * first for first, second in least)


def _sample(step: Callable[[], None], count: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count
