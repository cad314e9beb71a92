"""The command `stator` (also `python -m stator`): what there is to set, what there is to use, what happened.

`explain` runs a script and reports what stator compiled in it; `options`, `backends` and `info` say what can be chosen
and what was found; `cache` shows the disk store or empties it. Every command only prints what other packages know.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import stator
from stator import targets
from stator.backends.builtin import list_backends
from stator.base import log
from stator.base.options import MODES, OPTIONS, Options
from stator.base.store import Store
from stator.inspect.explain import Explanation

app = typer.Typer(no_args_is_help=True, add_completion=False, help="See what stator can do, and what it did.")
console = Console()


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def explain(context: typer.Context, script: Annotated[Path, typer.Argument(exists=True, dir_okay=False)]) -> None:
    """Run a Python script (further arguments are its own) and report everything that stator compiled in it."""
    sys.argv = [str(script), *context.args]
    sys.path.insert(0, str(script.resolve().parent))
    os.environ.setdefault(OPTIONS["check_speed"].environment, "measure")
    with log.collect() as recorder:
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            console.print(Explanation.of(recorder))


@app.command()
def options() -> None:
    """List every option with its environment variable, default and meaning, then the modes."""
    for known in OPTIONS.values():
        head = Text.assemble((known.name, "bold"), f" = {known.default!r}  ", (known.environment, "dim"))
        console.print(head, Padding(Text(known.sentence), (0, 0, 0, 4)))
    console.print()
    modes = Table("mode", "sets", box=None, header_style="dim")
    for name, values in MODES.items():
        modes.add_row(name, ", ".join(f"{key}={value}" for key, value in values.items()) or "nothing")
    console.print(modes)


@app.command()
def backends() -> None:
    """List the backends that `backend=` takes by name."""
    for name in list_backends():
        console.print(name)


@app.command()
def info() -> None:
    """Say what this installation would compile with."""
    settings = Options.from_user()
    compiler = shutil.which(settings.compiler)
    table = Table("", "", box=None, show_header=False)
    table.add_row("stator", stator.__version__)
    table.add_row("torch", torch.__version__)
    table.add_row("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    store = Store(settings.cache_root(), settings.cache_bytes)
    for kind in targets.kinds():
        for name, text in targets.record(kind).describe(store).items():
            table.add_row(f"{kind} {name}".strip(), text)
    table.add_row("compiler", compiler or f"{settings.compiler} was not found")
    table.add_row("cache", str(settings.cache_root()))
    console.print(table)


@app.command()
def cache(clear: Annotated[bool, typer.Option(help="Delete every entry.")] = False) -> None:
    """Show where the disk store is and how large, or empty it."""
    settings = Options.from_user()
    store = Store(settings.cache_root(), settings.cache_bytes)
    if clear:
        store.clear()
    count, size = store.usage()
    console.print(f"{settings.cache_root()}: {count} entries, {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    app()
