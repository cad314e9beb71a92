"""Launches on a device by C, with functions in place of the driver's: what they are told, and what goes to Python."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from stator._native import TileLauncher

ABSENT = object()
TENSORS = (torch.Tensor, torch.nn.Parameter)


class Kernel:
    """Stands for a compiled kernel."""


class Owner:
    """What a launcher asks where it does not know a launch."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def run(self, *args: Any, **named: Any) -> str:
        self.asked.append((args, named))
        return "by Python"


def launcher(hooks: list[Any] | None = None) -> TileLauncher:
    names = ("x", "n", "scale", "BLOCK")
    return TileLauncher(
        names, (0, 0, 0, 1), {"BLOCK": 4}, {name: i for i, name in enumerate(names)}, [] if hooks is None else hooks,
        TENSORS, (b"STATOR_TEST_SWITCH",), ABSENT,
    )  # fmt: skip


def entry(kernel: Kernel, captured: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    return weakref.ref(kernel), captured, "kernel", print, (1, 1, 1, 1), 1, 1, 128, 0


def test_tensors_of_the_cpu_go_to_python() -> None:
    own, found, kernel = Owner(), launcher(), Kernel()
    assert found.learn((torch.zeros(4), 3, 1.0), {}, entry(kernel)) is False
    assert found.bind(own, (1,))(torch.zeros(4), 3, 1.0, BLOCK=8) == "by Python"
    ((args, named),) = own.asked
    assert len(args) == 3 and named == {"BLOCK": 8, "grid": (1,), "warmup": False}


def test_what_python_raises_is_raised() -> None:
    class Failing(Owner):
        def run(self, *args: Any, **named: Any) -> str:
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        launcher().bind(Failing(), (1,))(1, 2)


def test_launchers_take_what_they_are_made_of() -> None:
    with pytest.raises(TypeError):
        TileLauncher(("x",), (0,), {}, {}, [], TENSORS, ("text",), ABSENT)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 parameters"):
        TileLauncher(("x",), (), {}, {}, [], TENSORS, (), ABSENT)


@pytest.mark.usefixtures("few_objects")
def test_launchers_are_collected() -> None:
    import gc

    found, own = launcher(), Owner()
    launch = found.bind(own, (1,))
    gone = weakref.ref(own)
    own.launch = launch  # type: ignore[attr-defined]
    del own, launch
    gc.collect()
    assert gone() is None
