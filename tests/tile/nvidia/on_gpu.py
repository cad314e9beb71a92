"""Kernels of tests that have their tensors on the CPU, run on a GPU: memory goes there before and back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from stator.tile.cpu.refused import Refused
from stator.tile.ir.core import Module
from stator.tile.ir.types import Type
from stator.tile.nvidia.launch import Kernel
from tests.tile.cpu.test_conformance import ULPS, same
from tests.tile.interpret.cases import Case, Data
from tests.tile.interpret.compare import Arguments, by_ir
from tests.tile.ir.programs import random_module
from tests.tile.nvidia.emulated import live_arrays
from tests.tile.nvidia.test_conformance import REFUSED, agree_with_tf32

_ALIGN = 256
#: Quotients and roots are approximate there.
ON_GPU = {**ULPS, "div": 2, "sqrt": 2}


class Copied:
    """What launches use instead of machine code for the CPU."""

    def __init__(self, module: Module, name: str) -> None:
        self.kernel = Kernel(module, name, 0)
        operations = module.functions[name].body.walk()
        self.makes_pointers = any(operation.op == "int_to_ptr" for operation in operations)
        self.pointers = [param.type.is_pointer for param in module.functions[name].params]

    def run(self, numbers: Sequence[bool | int | float], grid: tuple[int, int, int]) -> None:
        if self.makes_pointers:
            pytest.skip("addresses in memory are those of the CPU")
        arrays = live_arrays()
        given, copies = list(numbers), {}
        for place, is_pointer in enumerate(self.pointers):
            if is_pointer:
                array = next(a for a in arrays if 0 <= int(numbers[place]) - _address(a) < a.nbytes)
                start = _address(array)
                if start not in copies:
                    copies[start] = array, _on_device(array, start)
                given[place] = copies[start][1].data_ptr() + start % _ALIGN + int(numbers[place]) - start
        self.kernel.run(given, grid)
        torch.cuda.synchronize()
        for start, (array, copy) in copies.items():
            array[:] = copy[start % _ALIGN :][: array.nbytes].cpu().numpy()


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _on_device(array: np.ndarray[Any, Any], start: int) -> torch.Tensor:
    """A copy whose address is as far from a multiple of 256 as the array's is."""
    room = torch.empty(array.nbytes + _ALIGN, dtype=torch.uint8, device="cuda")
    room[start % _ALIGN :][: array.nbytes] = torch.from_numpy(array.view(np.uint8).reshape(-1)).cuda()
    return room


def run_on_arrays(module: Module, name: str, arrays: Sequence[np.ndarray[Any, Any]], *more: int) -> None:
    """A kernel on numpy arrays."""
    kernel = Kernel(module, name, 0)
    copies = [torch.from_numpy(a.reshape(-1).view(np.uint8).copy()).cuda() for a in arrays]
    kernel.run([*[copy.data_ptr() for copy in copies], *more], (1, 1, 1))
    torch.cuda.synchronize()
    for array, copy in zip(arrays, copies, strict=True):
        found = copy.cpu()  # it has to live until it is copied
        ctypes.memmove(_address(array), found.data_ptr(), array.nbytes)


def code_of(module: Module, name: str) -> Any:
    """A kernel, and never None."""
    return Copied(module, name)


def outcomes(case: Case) -> list[tuple[Data, Data, Type]]:
    """Of each result of a case what the interpreter gives, what a GPU gives, and its type; Refused without code."""
    expected = case.run()
    module, results = case.module()
    arrays = [np.array(data) for _, data in case.operands]
    arrays += [np.zeros(type_.shape, type_.element.numpy) for type_ in results]
    run_on_arrays(module, "main", arrays)
    return list(zip(expected, arrays[len(case.operands) :], results, strict=True))


def agree(case: Case) -> bool:
    """Whether there is code for a case; AssertionError where it gives something else than the interpreter."""
    try:
        found_by = outcomes(case)
    except Refused as refused:
        assert str(refused).split(" (")[0].split(":")[0] in REFUSED
        return False
    for wanted, found, type_ in found_by:
        if not agree_with_tf32(case, wanted, found):
            same(case, type_, wanted, found, ON_GPU)
    return True


def agree_on_program(seed: int) -> None:
    """AssertionError where a random program leaves other memory behind than the interpreter, but for a few ulps."""
    module, function = random_module(seed)
    expected = by_ir(module)
    function.attrs["num_warps"] = 1 << seed % 4
    arguments = Arguments()
    run_on_arrays(module, "main", [arguments.x, arguments.y], arguments.numbers[2])
    x, y = (np.frombuffer(part, dtype) for part, dtype in ((expected[:256], np.float32), (expected[256:], np.int32)))
    np.testing.assert_array_equal(arguments.y, y)
    np.testing.assert_allclose(arguments.x, x, rtol=1e-4, atol=1e-5)
