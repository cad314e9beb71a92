"""Every function of torch that takes a few tensors of one size: how many versions four sizes need, one after the other.

The first size is compiled as a number, and the second for all that follow. A function that needs more fixes a size
without need, and is in `FIXED`, with the reason if it has one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.base import log

SPACES: dict[str, ModuleType] = {
    "torch": torch,
    "special": torch.special,
    "linalg": torch.linalg,
    "fft": torch.fft,
    "functional": torch.nn.functional,
}
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "rows": lambda n: (n, 4),
    "square": lambda n: (n, n),
    "images": lambda n: (2, 3, n, n),
}
PATTERNS: tuple[Callable[[Tensor], tuple[Any, ...]], ...] = (
    lambda x: (x,),
    lambda x: (x, x + 1),
    lambda x: (x, 0),
    lambda x: (x, 2),
    lambda x: (x, x + 1, x + 2),
)
SIZES = (5, 7, 9, 11)

#: Beginnings of names that are left out: those of no operator, of random ones, of other kinds of tensors.
LEFT_OUT = (
    *("_", "from_", "is_", "get_", "set_", "save", "load", "compile", "manual_seed", "seed", "use_", "rand", "init"),
    *("has_", "vmap", "cond", "parse", "import", "typename", "fork", "wait", "export", "autocast", "prepare", "tensor"),
    *("matrix_rank", "dropout", "alpha_dropout", "feature", "rrelu", "normal", "poisson", "bernoulli", "multinomial"),
    *("fractional", "gumbel", "fbgemm", "mkldnn", "q_", "quant", "dequant", "cudnn", "miopen", "int_repr", "empty"),
    *("to_mkldnn", "unsafe_", "resize", "sparse", "hsmm", "hspmm", "smm", "sspaddmm", "lstm", "gru", "rnn", "can_"),
    *(
        "embedding",
        "segment",
        "det_",
        "conv_tbc",
        "lobpcg",
        "nuclear_norm",
        "svd_lowrank",
        "pca_lowrank",
        "hash_tensor",
    ),
)

BY_NUMBER = "how many results there are is how long the tensor is"
COMPOSED = "PyTorch composes it by plain numbers"
#: Function → why it needs a version for every size.
FIXED = {
    **dict.fromkeys(("split", "split_copy", "unbind", "unbind_copy", "histogramdd"), BY_NUMBER),
    **dict.fromkeys(("corrcoef", "cov", "gradient", "kron", "mvlgamma", "multigammaln", "norm_except_dim"), COMPOSED),
    **dict.fromkeys(("pinv", "pinverse", "repeat_interleave", "cholesky_solve", "max_pool1d", "unfold"), COMPOSED),
    **dict.fromkeys(("upsample", "upsample_bilinear", "upsample_nearest", "scaled_dot_product_attention"), COMPOSED),
    **dict.fromkeys(("histogram", "slice_copy"), "it has no shape rule for symbolic sizes"),
}


def names(space: str) -> Iterator[str]:
    for name in sorted(dir(SPACES[space])):
        found = getattr(SPACES[space], name)
        if callable(found) and not isinstance(found, type) and not name.startswith(LEFT_OUT) and not name.endswith("_"):
            yield name


def arguments(function: Callable[..., Any], shape: Callable[[int], tuple[int, ...]]) -> Any:
    """How it takes tensors of a shape."""
    return next((pattern for pattern in PATTERNS if takes(function, shape, pattern)), None)


def takes(function: Callable[..., Any], shape: Callable[[int], tuple[int, ...]], pattern: Any) -> bool:
    """Whether it gives tensors for such arguments."""
    try:
        results = [function(*pattern(torch.rand(shape(size)))) for size in SIZES[:2]]
    except Exception:  # it takes something else
        return False
    return all(isinstance(result, Tensor | tuple | list) for result in results)


def versions(function: Callable[..., Any], shape: Callable[[int], tuple[int, ...]], pattern: Any) -> int:
    stator.reset()
    fast = stator.compile(lambda x: function(*pattern(x)), backend="aot_eager")
    made = 0
    for size in SIZES:
        with log.collect() as recorder:
            fast(torch.rand(shape(size)))
        made += bool(recorder.of(log.GRAPH))
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", SPACES)
def test_the_second_size_serves_all_that_follow(space: str) -> None:
    fixed, tried = {}, 0
    for name in names(space):
        function = getattr(SPACES[space], name)
        for kind, shape in SHAPES.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pattern = arguments(function, shape)
                if pattern is None:
                    continue
                tried += 1
                if versions(function, shape, pattern) > 2:
                    fixed[name] = kind
    stator.reset()
    assert tried > 20
    assert not fixed.keys() - FIXED.keys(), f"these fix a size without need: {fixed}"
