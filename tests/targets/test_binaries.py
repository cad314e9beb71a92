"""Triton texts to binaries: keys, the store, what is compiled when and by whom. No device is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stator._native import Kernel as Linked
from stator.base import announce
from stator.base.errors import BuildWarning, CompilerMissing, KernelRefused
from stator.base.options import Options
from stator.base.store import Store
from stator.codegen import triton as codegen
from stator.loop.expr import load, op
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Param, kernel
from stator.loop.kernel import Store as Write
from stator.plan import ir
from stator.runtime import executor
from stator.runtime.artifact import Unit
from stator.targets import typical
from stator.targets.cuda import binaries, toolchain
from stator.targets.cuda import workers as pool
from stator.targets.cuda.binaries import ANYWHERE, Binary, Source

TARGET = ("cuda", 90, 32)


def twice(points: int) -> Kernel:
    x = Axis("x0", points)
    value = load("p0", x.index, "f32")
    params = (Param("p0", "f32", "in", points), Param("p1", "f32", "out", points))
    return kernel((x,), (), (Write("p1", x.index, op("add", value, value), "outer"),), params)


def unit(*points: int, names: tuple[str, ...] = ("first", "second")) -> Unit:
    return Unit(codegen.emit([twice(n) for n in points], typical("cuda"), names), names, (), "triton")


def sources(made: Unit) -> list[Source]:
    texts, launches = binaries.texts(made.source, made.kernels), binaries.launches(made.source)
    return [Source(name, texts[name], launches[name], TARGET) for name in made.kernels]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=9, minor=0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)


@pytest.fixture
def triton() -> Iterator[None]:
    """Triton, with workers that end with the test."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    yield
    pool.close()
    pool._forget()
    binaries._pending.clear()


# -- texts and keys


def test_a_kernel_has_the_functions_that_it_calls() -> None:
    text = """
        import triton

        @triton.jit
        def _inner(x):
            return x

        @triton.jit
        def _outer(x):
            return _inner(x)

        @triton.jit
        def _other(x):
            return x

        @triton.jit
        def first(p0):
            _outer(p0)

        @triton.jit
        def second(p0):
            _other(p0)

        LAUNCHES = {'first': {'grid': [2, (("operand", 0),)]}, 'second': {'grid': 3}}
    """
    text = textwrap.dedent(text)
    found = binaries.texts(text, ["first", "second"])
    defined = {name: [line for line in body.splitlines() if line.startswith("def")] for name, body in found.items()}
    assert defined == {
        "first": ["def _inner(x):", "def _outer(x):", "def first(p0):"],
        "second": ["def _other(x):", "def second(p0):"],
    }
    assert all(body.startswith("\nimport triton\n") and "LAUNCHES" not in body for body in found.values())
    assert binaries.launches(text)["first"]["grid"] == [2, (("operand", 0),)]


def test_the_key_is_all_that_the_binary_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "compiler", lambda *_: "triton 3")
    first, second = sources(unit(1000, 2000))
    alone, _ = sources(unit(1000, 500))
    assert first.key() == alone.key() != second.key()
    others = [
        Source(first.name, first.text, first.launch, ("cuda", 80, 32)),
        Source(first.name, first.text + "\n", first.launch, TARGET),
        Source(first.name, first.text, {**first.launch, "options": {"num_warps": 8}}, TARGET),
    ]
    keys = {first.key(), *[other.key() for other in others]}
    monkeypatch.setattr(binaries, "compiler", lambda *_: "triton 4")
    assert len(keys | {first.key()}) == 5


