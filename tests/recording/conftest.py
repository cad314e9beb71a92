"""Programs whose calls are recorded: on a device, and on the host by a recorder that makes calls again."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import stator
from stator import targets
from stator.base import announce, log
from stator.base.errors import FallbackWarning, RecordingWarning
from stator.recording import overlays
from stator.recording.policy import Policy
from tests.recording.fake import Recorder


@dataclass
class Machine:
    """Where a test runs; `fake` is the recorder of the host."""

    device: str
    fake: Recorder | None

    def compile(self, fn: Any, *, strict: bool = True, **arguments: Any) -> Any:
        """Compiled with recordings; what is not recorded is an error, unless it is not strict."""
        options = {"strict": strict, **arguments.pop("options", {})}
        mode = arguments.pop("mode", None if "backend" in arguments else "reduce-overhead")
        return stator.compile(fn, mode=mode, options=options, **arguments)

    def randn(self, *size: int, **facts: Any) -> torch.Tensor:
        return torch.randn(*size, device=self.device, **facts)

    def settle(self) -> None:
        """What was queued is done, and a device without an error."""
        if self.fake is not None:
            assert not self.fake.errors, self.fake.errors
        else:
            torch.cuda.synchronize()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The machine; no test leaves an error on it."""
    fake = Recorder() if request.param == "cpu" else None
    if fake is not None:
        monkeypatch.setattr(targets, "recorder", lambda device: fake)
    monkeypatch.setattr(overlays, "LEAST", 64)  # tests have small tensors
    announce.forget()
    made = Machine(request.param, fake)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # breaks are asked for
        warnings.simplefilter("error", RecordingWarning)
        yield made
        made.settle()
    stator.reset()


@pytest.fixture
def recordings() -> Callable[[], int]:
    """How many recordings have been made since."""
    before = log.totals["recordings"]
    return lambda: log.totals["recordings"] - before


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Policy]]:
    """Those that are alive."""
    made: list[weakref.ref[Policy]] = []
    init = Policy.__init__

    def remembered(self: Policy, *args: Any, **facts: Any) -> None:
        init(self, *args, **facts)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Policy, "__init__", remembered)
    return lambda: [policy for policy in [item() for item in made] if policy is not None]
