"""Triton kernels compiled for Hopper on a machine without a GPU.

`parsed` runs Triton's frontend, which checks types and shapes and takes milliseconds; `built` goes all the way to
machine code. `python -m tests.codegen.hopper_database` parses the kernels of the whole operator database. Triton comes
with torch for CUDA only, so everything here imports it late. Neighbours: `test_triton_shapes.py`, `test_triton.py`.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from stator.codegen import triton
from stator.kernel.blocks import WARP, choose
from stator.kernel.strategies import blocks
from stator.loop.kernel import Kernel

POINTERS = {
    "f64": "*fp64", "f32": "*fp32", "bf16": "*bf16", "f16": "*fp16", "i64": "*i64", "i32": "*i32", "i16": "*i16",
    "i8": "*i8", "u8": "*u8", "bool": "*i1",
}  # fmt: skip


def parsed(kernels: Sequence[Kernel]) -> None:
    """Have Triton read all kernels; its error, with the kernel's text, where it does not take one."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend = make_backend(_target())
    for source, options, text in _sources(kernels):
        chosen = backend.parse_options(options)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        implementation = backend.get_codegen_implementation(chosen)
        try:
            source.make_ir(_target(), chosen, implementation, backend.get_module_map(), context)
        except Exception as error:
            raise Refused(text, error) from error


def built(kernels: Sequence[Kernel]) -> Iterator[dict[str, Any]]:
    """Every stage of each kernel down to machine code, as `{"ttir": …, "ptx": …, "cubin": …}`."""
    import triton as installed

    for source, options, text in _sources(kernels):
        try:
            yield installed.compile(source, target=_target(), options=options).asm
        except Exception as error:
            raise Refused(text, error) from error


class Refused(AssertionError):
    """Triton does not take a kernel."""

    def __init__(self, text: str, error: BaseException) -> None:
        cause = error.__cause__ or error
        super().__init__(f"{type(cause).__name__}: {cause}\n{text}")


def _target() -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", 90, 32)


def _sources(kernels: Sequence[Kernel]) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """For each kernel what Triton compiles, the options, and its text; with symbolic sizes in both widths."""
    from triton.compiler import ASTSource

    source = triton.emit(kernels)
    texts = source.split("@triton.jit")
    with tempfile.TemporaryDirectory() as folder:
        module = _imported(source, Path(folder))
        for number, kernel in enumerate(kernels):
            function = blocks(choose(kernel), "k")
            text = next(text for text in texts if f"def k{number}(" in text)
            for wide in (False, True) if kernel.symbols else (None,):
                sizes: dict[str, Any] = {} if wide is None else {"WIDE": wide}
                signature = {param.name: POINTERS[param.dtype] for param in kernel.params}
                signature |= {symbol.name: "i32" for symbol in kernel.symbols} | dict.fromkeys(sizes, "constexpr")
                options: dict[str, Any] = {"num_warps": function.threads // WARP, "enable_fp_fusion": False}
                if function.checks:
                    options |= {"debug": True, "sanitize_overflow": False}
                yield ASTSource(getattr(module, f"k{number}"), signature=signature, constexprs=sizes), options, text


def _imported(source: str, folder: Path) -> ModuleType:
    path = folder / "kernels.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernels_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
