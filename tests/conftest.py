"""What all tests share: the `golden` fixture, tests that need a GPU left out where there is none, a private cache.

`pytest --accept` writes the goldens as they come out; read the difference before committing it.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hypothesis
import pytest

from stator.base import faults, temporary
from stator.loop.tables import session

# Examples are the same on every run, and a slow machine is no failure.
hypothesis.settings.register_profile("stator", deadline=None, derandomize=True, max_examples=50, database=None)
hypothesis.settings.load_profile("stator")

_left_out = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="write the goldens instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left_out] = 0
    # The user's own cache must neither feed the tests nor be fed by them; workers inherit the main process's folder.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["STATOR_CACHE_DIR"] = str(temporary.fresh("tests"))
    os.environ.setdefault("STATOR_VERIFY", "1")
    os.environ.setdefault("STATOR_CHECK_SPEED", "off")  # tests share the machine, and a warning is an error
    # Test modules hold objects of the loop IR, so the tables must outlive the compilations between them.
    tables = ExitStack()
    tables.enter_context(session())
    config.add_cleanup(tables.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needing: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        (needing if item.get_closest_marker("gpu") else others).append(item)
    if not needing:
        return
    import torch

    if torch.cuda.is_available():
        return
    config.hook.pytest_deselected(items=needing)
    items[:] = others
    config.stash[_left_out] = len(needing)


def _seed() -> None:
    random.seed(0)
    torch = sys.modules.get("torch")
    if torch is not None:
        _note_no_stacks(torch)
        torch.manual_seed(0)


@functools.cache
def _note_no_stacks(torch: ModuleType) -> None:
    """Seeding would note the whole stack for each kind of device that has not started: a millisecond in all."""
    for device in (torch.cuda, torch.xpu, torch.mtia):
        vars(device).update(traceback=SimpleNamespace(format_stack=list))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """A module's own tensors are made when it is imported, as it is collected: the same ones on every run."""
    if isinstance(collector, pytest.Module):
        _seed()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # Under xdist the workers collect and the main process reports.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["gpu_left_out"] = session.config.stash[_left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    left_out = getattr(node, "workeroutput", {}).get("gpu_left_out", 0)
    node.config.stash[_left_out] = max(node.config.stash[_left_out], left_out)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[_left_out]:
        terminalreporter.write_line(f"{config.stash[_left_out]} tests need a CUDA device and were left out")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Random numbers are the same on every run and in every order of tests."""
    _seed()


@functools.cache
def _start_gpu() -> None:
    """Have a GPU's libraries started in both threads that use them: PyTorch warns where a thread has no context."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        weight = torch.ones(2, 2, device="cuda", requires_grad=True)
        torch.mm(weight, weight).sum().backward()


@pytest.fixture(autouse=True)
def _started(request: pytest.FixtureRequest) -> None:
    """Whether a test is the first one of its process makes no difference."""
    if request.node.get_closest_marker("gpu") is not None:
        _start_gpu()


@pytest.fixture(autouse=True)
def _no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """A fault of stator that nobody expects fails the test: the program goes on in eager, so results cannot show it."""
    before = faults.total()
    yield
    found = faults.recent(before)
    if request.node.get_closest_marker("faults") is None:
        assert not found, "stator failed where eager PyTorch does not: " + "; ".join(map(str, found))
    else:
        assert found, "the test is marked as one that provokes faults, and there were none"


@pytest.fixture
def few_objects() -> Iterator[None]:
    """The garbage collector, and who asks it what there is, walk over what the test makes and nothing else.

    A walk over all that other tests and the libraries keep takes most of a second in the middle of a run.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], None]]:
    """`golden(name, text)` compares with `golden/<name>.txt` beside the test file, or writes it under --accept."""
    folder = Path(request.path).parent / "golden"
    accept: bool = request.config.getoption("--accept")

    def compare(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        text = text if text.endswith("\n") else text + "\n"
        if accept:
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"there is no golden {path.name}: run pytest --accept and read what it writes"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: if that is meant, run pytest --accept"

    yield compare
