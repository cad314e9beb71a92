"""A kernel as a module of LLVM: the code of a thread, its parameters, and what a launch needs to know of it.

Every parameter takes 8 bytes, as a launch packs them, or what it has where a graph's launches do.
Neighbours: `writer` writes the code; `ptx` goes on from the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stator.tile.cpu.casts import cast, register
from stator.tile.ir.core import Function, Value
from stator.tile.ir.types import F32, DType
from stator.tile.layouts.linear import LANES
from stator.tile.nvidia import access, along, buffers, effects, elementwise, products, shapes, warp_groups
from stator.tile.nvidia.places import Places
from stator.tile.nvidia.threads import SHARED
from stator.tile.nvidia.writer import HANDLERS, Writer

#: The files that fill the table of what writes operators.
PARTS = (access, along, buffers, effects, elementwise, products, shapes, warp_groups)
assert HANDLERS
TRIPLE = "nvptx64-nvidia-cuda"
#: Shared memory begins at a multiple of so many bytes: what vectors want, and what warp groups read.
_ALIGN, _ATOM = 16, 1024
_ROUNDS_TO_HALF = re.compile(r"fptrunc .* to half$", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A kernel's text, the bytes of shared memory that it is launched with, and its threads."""

    name: str
    llvm: str
    shared: int
    warps: int

    @property
    def threads(self) -> int:
        return self.warps << LANES


def write(
    function: Function,
    layouts: Callable[[Value], Places],
    warps: int,
    architecture: int,
    kept: int = 0,
    registers: int | None = None,
    hidden: bool = False,
) -> Text:
    """The text of a function whose tiles are laid out so, for `sm_<architecture>`.

    If `hidden`, parameters take the bytes that they have, and two follow that nobody reads, as in Triton's kernels.
    """
    w = Writer(function, layouts, warps, architecture, (kept + _ALIGN - 1) // _ALIGN * _ALIGN)
    for number, param in enumerate(function.params):
        w.values[param] = [_parameter(w, param, f"%a{number}") if not hidden else f"%a{number}"]
    w.block(function.body)
    w.code.do("ret void")
    types = [register(param.type.element) for param in function.params]
    text = _module(w, function, registers, [*types, "i64", "i64"] if hidden else ["i64"] * len(types))
    # LLVM drops conversions between operations that float16 has too, and would contract what is left into one rounding.
    if not function.attrs.get("enable_fp_fusion", True) or _ROUNDS_TO_HALF.search(text):
        text = text.replace(" contract ", " ")
    return Text(function.name, text, w.kept + w.room, warps)


def _parameter(w: Writer, param: Value, word: str) -> str:
    m, element, type_ = w.m, param.type.element, register(param.type.element)
    if type_ == "i1":
        return m.compare("ne", "i64", word, "0")
    if isinstance(element, DType) and element.is_float:
        if type_ == "double":
            return m.bits("i64", "double", word)
        number = m.bits("i32", "float", m.convert("trunc", "i64", "i32", word))
        return cast(m, F32, element, "rtne", number)
    return word if type_ == "i64" else m.convert("trunc", "i64", type_, word)


def _module(w: Writer, function: Function, registers: int | None, types: Sequence[str]) -> str:
    params = ", ".join([f"{type_} %a{number}" for number, type_ in enumerate(types)])
    limits = f' "nvvm.reqntid"="{w.warps << LANES}"' + (f' "nvvm.maxnreg"="{registers}"' if registers else "")
    align = _ATOM if any(o.op == "wgmma" for o in function.body.walk()) else _ALIGN
    strings = []
    for text, name in w.strings.items():
        data = text.encode() + b"\0"
        spelled = "".join([f"\\{byte:02X}" for byte in data])
        strings.append(f'{name} = private constant [{len(data)} x i8] c"{spelled}"')
    lines = [
        f'target triple = "{TRIPLE}"',
        f"{SHARED} = external addrspace(3) global [0 x i8], align {align}",
        *w.code.constants.values(),
        *strings,
        *sorted(set(w.code.declared.values())),
        f"define ptx_kernel void @{function.name}({params}) #0 {{",
        "start:",
        *w.code.entry,
        *w.code.lines,
        "}",
        f"attributes #0 = {{ nounwind{limits} }}",
        "attributes #1 = { convergent nounwind memory(none) }",
    ]
    return "\n".join(lines) + "\n"
