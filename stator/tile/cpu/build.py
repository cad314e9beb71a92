"""From text of LLVM to machine code that is loaded; objects are kept in the store, by text, processor and version.

Neighbours: `kernel` writes the text; `launch` calls what is loaded.
"""

from __future__ import annotations

import functools
import itertools
import threading
from dataclasses import dataclass
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]

from stator.base.options import Options
from stator.base.store import key_of
from stator.runtime.toolchain import open_store

_LOCK = threading.Lock()
_NUMBERS = itertools.count()
_SPEED = 3


@dataclass(frozen=True)
class Target:
    """The processor that this process runs on."""

    triple: str
    name: str
    features: str

    @property
    def lanes(self) -> int:
        """How many numbers of 32 bits a vector has."""
        known = self.features.split(",")
        return 16 if "+avx512f" in known else 8 if "+avx" in known else 4


@functools.cache
def target() -> Target:
    """That of this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def _machine(made_for: Target) -> Any:
    found = llvm.Target.from_triple(made_for.triple)
    return found.create_target_machine(
        cpu=made_for.name, features=made_for.features, opt=_SPEED, reloc="pic", codemodel="default", jit=True
    )


def optimized(text: str) -> Any:
    """The module of a text, after the passes of O3."""
    machine = _machine(target())
    module = llvm.parse_assembly(text)
    module.triple = target().triple
    module.data_layout = str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=_SPEED)
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    return module


def assembly(text: str) -> str:
    """The instructions, to be read."""
    return str(_machine(target()).emit_assembly(optimized(text)))


def object_of(text: str) -> bytes:
    """The object file of a text, from the store if another process has made it."""
    made_for = target()
    key = f"tile-cpu-{key_of(text, made_for.triple, made_for.name, made_for.features, llvmlite.__version__, _SPEED)}"
    store = open_store(Options.from_user())
    data = store.get(key)
    if data is None:
        with _LOCK:
            data = bytes(_machine(made_for).emit_object(optimized(text)))
        store.put(key, data)
    return data


@functools.cache
def _linker() -> Any:
    target()
    return llvm.create_lljit_compiler()


class Loaded:
    """Machine code; it stays as long as this."""

    def __init__(self, text: str, entry: str) -> None:
        data = object_of(text)
        with _LOCK:
            builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process().export_symbol(entry)
            self._tracker = builder.link(_linker(), f"tile-{next(_NUMBERS)}")
        self.address = int(self._tracker[entry])
