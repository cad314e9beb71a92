"""NVIDIA's library of functions: where it is found, linked, and left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import pytest

from stator.targets.cuda import libdevice as files
from stator.tile.cpu.refused import Refused
from stator.tile.ir.core import Module
from stator.tile.ir.parse import parse
from stator.tile.ir.types import DType
from stator.tile.nvidia import libdevice, ptx
from tests.tile.conformance import cases
from tests.tile.interpret.cases import Case
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.on_gpu import outcomes

#: Two functions that call a third one, and what asks whether numbers below the normal ones are flushed.
LIBRARY = """
target triple = "nvptx64-nvidia-gpulibs"
@name = private constant [11 x i8] c"__CUDA_FTZ\\00"
declare i32 @__nvvm_reflect(ptr)
define internal float @__internal_square(float %x) {
  %y = fmul float %x, %x
  ret float %y
}
define float @__nv_j0f(float %x) {
  %flush = call i32 @__nvvm_reflect(ptr @name)
  %known = icmp ne i32 %flush, 0
  %y = call float @__internal_square(float %x)
  %z = select i1 %known, float 1.0, float %y
  ret float %z
}
define float @__nv_erff(float %x) {
  %y = call float @__internal_square(float %x)
  ret float %y
}
"""


def kernel(function: str) -> Module:
    return parse(
        "def main(p: ptr[f32]):\n    i: i32[128] = arange(start=0, end=128)\n"
        "    q: ptr[f32][128] = splat(p, shape=(128,))\n    r: ptr[f32][128] = addptr(q, i)\n"
        f"    x: f32[128] = load(r)\n    y: f32[128] = {function}\n    store(r, y)\n    return_()\n"
    )


def _forget() -> None:
    files.place.cache_clear()
    files.digest.cache_clear()
    libdevice.bitcode_of.cache_clear()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library of ours in the place of NVIDIA's."""
    place = tmp_path / "libdevice.10.bc"
    place.write_bytes(llvm.parse_assembly(LIBRARY).as_bitcode())
    monkeypatch.setenv("STATOR_LIBDEVICE", str(place))
    _forget()
    yield place
    _forget()


@pytest.fixture
def none(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATOR_LIBDEVICE", "")
    _forget()
    yield
    _forget()


@pytest.mark.parametrize("function", ["extern(x, symbol='j0')", "extern(x, symbol='erf')", "erf(x)"])
def test_functions_are_inlined_and_nothing_else_is_linked(function: str, library: Path) -> None:
    text = text_of(kernel(function), "main").llvm
    assert text.count("@__nv_") == 2  # the declaration and the call of one function, for one register
    found = ptx.ptx_of(text, 90)
    assert found.count("mul.rn.f32") == 1 or found.count("mul.f32") == 1
    assert all(word not in found for word in ("__nv_", "__internal", "__nvvm", "call", ".func", "name"))


def test_without_the_library_what_nobody_has_is_refused(none: None) -> None:
    with pytest.raises(Refused, match="there is no code for the function j0"):
        text_of(kernel("extern(x, symbol='j0')"), "main")
    assert "@__nv_" not in text_of(kernel("erf(x)"), "main").llvm


def test_another_library_is_another_digest(library: Path) -> None:
    before = files.digest()
    library.write_bytes(llvm.parse_assembly(LIBRARY.replace("1.0", "2.0")).as_bitcode())
    _forget()
    assert before and files.digest() not in ("", before)


@pytest.mark.skipif(files.place() is None, reason="there is no libdevice")
@pytest.mark.parametrize("name", sorted(libdevice.NAMES))
def test_the_library_has_what_is_called(name: str) -> None:
    place = files.place()
    assert place is not None
    functions = {f.name for f in llvm.parse_bitcode(place.read_bytes()).functions if not f.is_declaration}
    assert {f"__nv_{name}", f"__nv_{name}f"} <= functions


#: Functions that NVIDIA promises no better than so of far from zero, where they swing, in f64.
SWINGING = dict.fromkeys(("j0", "j1", "jn", "y0", "y1", "yn"), 1e-11)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [case for case in cases() if case.op == "extern"], ids=str)
def test_every_function_runs_and_agrees_with_the_interpreter(case: Case) -> None:
    """By the library where it is found; where it is not, some functions are refused."""
    try:
        found_by = outcomes(case)
    except Refused:
        assert files.place() is None
        return
    for wanted, found, type_ in found_by:
        element = type_.element
        assert isinstance(element, DType)
        if element.is_float:
            places = 32 * 2.0**-element.mantissa
            least = max(places, SWINGING.get(case.attrs["symbol"], 0.0))
            np.testing.assert_allclose(found, wanted, rtol=places, atol=least)
        else:
            np.testing.assert_array_equal(found, wanted)
