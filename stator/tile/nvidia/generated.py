"""Kernels that stator has written in Triton's language for its graphs, compiled by the tile language.

A job is what `stator.targets.cuda.worker` is sent: a kernel's text, what is known of its launch, and its target. The
answer is what a launch of the graph needs: parameters lie as Triton lays them out, pointers, sizes, and two that are
hidden. Neighbours: `stages` compiles; `stator.targets.cuda.binaries` files what comes out.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

from stator.tile.frontend.kernel import compile_kernel
from stator.tile.language.context import Checks
from stator.tile.language.static import base_type, constexpr_type
from stator.tile.language.types import BY_IR_NAME, dtype, pointer_type
from stator.tile.nvidia import stages

_IMPORTS = {
    "import triton\n": "import stator.tile as triton\n",
    "import triton.language as tl\n": "import stator.tile.language as tl\n",
    "from triton.language.extra import libdevice\n": "from stator.tile.language.extra import libdevice\n",
}
_ALIGNMENT = 16
#: A name of Triton's signatures → the language's dtype.
_DTYPES: dict[str, dtype] = {
    **BY_IR_NAME,
    **{f"fp{bits}": BY_IR_NAME[f"f{bits}"] for bits in (16, 32, 64)},
    "fp8e4nv": BY_IR_NAME["f8e4nv"],
    "fp8e5": BY_IR_NAME["f8e5"],
}


def compile_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The binary of a job, and what is known of it; Refused where there is no code for it."""
    function, launch = _executed(job["text"], job["name"])[job["name"]], job["launch"]
    types, hints = _types(function.arg_names, launch, job["anywhere"], job["wide"])
    if job["round"]:  # sizes that the launch names are multiples of a vector
        hints |= {len(launch["types"]) + i: {"divisibility": _ALIGNMENT} for i in launch["rounds"]}
    options = launch["options"]
    debug = bool(options.get("debug"))
    checks = Checks(debug, debug and bool(options.get("sanitize_overflow", True)))
    compiled = compile_kernel(function.source, types, hints, checks)
    _, architecture, _ = job["target"]
    attrs = compiled.module.functions[compiled.name].attrs
    known = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
    attrs.update({name: value for name, value in options.items() if name in known})
    asked = stages.Asked.on(compiled.module, compiled.name, architecture, hidden=True)
    made = stages.make(compiled.module, asked)
    image = made.image if architecture // 10 == asked.architecture // 10 else stages.for_driver(made)
    return {
        "image": image, "name": compiled.name, "shared": made.shared, "threads": 32 * made.warps,
        "registers": made.registers, "spills": made.spills,
    }  # fmt: skip


def _executed(text: str, name: str) -> dict[str, Any]:
    """The names of a text that was run; its lines are looked for where its file is, which is no file here."""
    for old, new in _IMPORTS.items():
        text = text.replace(old, new)
    file = f"<tile kernel {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"stator_tile_kernel_{name}", "__file__": file}
    exec(compile(text, file, "exec"), namespace)
    return namespace


def _types(
    names: list[str], launch: Mapping[str, Any], anywhere: bool, wide: bool
) -> tuple[dict[str, base_type], dict[int, dict[str, Any]]]:
    """The types of parameters, and which pointers are taken to be aligned."""
    types: dict[str, base_type] = {}
    for name, type_ in zip(names, launch["types"], strict=False):
        element = _DTYPES[type_.removeprefix("*")]
        types[name] = pointer_type(element) if type_.startswith("*") else element
    types |= dict.fromkeys(launch["sizes"], _DTYPES["i64" if wide else "i32"])
    constants = dict(launch.get("constants", {})) | ({"WIDE": wide} if launch["sizes"] else {})
    types |= {name: constexpr_type(value) for name, value in constants.items()}
    known = {name: types[name] for name in names}
    aligned = [] if anywhere else [i for i, aligned in enumerate(launch["aligned"]) if aligned]
    return known, {i: {"divisibility": _ALIGNMENT} for i in aligned}
