"""The stages of kernels for GPUs: their texts, what takes their place, and that assemblers take what comes out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.cpu.refused import Refused
from stator.tile.gpu.operators import parse, text
from stator.tile.ir.core import Module
from stator.tile.nvidia import ptx, stages
from tests.tile.conformance import cases
from tests.tile.cpu.test_plans import KERNELS
from tests.tile.interpret.cases import Case
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.machine import Machine
from tests.tile.nvidia.test_conformance import agree

ARCHITECTURES = (80, 90)
#: One case in so many is assembled here.
STEP = 199


@pytest.fixture
def assembler() -> str:
    found = ptx.assembler()
    if found is None:
        pytest.skip("there is no ptxas")
    return found


def module_of(name: str) -> tuple[Module, str]:
    kernel = KERNELS[name]()
    return kernel.compiled.module, kernel.name


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("device", "architecture"), [(80, "80"), (90, "90a"), (100, "90"), (120, "90")])
def test_well_known_kernels_are_assembled(name: str, device: int, architecture: str, assembler: str) -> None:
    module, function = module_of(name)
    made = stages.make(module, stages.Asked.on(module, function, device))
    assert made.image[:4] == b"\x7fELF" and made.registers > 0 and made.spills == 0
    assert f".target sm_{architecture}\n" in made.texts["ptx"] and list(made.texts) == ["tir", "tgir", "ll", "ptx"]


@pytest.mark.parametrize("case", cases()[::STEP], ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cases_of_the_conformance_suite_are_assembled(case: Case, architecture: int, assembler: str) -> None:
    module, _ = case.module()
    try:
        found = text_of(module, "main", architecture)
    except Refused:
        assert not agree(case)
        return
    assembled = ptx.assembled(ptx.ptx_of(found.llvm, architecture), architecture)
    assert assembled is not None and assembled.image[:4] == b"\x7fELF"


def test_what_the_assembler_refuses_is_told(assembler: str) -> None:
    with pytest.raises(ptx.AssemblerFailed, match="refuses the PTX"):
        ptx.assembled(".version 8.0\n.target sm_90\n.address_size 64\nnonsense;\n", 90)


def test_an_assembler_that_gets_no_text_ends(assembler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **named: started.append(start(*a, **named)) or started[-1])
    with pytest.raises(Refused), ptx.assembling(90):
        raise Refused("something", "there is no code for it")
    (process,) = started
    assert process.poll() is not None


def test_the_code_of_a_vector_add(golden: Callable[[str, str], None]) -> None:
    module, name = module_of("add")
    golden("add", text_of(module, name).llvm)


@pytest.mark.parametrize("name", KERNELS)
def test_tile_ir_with_layouts_is_read_again(name: str) -> None:
    module, function = module_of(name)
    made = stages.make(module, stages.Asked.of(module, function, 90))
    assert text(parse(made.texts["tgir"])) == made.texts["tgir"]


def test_stages_are_dumped_and_overridden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = module_of("add")
    asked = stages.Asked.of(module, name, 90)
    monkeypatch.setenv("STATOR_PTXAS", "")
    ptx.assembler.cache_clear()
    try:
        monkeypatch.setenv("STATOR_TILE_DUMP", str(tmp_path))
        plain = stages.make(module, asked)
        assert {path.name for path in tmp_path.iterdir()} == {
            f"{name}.{stage}" for stage in ("tir", "tgir", "ll", "ptx", "json")
        }
        assert plain.image == plain.texts["ptx"].encode() + b"\0" and plain.registers == -1
        folder = tmp_path / "override"
        folder.mkdir()
        monkeypatch.setenv("STATOR_TILE_OVERRIDE", str(folder))
        for stage, old, new in (
            ("tir", "add(x, y)", "mul(x, y)"),
            ("tgir", "= add(x", "= sub(x"),
            ("ptx", "add.f32", "min.f32"),
        ):
            given = plain.texts[stage]
            assert old in given
            (folder / f"{name}.{stage}").write_text(given.replace(old, new))
            changed = stages.make(module, asked)
            assert changed.texts["ptx"] != plain.texts["ptx"] and changed.texts[stage] != given
            (folder / f"{name}.{stage}").unlink()
        assert stages.make(module, asked) == plain
    finally:
        ptx.assembler.cache_clear()


@triton.jit
def telling_kernel(x, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print("100% of", values)
    tl.device_assert(values < 3, "too great")


def run(kernel: triton.JITFunction, x: torch.Tensor) -> Machine:
    compiled = kernel.warmup(x, BLOCK=4, grid=(1,), debug=True)
    machine = Machine(text_of(compiled.compiled.module, compiled.name), [x.numpy()])
    machine.run([x.data_ptr()])
    return machine


def test_prints_are_lines_of_elements() -> None:
    machine = run(telling_kernel, torch.arange(4, dtype=torch.int32).clamp(max=2))
    assert sorted(machine.printed) == [f"pid (0, 0, 0) idx ({i}) 100% of{min(i, 2)}\n" for i in range(4)]


def test_a_failed_assertion_says_where() -> None:
    with pytest.raises(AssertionError, match=r"test_stages.py:\d+: telling_kernel: .*Assertion `too great` failed"):
        run(telling_kernel, torch.arange(4, dtype=torch.int32))
