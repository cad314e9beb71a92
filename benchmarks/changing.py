"""The models of the registry with sizes marked dynamic: what is refused, compiled again, or wrong.

    python -m benchmarks.changing [model …] [--modes inference training] [--size tiny] [--only batch] [--rounds 3]
                                  [--how named]

Each size of a model's inputs that eager lets change (the batch, the length of a text, a side of an image), and all of
them at once, is marked by `mark_dynamic`; then the model is called with three values of it. What eager computes, one
compiled version has to compute too. A row has the kernels of a version of the first values alone and of the marked one,
seconds of the first call of each, and what went wrong; the command fails where anything did. With rounds, both versions
are called in turn with the first values, and a row has how many times as fast the marked one is: the median of rounds.
Each mark makes a size of its own. With `--how named` it has the size's name, so that the batches of all inputs are one.
With `--how seen` nothing is marked: the second call shows what changes, and its version is the one that a row tells of.
Equal sizes are one there, too.
Neighbours: `registry.py` has the models, tests/models/test_changing.py runs some of the rows.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import transformers

import stator
from benchmarks import registry
from benchmarks.registry import MODELS, Inputs
from benchmarks.worker import disable_dropout, error, flat_outputs
from stator.base.errors import StatorError
from stator.inspect.statistics import summary

MODES = ("inference", "training")
#: How a compiler comes to know what changes.
HOW = ("marked", "named", "seen")
#: The values that a size has in the three calls, by the one that it has in the registry.
Values = tuple[Callable[[int], int], ...]
SHORTER: Values = (lambda n: n // 2, lambda n: n // 2 + 5, lambda n: n // 2 + 11)
LARGER: Values = (lambda n: n + 32, lambda n: n + 64, lambda n: n + 128)
BATCHES: Values = (lambda n: n, lambda n: n + 3, lambda n: 2 * n + 1)
#: Models in whose code the number of steps depends on a size: another value may be another version.
BRANCHES = {"mamba": ("length", "all")}
#: A wrong index is no rounding: errors against eager are below this. Where rounding decides on which side of a step a
#: number falls (training with ReLU), they are at most so many times eager's own against float64, of so many draws.
ROUNDING, TIMES, DRAWS = 5e-4, 3, 8
#: Seconds that each version is called for in a round.
SECONDS = 0.25


def _floats_of(inputs: Inputs, function: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
    """The inputs with a function of those that are floating."""
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    return inputs | {name: function(value) for name, value in tensors.items() if value.is_floating_point()}


def _rounded_otherwise(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + torch.finfo(x.dtype).eps * torch.randn_like(x))


class Place(NamedTuple):
    """A dim of an input that changes, and what its size is called."""

    input: str
    dim: int
    values: Values
    size: str


def _batch(given: Inputs) -> list[Place]:
    return [Place(name, 0, BATCHES, "batch") for name, value in given.items() if isinstance(value, torch.Tensor)]


def _text(given: Inputs, name: str) -> list[Place]:
    """The length of a text, and of labels for each of its tokens, which are the decoder's where there is one."""
    last = next((text for text in ("decoder_input_ids", "input_ids") if text in given), "")
    labels = ["labels"] if name == last and "labels" in given and given["labels"].dim() == 2 else []
    return [Place(text, 1, SHORTER, f"length of {name}") for text in (name, *labels)] if name in given else []


def _side(given: Inputs, dim: int) -> list[Place]:
    """A side of images, and of labels for each of their pixels."""
    if "pixel_values" not in given:
        return []
    side = f"side {dim}"
    labels = [Place("labels", dim - 1, LARGER, side)] if "labels" in given and given["labels"].dim() == 3 else []
    return [Place("pixel_values", dim, LARGER, side), *labels]


SIZES: dict[str, Callable[[Inputs], list[Place]]] = {
    "batch": _batch,
    "length": partial(_text, name="input_ids"),
    "length of the decoder": partial(_text, name="decoder_input_ids"),
    "height": partial(_side, dim=2),
    "width": partial(_side, dim=3),
}


