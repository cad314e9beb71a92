"""What a worker does with a kernel: which of libdevice's functions are linked from where. No device is needed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from stator.targets.cuda import worker

TARGET = ("cuda", 90, 32)


def _elementwise(call: str, element: str = "fp32") -> dict[str, Any]:
    """A job for a kernel of one call."""
    text = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
    body = f"    x = tl.arange(0, 128)\n    tl.store(q + x, {call.format('tl.load(p + x)', 'tl.load(p + x + 128)')})\n"
    launch = {"types": (f"*{element}",) * 2, "aligned": (True, True), "sizes": (), "options": {}}
    flags = {"anywhere": False, "wide": False, "round": False}
    return {
        "name": "f",
        "text": f"{text}@triton.jit\ndef f(p, q):\n{body}",
        "launch": launch,
        "target": TARGET,
        **flags,
    }


@pytest.mark.parametrize("target", [("cuda", 90, 32), ("cuda", 80, 32)])
def test_the_frequent_functions_of_libdevice_are_the_same_to_the_bit(
    target: tuple[str, int, int],
) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    assert os.path.getsize(worker.frequent(target)) > 1000
    for name, count in worker.FREQUENT.items():
        job = {**_elementwise(f"libdevice.{name}({', '.join(['{0}', '{1}'][:count])})"), "target": target}
        found = worker._lowered(job, {"extern_libs": {"libdevice": worker.frequent(target)}})
        assert found and found == worker._lowered(job, {}) == worker.compile_kernel(job)


def test_a_function_that_is_not_frequent_is_linked_from_all_of_libdevice() -> None:
    """Also where the text does not show it: by its dtype it is another function."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    told = {"extern_libs": {"libdevice": worker.frequent(TARGET)}}
    for job in (_elementwise("libdevice.rsqrt({0})", "fp64"), _elementwise("libdevice.erfinv({0})")):
        assert not worker._lowered(job, told)
        assert worker.compile_kernel(job)["image"].startswith(b"\x7fELF")


def test_other_devices_and_other_tritons_have_no_such_file(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    from triton._C.libtriton import ir

    assert worker.frequent(("hip", "gfx942", 64)) == ""
    monkeypatch.delattr(ir, "parse_mlir_module")
    assert worker.frequent.__wrapped__(TARGET) == ""
