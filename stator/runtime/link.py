"""Building and linking of graphs: plain data to a callable.

`Building` compiles what an artifact will need; `link` loads the libraries and gives what runs the plan, from a list of
inputs, which it empties, to a tuple: the C core (`executor.py`), or the plan as a Python module, where that does not
run it. The module's text is in `linecache`, so tracebacks show it.
"""

from __future__ import annotations

import itertools
import linecache
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stator import targets
from stator.base import log
from stator.base.device import HOST, kind_of
from stator.base.errors import Unsupported
from stator.base.options import Options
from stator.plan import Plan, module_text
from stator.runtime import executor
from stator.runtime.artifact import GraphArtifact, Unit
from stator.sizes.strides import span

Call = Callable[[list[Any]], tuple[Any, ...]]
_numbers = itertools.count()


def build(plan: Plan, units: Sequence[Unit], options: Options | None = None) -> GraphArtifact:
    """Compile the units (into the store) and give the artifact."""
    with Building(options) as building:
        known = building.begin(units, plan.device)
        building.finish()
    return GraphArtifact(plan, known)


class Building:
    """Units on their way to kernels, side by side, while what they belong to is still being written."""

    __slots__ = ("_by_kind", "_options")

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._by_kind: dict[str, targets.Building] = {}

    def __enter__(self) -> Building:
        return self

    def __exit__(self, *_: object) -> None:
        for building in self._by_kind.values():
            building.close()

    def expect(self, device: str) -> None:
        """Units for a device will come: what takes long to start may start."""
        self._of(device).expect(device)

    def begin(
        self, units: Sequence[Unit], device: str = HOST, remarks: Mapping[str, str] | None = None
    ) -> tuple[Unit, ...]:
        """Have units compiled for a device; the same with what they are found by when they are loaded.

        `remarks` say of kernels by name what of the program they compute, for errors.
        """
        return self._of(device).begin(units, device, remarks or {}) if units else ()

    def _of(self, device: str) -> targets.Building:
        kind = kind_of(device)
        if kind not in self._by_kind:
            self._by_kind[kind] = targets.toolchain(kind).building(self._options)
        return self._by_kind[kind]

    def finish(self) -> None:
        """Wait until all can be loaded."""
        for building in self._by_kind.values():
            building.finish()


def link(artifact: GraphArtifact, options: Options | None = None) -> Call:
    """The callable of an artifact."""
    plan = artifact.plan
    if plan.streams:
        raise Unsupported(f"the plan of {plan.name}", f"it has {len(plan.streams) + 1} streams, and one is run so far")
    options = options or Options()
    with log.span("link", graph=plan.name):
        kernels = load(artifact.units, options, plan.device)
        return executor.make(plan, kernels, options.reuse_results) or execute(module_text(plan), plan.name, kernels)


def load(units: Sequence[Unit], options: Options | None = None, device: str = HOST) -> dict[str, Any]:
    """Every kernel of the units, by name, for a device."""
    return targets.toolchain(device).load(units, device, options or Options()) if units else {}


def execute(text: str, name: str, kernels: dict[str, Any]) -> Call:
    """Run a plan's text as a module whose kernels are given; its `call`."""
    file = f"<stator {name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"stator_graph_{name}", "__file__": file, "KERNELS": kernels}
    exec(compile(text, file, "exec"), namespace)
    call: Call = namespace["call"]
    weakref.finalize(call, linecache.cache.pop, file, None).atexit = False
    return call


def random_input(size: tuple[int, ...], stride: tuple[int, ...], dtype: Any, device: str) -> Any:
    """A tensor to try a stand-alone module with: normal floats, integers and flags that are 0 or 1."""
    import torch  # the package itself does not need torch

    memory = torch.empty(span(size, stride), dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        memory.normal_()
    else:
        memory.random_(0, 2)
    return memory.as_strided(size, stride)


def time_call(call: Call, inputs: list[Any], seconds: float = 0.5) -> float:
    """Seconds a call takes: the median over about so long."""
    call(list(inputs))
    times: list[float] = []
    while sum(times) < seconds and len(times) < 10_000:
        start = time.perf_counter()
        call(list(inputs))
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]
