"""Any model of the registry × eager, stator, torch.compile: a table and a JSON file.

`python -m benchmarks.harness --models gpt2 bert --modes inference training --out results.json`.
First calls run in fresh processes: cold with an empty cache folder, warm with the folder that the
cold run filled (torch.compile's caches likewise; its precompiled header is built beforehand and not
counted). Milliseconds a call are medians of calls in turn in one process. See `worker.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.installed import compile_bytecode

COMPILERS = ("eager", "stator", "torch.compile")
Row = dict[str, Any]


class WorkerFailed(RuntimeError):
    """A measuring process ended with an error; carries the end of what it printed."""


def run_worker(arguments: list[str], folder: Path) -> Row:
    """Run one worker with its caches under `folder`; returns its JSON object."""
    environment = dict(
        os.environ,
        STATOR_CACHE_DIR=str(folder / "stator"),
        TORCHINDUCTOR_CACHE_DIR=str(folder / "torch"),
        TRITON_CACHE_DIR=str(folder / "triton"),
        STATOR_CHECK_SPEED="off" if arguments[0] == "first" else "warn",
    )
    command = [sys.executable, "-m", "benchmarks.worker", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkerFailed("\n".join((done.stdout + done.stderr).splitlines()[-15:]))
    result: Row = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(model: str, mode: str, args: argparse.Namespace, console: Console) -> Row:
    """All figures of one model in one mode."""
    shared = ["--model", model, "--mode", mode, "--size", args.size, "--dtype", args.dtype, "--device", args.device]
    shared += ["--cores", str(args.cores)]
    row: Row = {"model": model, "mode": mode, "first": {}}
    with tempfile.TemporaryDirectory() as temporary:
        for compiler in args.compilers:
            for state in ("cold", "warm") if compiler != "eager" else ("cold",):
                console.print(f"[dim]{model} {mode}: first call of {compiler}, {state} …[/dim]")
                folder = Path(temporary) / compiler
                figures = run_worker(["first", "--compiler", compiler, *shared], folder)
                row["first"].setdefault(compiler, {})[state] = figures
        console.print(f"[dim]{model} {mode}: {args.calls} calls of each in turn …[/dim]")
        listed = ["--compilers", ",".join(args.compilers)]
        folder = Path(temporary) / "steady"
        row |= run_worker(["steady", "--calls", str(args.calls), *listed, *shared], folder)
        for line in row["slower"]:
            console.print(f"[red]{line}[/red]", markup=True)
        console.print(f"[dim]{model} {mode}: accuracy against eager and float64 …[/dim]")
        row |= run_worker(["accuracy", *listed, *shared], folder)
    return row


def build_header(args: argparse.Namespace, console: Console) -> None:
    """Let torch.compile build its precompiled header, which lives outside its cache folder."""
    if "torch.compile" in args.compilers:
        console.print("[dim]torch.compile builds its precompiled header (not counted) …[/dim]")
        with tempfile.TemporaryDirectory() as temporary:
            run_worker(
                ["first", "--compiler", "torch.compile", "--size", "tiny", "--device", args.device], Path(temporary)
            )


def table(rows: list[Row], compilers: list[str]) -> Table:
    """The rows side by side."""
    shown = Table(title="seconds of the first call, milliseconds a call, largest relative error")
    for heading in ("model", "mode", "compiler", "cold s", "warm s", "ms/call", "vs eager", "vs float64"):
        shown.add_column(heading, justify="left" if heading in ("model", "mode", "compiler") else "right")
    for heading in ("graphs", "kernels", "peak MiB"):
        shown.add_column(heading, justify="right")
    for row in rows:
        for compiler in compilers:
            first = row["first"][compiler]
            error = row["error"][compiler]
            warm = f"{first['warm']['seconds']:.2f}" if "warm" in first else ""
            shown.add_row(
                row["model"], row["mode"], compiler, f"{first['cold']['seconds']:.2f}", warm,
                f"{row['ms'][compiler]:.2f}", f"{error['eager']:.1e}", f"{error['float64']:.1e}",
                str(first["cold"].get("graphs", "")), str(first["cold"].get("kernels", "")),
                f"{first['cold']['peak_mib']:.0f}",
            )  # fmt: skip
        shown.add_section()
    return shown


def ratios(rows: list[Row]) -> list[str]:
    """stator over torch.compile, a line a row."""
    lines = []
    for row in rows:
        if not {"stator", "torch.compile"} <= set(row["ms"]):
            continue
        ours, peer = row["first"]["stator"], row["first"]["torch.compile"]
        cold = ours["cold"]["seconds"] / peer["cold"]["seconds"]
        warm = ours["warm"]["seconds"] / peer["warm"]["seconds"]
        steady = row["ms"]["stator"] / row["ms"]["torch.compile"]
        lines.append(f"{row['model']} {row['mode']}: cold {cold:.2f}x, warm {warm:.2f}x, per call {steady:.2f}x")
    return lines


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--models", nargs="+", default=["gpt2"])
    made.add_argument("--modes", nargs="+", default=["inference", "training"])
    made.add_argument("--compilers", nargs="+", default=list(COMPILERS))
    made.add_argument("--size", default="base")
    made.add_argument("--dtype", default="float32")
    made.add_argument("--device", default="cpu")
    made.add_argument("--calls", type=int, default=30)
    made.add_argument("--cores", type=int, default=2)
    made.add_argument("--out", type=Path, default=None)
    return made


def main(arguments: list[str] | None = None) -> None:
    """Measure what the command line names and print the table."""
    args = parser().parse_args(arguments)
    console = Console(width=max(Console().width, 120))
    build_header(args, console)
    compile_bytecode()
    rows = []
    for model in args.models:
        for mode in args.modes:
            try:
                rows.append(measure(model, mode, args, console))
            except WorkerFailed as failure:
                console.print(f"[red]{model} {mode} failed:[/red]\n{failure}", markup=True)
    console.print(table(rows, args.compilers))
    for line in ratios(rows):
        console.print(f"stator / torch.compile  {line}")
    if args.out:
        facts = {"machine": platform.processor() or platform.machine(), "cores": args.cores, "rows": rows}
        args.out.write_text(json.dumps(facts, indent=1))
        console.print(f"written: {args.out}")
    if len(rows) < len(args.models) * len(args.modes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
