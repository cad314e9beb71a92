"""Kernels: data pointers reach the function in order, the GIL is released, wrong arguments are refused."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from stator import _native
from stator.base.errors import IndexOutOfRange

SOURCE = """
const char *copy(void *const *p) { *(float *)p[1] = *(float *)p[0]; *(long *)p[2] = 7; return 0; }
const char *wait_for(void *const *p) { while (*(volatile int *)p[0] == 0) { } return 0; }
const char *refuse(void *const *p) { return *(int *)p[0] < 0 ? "index out of range" : 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "k.c", "-o", "k.so"], cwd=folder, check=True)
    return str(folder / "k.so")


@pytest.mark.usefixtures("few_objects")
def test_pointers_of_tensors_and_integers(library: str) -> None:
    copy, wait_for = _native.load_kernels(library, ["copy", "wait_for"])
    assert repr(copy) == "<kernel copy>" and copy.address != wait_for.address
    source, target = torch.arange(6.0).reshape(2, 3), torch.zeros(4)
    extra = ctypes.c_long(0)
    copy(source[1, 1:], target[2:], ctypes.addressof(extra))
    assert target.tolist() == [0.0, 0.0, 4.0, 0.0] and extra.value == 7
    del wait_for
    gc.collect()
    copy(source, target, ctypes.addressof(extra))


def test_arguments_at_constant_offsets(library: str) -> None:
    (copy,) = _native.load_kernels(library, ["copy"])
    moved = copy.at(8, 4, 0)
    del copy
    source, target, last = torch.arange(4.0), torch.zeros(3), torch.zeros(1, dtype=torch.int64)
    moved(source, target, last)
    assert target.tolist() == [0.0, 2.0, 0.0] and last.item() == 7
    with pytest.raises(TypeError, match="bound to 3 offsets, not 2"):
        moved(source, target)
    with pytest.raises(TypeError):
        moved.at("x")  # type: ignore[arg-type]


def test_what_a_kernel_refuses_is_raised(library: str) -> None:
    (refuse,) = _native.load_kernels(library, ["refuse"])
    numbers = torch.tensor([1, -1], dtype=torch.int32)
    refuse(numbers)
    for error in (IndexOutOfRange, IndexError, RuntimeError):
        with pytest.raises(error, match="index out of range"):
            refuse.at(4)(numbers)


def test_a_parameter_is_a_tensor(library: str) -> None:
    (copy,) = _native.load_kernels(library, ("copy",))
    parameter = torch.nn.Parameter(torch.ones(1))
    target = torch.zeros(1)
    copy(parameter, target, torch.zeros(1, dtype=torch.int64))
    assert target.item() == 1.0


def test_the_gil_is_released(library: str) -> None:
    (wait_for,) = _native.load_kernels(library, ["wait_for"])
    flag = torch.zeros(1, dtype=torch.int32)
    thread = threading.Thread(target=wait_for, args=(flag,))
    thread.start()
    flag.fill_(1)
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_wrong_arguments(library: str) -> None:
    (copy,) = _native.load_kernels(library, ["copy"])
    with pytest.raises(TypeError, match="not str"):
        copy("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="keyword"):
        copy(x=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="missing"):
        _native.load_kernels(library, ["missing"])
    with pytest.raises(OSError, match="nowhere"):
        _native.load_kernels("/nowhere.so", [])
    with pytest.raises(TypeError):
        type(copy)()


def test_matches() -> None:
    x = torch.randn(3, 4)
    assert _native.matches(x, (3, 4), (4, 1), torch.float32)
    assert not _native.matches(x, (3, 4), (4, 1), torch.float64)
    assert not _native.matches(x, (4, 3), (4, 1), torch.float32)
    assert not _native.matches(x.t(), (4, 3), (3, 1), torch.float32)
    with pytest.raises(TypeError):
        _native.matches(3, (), (), torch.float32)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting", ["no_grad()", "inference_mode()", "autocast('cpu')", "device('meta')", "set_grad_enabled(True)"]
)
def test_metadata_is_found_under_any_setting(setting: str) -> None:
    program = f"import torch\nfrom stator import _native\nwith torch.{setting}: print(_native.tensor_access())"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "raw\n"


def test_tensor_facts_are_what_python_says() -> None:
    assert _native.tensor_access() == "raw"
    numbers = set()
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn):
        for shape in ((), (0,), (3,), (2, 3, 4), (1, 2, 1, 2, 1, 2, 1)):
            x = torch.empty(shape, dtype=dtype).mT if len(shape) > 1 else torch.empty(shape, dtype=dtype)
            sizes, strides, number, _, keys, grad = _native.tensor_facts(x)
            assert (sizes, strides, grad) == (tuple(x.shape), x.stride(), False)
            assert keys == torch._C._dispatch_keys(x).raw_repr()
            numbers.add((dtype, number))
    assert len(numbers) == 6
    with pytest.raises(TypeError):
        _native.tensor_facts(3)  # type: ignore[arg-type]
