"""The kernels that are measured, each on tensors that both languages' launches share."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

TEXTS = Path(__file__).with_name("texts.py")
#: A language → its modules: that of `jit`, and that of `tl`.
LANGUAGES = {"stator": ("stator.tile", "stator.tile.language"), "triton": ("triton", "triton.language")}
Launch = Callable[[Any], Any]
#: BM, BN, BK, warps, stages.
PRODUCTS = ((128, 128, 32, 4, 3), (128, 256, 64, 8, 3), (128, 128, 64, 8, 3))
_numbers = itertools.count()


class Case(NamedTuple):
    """A launch of a kernel of either language, and the tensor that it writes and what that should be."""

    name: str
    launch: Launch
    found: torch.Tensor
    expected: Callable[[], torch.Tensor]


def kernels(language: str) -> Any:
    """The kernels' file as a module of a language, read afresh: of kernels that nobody has compiled."""
    triton, tl = LANGUAGES[language]
    text = TEXTS.read_text(encoding="utf-8")
    text = text.replace("import triton.language as tl", f"import {tl} as tl")
    text = text.replace("import triton\n", f"import {triton} as triton\n")
    place = Path(tempfile.mkdtemp()) / f"{language}_kernels_{next(_numbers)}.py"
    place.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[place.stem] = module
    spec.loader.exec_module(module)
    return module


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def cases() -> Iterator[Case]:
    """All kernels, the tensors of each made when it is its turn."""
    n = 1 << 26
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    yield Case(
        "add", lambda m: m.add_kernel[(cdiv(n, 1024),)](x, y, out, n, BLOCK=1024), out, lambda: x + y
    )  # fmt: skip
    yield Case(
        "dropout",
        lambda m: m.dropout_kernel[(cdiv(n, 1024),)](x, out, n, 0.5, 123, BLOCK=1024),
        out,
        lambda: torch.where(out != 0, x * 2, 0.0),
    )
    for columns in (1024, 8192):
        rows = 1 << 25 >> columns.bit_length() - 1
        a = torch.randn(rows, columns, device="cuda")
        b = torch.empty_like(a)
        warps = 4 if columns == 1024 else 8
        yield Case(
            f"softmax {columns}",
            lambda m, a=a, b=b, r=rows, c=columns, w=warps: m.softmax_kernel[(r,)](b, a, c, c, BLOCK=c, num_warps=w),
            b,
            lambda a=a: a.softmax(-1),
        )
        weight, bias = torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")
        yield Case(
            f"layer_norm {columns}",
            lambda m, a=a, b=b, r=rows, c=columns, w=warps, p=weight, q=bias: m.layer_norm_kernel[(r,)](
                a, b, p, q, c, c, 1e-5, BLOCK=c, num_warps=w
            ),
            b,
            lambda a=a, c=columns, p=weight, q=bias: torch.nn.functional.layer_norm(a, (c,), p, q),
        )
    yield from products()
    yield from attentions()


def products(size: int = 4096) -> Iterator[Case]:
    """Of square matrices of half types."""
    for dtype in (torch.float16, torch.bfloat16):
        left, right = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        product = torch.empty_like(left)
        for bm, bn, bk, warps, stages in PRODUCTS:
            launch = functools.partial(
                _product, left, right, product, (cdiv(size, bm) * cdiv(size, bn),),
                BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=warps, num_stages=stages,
            )  # fmt: skip
            name = f"matmul {str(dtype)[6:]} {bm}/{bn}/{bk} w{warps} s{stages}"
            yield Case(name, launch, product, lambda a=left, b=right: a @ b)


def _product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, grid: tuple[int], module: Any, **options: int) -> None:
    """Of square matrices."""
    n = len(a)
    module.matmul_kernel[grid](a, b, c, n, n, n, n, 1, n, 1, n, 1, **options)


def attentions() -> Iterator[Case]:
    """Forward, of 64 heads."""
    heads, length, d = 64, 2048, 64
    q, k, v = (torch.randn(heads, length, d, device="cuda", dtype=torch.float16) for _ in range(3))
    result = torch.empty_like(q)
    for causal in (False, True):
        yield Case(
            f"attention{' causal' if causal else ''}",
            lambda m, causal=causal: m.attention_kernel[(length // 128, heads)](
                q, k, v, result, 0.125, length * d, d, length,
                BM=128, BN=64, D=d, CAUSAL=causal, num_warps=4, num_stages=3,
            ),
            result,
            lambda causal=causal: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=0.125
            ),
        )  # fmt: skip
