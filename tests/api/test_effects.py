"""Every option, mode, backend, kind of log and argument does what it says, is refused, or is announced once.

`asked` lists all that a user can ask for; `EFFECTS` has for each a test of its effect, and what is in neither is an
error. What has no effect must be announced: one warning line, an error under strict.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import stator
from stator import speed, targets
from stator._native import results_bytes
from stator.base import announce, log
from stator.base.errors import (
    CaptureError,
    CompilerMissing,
    DynamicWarning,
    FallbackWarning,
    InternalError,
    InvalidArgument,
    OptionWarning,
    RecordingWarning,
    StatorWarning,
    UnknownVariable,
    WithoutEffect,
)
from stator.base.options import MODES, OPTIONS, VARIABLES, Options
from stator.capture import entry
from stator.loop import verify
from stator.runtime import arena, toolchain
from stator.targets import typical
from stator.targets.cuda import autotune, binaries
from tests.codegen import tiled
from tests.recording.fake import Recorder


def asked() -> Iterator[tuple[str, object]]:
    """Everything that may be asked for and is not the default."""
    for name, known in OPTIONS.items():
        match known.default:
            case bool():
                yield name, not known.default
            case str() if known.choices:
                yield from ((name, choice) for choice in known.choices if choice != known.default)
            case _:
                yield name, ...
    yield from (("mode", mode) for mode in MODES)
    yield from (("backend", backend) for backend in stator.list_backends())
    yield from (("log", kind) for kind in log.LOG_KINDS)
    yield from (("argument", name) for name in inspect.signature(stator.compile).parameters)


EFFECTS: dict[tuple[str, object], Callable[..., None]] = {}


def effect(name: str, value: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def enter(test: Callable[..., None]) -> Callable[..., None]:
        EFFECTS[name, value] = test
        return test

    return enter


def announced(name: str, value: object) -> bool:
    """Whether asking for it gives one line, once, and an error under strict."""
    arguments: dict[str, Any] = {name: value} if name in ("mode", "backend") else {"options": {name: value}}
    announce.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stator.compile(wave, **arguments)
        stator.compile(wave, **arguments)
    lines = [str(item.message) for item in caught if isinstance(item.message, OptionWarning)]
    if not lines:
        return False
    assert len(lines) == 1 and "\n" not in lines[0] and "has no effect" in lines[0], lines
    assert caught[0].filename == __file__, "it names the user's line"
    with pytest.raises(WithoutEffect, match="no effect"):
        stator.compile(wave, **{**arguments, "options": {**arguments.get("options", {}), "strict": True}})
    return True


def wave(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def run(fn: Callable[..., Any] = wave, *sizes: int, **arguments: Any) -> None:
    """Compiled and right, for some sizes."""
    compiled = stator.compile(fn, **arguments)
    for size in sizes or (5,):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), fn(x))


def graphs(fn: Callable[..., Any], *sizes: int, **arguments: Any) -> list[log.Record]:
    with log.collect() as recorder:
        run(fn, *sizes, **arguments)
    return [record for record in recorder.records if record.kind == log.GRAPH]


# -- options ---------------------------------------------------------------------------------------------------


@effect("strict", True)
def strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_it_fail(monkeypatch)
    with pytest.raises(InternalError):
        run(options={"strict": True})
    with pytest.warns(FallbackWarning):
        run()


@effect("numerics", "fast")
def numerics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def third(x: torch.Tensor) -> torch.Tensor:
        return (x / 3) * 3

    x = torch.arange(200, dtype=torch.bfloat16)
    assert torch.equal(stator.compile(third)(x), third(x)) and not torch.equal(third(x), x)
    assert torch.equal(stator.compile(third, options={"numerics": "fast"})(x), x)


def make_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every capture end in a fault of stator's own."""

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(entry.frames, "convert", fails)


@effect("log", "faults")
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_it_fail(monkeypatch)
    assert printed("faults", monkeypatch)


@effect("cache", False)
@effect("cache_dir", ...)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(options={"cache_dir": str(tmp_path / "not"), "cache": False})
    assert not files(tmp_path)
    run(options={"cache_dir": str(tmp_path / "kept")})
    assert len(files(tmp_path / "kept")) == 2, "a graph and its library"


