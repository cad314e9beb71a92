"""Exceptions of the user's program: they surface as eager raises them, whatever was asked for."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import CaptureError, InternalError
from stator.capture import entry, frames
from stator.capture.guards import GuardSet, state_guards


class Mine(RuntimeError):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def direct(x: torch.Tensor) -> Any:
    y = torch.sin(x)
    raise Mine(y.shape[0])


def nested(x: torch.Tensor) -> Any:
    try:
        return direct(x)
    except KeyError:
        return x


def chained(x: torch.Tensor) -> Any:
    try:
        direct(x)
    except Mine as error:
        raise ValueError("outer") from error


def wrong_shapes(x: torch.Tensor) -> Any:
    return x @ torch.ones(7, 7)


def no_attribute(x: torch.Tensor) -> Any:
    return x.no_such_attribute


def no_key(x: torch.Tensor) -> Any:
    return {"a": x}["b"]


def too_many(x: torch.Tensor) -> Any:
    return direct(x, 3)  # type: ignore[call-arg]


def not_true(x: torch.Tensor) -> Any:
    if x.dim() != 5:
        raise AssertionError(f"dimension {x.dim()}")


def wrong_dtype(x: torch.Tensor) -> Any:
    return torch.nn.functional.embedding(x, x)


PROGRAMS = [direct, nested, chained, wrong_shapes, no_attribute, no_key, too_many, not_true, wrong_dtype]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_exception_is_eagers(program: Any, fullgraph: bool) -> None:
    x = torch.randn(3, 4)
    with pytest.raises(Exception) as expected:
        program(x)
    compiled = stator.compile(program, fullgraph=fullgraph, backend="eager")
    for _ in range(2):
        with pytest.raises(type(expected.value)) as found, warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(x)
        assert type(found.value) is type(expected.value) and str(found.value) == str(expected.value)
        assert getattr(found.value, "code", None) == getattr(expected.value, "code", None)
        assert type(found.value.__cause__) is type(expected.value.__cause__)


def test_effects_before_the_exception_happen_once() -> None:
    seen: list[int] = []

    def f(x: torch.Tensor) -> Any:
        seen.append(1)
        raise Mine(x.shape[0])

    compiled = stator.compile(f, fullgraph=True, backend="eager")
    for count in (1, 2):
        with pytest.raises(Mine):
            compiled(torch.ones(2))
        assert len(seen) == count


def test_a_call_that_does_not_raise_is_compiled() -> None:
    def f(x: torch.Tensor, bad: bool) -> torch.Tensor:
        if bad:
            raise Mine(1)
        return torch.sin(x)

    compiled = stator.compile(f, fullgraph=True, backend="eager")
    x = torch.randn(3)
    with pytest.raises(Mine):
        compiled(x, True)
    assert torch.equal(compiled(x, False), torch.sin(x))
    assert len(entry.versions_of(compiled)) == 2


@pytest.mark.faults
def test_capture_that_is_wrong_about_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(fn: Any, *rest: Any, **named: Any) -> frames.Entry:
        return frames.Entry(GuardSet(state_guards()), fn.__code__, [], [], "the program raises ValueError()")

    monkeypatch.setattr(frames, "convert", convert)
    x = torch.ones(2)
    with pytest.warns(UserWarning, match="raises ValueError.*but the call returned"):
        assert torch.equal(stator.compile(torch.sin)(x), torch.sin(x))
    with pytest.raises(InternalError, match="but the call returned"):
        stator.compile(lambda x: x, options={"strict": True})(x)


def test_a_number_that_no_tensor_takes() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        try:
            return x + n
        except OverflowError as error:
            return str(error)

    compiled = stator.compile(fn, backend="eager", options={"strict": True})
    for n in (2, 2**70, 3):
        got, expected = compiled(torch.ones(2), n), fn(torch.ones(2), n)
        assert type(got) is type(expected)
        assert got == expected if isinstance(got, str) else torch.equal(got, expected)


class Graphs:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        self.count += 1
        return gm.forward


def text_of_a_tensor(x: torch.Tensor) -> Any:
    total = (x * 2).sum()
    raise Mine(int(total.item()))


def formatted(x: torch.Tensor) -> Any:
    total = (x * 2).sum()
    raise ValueError(f"bad total {total}")


def stopped_below(x: torch.Tensor) -> Any:
    y = x.sin()
    return direct(y) + y


@pytest.mark.parametrize("program", [direct, text_of_a_tensor, formatted, stopped_below], ids=lambda f: f.__name__)
def test_what_comes_before_the_programs_own_exception_is_a_graph(program: Any) -> None:
    x = torch.randn(3, 4)
    with pytest.raises(Exception) as expected:
        program(x)
    graphs = Graphs()
    compiled = stator.compile(program, backend=graphs)
    counts = []
    for _ in range(4):
        with pytest.raises(type(expected.value)) as found, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one of them reads a number
            compiled(x)
        assert str(found.value) == str(expected.value)
        counts.append(graphs.count)
    assert counts[1] == counts[-1] > 0  # by the second time that it raises


def only_on_fakes() -> Any:
    """An operation whose shape function raises."""
    if not hasattr(torch.ops.stator_tests, "shapeless"):
        library = torch.library.Library("stator_tests", "FRAGMENT")
        library.define("shapeless(Tensor x) -> Tensor")
        library.impl("shapeless", torch.neg, "CPU")

        def fails(x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no shape")

        library.impl("shapeless", fails, "Meta")
        only_on_fakes.kept = library  # type: ignore[attr-defined]
    return torch.ops.stator_tests.shapeless


def test_an_exception_on_fakes_alone_ends_the_graph_from_the_next_call_on() -> None:
    shapeless = only_on_fakes()

    def f(x: torch.Tensor) -> torch.Tensor:
        y = shapeless(x.sin() * 2)
        return y.cos() * 3

    graphs, x = Graphs(), torch.randn(3)
    compiled = stator.compile(f, backend=graphs, options={"strict": True})
    assert torch.equal(compiled(x), f(x))
    with pytest.warns(UserWarning, match="breaks its graph: on tensors without data.*no shape"):
        assert torch.equal(compiled(x), f(x))
    assert graphs.count == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x), f(x))
    assert graphs.count == 2
    with pytest.raises(CaptureError, match=r"no shape.*but the call returned"):
        stator.compile(f, fullgraph=True)(x)


def test_such_an_exception_in_a_frame_below_a_break() -> None:
    shapeless = only_on_fakes()

    def below(x: torch.Tensor) -> torch.Tensor:
        return shapeless(x.sin() * 2).cos() * 3

    @stator.disable(recursive=False)
    def f(x: torch.Tensor) -> torch.Tensor:
        return below(x) + 1

    graphs, x = Graphs(), torch.randn(3)
    compiled = stator.compile(f, backend=graphs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert torch.equal(compiled(x), f(x))
    assert graphs.count == 2
