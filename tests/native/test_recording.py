"""Recordings: which calls are theirs, when their memory is idle, what a replay gives. The driver is Python here."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from stator._native import Place, Recorded, Recording, storage_of
from tests.recording.fake import Recorder

# ---- places ----------------------------------------------------------------------------------------------------------


def memory(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*size, dtype=dtype)


def test_a_place_is_idle_while_nobody_has_a_tensor_of_it() -> None:
    place = Place(memory(3, 4))
    assert place.idle and place.intact and place.nbytes == 48
    tensor = place.tensor(torch.float32, (3, 4), (4, 1), 0)
    assert not place.idle and tensor.data_ptr() == place.address and storage_of(tensor) == place.storage
    view = tensor[1]
    del tensor
    assert not place.idle
    del view
    assert place.idle


def test_what_autograd_saves_is_not_idle() -> None:
    place = Place(memory(5))
    loss = (place.tensor(torch.float32, (5,), (1,), 0) * torch.ones(5, requires_grad=True)).sum()
    assert not place.idle
    del loss
    assert place.idle


def test_the_tensor_that_a_place_is_made_of_counts() -> None:
    tensor = memory(5)
    place = Place(tensor)
    assert not place.idle
    del tensor
    assert place.idle


def test_a_place_in_several_dtypes() -> None:
    tensor = memory(4)
    place = Place(tensor, tensor.view(torch.int32))
    del tensor
    assert place.idle
    assert place.tensor(torch.int32, (2,), (1,), 2).dtype == torch.int32
    with pytest.raises(ValueError, match="not given out as such"):
        place.tensor(torch.int64, (1,), (1,), 0)
    assert place.idle


def test_a_place_begins_where_its_storage_does() -> None:
    tensor = torch.arange(10.0)
    place = Place(tensor[4:])
    assert place.address == tensor.data_ptr()
    assert place.tensor(torch.float32, (2,), (1,), 6).tolist() == [6, 7]


def test_a_place_whose_storage_is_resized_is_never_idle_again() -> None:
    place = Place(memory(5))
    tensor = place.tensor(torch.float32, (5,), (1,), 0)
    tensor.resize_(500)
    del tensor
    assert not place.intact and not place.idle


def test_a_storage_that_python_has_seen_is_not_idle() -> None:
    """Nobody can tell then who else has it."""
    place = Place(memory(5))
    tensor = place.tensor(torch.float32, (5,), (1,), 0)
    storage = tensor.untyped_storage()
    del tensor
    assert not place.idle
    del storage


@pytest.mark.parametrize("arguments", [(), (1,), (torch.ones(2), torch.ones(2, dtype=torch.int32))], ids=str)
def test_what_is_no_place(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Place(*arguments)


@pytest.mark.parametrize("form", [((1, 2), (1,), 0), ([1], (1,), 0), (("a",), (1,), 0)], ids=str)
def test_what_is_no_tensor_of_a_place(form: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Place(memory(5)).tensor(torch.float32, *form)


def over(base: Place, start: int, elements: int) -> Place:
    """A place for so many elements in the memory of another one."""
    under = base.tensor(torch.float32, (elements,), (1,), start)
    tensor = Recorder().memory(0, under.data_ptr(), under.nbytes, under)
    del under
    place = Place(tensor.view(torch.float32))
    del tensor
    place.lie_over(base)
    return place


def test_a_place_over_another_one() -> None:
    base = Place(memory(100))
    one, other = over(base, 0, 10), over(base, 10, 90)
    assert base.idle and one.idle and one.base is base and one.lies_over and not base.lies_over
    tensor = one.tensor(torch.float32, (10,), (1,), 0)
    assert tensor.untyped_storage().nbytes() == 40 and tensor.data_ptr() == base.address
    del tensor
    tensor = one.tensor(torch.float32, (10,), (1,), 0)
    assert other.idle
    below = base.tensor(torch.float32, (10,), (1,), 0)
    tensor.fill_(7)
    assert bool((below == 7).all())


def test_a_base_is_idle_while_what_lies_over_it_is() -> None:
    base = Place(memory(100))
    one, other = over(base, 0, 10), over(base, 50, 20)
    tensor = other.tensor(torch.float32, (20,), (1,), 0)
    assert not base.idle and base.covered and one.idle and not other.idle
    view = tensor[3]
    del tensor
    assert base.covered
    del view
    assert base.idle and not base.covered


def test_memory_over_a_base_keeps_it() -> None:
    base = Place(memory(100))
    place = over(base, 20, 10)
    tensor = place.tensor(torch.float32, (10,), (1,), 0).fill_(5)
    del base
    assert place.base is None and place.lies_over and place.intact
    del place
    others = [memory(100).fill_(9) for _ in range(50)]
    assert bool((tensor == 5).all())
    del others


def test_a_base_after_what_lay_over_it() -> None:
    base = Place(memory(100))
    place = over(base, 20, 10)
    tensor = place.tensor(torch.float32, (10,), (1,), 0)
    del place
    assert not base.idle and not base.covered, "nobody gives it out any more, but somebody has it"
    del tensor
    assert base.idle


def test_what_lies_over_no_place() -> None:
    base, other = Place(memory(100)), Place(memory(100))
    place = over(base, 0, 10)
    for wrong in (other, base):
        with pytest.raises(TypeError):
            place.lie_over(wrong)
    with pytest.raises(ValueError, match="in the memory of its base"):
        Place(memory(3)).lie_over(base)
    with pytest.raises(TypeError):
        base.lie_over(other)


def test_who_has_tensors_of_a_place() -> None:
    base = Place(memory(100))
    place = over(base, 0, 100)
    given = [base.tensor(torch.float32, (10,), (1,), 0), 3, base.tensor(torch.float32, (5,), (2,), 40)]
    assert base.only_in(given, (0, 2)) and not base.only_in(given, (0,))
    again = given[0]
    assert not base.only_in(given, (0, 2)), "by another name"
    del again
    view = given[2][1:]  # type: ignore[index]
    assert not base.only_in(given, (0, 2)), "a view"
    del view
    reference = weakref.ref(given[0])
    assert not base.only_in(given, (0, 2)), "somebody may ask for it"
    del reference
    loss = (given[0] * torch.ones(10, requires_grad=True)).sum()  # type: ignore[operator]
    assert not base.only_in(given, (0, 2)), "saved"
    del loss
    over_it = place.tensor(torch.float32, (1,), (1,), 99)
    assert not base.only_in(given, (0, 2)), "somebody has what lies there"
    del over_it
    assert base.only_in(given, (0, 2)) and not base.only_in([*given], (0, 2))
    given[2] = memory(5)
    assert not base.only_in(given, (0, 2)) and base.only_in(given, (0,))
    for wrong in ((1,), (0, 0), (2, 0), (3,), (-1,)):
        with pytest.raises(ValueError, match="numbers of tensors"):
            base.only_in(given, wrong)


# ---- recordings ------------------------------------------------------------------------------------------------------


class Doubling:
    """y = 2 x, recorded: `x` is read where it is, or copied."""

    def __init__(self, *, copied: bool = False, fresh: bool = False, geometry: bool = False) -> None:
        self.fake = Recorder()
        self.x = torch.randn(4)
        self.own = torch.empty(4)
        given = self.own if copied else self.x
        pairs = [(self.own, self.x)] if copied else []
        copies: list[tuple[Tensor, Tensor]] = []

        def after(results: Any) -> list[tuple[Tensor, Tensor]]:
            if fresh:
                copies.append((torch.empty(4), results[0]))
            return copies

        call = self.fake.capture(0x7FF, None, False, pairs, lambda x: (x[0] * 2,), [given], after, False)
        graph, results, steps = call
        place = Place(*results)
        del results
        copies.clear()
        form = ((4,), (1,)) if geometry else (None, None)
        step = steps[0] if copied else 0
        taken = ("copied", self.own, 16, step, 0, *form) if copied else self.fixed(*form)
        self.recording = self.make(
            graph=graph,
            executable=graph.number,
            inputs=(taken,),
            places=(place,),
            copies=((0, 4, steps[-1]),) if fresh else (),
            results=(("fresh" if fresh else "own", 0, torch.float32, (4,), (1,), 0),),
        )

    def fixed(self, *form: Any) -> tuple[Any, ...]:
        return "fixed", self.x, 0, 0, 0, *(form or (None, None))

    def make(self, **changed: Any) -> Recording:
        known: dict[str, Any] = {
            "graph": None, "executable": 1, "replay": None, "wait": self.fake.wait_for, "driver": self.fake.driver(),
            "kind": "cpu", "device": 0, "context": 0x50, "stream": 0x700, "inputs": (),
            "places": (), "copies": (), "results": (), "overlays": (), "held": None,
        }  # fmt: skip
        return Recording(**{**known, **changed})

    def replay(self, *inputs: Any) -> Tensor | None:
        given = list(inputs)
        results = self.recording.replay(given)
        assert not self.fake.errors
        if results is None:
            assert given
            return None
        assert not given
        return results[0]


def test_a_recording_fits_where_it_was_made() -> None:
    doubling = Doubling()
    assert torch.equal(doubling.replay(doubling.x), doubling.x * 2)  # type: ignore[arg-type]
    assert doubling.replay(torch.randn(4)) is None
    assert doubling.recording.mismatches([torch.randn(4)]) == [0] and doubling.recording.mismatches([doubling.x]) == []
    assert not doubling.recording.fits([doubling.x], 0x701) and not doubling.recording.fits([], 0x700)


def test_a_recording_waits_until_its_results_are_let_go() -> None:
    doubling = Doubling()
    first = doubling.replay(doubling.x)
    assert not doubling.recording.idle and doubling.replay(doubling.x) is None
    del first
    assert doubling.recording.idle and doubling.replay(doubling.x) is not None


def test_an_input_that_is_copied_may_be_anywhere() -> None:
    doubling = Doubling(copied=True)
    for moves in (1, 2):
        x = torch.randn(4)
        assert torch.equal(doubling.replay(x), x * 2)  # type: ignore[arg-type]
        assert torch.equal(doubling.replay(x), x * 2)  # type: ignore[arg-type]
        assert doubling.fake.copies == moves  # told where it is only when it has moved


def test_results_that_are_copied_are_always_the_callers() -> None:
    doubling = Doubling(fresh=True)
    kept = [doubling.replay(doubling.x.copy_(torch.randn(4))) for _ in range(4)]
    assert doubling.recording.idle
    assert len({tensor.data_ptr() for tensor in kept if tensor is not None}) == 4
    assert torch.equal(kept[-1], doubling.x * 2)  # type: ignore[arg-type]


def test_geometry_is_compared_where_it_is_open() -> None:
    memory = torch.randn(8)
    doubling = Doubling(copied=True, geometry=True)
    assert doubling.replay(memory[:4]) is not None
    assert doubling.replay(memory[:3]) is None and doubling.replay(memory[::2]) is None


def test_numbers_are_compared() -> None:
    doubling = Doubling()
    recording = doubling.make(inputs=(("number", 7, 0, 0, 0, None, None),))
    fits = [recording.fits([value], 0x700) for value in (7, 8, 7.0, torch.ones(1), 1 << 70, True)]
    assert fits == [True, False, False, False, False, False]


def test_results_that_are_inputs_or_earlier_ones() -> None:
    doubling = Doubling()
    recording = doubling.make(
        graph=None,
        executable=doubling.fake.capture(0, None, False, [], lambda x: (), [], lambda _: [], False)[0].number,
        inputs=(doubling.fixed(), ("unread", torch.randn(3), 0, 0, 0, None, None)),
        results=(
            ("input", 1, None, None, None, 0),
            ("view", 0, torch.float32, (2,), (1,), 1),
            ("same", 1, None, None, None, 0),
            ("constant", 0, "text", None, None, 0),
        ),
    )
    other = torch.randn(3)
    found = recording.replay([doubling.x, other])
    assert found is not None
    whole, view, again, text = found
    assert whole is other and again is view and text == "text"
    assert torch.equal(view, doubling.x[1:3]) and storage_of(view) == storage_of(doubling.x)


def test_what_the_driver_refuses_is_told() -> None:
    doubling = Doubling()
    doubling.fake.status = 719
    with pytest.raises(RuntimeError, match="error 719 where a recorded graph was launched"):
        doubling.recording.replay([doubling.x])
    doubling.fake.status = 0
    assert doubling.replay(doubling.x) is not None


WRONG = {
    "input": {"inputs": (("elsewhere", 0, 0, 0, 0, None, None),)},
    "number": {"inputs": (("number", 1 << 70, 0, 0, 0, None, None),)},
    "geometry": {"inputs": (("fixed", torch.ones(1), 0, 0, 0, (1, 2), (1,)),)},
    "tensor": {"inputs": (("fixed", 0x100, 0, 0, 0, None, None),)},
    "place": {"places": (3,)},
    "copy": {"copies": ((0, 4, 0),)},
    "result": {"results": (("own", 0, torch.float32, (1,), (1,), 0),)},
    "itself": {"results": (("same", 0, None, None, None, 0),)},
    "dtype": {"results": (("view", 0, "float", (1,), (1,), 0),)},
    "driver": {"driver": (1, 2, 3, 4, 5, 0)},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_together_is_no_recording(name: str) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        Doubling().make(**WRONG[name])


# ---- calls -----------------------------------------------------------------------------------------------------------


class Calls:
    """A graph with the doubling's recording, and who was asked."""

    def __init__(self) -> None:
        self.doubling = Doubling()
        self.asked: list[str] = []
        recordings = [self.doubling.recording]
        driver = self.doubling.fake.driver()
        self.recorded = Recorded(self.call, self.decide, recordings, driver, 0)

    def call(self, inputs: list[Any]) -> tuple[Any, ...]:
        self.asked.append("graph")
        return ("graph",)

    def decide(self, inputs: list[Any], stream: int) -> tuple[Any, ...]:
        self.asked.append(f"decide {stream:#x}")
        return ("decided",)