@effect("cache_bytes", ...)
def cache_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(options={"cache_dir": str(tmp_path), "cache_bytes": 0})
    assert len(files(tmp_path)) == 1, "the last entry can be used once"


@effect("debug", ...)
def debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(options={"debug": str(tmp_path)})
    assert any(path.name.endswith("_kernels.cpp") for path in files(tmp_path))


@effect("logs", ...)
@effect("log", "graphs")
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "graphs" in log.LOG_KINDS and printed("graphs", monkeypatch)


def kernels(tmp_path: Path, **options: Any) -> str:
    """The source of the kernels of a large sum."""
    folder = tmp_path / "_".join(options) / "debug"
    run(lambda x: x.sin().sum(), 1 << 18, options={**options, "debug": str(folder)})
    (source,) = [path for path in files(folder) if path.name.endswith("_kernels.cpp")]
    return source.read_text()


@effect("threads", ...)
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels(tmp_path, threads=1) != kernels(tmp_path)


@effect("cpu_kernels", "c")
def cpu_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kernels(tmp_path, cpu_kernels="c")
    assert "stdint.h" in plain and plain != kernels(tmp_path)


@effect("triton", "stator")
def compiled_by_stator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of a GPU are filed, and compiled, as those of another compiler."""
    source = binaries.Source("k", "text", {}, ("cuda", 90, 32), Options(triton="stator").triton)
    assert source.job(0)["compiler"] == "stator" and source.key().startswith("kernel-")


@effect("verify", True)
def verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(verify, "verify_program", seen.append)
    run(options={"verify": False, "cache_dir": str(tmp_path / "a")})
    assert not seen
    run(options={"verify": True, "cache_dir": str(tmp_path / "b")})
    assert seen


@effect("eager_random", True)
def eager_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    x, results = torch.zeros(9), []
    for call in (noise, *(stator.compile(noise, options={"eager_random": exact}) for exact in (True, False))):
        torch.manual_seed(3)
        results.append(call(x))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@effect("activation_memory_budget", ...)
def activation_memory_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.relu(x @ w)
        return x

    x, w = torch.randn(512, 8), torch.randn(8, 8, requires_grad=True)
    saved = [
        sum(
            facts["saved"]
            for facts in stator.explain(network, options={"activation_memory_budget": budget})(x, w).memory
        )
        for budget in (0.0, 1.0)
    ]
    assert saved[0] < saved[1]


@effect("freezing", True)
def freezing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(4, 4)
    for freezes in (False, True):
        explain = stator.explain(lambda x: model(x) @ model.weight.exp(), options={"freezing": freezes})
        with torch.no_grad():
            assert any(facts["kept"] for facts in explain(torch.randn(3, 4)).memory) is freezes


@effect("reuse_results", False)
def reuse_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reuses in (False, True):
        arena.release()
        double = stator.compile(lambda x: x * 2, options={"reuse_results": reuses})
        assert [double(torch.ones(1 << 20))[0].item() for _ in range(2)] == [2, 2]  # of the first nothing is kept
        assert (results_bytes() > 0) is reuses


@effect("recompile_limit", ...)
def recompile_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(wave, 3, 4, 5, dynamic=False)
    with pytest.warns((FallbackWarning, DynamicWarning), match="limit"):
        run(wave, 3, 4, 5, dynamic=False, options={"recompile_limit": 1})


@effect("compiler", ...)
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompilerMissing, match="no-such-compiler"):
        run(options={"compiler": "no-such-compiler", "cache_dir": str(tmp_path)})


@effect("dynamic", "always")
@effect("dynamic", "never")
@effect("argument", "dynamic")
def dynamic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for word, argument, count in (("always", True, 1), ("auto", None, 2), ("never", False, 3)):
        assert len(graphs(wave, 3, 4, 5, options={"dynamic": word})) == count
        assert len(graphs(wave, 3, 4, 5, dynamic=argument)) == count


@effect("check_speed", "off")
@effect("check_speed", "measure")
@effect("check_speed", "warn")
@effect("check_speed", "eager")
def check_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_in_turn", lambda *_: speed.Measured(2.0, 1.0))
    for mode, measured, told in (("off", 0, 0), ("measure", 1, 0), ("warn", 1, 1), ("eager", 1, 1)):
        announce.forget()
        with log.collect() as recorder, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(options={"check_speed": mode, "cache_dir": str(tmp_path)})
        assert (len(recorder.of(log.SPEED)), len(caught)) == (measured, told)
        assert not told or ("runs in eager" in str(caught[0].message)) is (mode == "eager")


# -- modes, backends, logs -------------------------------------------------------------------------------------


@effect("mode", "default")
def default_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Options.from_user("default") == Options.from_user()


@effect("backend", "inductor")
@effect("backend", "aot_eager")
@effect("backend", "eager")
@effect("argument", "backend")
def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for backend, spans in (("inductor", {"trace", "g++"}), ("aot_eager", set()), ("eager", set())):
        with log.collect() as recorder:
            run(backend=backend, options={"cache_dir": str(tmp_path)} if backend == "inductor" else None)
        assert {span.name for span in recorder.spans} & {"trace", "g++"} == spans


def printed(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether asking for a kind prints lines of it, and of no other kind."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        stator.graph_break()
        return y + 1

    lines: list[str] = []
    monkeypatch.setattr(log, "_printed", set())
    monkeypatch.setattr(log, "_print", lambda head, facts: lines.append(head))
    announce.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        run(broken, 3, 4, mode="max-autotune", options={"logs": kind, "check_speed": "measure"})
    heads = {log.LOG_KINDS[kind]} if kind != log.TIMING else {line for line in lines if " ms" in line}
    return bool(lines) and set(lines) <= heads


@effect("log", "patterns")
def patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention whose scores are large is replaced, and said to be."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.mT * 0.125, -1) @ x

    lines: list[str] = []
    monkeypatch.setattr(log, "_print", lambda head, facts: lines.append(f"{head} {facts['name']}"))
    with torch.no_grad():
        stator.compile(attention, options={"logs": "patterns"})(torch.randn(4, 8, 256, 16))
    assert lines == ["pattern attention"]


def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """One for memory of the host."""
    fake = Recorder()
    monkeypatch.setattr(targets, "recorder", lambda device: fake)
    return fake


@effect("cudagraphs", True)
@effect("mode", "reduce-overhead")
@effect("mode", "max-autotune")
@effect("backend", "cudagraphs")
@effect("log", "recordings")
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are recorded, and told to be; where a device records none, that is said at the first call."""
    lines: list[str] = []
    monkeypatch.setattr(log, "_print", lambda head, facts: lines.append(f"{head} {facts.get('told')}"))
    asked: list[dict[str, Any]] = [{"options": {"cudagraphs": True}}, {"mode": "reduce-overhead"}]
    asked += [{"mode": "max-autotune"}, {"backend": "cudagraphs"}]
    for arguments in asked:
        announce.forget()
        with pytest.warns(OptionWarning, match="has no effect on graphs of the cpu") as caught:
            run(**arguments)
        assert len(caught) == 1
        with monkeypatch.context() as patched:
            fake = recorder(patched)
            run(wave, 5, 5, 5, 5, **{**arguments, "options": {"logs": "recordings", **arguments.get("options", {})}})
            assert fake.launches >= 2 and not fake.errors
    assert "recording has 1 of 1 steps recorded" in lines
    assert any("is recorded, with" in line for line in lines)


