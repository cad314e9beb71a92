"""The C core runs plans as their Python modules do: models, random programs, calls inside calls, many threads."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

import stator
from stator._native import Executor, scratch_blocks, scratch_bytes, scratch_move
from stator.base.dtypes import TORCH
from stator.base.errors import StatorError
from stator.codegen.cpp import emit
from stator.loop import tables
from stator.loop.kernel import Schedule
from stator.loop.nest import Extern, Number, Program
from stator.loop.schedule import schedule
from stator.plan import ir
from stator.plan.build import make
from stator.runtime import Unit, arena, executor
from stator.runtime.link import load, random_input
from stator.sizes.writing import evaluate
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read
from tests.loop.random_programs import KINDS, SYMBOLIC, THREE, TWO, Maker
from tests.models.library import MODELS, model_and_inputs
from tests.plan.both import Twice, watching
from tests.plan.programs import artifact, buffer, in_c, pointwise, run, whole

#: What random programs are made of but calls, which are of no operator that there is.
LOOPS = tuple(kind for kind in KINDS if kind != "extern")


def train(name: str) -> list[Twice]:
    model, given = model_and_inputs(name, train=True)
    with watching() as made:
        stator.compile(model, fullgraph=True, options={"strict": True, "cache": False})(**given).loss.backward()
    return made


@pytest.mark.parametrize("name", MODELS)
def test_models_run_the_same_both_ways(name: str) -> None:
    assert [made.plan.name for made in train(name) if made.native is not None] == ["forward", "backward"]


@pytest.mark.faults
def test_a_difference_between_the_two_is_a_failure() -> None:
    x = torch.randn(40, 40)
    with watching() as made:
        compiled = stator.compile(lambda x: x.exp() @ x, options={"strict": True, "cache": False, "check_speed": "off"})
        compiled(x)
        (graph,) = made
        graph.text = lambda inputs, text=graph.text: tuple(out + 1e-6 for out in text(inputs))  # type: ignore
        with pytest.raises(StatorError, match="AssertionError"):
            compiled(x)


def test_no_python_runs_between_kernels() -> None:
    frames: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            frames.append(frame.f_code.co_qualname)

    calls: list[tuple[Executor, list[Any]]] = []
    model, given = model_and_inputs("gpt2", train=True)
    with watching() as made:
        compiled = stator.compile(model, fullgraph=True, options={"strict": True, "cache": False})
        compiled(**given).loss.backward()
        for graph in made:
            assert graph.native is not None
            native = graph.native
            graph.native = lambda inputs, native=native: calls.append((native, list(inputs))) or native(inputs)  # type: ignore
        compiled(**given).loss.backward()
    assert len(calls) == 2
    for native, inputs in calls:
        sys.setprofile(note)
        try:
            native(inputs)
        finally:
            sys.setprofile(None)
    assert not frames


def test_no_python_runs_for_large_results() -> None:
    frames: list[str] = []
    x, w = torch.randn(2048, 512), torch.randn(512, 4096)
    with watching() as made:
        compiled = stator.compile(
            lambda x, w: (x @ w).exp() + 1, fullgraph=True, options={"strict": True, "cache": False}
        )
        compiled(x, w)
    (graph,) = made
    assert graph.native is not None
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        graph.native([x, w])
    finally:
        sys.setprofile(None)
    assert not frames


def programs(symbolic: bool) -> list[Schedule]:
    """Random programs of loops."""
    makers = [Maker(seed, SYMBOLIC if symbolic else None, LOOPS) for seed in range(40)]
    made = [maker.program(maker.random.randint(2, 14)) for maker in makers]
    numbers = (Number("s0", 3, TWO.size), Number("s1", 4, THREE.size)) if symbolic else ()
    return [schedule(replace(program, numbers=numbers), typical("cpu")) for program in made]


def built(schedules: list[Schedule]) -> list[Twice]:
    """Their plans, with the kernels of all in one unit."""
    kernels = list(dict.fromkeys(kernel for made in schedules for kernel in made.kernels))
    names = tuple(f"k{i}" for i in range(len(kernels)))
    found = dict(zip(kernels, load([Unit(emit(kernels, read()), names, flags(read()))]).values(), strict=True))
    return [
        Twice(make(made), {n: found[k] for n, k in zip(made.names, made.kernels, strict=True)}) for made in schedules
    ]


def inputs_of(plan: ir.Plan, sizes: dict[str, int]) -> list[Any]:
    """Random tensors, and the numbers."""
    found: list[Any] = []
    for given in plan.inputs:
        if given.form is None:
            found.append(sizes[given.name])
            continue
        size, stride = [
            [n if isinstance(n, int) else evaluate(n, {s: sizes[s.name] for s in n.symbols}) for n in shape]
            for shape in (given.form.size, given.form.stride)
        ]
        found.append(random_input(tuple(size), tuple(stride), getattr(torch, TORCH[given.form.dtype]), "cpu"))
    return found


@pytest.mark.parametrize("symbolic", [False, True])
def test_random_programs_run_the_same_both_ways(symbolic: bool) -> None:
    torch.manual_seed(1)
    with tables.session():
        plans = built(programs(symbolic))
    for twice in plans:
        for sizes in ((2, 3), (4, 5), (3, 2), (2, 3)) if symbolic else ((2, 3),):
            twice(inputs_of(twice.plan, dict(zip(("s0", "s1"), sizes, strict=True))))
    assert sum(len(twice.plan.arena.pieces) for twice in plans) > 40


# ---- memory ---------------------------------------------------------------------------------------------------------


def chain(name: str, size: int) -> Program:
    """Three loops with a product between them, so that two intermediates lie in the arena."""
    x, h, g, out = buffer("x", size, size), buffer("h", size, size), buffer("g", size, size), buffer("o", size, size)
    product = Extern("mm", "aten.mm.default", (whole(h), whole(h)), (), (g,), "aten.mm.out")
    nodes = (pointwise(h, "exp", x), product, pointwise(out, "neg", g))
    return Program(name, "cpu", (x,), nodes, (whole(out),))


def test_memory_is_taken_by_one_call_and_given_back() -> None:
    arena.release()
    small, large = run("c", chain("small", 16)), run("c", chain("large", 64))
    small([torch.randn(16, 16)])
    held = scratch_bytes()
    assert held >= 2 * 16 * 16 * 4
    large([torch.randn(64, 64)])
    assert scratch_bytes() >= 2 * 64 * 64 * 4 > held
    x = torch.randn(16, 16)
    torch.testing.assert_close(small([x])[0], -(x.exp() @ x.exp()))
    assert scratch_bytes() < held + 3 * 64 * 64 * 4  # the small block is gone
    arena.release()
    assert scratch_bytes() == 0
    torch.testing.assert_close(small([x])[0], -(x.exp() @ x.exp()))


def test_a_call_inside_a_call_has_memory_of_its_own() -> None:
    """An operator of a plan runs the same plan: what the outer call has computed stays."""
    made = artifact(schedule(chain("outer", 16), typical("cpu")))
    ((position, product),) = [(i, s) for i, s in enumerate(made.plan.steps) if isinstance(s, ir.Invoke)]
    call = in_c(made)
    inner: list[torch.Tensor] = []

    @torch.library.custom_op("stator_tests::inside", mutates_args=("out",))
    def inside(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        x = torch.ones(16, 16)
        inner.append(call([x])[0])
        torch.mm(a, b, out=out)

    again = ir.Invoke("stator_tests.inside.default", (*product.args, product.into.tensor), ())
    steps = (*made.plan.steps[:position], again, *made.plan.steps[position + 1 :])
    outer = executor.make(replace(made.plan, steps=steps), load(made.units))
    assert outer is not None
    for _ in range(3):
        x = torch.randn(16, 16)
        torch.testing.assert_close(outer([x])[0], -(x.exp() @ x.exp()))
    torch.testing.assert_close(inner[-1], -(torch.ones(16, 16).exp() @ torch.ones(16, 16).exp()))


def test_threads_share_no_memory() -> None:
    call = run("c", chain("threads", 48))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.randn(48, 48, generator=torch.Generator().manual_seed(seed))
        wanted = call([x])[0]
        for _ in range(300):
            if not torch.equal(call([x])[0], wanted):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_inputs_die_where_they_are_let_go() -> None:
    """Backward frees what was saved while it runs: nobody else has it."""
    alive: list[bool] = []

    @torch.library.custom_op("stator_tests::look", mutates_args=())
    def look() -> None:
        alive.append(reference() is not None)

    made = artifact(schedule(chain("dies", 16), typical("cpu")))
    release = next(i for i, step in enumerate(made.plan.steps) if isinstance(step, ir.Release))
    looking = ir.Invoke("stator_tests.look.default", (), ())
    for place in (release, release + 1):
        steps = (*made.plan.steps[:place], looking, *made.plan.steps[place:])
        call = executor.make(replace(made.plan, steps=steps), load(made.units))
        assert call is not None
        inputs = [torch.randn(16, 16)]
        reference = weakref.ref(inputs[0])
        call(inputs)
    assert alive == [True, False]


class Queue:
    """A device with a stream, on which graphs take memory; `made` is all of it."""

    def __init__(self) -> None:
        arena.release()
        self.current = 0
        self.made: list[torch.Tensor] = []
        self.stream = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(self._stream)
        self.getter = ctypes.cast(self.stream, ctypes.c_void_p).value or 0

    def _stream(self, device: int, found: Any) -> int:
        found[0] = self.current
        return 0

    def _allocate(self, nbytes: int) -> torch.Tensor:
        self.made.append(torch.empty(nbytes, dtype=torch.uint8))
        return self.made[-1]

    def run(self, device: int, getter: int, nbytes: int = 64) -> None:
        scratch = (1, (), lambda: (nbytes, (0,), [None]), None, self._allocate, device, getter)
        Executor(1, 0, (), (), (), scratch, (), (), id, lambda *_: None, None, (), 0, "")([])


def test_blocks_belong_to_a_device_and_a_stream() -> None:
    """The first stream of the first device is none of the host."""
    queue = Queue()
    places = [(0, 0, 0), (0, queue.getter, 0), (0, queue.getter, 7), (1, queue.getter, 7)]
    for count, (device, address, stream) in enumerate(places, 1):
        queue.current = stream
        for _ in range(3):
            queue.run(device, address)
        assert len(queue.made) == count


def test_blocks_go_to_another_stream() -> None:
    """The largest one does, where that is larger than what is there; what is left goes back."""
    queue = Queue()
    for stream, nbytes in ((3, 200), (7, 100), (8, 500)):
        queue.current = stream
        queue.run(0, queue.getter, nbytes)
    scratch_move(0, 3, 7)
    assert [block.numel() for block in scratch_blocks(0, 3)] == []
    assert sorted([block.numel() for block in scratch_blocks(0, 7)]) == [100, 200]
    assert [block.numel() for block in scratch_blocks(0, 8)] == [500]
    queue.current = 7
    queue.run(0, queue.getter, 180)
    assert len(queue.made) == 3, "nothing new is needed"
    queue.current = 3
    queue.run(0, queue.getter, 150)
    scratch_move(0, 3, 7)
    assert [block.numel() for block in scratch_blocks(0, 3)] == []
    assert sorted([block.numel() for block in scratch_blocks(0, 7)]) == [100, 200], "it was too small"


# ---- what is wrong --------------------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit_are_told() -> None:
    call = run("c", chain("told", 8))
    for inputs in ([], [torch.ones(8, 8)] * 2, [3], (torch.ones(8, 8),)):
        with pytest.raises(TypeError, match=r"a compiled graph takes|is a tensor, not int"):
            call(inputs)  # type: ignore[arg-type]


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"registers": -1}, {"inputs": (9,)}, {"inputs": (-9,)}, {"unused": (5,)}, {"steps": (("fly", 1),)},
        {"steps": (("allocate", 7, torch.float32, (2,), (1,), False, False, CPU, "cpu", 0),)},
        {"steps": (("release", (9,)),)},
        {"steps": (("allocate", 0, torch.float32, (2,), (1, 1), False, False, CPU, "cpu", 0),)},
        {"results": (("whole", 4),)},
        {"steps": (("launch", print, (), (), ()),)}, {"results": (("number", (("operand", 3),)),)},
        {"results": (("number", (("+",),)),)}, {"reads": ((0, 1, False, 0),)}, {"device": "d" * 99},
        {"scratch": (99, (), id, None, id, 0, 0)},
    ],
)  # fmt: skip
def test_steps_that_do_not_fit_are_not_taken(change: dict[str, Any]) -> None:
    whole = {
        "registers": 2, "numbers": 1, "inputs": (0,), "reads": (), "unused": (), "scratch": None, "steps": (),
        "results": (("whole", 0),), "retype": id, "fail": id, "keep": None, "kept": (), "begin": 0,
        "device": "cpu",
    }  # fmt: skip
    (same,) = Executor(**whole)([x := torch.ones(2)])  # type: ignore[arg-type]
    assert same is x
    with pytest.raises((ValueError, TypeError)):
        Executor(**{**whole, **change})  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="no abacus"):  # the plan runs as Python then
        steps = ("allocate", 1, torch.float32, (2,), (1,), False, False, CPU, "abacus", 0)
        Executor(**{**whole, "steps": (steps,)})  # type: ignore[arg-type]


@pytest.mark.usefixtures("few_objects")
def test_an_executor_in_a_cycle_is_collected() -> None:
    def fail(number: int, error: BaseException, kept: object) -> None: ...

    reference = weakref.ref(fail)
    fail.owner = Executor(0, 0, (), (), (), None, (), (), id, fail, None, (), 0, "cpu")  # type: ignore
    del fail
    gc.collect()
    assert reference() is None
