"""What products by tiles are said to take: as was measured, and in the order that was the faster one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stator.base.tiling import Product
from stator.targets import typical

XEON = replace(typical("cpu", 2), multiplies_pairs=True, cache_bytes=2 << 20)

#: Rows, columns and terms → microseconds of oneDNN on a Xeon with AMX, two threads.
LIBRARY = {
    (64, 512, 512): 60, (64, 1536, 512): 112, (64, 2048, 512): 137, (64, 512, 2048): 139, (64, 32128, 512): 1699,
    (128, 256, 256): 42, (128, 768, 256): 61, (128, 1024, 256): 68, (128, 256, 1024): 101, (98, 192, 1152): 82,
    (98, 1152, 192): 59, (392, 672, 112): 65, (98, 1280, 320): 87, (394, 768, 768): 261, (394, 3072, 768): 658,
    (392, 1024, 256): 150,
}  # fmt: skip
#: Which order was the faster one there.
BY_COLUMNS = {
    (98, 2048, 512): True, (98, 512, 2048): True, (64, 512, 512): True, (128, 768, 768): True,
    (6272, 256, 64): False, (392, 1024, 256): False, (392, 576, 96): False,
}  # fmt: skip


@pytest.mark.parametrize("size", LIBRARY)
def test_what_the_library_takes(size: tuple[int, int, int]) -> None:
    assert 0.8 < Product(*size).library_time(XEON) / 1000 / LIBRARY[size] < 1.2


@pytest.mark.parametrize("size", BY_COLUMNS)
def test_the_order_of_blocks(size: tuple[int, int, int]) -> None:
    assert Product(*size).by_columns(XEON) is BY_COLUMNS[size]


def test_factors_that_no_cache_holds_are_the_librarys() -> None:
    """Then each block of rows brings the whole weight again."""
    taken = [Product(rows, 3072, 3072) for rows in (64, 2048)]
    assert [product.time(XEON) <= product.library_time(XEON) for product in taken] == [True, False]
