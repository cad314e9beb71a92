"""Functions of NVIDIA's libdevice in kernels, where its bitcode is found: linked into a kernel's module, and inlined.

Where it is not, `externs` and `formulas` have functions of their own for all but a few. Numbers below the normal ones
are kept, as stator asks of Triton for its own kernels, too.
Neighbours: `stator.targets.cuda.libdevice` finds the file; `ptx` links before LLVM's passes run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from stator.targets.cuda import libdevice as files
from stator.tile.cpu.casts import register
from stator.tile.cpu.code import Maker
from stator.tile.ir.types import F32, DType

PREFIX = "__nv_"
#: Functions of f32 and f64 that are called as they are; what an instruction or two compute is left out.
NAMES = frozenset(
    """acos acosh asin asinh atan atan2 atanh cbrt cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx
    erfinv exp exp10 exp2 expm1 fmod hypot j0 j1 jn lgamma log log10 log1p log2 norm3d norm4d normcdf normcdfinv pow
    powi rcbrt remainder rhypot rnorm3d rnorm4d sin sinh sinpi tan tanh tgamma y0 y1 yn""".split()
)
_ATTRIBUTES = " nounwind willreturn memory(none)"


def has(name: str) -> bool:
    """Whether a function comes from the library, which is there."""
    return name in NAMES and files.place() is not None


def call(m: Maker, name: str, types: Sequence[DType], result: DType, args: Sequence[str]) -> str:
    """What a function of the library gives."""
    given = list(zip(map(register, types), args, strict=True))
    symbol = f"{PREFIX}{name}{'f' if result == F32 else ''}"
    return m.code.call(register(result), symbol, *given, attributes=_ATTRIBUTES)


def link(module: Any) -> None:
    """Puts the bodies of those of its functions that a module declares into it."""
    wanted = sorted([f.name for f in module.functions if f.is_declaration and f.name.startswith(PREFIX)])
    if not wanted:
        return
    part = llvm.parse_bitcode(bitcode_of(tuple(wanted)))
    part.triple, part.data_layout = module.triple, module.data_layout
    module.link_in(part)
    for name in wanted:
        module.get_function(name).linkage = llvm.Linkage.internal


@cache
def bitcode_of(names: tuple[str, ...]) -> bytes:
    """Bitcode of these functions, with what they call and nothing else."""
    place = files.place()
    assert place is not None, f"{names} were declared without a library"
    library = llvm.parse_bitcode(place.read_bytes())
    for function in library.functions:
        if not function.is_declaration and function.name not in names:
            function.linkage = llvm.Linkage.internal
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    machine = llvm.Target.from_triple(library.triple.replace("gpulibs", "cuda")).create_target_machine()
    passes.run(library, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return bytes(library.as_bitcode())
