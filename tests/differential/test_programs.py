"""A few random programs of fixed seeds, and the machinery itself: it must notice what it is there to notice."""

from __future__ import annotations

import contextlib
import json
import os
import random
from dataclasses import replace

import pytest
import torch

from stator.coverage.compare import Seen, judged
from tests.differential import __main__ as command
from tests.differential.__main__ import WAYS, Given, judge, served
from tests.differential.inputs import LAYOUTS, Input
from tests.differential.observe import observe
from tests.differential.operations import FAMILIES
from tests.differential.programs import Program, _Writer, generate

SEEDS = range(21_000, 21_048)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore")  # eager's own, about what random programs do
def test_random_program(seed: int) -> None:
    program = generate(random.Random(seed))
    verdict, why = judge(program)
    assert verdict in ("right", "refused"), f"{why}\n{program}"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "recorded"])  # `tests/recording` has that one
@pytest.mark.parametrize("seed", range(22_000, 22_006))
@pytest.mark.filterwarnings("ignore")
def test_random_program_under_other_options(way: str, seed: int) -> None:
    program = generate(random.Random(seed), most=20, least=5)
    verdict, why = judge(program, way)
    assert verdict in ("right", "refused"), f"{why}\n{program}"


HALVES = {
    "what overflows in a half type": ("v0 = (x0 * 1e5).to(torch.float16)", "v1 = torch.softmax(v0, 0)"),
    "also where the text has another word for it": ("v0 = (x0 * 1e5).half()", "v1 = v0 - v0"),
}


@pytest.mark.parametrize("name", HALVES)
def test_fast_numerics_may_keep_what_eager_loses(name: str) -> None:
    program = Program((Input((7, 5), values="positive", seed=3),), HALVES[name], ("v1",))
    assert observe(program.function(), program.inputs).results[0].isnan().any()
    assert judge(program, "fast") == ("right", "")
    other = "v1 = v1 if torch.compiler.is_compiling() else v1 + 1"
    assert judge(Program(program.inputs, (*HALVES[name], other), ("v1",)), "fast")[0] == "wrong"