def test_a_call_that_fits_asks_nobody() -> None:
    calls = Calls()
    for _ in range(3):
        (found,) = calls.recorded([calls.doubling.x])
        assert torch.equal(found, calls.doubling.x * 2)
        del found
    assert not calls.asked


def test_other_calls_are_decided() -> None:
    calls = Calls()
    assert calls.recorded([torch.randn(4)]) == ("decided",)
    kept = calls.recorded([calls.doubling.x])
    assert calls.recorded([calls.doubling.x]) == ("decided",)
    del kept
    calls.doubling.fake.stream = 0x701
    assert calls.recorded([calls.doubling.x]) == ("decided",)
    assert calls.asked == ["decide 0x700", "decide 0x700", "decide 0x701"]


def test_the_graph_runs_while_somebody_captures() -> None:
    calls = Calls()
    calls.doubling.fake.capturing = True
    assert calls.recorded([calls.doubling.x]) == ("graph",)
    assert calls.asked == ["graph"] and calls.doubling.fake.launches == 0


@pytest.mark.parametrize("arguments", [(), ((1,),), ([1], [2])], ids=str)
def test_a_call_takes_a_list(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="takes a list"):
        Calls().recorded(*arguments)


def test_an_input_in_memory_of_another_kind() -> None:
    """A copy that begins in memory of one kind is not moved to another one: the call is not the recording's."""
    doubling = Doubling(copied=True)
    other = doubling.fake.zeros(0, 16, True).view(torch.float32)
    inputs = [other]
    assert doubling.recording.replay(inputs) is None and doubling.recording.refused
    assert inputs == [other] or inputs[0] is other, "the list is as it was"
    assert doubling.recording.idle and doubling.fake.launches == 0
    again = torch.randn(4)
    (result,) = doubling.recording.replay([again])
    assert torch.equal(result, again * 2)
