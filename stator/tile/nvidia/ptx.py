"""From LLVM to PTX, and from that to what the driver loads.

Text goes through LLVM's passes and its code generator for a GPU; `ptxas`, where one is found, makes machine code of it,
else the driver does so when it loads. Neighbours: `kernel` writes the text, `stages` keeps what is made.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from stator.tile.nvidia import libdevice
from stator.tile.nvidia.kernel import TRIPLE

#: How much LLVM does. Its passes have little to find in threads' code, which is straight but for a kernel's own loops:
#: more of them take longer for the same text, and longer loops of products. Its code generator finds as much in what
#: they leave at its second level as at its third, which looks for values that are equal on some ways only.
_PASSES, _CODE = 1, 2
#: The version of PTX that is asked for: drivers since CUDA 12.0 read it, of sm_90, which adds vectors, since 12.1.
PTX_VERSIONS = {80: 80, 86: 80, 89: 80, 90: 81}
#: A pass of LLVM's code generators for GPUs alone (straight-line strength reduction) that takes a third of their time,
#: and saves a few instructions in a hundred at most. LLVM's switch for it is one of the process.
_LEFT_OUT = "-opt-disable=slsr"


class AssemblerFailed(Exception):
    """`ptxas` did not take a text, and what it said."""


@functools.cache
def _target() -> Any:
    llvm.set_option("stator", _LEFT_OUT)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE)


def target(architecture: int, alone: bool = False) -> str:
    """What it is called; `alone` has instructions that no later architecture has."""
    return f"sm_{architecture}{'a' if alone else ''}"


def _machine(architecture: int, alone: bool) -> Any:
    features = f"+ptx{PTX_VERSIONS[architecture]}"
    return _target().create_target_machine(cpu=target(architecture, alone), features=features, opt=_CODE)


def optimized(text: str, architecture: int, alone: bool = False) -> Any:
    """The module of a text after LLVM's passes."""
    machine = _machine(architecture, alone)
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    libdevice.link(module)
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=_PASSES))
    passes.getModulePassManager().run(module, passes)
    return module


def ptx_of(text: str, architecture: int, alone: bool = False) -> str:
    """PTX of a text of LLVM."""
    return str(_machine(architecture, alone).emit_assembly(optimized(text, architecture, alone)))


@functools.cache
def assembler() -> str | None:
    """`ptxas`: what STATOR_PTXAS says, that of an installed Triton, or that of the path."""
    told = os.environ.get("STATOR_PTXAS")
    if told is not None:
        return told or None
    found = find_spec("triton")
    if found is not None and found.origin is not None:
        inside = Path(found.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
        if inside.exists():
            return str(inside)
    return shutil.which("ptxas")


@dataclass(frozen=True)
class Assembled:
    """Machine code, the registers of a thread, and the bytes that do not fit into them."""

    image: bytes
    registers: int
    spills: int


@contextmanager
def assembling(architecture: int, alone: bool = False) -> Iterator[Callable[[str], Assembled | None]]:
    """Starts the assembler, which takes its text later: it loads for some milliseconds before it reads, and may do so
    while the text is made. What it gives is None where there is no assembler."""
    program = assembler()
    if program is None:
        yield lambda text: None
        return
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "kernel.cubin")
        command = [program, "-v", f"--gpu-name={target(architecture, alone)}", "-o", str(result), "/dev/stdin"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, encoding="utf-8") as process:
            try:
                yield functools.partial(_assemble, process, result)
            finally:
                process.kill()  # where there has been no text for it; else it has ended


def _assemble(process: subprocess.Popen[str], result: Path, text: str) -> Assembled:
    """AssemblerFailed where it refuses the text."""
    said, _ = process.communicate(text)
    if process.returncode:
        raise AssemblerFailed(f"{assembler()} refuses the PTX: {said.strip()}")
    numbers = [re.search(pattern, said) for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill stores")]
    registers, spills = [-1 if number is None else int(number.group(1)) for number in numbers]
    return Assembled(result.read_bytes(), registers, spills)


def assembled(text: str, architecture: int, alone: bool = False) -> Assembled | None:
    """Machine code of PTX, or None where there is no assembler; AssemblerFailed where it refuses the text."""
    with assembling(architecture, alone) as assemble:
        return assemble(text)


@functools.cache
def assembler_version() -> str:
    """Which assembler it is."""
    program = assembler()
    if program is None:
        return ""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
