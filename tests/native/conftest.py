"""The fixture of the tests of the frame hook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stator import _native
from tests.native.hooked import Hook


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    before = _native.set_frame_handler(made.handle)
    yield made
    _native.set_frame_handler(before)
    assert not _native.frame_hook_active()
    assert not _native.suspended()