def test_kernels_that_differ_in_number_and_grid_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one binary, under a name that tells neither; any other difference is another kernel."""
    monkeypatch.setattr(binaries, "compiler", lambda *_: "triton 3")
    made = sources(unit(1 << 20, 1 << 21, 1 << 20, 1000, names=("add_k3", "add_k14", "mul_k1", "k5")))
    first, second, other, alone = made
    assert first.launch["grid"] != second.launch["grid"] and first.launch["types"] == second.launch["types"]
    assert first.key() == second.key() and first.job(0)["text"] == second.job(0)["text"]
    assert len({source.key() for source in made}) == 3  # what is computed is told by names
    for source, computed in ((first, "add"), (other, "mul"), (alone, "kernel")):
        name = source.job(0)["name"]
        assert name == f"{computed}_{source.key().removeprefix('kernel-')[:6]}"
        assert f"def {name}(p0, p1):" in source.job(0)["text"] and source.name not in source.job(0)["text"]
    assert Source("add_k3", first.text, {**first.launch, "types": ("*fp32", "*fp64")}, TARGET).key() != first.key()


def test_the_compiler_is_told_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '9.9'\nraise ImportError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", "somewhere")
    monkeypatch.setenv("PTXAS_OPTIONS", "-O1")
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    told = binaries.compiler.__wrapped__()
    assert "9.9" in told and "-O1" in told and "somewhere" not in told


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(binaries, "compiler", binaries.compiler.__wrapped__)
    monkeypatch.setattr(binaries, "find_spec", lambda name: None)
    with pytest.raises(CompilerMissing, match="pip install triton"):
        sources(unit(5, 6))[0].key()


def test_a_binary_is_kept_with_what_is_known_of_it() -> None:
    binary = Binary(b"\x7fELF\n\n{", "first", 1024, 128, registers=40, spills=8)
    assert Binary.from_bytes(binary.to_bytes()) == binary
    for data in (b"", b"{}\n", b'{"name": "x", "more": 1}\n'):
        with pytest.raises((ValueError, TypeError)):
            Binary.from_bytes(data)


# -- compiling


def test_kernels_are_compiled_by_workers_and_filed(triton: None, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = "triton" in sys.modules
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # is for kernels that the program runs itself
    for source in sources(unit(1000, 2000)):
        key = source.key()
        binaries.begin(source, key, store)
        binaries.begin(source, key, store)  # once
        made = binaries.binary(source, key, store)
        assert made.image.startswith(b"\x7fELF") and made.name == source.job(0)["name"] and made.threads == 32
        assert made.registers > 0 and made.spills == 0 and 0 < made.seconds < 20
        kept = store.get(f"{key}-0")
        assert kept is not None and Binary.from_bytes(kept) == made
    assert not binaries._pending and ("triton" in sys.modules) == before


def test_alternatives_are_compiled_when_they_are_needed(triton: None, store: Store) -> None:
    source = sources(unit(1000, 2000))[0]
    key = source.key()
    images = {alternative: binaries.binary(source, key, store, alternative).image for alternative in (0, ANYWHERE)}
    assert images[0] != images[ANYWHERE]
    assert all(store.get(f"{key}-{alternative}") is not None for alternative in images)
    assert store.get(f"{key}-{binaries.WIDE}") is None


def test_what_another_version_has_filed_is_made_anew(triton: None, store: Store) -> None:
    source = sources(unit(1000, 2000))[0]
    store.put(f"{source.key()}-0", b"something else")
    assert binaries.binary(source, source.key(), store).image.startswith(b"\x7fELF")


def test_what_the_compiler_refuses_is_told_with_the_text(triton: None, store: Store) -> None:
    first = sources(unit(1000, 2000))[0]
    wrong = Source(first.name, first.text.replace("t0 + t0", "t0 + missing"), first.launch, TARGET)
    binaries.begin(wrong, "kernel-wrong", store, remark="model.py:7: add")
    for _ in range(2):
        with pytest.raises(KernelRefused) as raised:
            binaries.binary(wrong, "kernel-wrong", store)
        text = str(raised.value)
        assert "kernel first does not compile" in text and "missing is not defined" in text
        assert "it computes model.py:7: add" in text and "t1 = t0 + missing" in text
    assert store.get("kernel-wrong-0") is None and not binaries._pending


def test_a_worker_that_dies_takes_nothing_with_it(
    triton: None, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it was compiling is compiled here, which is told once; others go on with a new worker."""
    announce.forget()
    program = tmp_path / "worker.py"
    text = pool.PROGRAM.read_text().replace(
        "    told, start = io.StringIO()",
        "    if job['launch'].get('deadly'):\n        os._exit(1)\n    told, start = io.StringIO()",
    )
    program.write_text(text)
    monkeypatch.setattr(pool, "PROGRAM", program)
    source = sources(unit(1000, 2000))[0]
    deadly = Source(source.name, source.text, {**source.launch, "deadly": True}, TARGET)
    with pytest.warns(BuildWarning, match="first is compiled by the program itself: the process that compiled it"):
        assert binaries.binary(deadly, "kernel-a", store).image.startswith(b"\x7fELF")
    assert binaries.binary(deadly, "kernel-b", store).image  # told once
    assert binaries.binary(source, "kernel-c", store).image
    assert store.get("kernel-a-0") and store.get("kernel-c-0")


# -- the toolchain