@effect("cudagraph_sizes", ...)
def cudagraph_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, launches in ((1, 0), (4, 4)):
        fake = recorder(monkeypatch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordingWarning)
            sizes = {"cudagraphs": True, "cudagraph_sizes": limit}
            run(wave, 5, 6, 7, 5, 6, 7, 5, 6, 7, dynamic=True, options=sizes)
        assert (fake.launches >= launches) and (launches > 0 or fake.launches <= 2)


for _kind in set(log.LOG_KINDS) - {"graphs", "faults", "patterns", "products", "recordings", "tilings"}:

    @effect("log", _kind)
    def log_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str = _kind) -> None:
        assert printed(kind, monkeypatch)


@effect("autotune", True)
@effect("mode", "max-autotune-no-cudagraphs")
@effect("log", "products")
def products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product is timed in both ways, and said to be."""

    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w.mT)

    lines: list[str] = []
    monkeypatch.setattr(log, "_print", lambda head, facts: lines.append(f"{head} {facts['product']}"))
    options = {"logs": "products", "cache_dir": str(tmp_path)}
    given = torch.randn(96, 40), torch.randn(72, 40)
    compiled = stator.compile(linear, mode="max-autotune-no-cudagraphs", options=options)
    torch.testing.assert_close(compiled(*given), linear(*given), rtol=1e-4, atol=1e-4)
    assert lines == ["product mm 96×40 @ 40×72 float32 clamp"]


@effect("log", "tilings")
def tilings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes that a product was tried in on a GPU, with its clock and compiler replaced."""
    lines: list[str] = []
    monkeypatch.setattr(log, "_printed", set())
    monkeypatch.setattr(log, "_print", lambda head, facts: lines.append(f"{head} {facts['told']}"))
    monkeypatch.setattr(autotune, "_timed", lambda *_: 2e-6)
    monkeypatch.setattr(autotune, "_arguments", lambda *_: [])
    monkeypatch.setattr(
        autotune.toolchain, "building", lambda _: SimpleNamespace(begin=lambda u, *_: u, finish=lambda: None)
    )
    x = torch.empty(512, 512, dtype=torch.bfloat16)
    kernels = tiled.scheduled(lambda a, b: torch.relu(a @ b), x, x)[0].kernels
    log.enable("tilings")
    autotune.shapes(kernels, typical("cuda"), Options(cache_dir=str(tmp_path), autotune=True))
    assert len(lines) == 1 and "the fastest of 16" in lines[0]


