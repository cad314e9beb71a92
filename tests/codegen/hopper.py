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
from stator.loop.kernel import Kernel
from stator.targets.cuda.platform import NVIDIA, Platform
from stator.targets.cuda.record import typical
from stator.targets.cuda.worker import OPTIONS, source_of

#: Triton's backend → the architecture that is compiled for.
ARCHITECTURES: dict[str, int | str] = {"cuda": 90, "hip": "gfx942"}


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


def built(kernels: Sequence[Kernel], platform: Platform = NVIDIA) -> Iterator[dict[str, Any]]:
    """Every stage of each kernel down to machine code, as `{"ttir": …, "ptx": …, "cubin": …}`."""
    import triton as installed

    for source, options, text in _sources(kernels, platform):
        try:
            yield installed.compile(source, target=_target(platform), options=options).asm
        except Exception as error:
            raise Refused(text, error) from error


class Refused(AssertionError):
    """Triton does not take a kernel."""

    def __init__(self, text: str, error: BaseException) -> None:
        cause = error.__cause__ or error
        super().__init__(f"{type(cause).__name__}: {cause}\n{text}")


def _target(platform: Platform = NVIDIA) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget(platform.backend, ARCHITECTURES[platform.backend], platform.warp)


def _sources(kernels: Sequence[Kernel], platform: Platform = NVIDIA) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """For each kernel what Triton compiles, the options, and its text; with symbolic sizes in both widths."""
    source = triton.emit(kernels, typical(platform=platform))
    texts, told = source.split("@triton.jit"), OPTIONS[platform.backend]
    with tempfile.TemporaryDirectory() as folder:
        module = _imported(source, Path(folder))
        for name, launch in module.LAUNCHES.items():
            text = next(text for text in texts if f"def {name}(" in text)
            ways = [(False, False), *[(True, False)] * bool(launch["sizes"]), *[(False, True)] * ("rounds" in launch)]
            for wide, round in ways:
                made = source_of(getattr(module, name), launch, anywhere=False, wide=wide, round=round)
                yield made, told | launch["options"], text


def _imported(source: str, folder: Path) -> ModuleType:
    path = folder / "kernels.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernels_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