def test_units_carry_the_keys_of_their_binaries(hopper: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[tuple[str, str]] = []
    monkeypatch.setattr(binaries, "compiler", lambda *_: "triton 3")
    monkeypatch.setattr(toolchain, "begin", lambda source, key, store, way, remark: begun.append((source.name, remark)))
    options = Options(cache_dir=str(tmp_path))
    (made,) = toolchain.building(options).begin([unit(1000, 2000)], "cuda:0", {"second": "model.py:7: add"})
    assert made.library.split() == [source.key() for source in sources(made)]
    assert begun == [("first", ""), ("second", "model.py:7: add")]
    monkeypatch.setattr(toolchain.driver, "launching", lambda: (1, 2, 3, 4))

    def compiler() -> str:
        raise AssertionError("a warm start asks for no compiler")

    monkeypatch.setattr(binaries, "compiler", compiler)
    kernels = toolchain.load([made], "cuda:0", options)
    assert kernels.keys() == {"first", "second"} and all(type(found) is Linked for found in kernels.values())


def test_products_start_first(hopper: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They compile longest, however short their text; then it goes by the text."""
    product = "@triton.jit\ndef product(p0, p1):\n    a0 = tl.dot(t0, t1)\n"
    plain = unit(10, 20)
    launches = {**binaries.launches(plain.source), "product": binaries.launches(plain.source)["first"]}
    longer = plain.source.rpartition("\nLAUNCHES = ")[0] + "    # a longer text\n" + product
    made = Unit(f"{longer}\nLAUNCHES = {launches}", (*plain.kernels, "product"), (), "triton")
    begun: list[str] = []
    monkeypatch.setattr(binaries, "compiler", lambda *_: "triton 3")
    monkeypatch.setattr(toolchain, "begin", lambda source, *given: begun.append(source.name))
    (filed,) = toolchain.building(options := Options(cache_dir=str(tmp_path))).begin([made], "cuda:0", {})
    assert begun == ["product", "second", "first"]
    monkeypatch.setattr(toolchain.driver, "launching", lambda: (1, 2, 3, 4))
    toolchain.load([filed], "cuda:0", options)  # what the store has lost since is not compiled one by one
    assert begun == ["product", "second", "first"] * 2


def test_a_binary_is_loaded_once_for_a_device(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    loads: list[tuple[str, int]] = []

    def load(image: bytes, name: str, shared: int, device: int) -> tuple[int, int]:
        loads.append((name, device))
        return 0x1000 + len(loads), 0x50 + device

    monkeypatch.setattr(binaries, "compiler", lambda *_: "triton 3")
    monkeypatch.setattr(toolchain, "_functions", {})
    monkeypatch.setattr(toolchain.driver, "load", load)
    monkeypatch.setattr(toolchain, "binary", lambda source, *rest: Binary(b"", source.name, 7, 64))
    first, second = sources(unit(1000, 2000))
    same = [toolchain._loaded(first, first.key(), store, device, False, False, False) for device in (0, 0, 1)]
    assert same == [(0x1001, 7, 64, 0x50), (0x1001, 7, 64, 0x50), (0x1002, 7, 64, 0x51)]
    toolchain._loaded(first, first.key(), store, 0, True, False, False)
    toolchain._loaded(second, second.key(), store, 0, False, False, False)
    assert loads == [("first", 0), ("first", 1), ("first", 0), ("second", 0)]


def test_a_device_without_a_number_is_the_current_one(hopper: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled in a process of its own for each device: memory, streams and kernels are all that device's."""
    monkeypatch.setattr(toolchain, "stream_getter", lambda: 77)
    assert [toolchain.number(device) for device in ("cuda", "cuda:0", "cuda:2")] == [3, 0, 2]
    form = ir.Form("f32", (4,), (1,))
    steps = tuple([ir.Allocate(f"a{i}", form, device) for i, device in enumerate(("cuda", "cuda:1", "cpu"))])
    plan = ir.Plan("test", "cuda", (), (), steps, (), arena=ir.Arena(64, (ir.Piece("p", form, 0),)))
    assembly = executor._Assembly(plan, {}, {"cuda", "cpu"}, reuse=True)
    assert [assembly._step(step)[-3:-1] for step in steps] == [("cuda", 3), ("cuda", 1), ("cpu", 0)]
    assert (assembly._scratch() or ())[-2:] == (3, 77)


def test_a_program_that_ends_waits_for_nothing(triton: None, tmp_path: Path) -> None:
    """What is being compiled then is nobody's any more; the server and the workers end with the program."""
    text = f"""
        import os, sys
        sys.path[:] = {sys.path!r}
        from stator.targets.cuda.worker import SMALL
        from stator.targets.cuda.workers import workers
        found = workers({TARGET!r})
        for _ in range(500):
            last = found.submit({{**SMALL, "target": {TARGET!r}}}, print)
        print(found._server.pid, flush=True)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=True
    )
    assert not run.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(run.stdout), signal.SIGCONT)
