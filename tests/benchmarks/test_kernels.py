"""The table of kernels: how a row reads, and what of it memory bounds."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.kernels import __main__ as kernels
from benchmarks.kernels.__main__ import Copying, Row

COPYING = Copying(20_000.0, 10_000.0)
ROWS = [
    Row("add", 16, {"eager": 1.0, "stator": 1.5, "torch.compile": 3.0}, 192),
    Row("add", 10_000_000, {"eager": 12_000.0, "stator": 6_000.0, "torch.compile": 5_000.0}, 120_000_000, COPYING),
    Row("gelu", 10_000_000, {"eager": 8_000.0, "stator": 4_000.0, "torch.compile": 8_000.0}, 80_000_000),
]


def test_a_page_has_every_row_losses_included_and_the_bandwidth_of_those_that_memory_bounds() -> None:
    assert kernels.page(ROWS).splitlines() == [
        "| pattern | 16 | 10,000,000 |",
        "|---|---:|---:|",
        "| add | 1.50 / 0.50 | 0.50 / 1.20 |",
        "| gelu |  | 0.50 / 0.50 |",
        "",
        "1.39 times eager's speed; slower than 1.03 times its time in 1 of 3 rows",
        "1.49 times torch.compile's speed; slower than 1.1 times its time in 1 of 3 rows",
        "",
        "| pattern | MB | GB/s | of copying | of cloning |",
        "|---|---:|---:|---:|---:|",
        "| add | 120 | 20.0 | 1.00 | 2.00 |",
    ]


def test_figures_come_back_from_their_file(tmp_path: Path) -> None:
    file = tmp_path / "kernels.json"
    file.write_text(json.dumps([row._asdict() for row in ROWS]), encoding="utf-8")
    assert kernels.read(file) == ROWS


def test_a_small_row_is_measured() -> None:
    (row,) = kernels.measure(["add"], [16], ["eager", "stator"])
    assert row.moved == 3 * 16 * 4 and set(row.us) == {"eager", "stator"} and min(row.us.values()) > 0
    assert row.copying is None and set(kernels.copies(80)) == {"held", "fresh"}


def test_operands_in_another_dtype() -> None:
    inputs = kernels.inputs_of(kernels.PATTERNS["cross_entropy"], 1_005, torch.bfloat16)
    assert [x.dtype for x in inputs] == [torch.bfloat16, torch.int64] and inputs[0].shape == (15, 67)
    assert kernels.inputs_of(kernels.PATTERNS["bfloat16 softmax"], 16, torch.float64) == ()
    (row,) = kernels.measure(["add", "bfloat16 softmax"], [1_005], ["stator"], torch.float64)
    assert row.moved == 3 * 15 * 67 * 8