WIDER = {
    "a sum of what half types do not hold": (
        Input((66, 8), values="edges", seed=21), "v1 = torch.sum(x0, 1, dtype=torch.float16)",
    ),
    "a running product that float32 rounds": (
        Input((33, 33), values="edges", seed=48), "v1 = torch.cumprod(x0, -1, dtype=torch.bfloat16)",
    ),
    "what is taken away from its own rounding": (
        Input((66, 8), torch.float64, values="normal", seed=67, grad="leaf"), "v1 = x0.half(); v1.sub_(x0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WIDER)
def test_fast_numerics_may_be_those_of_float32(name: str) -> None:
    """As little as of float64, and a conversion is a copy even where nothing is converted."""
    given, line = WIDER[name]
    assert judge(Program((given,), (line,), ("v1",)), "fast") == ("right", "")
    other = "v1 = v1 if torch.compiler.is_compiling() else torch.zeros_like(v1)"
    assert judge(Program((given,), (line, other), ("v1",)), "fast")[0] == "wrong"


def test_fast_numerics_may_differentiate_what_memory_holds() -> None:
    """Forward divides a sum by the norm of it alone as it is, backward as it is rounded: nothing cancels."""
    given = Input((17, 33), torch.bfloat16, values="normal", seed=6, grad="leaf")
    lines = ("v0 = torch.sum(x0, 1, keepdim=True)", "v1 = F.rms_norm(v0, (1,))")
    assert judge(Program((given,), lines, ("v1",)), "fast") == ("right", "")
    other = "v1 = v1 if torch.compiler.is_compiling() else v1 + 100 * (v0 - v0.detach())"
    assert "gradient" in judge(Program((given,), (*lines, other), ("v1",)), "fast")[1]


@pytest.mark.faults
def test_what_eager_raises_in_backward_too_is_right() -> None:
    """It cannot be asked again, as the input has been written to."""
    given = Input((16, 0, 16, 16), values="normal", seed=43, grad="inner")
    program = Program((given,), ("x0.abs_()", "v1 = F.adaptive_avg_pool2d(x0, (2, 3))"), ("v1",))
    assert isinstance(observe(program.function(), program.inputs).backward_failed, RuntimeError)
    assert judge(program, factors=(2,)) == ("right", "")


def test_runs_in_float64_are_differentiated() -> None:
    program = Program((Input((7, 5), values="normal", seed=1, grad="leaf"),), ("v1 = torch.tanh(x0)",), ("v1",))
    (gradient,) = observe(program.function(), program.inputs, wide=True).gradients
    assert gradient.dtype is torch.float64 and torch.get_default_dtype() is torch.float32


def test_a_program_may_raise_on_the_first_values_of_its_buffers() -> None:
    """Only where eager does too: the second call, on the values that were given, has to be right."""
    given = Input((4,), values="normal", seed=1), Input((3,), torch.int64, values="positive", seed=2)
    places = given[1].build()[0]
    program = Program(given, (f"v0 = x0[torch.where(x1 == torch.tensor({places.tolist()}), 0, 9)]",), ("v0",))
    assert not torch.equal(places, places.flip(0))
    assert judge(program, "frozen") == ("right", "")


def test_most_random_programs_are_compiled() -> None:
    """The run above is not empty: programs are long enough, and use many templates."""
    programs = [generate(random.Random(seed)) for seed in SEEDS]
    assert sum(len(program.lines) for program in programs) > 4 * len(programs)
    assert len({line.partition("(")[0] for program in programs for line in program.lines}) > len(programs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_laid_out_as_asked(layout: str) -> None:
    tensor, _ = Input((3, 4, 5, 2), layout=layout).build()
    plain = Input((3, 4, 5, 2)).build()[0]
    assert tensor.shape == plain.shape
    assert layout in ("contiguous", "offset") or not tensor.is_contiguous()
    assert layout == "expanded" or torch.equal(tensor, plain)


def seen(function: object, **how: object) -> Seen:
    return observe(function, [Input((4, 5), grad="inner"), Input((4, 5), seed=1)], **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "notices"),
    [
        (lambda x, y: (x * y).t().contiguous().t(), "result 0 is (torch"),
        (lambda x, y: (x * y).double(), "result 0 is (torch"),
        (lambda x, y: (x * y).detach(), "result 0 is (torch"),
        (lambda x, y: x * y * 1.001, "result 0 is"),
        (lambda x, y: (x * y, y.add_(1))[0], "input 1 is"),
        (lambda x, y: (x - x.detach()) * 0 + x.detach() * y, "gradient 0 is"),
    ],
)
def test_differences_are_noticed(wrong: object, notices: str) -> None:
    def eager(**how: object) -> Seen:
        return seen(lambda x, y: x * y, **how)

    assert judged(seen(lambda x, y: y * x), eager, eager()) == []
    assert any(found.startswith(notices) for found in judged(seen(wrong), eager, eager()))


@pytest.mark.faults
def test_the_position_of_the_greatest_of_what_should_be_nothing_is_open() -> None:
    """A row of three equal numbers less their mean is nothing, or a rounding error of each row's own."""
    lines = ("y = F.layer_norm(x0.expand(66, 4, 3), (3,))", "z = F.one_hot(y.argmax(0), 40)")
    program = Program((Input((66, 4, 1), seed=30),), lines, ("z",))
    assert judge(program) == ("unusable", "with other rounding eager raises")


def test_sharing_is_noticed() -> None:
    def eager(**how: object) -> Seen:
        return seen(lambda x, y: y.view(-1), **how)

    assert judged(seen(lambda x, y: y.clone().view(-1)), eager, eager()) == [
        "result 0 shares memory (None, 'result 0', 0), eager's (None, 'input 1', 0)"
    ]


def test_a_process_that_dies_is_told_with_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it said itself: writing the program again runs it in eager, of which it may have died."""
    monkeypatch.setattr(command, "generate", None)
    dies = "import os, signal; print(5); print({!r}); print({!r}, flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    for after, verdict, text in (('"def f(x0)"', "wrong", "def f(x0)"), ("6", "unusable", "")):
        code = dies.format('[5, "right", "", ""]', after)
        monkeypatch.setattr(command, "COMMAND", ("-c", code))
        results = [*served(5, 1, Given(0))]
        assert [r.verdict for r in results] == ["right", verdict]
        assert "ended with -11" in results[1].why and text in results[1].text


def test_a_process_of_which_no_more_is_wanted_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'import time; print(5); print(\'[5, "right", "", ""]\', flush=True); time.sleep(1000)'
    monkeypatch.setattr(command, "COMMAND", ("-c", code))
    with contextlib.closing(served(5, 1, Given(0))) as results:
        assert next(results).verdict == "right"
    assert next(results, None) is None


def test_kernels_that_end_the_process_get_rows() -> None:
    """`pdist` of no rows reads past the end of its memory in eager's backward."""
    writers = [_Writer(random.Random(seed), [], [], {"x0": torch.ones(0, 4)}) for seed in range(4)]
    templates = [template for _, family in FAMILIES for template in family if "pdist" in template]
    assert templates and all(writer._fill(template) is None for writer in writers for template in templates)


@pytest.mark.parametrize("at", [1, 2, 3], ids=["eager first", "eager once more", "the compiled program"])
def test_who_stops_a_device_is_told(
    at: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program whose eager run stops the device is taken back: nothing can be said of it."""
    program = Program((Input((3,), device="cuda"),), ("v0 = x0 + 1",), ("v0",))
    on_host = [replace(item, device="cpu") for item in program.inputs]
    calls = iter(range(1, 9))

    def synchronize(device: str) -> None:
        if next(calls) == at:
            raise RuntimeError("device-side assert triggered")

    def abort() -> None:
        raise SystemExit

    monkeypatch.setattr(command, "generate", lambda *_: program)
    monkeypatch.setattr(command, "observe", lambda function, inputs, **how: observe(function, on_host, **how))
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(os, "abort", abort)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    settable = getattr(torch.backends, "__allow_nonbracketed_mutation")
    with torch.backends.cudnn.flags(), settable(), pytest.raises(SystemExit):  # flags are put back behind
        command.serve(7, 1, Given(0, ways=["inductor"], device="cuda"))
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    text = [each for each in told if isinstance(each, str)][-1]
    assert told[0] == 7 and text == ("" if at < 3 else str(program))