# -- arguments -------------------------------------------------------------------------------------------------


@effect("argument", "fullgraph")
def fullgraph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        stator.graph_break()
        return x + 1

    with pytest.warns(FallbackWarning, match="breaks its graph"):
        run(broken)
    with pytest.raises(CaptureError):
        run(broken, fullgraph=True)


@effect("argument", "mode")
@effect("argument", "options")
def mode_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stator.api.decide(mode="max-autotune").options.autotune
    assert not stator.api.decide(mode="max-autotune", options={"autotune": False, "cudagraphs": False}).options.autotune


@effect("argument", "disable")
@effect("argument", "model")
def disable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stator.compile(wave, disable=True) is wave
    assert stator.compile(wave) is not wave


# -- the rule --------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _fresh_stores() -> Iterator[None]:
    toolchain._store.cache_clear()
    yield
    toolchain._store.cache_clear()
    announce.forget()


def cases() -> Iterator[Any]:
    """All that can be asked for; where the test provokes a fault of stator, marked as such."""
    for name, value in asked():
        provokes = (name, value) in (("strict", True), ("log", "faults"))
        yield pytest.param((name, value), id=f"{name}-{value}", marks=[pytest.mark.faults] * provokes)


@pytest.mark.parametrize("what", list(cases()))
def test_it_has_an_effect_or_is_announced(
    what: tuple[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = EFFECTS.get(what)
    if what[1] is not ... and what[0] not in ("log", "argument"):
        assert announced(*what) is (test is None), "announced if and only if there is no effect"
    if test is not None:
        test(tmp_path, monkeypatch)
    else:
        assert what[1] is not ..., f"{what[0]} has neither a test of its effect nor values that are announced"


def test_no_effect_is_tested_of_what_does_not_exist() -> None:
    assert set(EFFECTS) <= set(asked())


OTHERS: dict[str, object] = {  # a value for each option that takes any number or text
    "cache_dir": "/elsewhere", "cache_bytes": 1, "debug": "/elsewhere", "logs": "notes", "threads": 3,
    "activation_memory_budget": 0.5, "recompile_limit": 2, "compiler": "clang++",
    "cudagraph_sizes": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_the_environment_sets_every_option(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (value, *_) = [value if value is not ... else OTHERS[name] for option, value in asked() if option == name]
    for known in OPTIONS.values():
        monkeypatch.delenv(known.environment, raising=False)
    monkeypatch.setenv(OPTIONS[name].environment, str(value))
    assert getattr(Options.from_user(), name) == value


@pytest.mark.parametrize("name, meant", [("STATOR_LOG", "STATOR_LOGS"), ("STATOR_CACHEDIR", "STATOR_CACHE_DIR")])
def test_a_variable_that_sets_nothing_is_told_once(name: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    announce.forget()
    monkeypatch.setenv(name, "1")
    with pytest.warns(OptionWarning, match=f"(?s){name}.*did you mean '{meant}'") as caught:
        stator.compile(wave)
        stator.compile(wave)
    assert len(caught) == 1
    with pytest.raises(UnknownVariable, match=meant):
        stator.compile(wave, options={"strict": True})


def test_every_variable_that_is_read_is_known() -> None:
    """The sources of the package and of the extension name no other."""
    root = Path(stator.__file__).parents[1]
    paths = [root / ".ci" / "environment", *root.glob("stator/**/*.py"), *root.glob("csrc/*.c")]
    reads = re.compile(r'(?:environ\.get\(|environ\[|getenv\(|\$\{)"?(STATOR_[A-Z_]+)')
    read = {name for path in paths for name in reads.findall(path.read_text())}
    assert read and read <= {*VARIABLES, *(known.environment for known in OPTIONS.values())}


@pytest.mark.parametrize(
    "arguments",
    [
        {"dynamic": "yes"}, {"dynamic": 1}, {"dynamic": 0}, {"dynamic": "auto"}, {"fullgraph": "no"}, {"fullgraph": 1},
        {"fullgraph": None}, {"disable": "no"}, {"disable": None}, {"mode": 3}, {"mode": []}, {"options": "abc"},
        {"options": [("threads", 1)]}, {"options": 3}, {"backend": None}, {"backend": 3},
        {"dynamic": True, "options": {"dynamic": "never"}},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_of_another_type_are_refused(arguments: dict[str, Any]) -> None:
    for call in (
        lambda: stator.compile(wave, **arguments),
        lambda: stator.compile(**arguments),
        lambda: stator.explain(wave, **arguments),
    ):
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert next(iter(arguments)) in str(caught.value)


MARKS: dict[str, Callable[[], object]] = {
    "disable-recursive": lambda: stator.disable(wave, recursive="no"),  # type: ignore[call-overload]
    "disable-reason": lambda: stator.disable(wave, reason=3),  # type: ignore[call-overload]
    "disable-later": lambda: stator.disable(recursive=None),  # type: ignore[call-overload]
    "disable-class": lambda: stator.disable(torch.nn.Linear),
    "allow": lambda: stator.allow_in_graph(3),  # type: ignore[type-var]
    "constant": lambda: stator.assume_constant_result("f"),  # type: ignore[type-var]
    "backend": lambda: stator.register_backend(3),  # type: ignore[call-overload]
    "backend-name": lambda: stator.register_backend(wave, name=3),  # type: ignore[call-overload]
    "explain": lambda: stator.explain(3),  # type: ignore[arg-type]
    **{
        f"{mark.__name__}-{args}": lambda mark=mark, args=args: mark(*args)  # type: ignore[misc]
        for mark in (stator.mark_dynamic, stator.maybe_mark_dynamic, stator.mark_static)
        for args in (
            (3, 0),
            ([1, 2], 0),
            (torch.Tensor, 0),
            (torch.ones(2), "0"),
            (torch.ones(2), 0.0),
            (torch.ones(2), True),
            (torch.ones(2), [0, None]),
            (torch.ones(2), 1),
            (torch.ones(2), [-2]),
        )
    },
    "range": lambda: stator.mark_dynamic(torch.ones(2), 0, min="2"),  # type: ignore[arg-type]
    "range-max": lambda: stator.mark_dynamic(torch.ones(2), 0, max=2.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", MARKS.values(), ids=MARKS)
def test_markers_refuse_what_they_cannot_mean(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument):
        call()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda gm, example_inputs: gm.forward], ids=[*"eam"])
def test_an_option_that_the_backend_does_not_read_is_announced(backend: Any) -> None:
    announce.forget()
    with pytest.warns(OptionWarning, match="'threads' has no effect with the backend"):
        stator.compile(wave, backend=backend, options={"threads": 1, "recompile_limit": 3})
    with pytest.raises(WithoutEffect):
        stator.compile(wave, backend=backend, options={"threads": 1, "strict": True})
