"""Memory of a training step (forward and backward): any model of the registry × eager, stator, torch.compile.

`python -m benchmarks.memory --models gpt2 bert --budgets 10`. Counted are bytes that PyTorch's allocator gives out
during a step in steady state, as its own profiler reports them, for all compilers alike: parameters and inputs, which
are there before, are not counted, gradients, which are made in it, are; stator's arena, which is kept between steps, is
counted whole from the beginning. Saved bytes are the distinct memories of what autograd's saved-tensor hooks see, less
parameters and inputs. Each measurement runs in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

from benchmarks import registry
from benchmarks.worker import DTYPES

COMPILERS = ("eager", "stator", "torch.compile")
MODELS = ("gpt2", "bert", "llama", "t5", "vit", "resnet")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes of one training step; `predicted` is what the compiler said beforehand, where it says anything."""

    peak: int
    saved: int
    after_forward: int
    predicted: int = 0
    predicted_saved: int = 0
    arena: int = 0


# ---- counting --------------------------------------------------------------------------------------------------------


def allocations(step: Callable[[], Any]) -> tuple[int, dict[str, int]]:
    """The most bytes live at once while `step` runs, less those live before, and those live at each `mark`."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        step()
    found = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    events = sorted((e.start_ns(), i, e) for i, e in enumerate(found) if e.name() == "[memory]" or _marks(e.name()))
    live = most = 0
    marks: dict[str, int] = {}
    for _, _, event in events:
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
        else:
            marks[event.name().removeprefix(_MARK)] = live
    return most, marks


_MARK = "benchmarks.memory: "


def _marks(name: str) -> bool:
    return name.startswith(_MARK)


def mark(name: str) -> None:
    """A named place in the step."""
    with torch.profiler.record_function(_MARK + name):
        pass


def saved_bytes(forward: Callable[[], Any], existing: Iterable[torch.Tensor]) -> int:
    """The distinct memories that autograd keeps for backward, besides what exists anyway."""
    known = {tensor.untyped_storage().data_ptr() for tensor in existing}
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        held = forward()
    del held
    return sum(sizes.values())


# ---- one process -----------------------------------------------------------------------------------------------------


def compiled(compiler: str, model: torch.nn.Module, budget: float) -> torch.nn.Module:
    """The model under a compiler."""
    match compiler:
        case "stator":
            import stator  # only where it is measured

            return stator.compile(model, fullgraph=True, options={"activation_memory_budget": budget})
        case "torch.compile":
            return torch.compile(model, fullgraph=True)  # type: ignore[return-value]
    return model


def measure(args: argparse.Namespace) -> Figures:
    """The figures of one model under one compiler."""
    model = registry.build(args.model, args.size, DTYPES[args.dtype]).train()
    given = registry.inputs(args.model, model, 1, labels=True)
    fast = compiled(args.compiler, model, args.budget)

    def step() -> None:
        loss = fast(**given).loss
        mark("forward")
        loss.backward()

    predicted = {}
    if args.compiler == "stator":
        from stator.base import log  # only where it is measured

        with log.collect() as recorder:
            step()
        predicted = _predicted(recorder.of(log.MEMORY))
    else:
        step()
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        step()
    existing = [*model.parameters(), *model.buffers(), *given.values()]
    saved = saved_bytes(lambda: fast(**given).loss, existing)
    model.zero_grad(set_to_none=True)
    gc.collect()
    held = 0
    if args.compiler == "stator":
        from stator.runtime import arena  # only where it is measured

        held = arena.held()
    peak, marks = allocations(step)
    return Figures(peak + held, saved, marks["forward"], arena=held, **predicted)


def _predicted(records: list[dict[str, Any]]) -> dict[str, int]:
    """What stator said about the one graph of the model."""
    return {"predicted": records[-1]["peak"], "predicted_saved": records[-1]["saved"]} if records else {}


# ---- all of them -----------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace, model: str, compiler: str, budget: float = 1.0) -> Figures:
    """`measure` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--one", "--model", model, "--compiler", compiler]
    command += ["--budget", str(budget), "--size", args.size, "--dtype", args.dtype, "--cores", str(args.cores)]
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch", "STATOR_CACHE_DIR": f"{folder}/stator"}
        done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{model} {compiler}:\n" + "\n".join((done.stdout + done.stderr).splitlines()[-15:]))
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def table(rows: dict[str, dict[str, Figures]]) -> Table:
    """Peaks and saved bytes side by side."""
    shown = Table(title="MiB of a training step beyond parameters and inputs")
    for heading in ("model", "compiler", "peak", "of eager's", "predicted", "error", "saved", "of eager's"):
        shown.add_column(heading, justify="left" if heading in ("model", "compiler") else "right")
    for model, row in rows.items():
        for compiler, figures in row.items():
            base = row.get("eager", figures)
            error = f"{figures.predicted / figures.peak - 1:+.1%}" if figures.predicted else ""
            shown.add_row(
                model, compiler, f"{figures.peak / MIB:.2f}", f"{figures.peak / base.peak:.3f}",
                f"{figures.predicted / MIB:.2f}" if figures.predicted else "", error,
                f"{figures.saved / MIB:.2f}", f"{figures.saved / max(base.saved, 1):.3f}",
            )  # fmt: skip
        shown.add_section()
    return shown