class Row(NamedTuple):
    """What a model does with sizes marked or seen to change: kernels and seconds of a version of one set of sizes, and
    of one for all."""

    model: str
    mode: str
    marked: str
    kernels: tuple[int, int]
    seconds: tuple[float, float]
    faults: list[str]
    speed: float | None  #: of the marked version, where that of the other is 1
    how: str  #: one of `HOW`

    def __str__(self) -> str:
        counts = [f"{kernels} kernels in {s:.1f} s" for kernels, s in zip(self.kernels, self.seconds, strict=True)]
        speed = "" if self.speed is None else f", {self.speed:.2f} times as fast"
        told = "; ".join(self.faults) or "right"
        return f"{self.model}, {self.mode}, {self.marked}: {f', {self.how} '.join(counts)}{speed}: {told}"


class Version(NamedTuple):
    """A compiled model, and what the compiler counted in its calls."""

    module: Any
    counts: dict[str, float]
    kernels: int  #: of the version that a row tells of
    seconds: float  #: of the call that made it


class Model:
    """A model of the registry in one mode, and its inputs."""

    def __init__(self, name: str, mode: str, size: str, rounds: int = 0, how: str = "marked") -> None:
        self.name, self.mode, self.rounds, self.how = name, mode, rounds, how
        self.seen = how == "seen"
        self.module = registry.build(name, size).train(mode == "training")
        disable_dropout(self.module)
        self.given = registry.inputs(name, self.module, 1, labels=mode == "training")
        if all(self.given[place.input].shape[0] == 1 for place in _batch(self.given)):  # a size of its own to programs
            self.given = self._resized([place._replace(values=(lambda n: 3,)) for place in _batch(self.given)], 0)

    def rows(self, only: str = "") -> Iterator[Row]:
        """A row for each size that eager lets change, and for all at once; or only the one that is named."""
        changing = {name: places for name, find in SIZES.items() if (places := find(self.given))}
        changing = {name: places for name, places in changing.items() if self._expected(places)}
        if len(changing) > 1:
            changing["all"] = [place for places in changing.values() for place in places]
        for name, places in changing.items():
            if only in ("", name) and (expected := self._expected(places)):
                yield self._row(name, places, expected)

    def _row(self, name: str, places: Sequence[Place], expected: Sequence[list[torch.Tensor]]) -> Row:
        """Compare with what eager gave."""
        faults: list[str] = []
        static = self._compiled(places, expected[:1], faults, mark=False)
        marked = self._compiled(places, expected, faults, mark=True)
        branches = name in BRANCHES.get(self.name, ())
        if marked.counts["graphs"] != static.counts["graphs"] * (1 + self.seen) and not (faults or branches):
            graphs = f"{marked.counts['graphs']:.0f} graphs where one set of sizes has {static.counts['graphs']:.0f}"
            faults.append(graphs)
        kernels = static.kernels, marked.kernels
        speed = self._speed(static.module, marked.module, places) if self.rounds and not faults else None
        seconds = static.seconds, marked.seconds
        return Row(self.name, self.mode, name, kernels, seconds, faults, speed, self.how)

    def _speed(self, static: Any, marked: Any, places: Sequence[Place]) -> float:
        """How many times as fast the marked version is with the first values."""
        inputs, ratios = self._resized(places, 0), []
        for _ in range(self.rounds):
            static_ms, marked_ms = (self._milliseconds(module, inputs) for module in (static, marked))
            ratios.append(static_ms / marked_ms)
        return statistics.median(ratios)

    def _milliseconds(self, module: Any, inputs: Inputs) -> float:
        """The median of calls, after one that is not timed."""
        self._results(module, inputs)
        samples: list[float] = []
        end = time.perf_counter() + SECONDS
        while not samples or time.perf_counter() < end:
            start = time.perf_counter()
            self._results(module, inputs)
            samples.append((time.perf_counter() - start) * 1e3)
        return statistics.median(samples)

    def _compiled(
        self, places: Sequence[Place], expected: Sequence[list[torch.Tensor]], faults: list[str], *, mark: bool
    ) -> Version:
        """A version that has been called with as many values as there are results to compare with."""
        compiled = stator.compile(self.module, fullgraph=True, options={"check_speed": "off"})
        before, kernels, seconds = summary(), 0.0, []
        for call, want in enumerate(expected):
            inputs = self._resized(places, call)
            if mark and call == 0 and not self.seen:
                for place in places:
                    name = place.size if self.how == "named" else ""
                    stator.mark_dynamic(inputs[place.input], place.dim, name=name)
            start, earlier = time.perf_counter(), summary()["kernels"]
            try:
                got = self._results(compiled, inputs)
            except StatorError as refusal:
                faults.append(f"call {call}: {' '.join(str(refusal).split())}")
                break
            seconds.append(time.perf_counter() - start)
            if call == (mark and self.seen):  # the call that makes the version
                kernels = summary()["kernels"] - earlier
            if (wrong := error(got, want)) >= ROUNDING and self._is_worse(got, want, inputs):
                faults.append(f"call {call}: an error of {wrong:.1e}")
        counts = {name: count - before[name] for name, count in summary().items()}
        return Version(
            compiled, counts, int(kernels), seconds[mark and self.seen] if len(seconds) > 1 else sum(seconds)
        )

    def _is_worse(self, got: list[torch.Tensor], want: list[torch.Tensor], inputs: Inputs) -> bool:
        """Whether results are farther from float64 than eager's are, also of inputs that are rounded otherwise."""
        exact = copy.deepcopy(self)
        exact.module = exact.module.double()
        truth = exact._results(exact.module, _floats_of(inputs, torch.Tensor.double))
        near = [self._results(self.module, _floats_of(inputs, _rounded_otherwise)) for _ in range(DRAWS)]
        return error(got, truth) > TIMES * max(error(results, truth) for results in (want, *near))

    def _expected(self, places: Sequence[Place]) -> list[list[torch.Tensor]]:
        """What eager gives for the three values; nothing where it takes only one."""
        try:
            return [self._results(self.module, self._resized(places, call)) for call in range(3)]
        except (ValueError, IndexError, RuntimeError):  # tables of positions, patches of one image size
            return []

    def _resized(self, places: Sequence[Place], call: int) -> Inputs:
        """The inputs of a call: what there is, repeated."""
        resized = dict(self.given)
        for name, dim, values, _ in places:
            old = self.given[name].shape[dim]
            resized[name] = resized[name].index_select(dim, torch.arange(values[call](old)) % old)
        return resized

    def _results(self, module: Any, inputs: Inputs) -> list[torch.Tensor]:
        """Floating results, and the gradients in training."""
        if self.mode == "inference":
            with torch.no_grad():
                return [value for value in flat_outputs(module(**inputs)) if value.is_floating_point()]
        output = module(**inputs)
        output.loss.backward()
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        self.module.zero_grad(set_to_none=True)
        return [value.detach() for value in flat_outputs(output) if value.is_floating_point()] + gradients


def main() -> None:
    """Print the rows that the command line names; fail where one has a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="all where there are none", choices=[*MODELS, []])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--size", default="tiny", choices=["base", "tiny"])
    parser.add_argument("--only", default="", choices=["", *SIZES, "all"], help="only this size")
    parser.add_argument("--rounds", type=int, default=0, help="in which both versions are timed")
    parser.add_argument("--how", default="marked", choices=HOW, help="how the compiler comes to know what changes")
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    faults = 0
    for name in options.models or MODELS:
        for mode in options.modes:
            for row in Model(name, mode, options.size, options.rounds, options.how).rows(options.only):
                print(row, flush=True)
                faults += len(row.faults)
    if faults:
        sys.exit(f"{faults} faults")


if __name__ == "__main__":
    main()
