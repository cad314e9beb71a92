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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite  # type: ignore[import-untyped]

from stator.base.options import Options as StatorOptions
from stator.base.store import key_of
from stator.runtime.toolchain import open_store
from stator.targets.cuda import libdevice
from stator.targets.cuda.worker import SHARED_BYTES
from stator.tile.errors import CodeRefused
from stator.tile.gpu.operators import parse as parse_with_layouts
from stator.tile.ir.core import Module
from stator.tile.ir.parse import parse
from stator.tile.ir.text import module_text
from stator.tile.layouts.linear import LANES
from stator.tile.nvidia import assign, ptx
from stator.tile.nvidia.kernel import write

#: The one architecture that has `wgmma`; its registers, the most of a thread, and how many it needs beside a product.
WARP_GROUPS = 90
_REGISTERS, _MOST_REGISTERS, _OTHER_REGISTERS = 1 << 16, 255, 40


@dataclass(frozen=True, slots=True)
class Asked:
    """What a kernel is compiled for."""

    name: str
    architecture: int
    warps: int = 4
    stages: int = 3
    registers: int | None = None
    hidden: bool = False  # parameters as Triton lays them out, and its hidden ones
    alone: bool = False  # with what this architecture alone has: later ones do not run it

    @staticmethod
    def of(module: Module, name: str, architecture: int, hidden: bool = False, alone: bool = False) -> Asked:
        """By the options of a launch, which are attributes of the function."""
        attrs = module.functions[name].attrs
        warps, turns = attrs.get("num_warps", 4), attrs.get("num_stages", 3)
        return Asked(name, architecture, warps, turns, attrs.get("maxnreg"), hidden, alone)

    @staticmethod
    def on(module: Module, name: str, device: int, hidden: bool = False) -> Asked:
        """The same for a device of an architecture."""
        return Asked.of(module, name, supported(device), hidden, alone=device == WARP_GROUPS)

    @property
    def group_registers(self) -> int:
        """How many registers of a thread a warp group's product may take; 0 where there are none."""
        if not self.alone or self.architecture != WARP_GROUPS:
            return 0
        most = min(_REGISTERS // (self.warps << LANES), _MOST_REGISTERS, self.registers or _MOST_REGISTERS)
        return max(most - _OTHER_REGISTERS, 0)

    @property
    def most_shared(self) -> int:
        """The bytes of shared memory that a program may have."""
        return SHARED_BYTES[self.architecture]


@dataclass(frozen=True)
class Made:
    """What a driver loads, and what is known of it; registers and spilled bytes are -1 where nobody has told."""

    image: bytes
    shared: int
    warps: int
    registers: int
    spills: int
    #: The text of each stage that was made or read.
    texts: Mapping[str, str]


def supported(architecture: int) -> int:
    """The architecture that code is made for, which one runs; CodeRefused where there is none."""
    found = [each for each in (90, 89, 86, 80) if each <= architecture]
    if not found:
        raise CodeRefused(f"kernels need a GPU of sm_80 or later, and this one is sm_{architecture}")
    return found[0]


@cache
def _version() -> str:
    """This package's files, LLVM, the assembler and libdevice."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    texts = [file.read_bytes() for file in files]
    return key_of(llvmlite.__version__, ptx.assembler_version(), libdevice.digest(), *texts)


def compiled(module: Module, asked: Asked) -> Made:
    """A kernel of a module for a GPU, from the store if it is there; Refused where there is no code for it."""
    text = module_text(module)
    store = open_store(StatorOptions.from_user())
    key = f"tile-{key_of(text, asked, _version(), *_overrides(asked.name))}"
    data, dumps = store.get(f"{key}.json"), _folder("STATOR_TILE_DUMP") is not None
    if data is not None and not dumps:
        facts = json.loads(data)
        image, found = store.get(f"{key}.{facts.pop('image')}"), store.get(f"{key}.ptx")
        if image is not None and found is not None:
            return Made(image=image, texts={"tir": text, "ptx": found.decode()}, **facts)
    made = make(module, asked)
    for stage in ("tgir", "ll", "ptx"):
        store.put(f"{key}.{stage}", made.texts[stage].encode())
    kind = "ptx" if made.image == for_driver(made) else "cubin"
    if kind == "cubin":
        store.put(f"{key}.cubin", made.image)
    store.put(f"{key}.json", json.dumps({"image": kind, **_facts(made)}).encode())
    return made


def make(module: Module, asked: Asked) -> Made:
    """All stages, one after the other; what is overridden is read instead of what was made."""
    with ptx.assembling(asked.architecture, asked.alone) as assemble:
        texts, shared = _texts(module, asked)
        assembled = assemble(texts["ptx"])
    if assembled is None:
        made = Made(_ended(texts["ptx"]), shared, asked.warps, -1, -1, texts)
    else:
        made = Made(assembled.image, shared, asked.warps, assembled.registers, assembled.spills, texts)
    _dump(asked.name, made, None if assembled is None else assembled.image)
    return made


def _texts(module: Module, asked: Asked) -> tuple[dict[str, str], int]:
    """The text of each stage, and the bytes of shared memory."""
    texts = {"tir": module_text(module)}
    if (text := _override(asked.name, "tir")) is not None:
        texts["tir"], module = text, parse(text)
    assigned = assign.assigned(module, asked)
    if (text := _override(asked.name, "tgir")) is not None:
        assigned = assign.read(parse_with_layouts(text), asked.name)
    texts["tgir"] = assigned.text
    found = write(assigned.function, assigned.layouts, asked.warps, asked.architecture, assigned.kept, asked.registers,
                  asked.hidden)  # fmt: skip
    texts["ll"] = _override(asked.name, "ll") or found.llvm
    texts["ptx"] = _override(asked.name, "ptx") or ptx.ptx_of(texts["ll"], asked.architecture, asked.alone)
    return texts, found.shared


def for_driver(made: Made) -> bytes:
    """Its PTX as the driver takes it."""
    return _ended(made.texts["ptx"])


def _ended(text: str) -> bytes:
    return text.encode() + b"\0"


def _facts(made: Made) -> dict[str, int]:
    return {name: getattr(made, name) for name in ("shared", "warps", "registers", "spills")}


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


def _override(name: str, stage: str) -> str | None:
    """What takes the place of a stage."""
    folder = _folder("STATOR_TILE_OVERRIDE")
    place = None if folder is None else folder / f"{name}.{stage}"
    return place.read_text(encoding="utf-8") if place is not None and place.exists() else None


def _dump(name: str, made: Made, machine: bytes | None) -> None:
    folder = _folder("STATOR_TILE_DUMP")
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for stage, text in {**made.texts, "json": json.dumps(_facts(made))}.items():
        (folder / f"{name}.{stage}").write_text(text, encoding="utf-8")
    if machine is not None:
        (folder / f"{name}.cubin").write_bytes(machine)