def curve(model: str, figures: dict[float, Figures]) -> Table:
    """What the budgets give."""
    shown = Table(title=f"{model}: budgets, MiB")
    for heading in ("budget", "peak", "predicted", "error", "saved"):
        shown.add_column(heading, justify="right")
    for budget, found in figures.items():
        error = f"{found.predicted / found.peak - 1:+.1%}"
        cells = (found.peak / MIB, found.predicted / MIB, found.saved / MIB)
        peak, predicted, saved = [f"{cell:.2f}" for cell in cells]
        shown.add_row(f"{budget:.2f}", peak, predicted, error, saved)
    return shown


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--models", nargs="+", default=list(MODELS))
    made.add_argument("--compilers", nargs="+", default=list(COMPILERS))
    made.add_argument("--budgets", type=int, default=0, help="so many budgets from 0 to 1 besides")
    made.add_argument("--size", default="base")
    made.add_argument("--dtype", default="float32", choices=DTYPES)
    made.add_argument("--cores", type=int, default=2)
    made.add_argument("--out", type=Path, default=None)
    made.add_argument("--one", action="store_true", help="measure --model under --compiler here and print JSON")
    made.add_argument("--model", default="gpt2")
    made.add_argument("--compiler", default="eager", choices=COMPILERS)
    made.add_argument("--budget", type=float, default=1.0)
    return made


def main() -> None:
    """Measure what the command line names and print the tables."""
    args = parser().parse_args()
    if args.one:
        torch.set_num_threads(args.cores)
        transformers.utils.logging.set_verbosity_error()
        print(json.dumps(asdict(measure(args))))
        return
    console = Console(width=max(Console().width, 120))
    rows: dict[str, dict[str, Figures]] = {}
    curves: dict[str, dict[float, Figures]] = {}
    for model in args.models:
        console.print(f"[dim]{model} …[/dim]")
        rows[model] = {compiler: run(args, model, compiler) for compiler in args.compilers}
        shares = [i / (args.budgets - 1) for i in range(args.budgets)] if args.budgets > 1 else []
        curves[model] = {share: run(args, model, "stator", share) for share in shares}
    console.print(table(rows))
    for model, figures in curves.items():
        if figures:
            console.print(curve(model, figures))
    if args.out:
        data = {model: {c: asdict(f) for c, f in row.items()} for model, row in rows.items()}
        data |= {f"{model} budgets": {str(b): asdict(f) for b, f in found.items()} for model, found in curves.items()}
        args.out.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
