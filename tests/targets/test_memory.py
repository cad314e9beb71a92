"""What is asked of the device for results of recordings."""

from __future__ import annotations

from stator.targets.cuda.memory import without_room

MIB = 2**20


def test_the_smallest_block_with_room_is_taken() -> None:
    """Of 10 MiB, 4 are left for the third; the second takes 6 of 7, whose rest of 1 MiB is not cut off."""
    free = [7 * MIB, 10 * MIB]
    assert without_room(free, {5: 6 * MIB, 3: 6 * MIB, 8: 4 * MIB}) == set()
    assert without_room(free, {5: 6 * MIB, 3: 6 * MIB, 8: 4 * MIB, 9: MIB + 512}) == {9}


def test_what_does_not_fit_is_left() -> None:
    assert without_room([], {0: 2 * MIB}) == {0}
    assert without_room([3 * MIB], {0: 4 * MIB, 1: 3 * MIB, 2: 2 * MIB}) == {0, 2}
