"""The stages of a kernel for NVIDIA GPUs, in order: a table of what each is made of, kept in the store by content.

    .tir    tile IR                    .ll     LLVM of a thread        .cubin  machine code
    .tgir   tile IR with layouts       .ptx    PTX                     .json   what a launch needs to know

Each stage is a file named like the kernel. `STATOR_TILE_DUMP=folder` writes all of them there, and a file in
`STATOR_TILE_OVERRIDE=folder` takes the place of the stage that it is named like, from which the rest is made.
Without `ptxas` there is no .cubin, and the driver compiles the .ptx when it loads it.
Neighbours: `kernel` and `ptx` make stages; `launch` takes what comes last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]

from stator.base.options import Options as StatorOptions
from stator.base.store import key_of
from stator.runtime.toolchain import open_store
from stator.tile.ir.core import Module
from stator.tile.ir.text import module_text
from stator.tile.nvidia import assign, ptx
from stator.tile.nvidia.kernel import Text, write


@dataclass(frozen=True, slots=True)
class Asked:
    """What a kernel is compiled for."""

    name: str
    architecture: int
    warps: int = 4
    stages: int = 3
    registers: int | None = None

    @staticmethod
    def of(module: Module, name: str, architecture: int) -> Asked:
        """By the options of a launch, which are attributes of the function."""
        attrs = module.functions[name].attrs
        return Asked(name, architecture, attrs.get("num_warps", 4), attrs.get("num_stages", 3), attrs.get("maxnreg"))


@dataclass(frozen=True)
class Made:
    """What a driver loads, and what a launch needs to know."""

    image: bytes
    shared: int
    warps: int
    #: The text of each stage that was made or read.
    texts: Mapping[str, str]


def compiled(module: Module, asked: Asked) -> Made:
    """A kernel of a module for a GPU; Refused where there is no code for it."""
    texts = {"tir": _overridden(asked.name, "tir", module_text(module))}
    store = open_store(StatorOptions.from_user())
    key = f"tile-{key_of(texts['tir'], asked, llvmlite.__version__, ptx.assembler_version(), *_overrides(asked.name))}"
    known = store.get(f"{key}.json")
    facts: dict[str, Any] = json.loads(known) if known is not None else {}
    image = store.get(f"{key}.{facts['image']}") if facts else None
    text = store.get(f"{key}.ptx")
    if image is None or text is None or _folder("STATOR_TILE_DUMP") is not None:
        facts, image = _make(module, asked, texts)
        for stage in ("ptx", "ll"):
            store.put(f"{key}.{stage}", texts[stage].encode())
        store.put(f"{key}.{facts['image']}", image)
        store.put(f"{key}.json", json.dumps(facts).encode())
    else:
        texts["ptx"] = text.decode()
    return Made(image, facts["shared"], facts["warps"], texts)


def _make(module: Module, asked: Asked, texts: dict[str, str]) -> tuple[dict[str, Any], bytes]:
    """All stages, one after the other; what is overridden is read instead of what was made."""
    assigned = assign.assigned(module, asked)
    _stage(asked, texts, "tgir", lambda: assigned.text)
    found: Text = write(
        assigned.function, assigned.layouts, asked.warps, asked.architecture, assigned.kept, asked.registers
    )
    facts = {"name": asked.name, "shared": found.shared, "warps": asked.warps, "architecture": asked.architecture}
    _stage(asked, texts, "ll", lambda: found.llvm)
    _stage(asked, texts, "ptx", lambda: ptx.ptx_of(texts["ll"], asked.architecture))
    machine = ptx.cubin_of(texts["ptx"], asked.architecture)
    facts["image"] = "cubin" if machine is not None else "ptx"
    image = machine if machine is not None else texts["ptx"].encode() + b"\0"
    _dump(asked.name, {**texts, "json": json.dumps(facts)}, machine)
    return facts, image


def _stage(asked: Asked, texts: dict[str, str], stage: str, make: Callable[[], str]) -> None:
    texts[stage] = _overridden(asked.name, stage, make())


def _folder(variable: str) -> Path | None:
    told = os.environ.get(variable)
    return Path(told) if told else None


def _overrides(name: str) -> list[str]:
    """The texts that take the place of stages."""
    folder = _folder("STATOR_TILE_OVERRIDE")
    if folder is None:
        return []
    places = [folder / f"{name}.{stage}" for stage in ("tir", "tgir", "ll", "ptx")]
    return [place.read_text(encoding="utf-8") for place in places if place.exists()]


def _overridden(name: str, stage: str, text: str) -> str:
    folder = _folder("STATOR_TILE_OVERRIDE")
    place = None if folder is None else folder / f"{name}.{stage}"
    return place.read_text(encoding="utf-8") if place is not None and place.exists() else text


def _dump(name: str, texts: Mapping[str, str], machine: bytes | None) -> None:
    folder = _folder("STATOR_TILE_DUMP")
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for stage, text in texts.items():
        (folder / f"{name}.{stage}").write_text(text, encoding="utf-8")
    if machine is not None:
        (folder / f"{name}.cubin").write_bytes(machine)
