"""Models whose sizes are marked dynamic: one version for all values, as eager. `benchmarks.changing` has every row."""

from __future__ import annotations

import pytest

from benchmarks.changing import Model

#: Rows whose sizes are related in ways that only conditions on them tell, or that compile in a second or two.
ROWS = [
    ("mamba", "inference", "length"),
    ("whisper", "inference", "batch"),
    ("convnext", "inference", "height"),
    ("bert", "training", "all"),
]


@pytest.mark.parametrize(("name", "mode", "size"), ROWS)
def test_as_eager(name: str, mode: str, size: str) -> None:
    (row,) = Model(name, mode, "tiny").rows(size)
    assert not row.faults, str(row)


#: Rows where loops are as for known sizes only by what conditions say of the marked ones.
AS_MANY = [
    ("mobilenet", "inference", "height"),
    ("efficientnet", "inference", "width"),
    ("convnext", "training", "height"),
    ("resnet", "training", "width"),
    ("swin", "inference", "height"),
    ("mamba", "training", "length"),
]


@pytest.mark.parametrize(("name", "mode", "size"), AS_MANY)
def test_no_more_kernels_than_for_known_sizes(name: str, mode: str, size: str) -> None:
    (row,) = Model(name, mode, "tiny").rows(size)
    assert not row.faults, str(row)
    assert row.kernels[1] <= row.kernels[0], str(row)


@pytest.mark.parametrize("how", ["seen", "named"])
def test_equal_sizes_that_are_seen_to_change_or_have_one_name_are_one(how: str) -> None:
    """An encoder's batch and its decoder's; each mark without a name would make a size of its own."""
    (row,) = Model("whisper", "inference", "tiny", how=how).rows("batch")
    assert not row.faults, str(row)
    assert row.kernels[1] == row.kernels[0] and how in str(row), str(row)
