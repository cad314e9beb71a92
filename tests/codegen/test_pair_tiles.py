"""Blocks of products of pairs as text (`codegen/cpp/pairs.h`): by tiles with instructions emulated, and as it is here.

What the emulation knows of the instructions: tiles have the shape that they were given last, which empties them;
a load reads whole rows of a tile, and none behind those of its factor; terms are added one pair after the other.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from stator.base import pairs
from stator.base.options import Options
from stator.codegen.cpp.emit import FLAGS, header
from stator.runtime import Cpp

WIDTH = 32
TERMS = (3, 16, 24, 31, 32, 33, 40, 64, 80, 112, 144, 250, 256, 257, 288, 336, 545)
ROWS = (1, 2, 15, 16, 17, 24, 31, 32)
COLUMNS = (1, 15, 16, 17, 32)

EMULATED = """
struct Shapes_ { unsigned char palette, start, unused[14]; unsigned short bytes[16]; unsigned char rows[16]; };
static struct { int rows, bytes; unsigned char data[16][64]; } tile_[8];
static const char *begin_, *end_;  // of the rows of a
static int faults_ = 1;  // until tiles have shapes
static void take_(const void* given) {
    const Shapes_* shapes = (const Shapes_*)given;
    faults_ = shapes->palette != 1;
    for (int t = 0; t < 8; ++t) {
        tile_[t].rows = shapes->rows[t], tile_[t].bytes = shapes->bytes[t];
        __builtin_memset(tile_[t].data, 0, sizeof tile_[t].data);
    }
}
static void load_(int t, const void* from, i64_ step) {
    for (int i = 0; i < tile_[t].rows; ++i) {
        const char* row = (const char*)from + step * i;
        if (row >= begin_ && row < end_ && row + tile_[t].bytes > end_) faults_ |= 2;
        __builtin_memcpy(tile_[t].data[i], row, tile_[t].bytes);
    }
}
static void store_(int t, void* to, i64_ step) {
    for (int i = 0; i < tile_[t].rows; ++i) __builtin_memcpy((char*)to + step * i, tile_[t].data[i], tile_[t].bytes);
}
static void zero_(int t) { __builtin_memset(tile_[t].data, 0, sizeof tile_[t].data); }
static float half_(const unsigned char* at) {
    unsigned bits = at[0] << 16 | (unsigned)at[1] << 24;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
static void multiply_(int t, int a, int b) {
    if (tile_[t].rows != tile_[a].rows || tile_[b].rows != tile_[a].bytes / 4 || tile_[t].bytes != 64) faults_ |= 4;
    for (int m = 0; m < tile_[t].rows; ++m)
        for (int k = 0; k < tile_[a].bytes / 4; ++k)
            for (int n = 0; n < 16; ++n) {
                float sum;
                __builtin_memcpy(&sum, tile_[t].data[m] + 4 * n, 4);
                const unsigned char *x = tile_[a].data[m] + 4 * k, *y = tile_[b].data[k] + 4 * n;
                for (int h = 0; h < 4; h += 2) sum += half_(x + h) * half_(y + h);
                __builtin_memcpy(tile_[t].data[m] + 4 * n, &sum, 4);
            }
}
"""

RUN = """
extern "C" int run(int terms, float* s, const bf16* a, i64_ step, const bf16* b, i64_ rows, i64_ columns) {
    begin_ = (const char*)a, end_ = (const char*)(a + step * (rows - 1) + terms);
    Tiles tiles;
    switch (terms) { CASES }
    return faults_;
}
"""
BESIDE = "static const char *begin_, *end_;\nstatic int faults_ = 0;\n"


def emulated(text: str) -> str:
    """The branch for tiles, its instructions functions."""
    text = re.sub(r"#if defined\(__AMX_BF16__\).*", "#if 1", text)
    for name, call in (
        ("tileloadd", "load_(T, FROM, STEP)"), ("tilestored", "store_(T, TO, STEP)"), ("tilezero", "zero_(T)"),
        ("tdpbf16ps", "multiply_(T, A, B)"),
    ):  # fmt: skip
        text, found = re.subn(rf'asm volatile\("{name}.*', call, text)
        assert found == 1, name
    text, found = re.subn(r'asm volatile\("ldtilecfg.*', "take_(&shapes);", text)
    assert found == 1
    text = re.sub(r'asm volatile\("tilerelease.*', ";", text)
    return re.sub(r'asm volatile\("syscall".*', "result = 0;", text)


@cache
def library(tiles: bool) -> Any:
    """The function, with instructions emulated or as they are on this machine."""
    text = header(frozenset({"pairs.h"}))
    if tiles:
        at = text.index("// Blocks of sums of products of bfloat16")
        text = text[:at] + EMULATED + emulated(text[at:])
    else:
        text += BESIDE
    cases = [f"case {k}: multiply<{WIDTH}, {k}, 3>(tiles, s, a, step, b, rows, columns, 1); break;" for k in TERMS]
    path = Cpp(Options.from_user()).build(text + RUN.replace("CASES", " ".join(cases)), (*FLAGS, "-march=native"))
    run = ctypes.CDLL(str(path)).run
    run.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return run


def laid(weight: Tensor) -> Tensor:
    """A weight (columns, terms) in pairs, by `pairs.place`."""
    columns, terms = weight.shape
    outer, pair, inner, half = pairs.shape(columns, terms)
    wide = torch.zeros(outer * inner, pair * half, dtype=weight.dtype)
    wide[:columns, :terms] = weight
    return wide.view(outer, inner, pair, half).transpose(1, 2).contiguous()


@pytest.mark.parametrize("tiles", [True, False], ids=["emulated", "as it is"])
@pytest.mark.parametrize("terms", TERMS)
def test_blocks(terms: int, tiles: bool) -> None:
    """Sums of small whole numbers are exact in any order."""
    torch.manual_seed(0)
    run = library(tiles)
    for rows in ROWS:
        for columns in COLUMNS:
            step = terms + rows % 3
            x = torch.randint(-4, 5, (rows, step)).bfloat16()
            weight = torch.randint(-4, 5, (columns, terms)).bfloat16()
            # What is between rows, and in columns that are not there, is no number.
            x[:, terms:] = torch.nan
            packed = laid(weight)
            found = torch.full((32, WIDTH), torch.nan)
            given = found.data_ptr(), x.data_ptr(), step, packed.data_ptr(), rows, columns
            assert run(terms, *given) == 0, (rows, columns)
            wanted = x[:, :terms].float() @ weight.float().T
            assert torch.equal(found[:rows, :columns], wanted), (rows, columns)
