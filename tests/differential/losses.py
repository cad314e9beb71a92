"""Every loss of torch.nn.functional and torch.nn in random calls: `python -m tests.differential.losses --count 500`.

A call has sizes, dtypes, weights, a reduction and other options of its own, and is now and then spoilt: a target of a
wrong dtype or out of range, operands that do not fit, an option that does not exist. What eager computes has to be
computed, gradients at every operand included, at two sizes; what eager refuses has to be refused by the same exception
with the same words. A `Call` prints as a function and its inputs. Neighbours: `inputs.py` and `operations.py` do it for
programs; `tests/aot/test_data_errors.py` has data that is refused.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator
from stator.base import faults
from stator.coverage.compare import EPSILON, FLOATS, Seen, judged, observe_on
from stator.coverage.ways import WideResults

HALVES = (torch.bfloat16, torch.float16)
REDUCTIONS = ("mean", "sum", "none")
#: Options that are wrong for most losses.
OTHER_OPTIONS = (
    "reduction='avg'", "reduction=None", "reduction=1", "weight=None", "weight=x0", "ignore_index=None",
    "label_smoothing=2.0", "delta=0.0", "beta=-1.0", "p=3",
)  # fmt: skip
#: Sizes of a batch of examples, and how many times as great it is in a second call.
BATCHES = ((3,), (1,), (8,), (0,), (17,), ())
MORE = 2


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: what its numbers are, its size, its dtype; `high` bounds positions."""

    kind: str
    size: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    grad: bool = False
    high: int = 0
    seed: int = 0

    def build(self, noise: float = 0.0, wide: bool = False) -> Tensor:
        """The same numbers every time; `noise` moves them by about a rounding, `wide` makes them float64."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.kind in ("class", "label"):
            low = -1 if self.kind == "label" else 0
            made = torch.randint(low, max(self.high, low + 1), self.size, generator=generator)
            return made.to(self.dtype)
        if self.kind == "sign":
            return (torch.randint(0, 2, self.size, generator=generator) * 2 - 1).to(self.dtype)
        if self.kind == "bit":
            return torch.randint(0, 2, self.size, generator=generator).to(self.dtype)
        values = torch.randn(self.size, generator=generator, dtype=torch.float64)
        match self.kind:
            case "probability":
                values = values.sigmoid()
            case "positive":
                values = values.abs() + 0.25
            case "logs":
                values = values.log_softmax(-1) if values.dim() else values
        made = values.to(self.dtype)
        if self.dtype in FLOATS:
            if noise:
                shake = torch.randn(self.size, generator=generator, dtype=torch.float64)
                made = (made.double() * (1 + noise * EPSILON[self.dtype] * shake)).to(self.dtype)
                made = made.clamp(0, 1) if self.kind == "probability" else made
            made = made.double() if wide else made
            made.requires_grad_(self.grad)
        return made


@dataclass(frozen=True)
class Call:
    """The text of a call of `x0`, `x1`, … and what these are."""

    text: str
    operands: tuple[Operand, ...]

    def function(self) -> Callable[..., Any]:
        """The call as a function, newly made."""
        names = ", ".join(f"x{i}" for i in range(len(self.operands)))
        return eval(f"lambda {names}: {self.text}", {"torch": torch, "F": F, "nn": nn})  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return "\n".join([self.text, *[f"    x{i} = {operand!r}" for i, operand in enumerate(self.operands)]])

    def larger(self) -> Call:
        """The same for more examples: only those have a size of their own, a prime one or a first dim."""
        first = [o.size[0] for o in self.operands if o.size]
        if not first or first[0] < 3:
            return self
        grown = [
            replace(o, size=(o.size[0] * MORE, *o.size[1:])) if o.size and o.size[0] == first[0] else o
            for o in self.operands
        ]
        return replace(self, operands=tuple(grown))


# ---- writing ---------------------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    """Draws the parts of one call."""

    rng: random.Random
    dtype: torch.dtype

    def floats(self, kind: str, size: Sequence[int], dtype: torch.dtype | None = None) -> Operand:
        rng = self.rng
        return Operand(kind, tuple(size), dtype or self.dtype, rng.random() < 0.7, 0, rng.randint(0, 999))

    def whole(self, kind: str, size: Sequence[int], high: int, dtype: torch.dtype = torch.int64) -> Operand:
        return Operand(kind, tuple(size), dtype, False, high, self.rng.randint(0, 999))

    def batch(self) -> tuple[int, ...]:
        return self.rng.choice(BATCHES)

    def inner(self) -> tuple[int, ...]:
        return self.rng.choice(((), (), (4,), (2, 3), (1,), (0,)))

    def options(self, **choices: Sequence[Any]) -> str:
        """Some of the options, as text."""
        rng = self.rng
        taken = [f"{name}={rng.choice(values)!r}" for name, values in choices.items() if rng.random() < 0.5]
        if rng.random() < 0.75:
            taken.append(f"reduction={rng.choice(REDUCTIONS)!r}")
        return "".join(f", {option}" for option in taken)


def _pairs(name: str, kinds: tuple[str, str] = ("real", "real"), **choices: Sequence[Any]) -> Callable[[_Writer], Call]:
    def write(w: _Writer) -> Call:
        size = (*w.batch(), *w.inner())
        operands = (w.floats(kinds[0], size), w.floats(kinds[1], size))
        return Call(f"F.{name}(x0, x1{w.options(**choices)})", operands)

    return write


def _weighed(name: str, kind: str, extra: str = "") -> Callable[[_Writer], Call]:
    """Losses that multiply by a weight that broadcasts, and here by one of classes."""

    def write(w: _Writer) -> Call:
        size = (*w.batch(), *w.rng.choice(((5,), (4, 5), ())))
        operands = [w.floats(kind, size), w.floats(w.rng.choice(("probability", "bit")), size)]
        text = ""
        for option in filter(None, ("weight", extra)):
            if w.rng.random() < 0.4:
                text += f", {option}=x{len(operands)}"
                operands.append(replace(w.floats("positive", w.rng.choice((size, size[-1:], ()))), grad=False))
        return Call(f"F.{name}(x0, x1{text}{w.options()})", tuple(operands))

    return write


def _classes(name: str) -> Callable[[_Writer], Call]:
    def write(w: _Writer) -> Call:
        rng = w.rng
        classes, inner = rng.choice((2, 5, 1, 11, 300)), w.inner()
        batch = rng.choice(((3,), (1,), (8,), (0,), ()))
        inner = inner if batch else ()
        size = (*batch, classes, *inner)
        soft = name == "cross_entropy" and rng.random() < 0.3
        kind = "logs" if name == "nll_loss" else "real"
        target = w.whole("class", (*batch, *inner), classes, rng.choice((torch.int64, torch.int64, torch.uint8)))
        if target.dtype is torch.uint8:
            target = replace(target, high=min(classes, 256))
        operands = [w.floats(kind, size), w.floats("probability", size) if soft else target]
        text = ""
        if rng.random() < 0.4:
            text += ", weight=x2"
            operands.append(replace(w.floats("positive", (classes,)), grad=False))
        choices: dict[str, Sequence[Any]] = {} if soft else {"ignore_index": (-100, 0, 1, classes - 1, 156)}
        if name == "cross_entropy":
            choices["label_smoothing"] = (0.0, 0.1, 1.0)
        return Call(f"F.{name}(x0, x1{text}{w.options(**choices)})", tuple(operands))

    return write


def _signed(name: str) -> Callable[[_Writer], Call]:
    def write(w: _Writer) -> Call:
        size = (*w.batch(), *w.inner())
        options = w.options(margin=(1.0, 0.3)) if "hinge" in name else w.options()
        target = w.whole("sign", size, 0, w.rng.choice((w.dtype, torch.int64)))
        return Call(f"F.{name}(x0, x1{options})", (w.floats("real", size), target))

    return write


def _ranking(w: _Writer) -> Call:
    size = (*w.batch(), *w.inner())
    operands = (w.floats("real", size), w.floats("real", size), w.whole("sign", size, 0, w.dtype))
    return Call(f"F.margin_ranking_loss(x0, x1, x2{w.options(margin=(0.5,))})", operands)


def _cosine(w: _Writer) -> Call:
    batch = w.rng.choice(((3,), (1,), (0,), ()))
    operands = (w.floats("real", (*batch, 5)), w.floats("real", (*batch, 5)), w.whole("sign", batch, 0, w.dtype))
    return Call(f"F.cosine_embedding_loss(x0, x1, x2{w.options(margin=(0.5,))})", operands)


def _triplets(w: _Writer) -> Call:
    size = (*w.rng.choice(((3,), (1,), (0,), ())), 5)
    operands = tuple([w.floats("real", size) for _ in range(3)])
    if w.rng.random() < 0.3:
        distance = w.rng.choice(("nn.PairwiseDistance()", "lambda a, b: (a - b).abs().amax(-1)"))
        options = w.options(margin=(0.7,), swap=(True,))
        return Call(f"F.triplet_margin_with_distance_loss(x0, x1, x2, distance_function={distance}{options})", operands)
    return Call(f"F.triplet_margin_loss(x0, x1, x2{w.options(margin=(0.7,), p=(1.0, 3.0), swap=(True,))})", operands)


#: Of an empty batch eager's two margin losses of classes give what was in memory.
_FILLED: tuple[tuple[int, ...], ...] = ((3,), (1,), ())


def _margins(w: _Writer) -> Call:
    batch, classes = w.rng.choice(_FILLED), w.rng.choice((5, 2, 1))
    operands = [w.floats("real", (*batch, classes)), w.whole("class", batch, classes)]
    text = ""
    if w.rng.random() < 0.4:
        text = ", weight=x2"
        operands.append(replace(w.floats("positive", (classes,)), grad=False))
    return Call(f"F.multi_margin_loss(x0, x1{text}{w.options(p=(1, 2), margin=(0.5,))})", tuple(operands))


def _labels(w: _Writer) -> Call:
    size = (*w.rng.choice(_FILLED), w.rng.choice((5, 1)))
    return Call(f"F.multilabel_margin_loss(x0, x1{w.options()})",
                (w.floats("real", size), w.whole("label", size, size[-1])))  # fmt: skip


def _soft_labels(w: _Writer) -> Call:
    size = (*w.rng.choice(((3,), (1,), (0,), ())), 5)
    operands = [w.floats("real", size), w.whole("bit", size, 0, w.dtype)]
    text = ""
    if w.rng.random() < 0.4:
        text = ", weight=x2"
        operands.append(replace(w.floats("positive", size[-1:]), grad=False))
    return Call(f"F.multilabel_soft_margin_loss(x0, x1{text}{w.options()})", tuple(operands))


def _gaussian(w: _Writer) -> Call:
    size = (*w.rng.choice(((3,), (1,), (0,), (6,))), 5)
    variance = w.rng.choice((size, size[:-1], (*size[:-1], 1)))
    operands = (w.floats("real", size), w.floats("real", size), w.floats("positive", variance))
    return Call(f"F.gaussian_nll_loss(x0, x1, x2{w.options(full=(True,), eps=(1e-3,))})", operands)


def _connectionist(w: _Writer) -> Call:
    length, batch, classes = w.rng.choice(((6, 3, 5), (1, 1, 2), (8, 0, 3)))
    longest = min(length // 2, 2)
    target = Operand("class", (batch, longest), torch.int64, False, classes - 1, w.rng.randint(0, 999))
    text = f"F.ctc_loss(x0.log_softmax(2), x1 + 1, [{length}] * {batch}, [{longest}] * {batch}"
    return Call(text + w.options(zero_infinity=(True,)) + ")", (w.floats("real", (length, batch, classes)), target))


MODULES = {
    "F.mse_loss": "nn.MSELoss", "F.l1_loss": "nn.L1Loss", "F.huber_loss": "nn.HuberLoss",
    "F.smooth_l1_loss": "nn.SmoothL1Loss", "F.kl_div": "nn.KLDivLoss", "F.soft_margin_loss": "nn.SoftMarginLoss",
    "F.poisson_nll_loss": "nn.PoissonNLLLoss", "F.hinge_embedding_loss": "nn.HingeEmbeddingLoss",
    "F.margin_ranking_loss": "nn.MarginRankingLoss", "F.cosine_embedding_loss": "nn.CosineEmbeddingLoss",
    "F.triplet_margin_loss": "nn.TripletMarginLoss", "F.multilabel_margin_loss": "nn.MultiLabelMarginLoss",
    "F.gaussian_nll_loss": "nn.GaussianNLLLoss", "F.cross_entropy": "nn.CrossEntropyLoss", "F.nll_loss": "nn.NLLLoss",
    "F.binary_cross_entropy": "nn.BCELoss", "F.binary_cross_entropy_with_logits": "nn.BCEWithLogitsLoss",
    "F.multi_margin_loss": "nn.MultiMarginLoss", "F.multilabel_soft_margin_loss": "nn.MultiLabelSoftMarginLoss",
}  # fmt: skip

LOSSES: dict[str, Callable[[_Writer], Call]] = {
    "mse_loss": _pairs("mse_loss"), "l1_loss": _pairs("l1_loss"),
    "smooth_l1_loss": _pairs("smooth_l1_loss", beta=(0.0, 0.3, 2.0)),
    "huber_loss": _pairs("huber_loss", delta=(0.3, 2.0)),
    "kl_div": _pairs("kl_div", ("logs", "probability"), log_target=(False, True)),
    "poisson_nll_loss": _pairs("poisson_nll_loss", ("positive", "positive"), log_input=(False,), full=(True,)),
    "binary_cross_entropy": _weighed("binary_cross_entropy", "probability"),
    "binary_cross_entropy_with_logits": _weighed("binary_cross_entropy_with_logits", "real", "pos_weight"),
    "cross_entropy": _classes("cross_entropy"), "nll_loss": _classes("nll_loss"),
    "soft_margin_loss": _signed("soft_margin_loss"), "hinge_embedding_loss": _signed("hinge_embedding_loss"),
    "margin_ranking_loss": _ranking, "cosine_embedding_loss": _cosine, "triplet_margin_loss": _triplets,
    "multi_margin_loss": _margins, "multilabel_margin_loss": _labels, "multilabel_soft_margin_loss": _soft_labels,
    "gaussian_nll_loss": _gaussian, "ctc_loss": _connectionist,
}  # fmt: skip


def write(rng: random.Random, name: str = "") -> Call:
    """A random call of a loss, or of one of that name; every third is spoilt."""
    dtype = rng.choice((torch.float32,) * 4 + (torch.float64, *HALVES))
    call = LOSSES[name or rng.choice(list(LOSSES))](_Writer(rng, dtype))
    call = _as_module(call) if rng.random() < 0.2 else call
    return _spoilt(rng, call) if rng.random() < 0.35 else call


def _as_module(call: Call) -> Call:
    """The same by a module that is made on the way, where what it is called with are tensors."""
    name, _, rest = call.text.partition("(")
    if name not in MODULES:
        return call
    parts = [part.strip() for part in rest.removesuffix(")").split(",")]
    given = [part for part in parts if "=" not in part]
    options = [part for part in parts if "=" in part]
    return replace(call, text=f"{MODULES[name]}({', '.join(options)})({', '.join(given)})")


def _spoilt(rng: random.Random, call: Call) -> Call:
    """With one operand or option that may not fit."""
    i = rng.randrange(len(call.operands))
    operand = call.operands[i]
    match rng.choice(("dtype", "dtype", "size", "size", "range", "option", "empty")):
        case "dtype":
            dtype = rng.choice((*FLOATS, torch.int64, torch.int32, torch.bool, torch.uint8, torch.complex64))
            changed = replace(operand, dtype=dtype, grad=operand.grad and dtype in FLOATS)
        case "size":
            sizes = [(), (1,), (*operand.size, 1), (1, *operand.size), operand.size[1:], operand.size[:-1], (2, 3)]
            sizes += [tuple(n + (k == d) for k, n in enumerate(operand.size)) for d in range(len(operand.size))]
            changed = replace(operand, size=rng.choice(sizes))
        case "range":
            kind = rng.choice(("real", "label", "class"))
            changed = replace(operand, kind=kind, high=operand.high + 5) if operand.dtype in (
                torch.int64, torch.uint8) else replace(operand, kind="real")  # fmt: skip
        case "option":
            other = rng.choice(OTHER_OPTIONS)
            name = other.partition("=")[0]
            if f"{name}=" in call.text:
                return call
            return replace(call, text=call.text.removesuffix(")") + f", {other})")
        case _:
            changed = replace(operand, size=(0,) * len(operand.size))
    return replace(call, operands=(*call.operands[:i], changed, *call.operands[i + 1 :]))


# ---- judging ---------------------------------------------------------------------------------------------------------


def observe(
    function: Callable[..., Any],
    operands: Sequence[Operand],
    noise: float = 0.0,
    wide: bool = False,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Seen:
    """What a caller sees of the call."""
    tensors = [operand.build(noise, wide) for operand in operands]
    return observe_on(function, tensors, tensors, noise=noise, within=WideResults if wide else within)


def wrong(call: Call, backend: str = "inductor") -> list[str]:
    """How the compiled call differs from eager, at the call's own size, at a larger one, and again."""
    stator.reset()
    options: dict[str, Any] = {"strict": True} | ({"verify": True, "cache": False} if backend == "inductor" else {})
    compiled, found = stator.compile(call.function(), backend=backend, options=options), []
    for each in dict.fromkeys([call, call.larger()]):
        function, operands = each.function(), each.operands

        def eager(operands: Sequence[Operand] = operands, function: Any = function, **how: Any) -> Seen:
            return observe(function, operands, **how)

        want, before = eager(), faults.total()
        if want.backward_failed is not None:  # of two dtypes some kernels of gradients take none, and ours both
            continue
        got = observe(compiled, operands)
        if want.failed is not None:
            if _said(got.failed) != _said(want.failed):
                found.append(f"eager raises {_said(want.failed)}, compiled: {_said(got.failed)}")
        else:
            coarse = max((EPSILON.get(o.dtype, 0.0) for o in operands), default=0.0)
            found += judged(got, eager, want, coarse)
        found += map(str, faults.recent(before))
    return found


def _said(error: BaseException | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {error}".split("\n")[0]


def failures(seeds: Iterator[int] | range, backend: str, name: str = "") -> Iterator[str]:
    """Of the calls of some seeds, those that differ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for seed in seeds:
            call = write(random.Random(seed), name)
            try:
                why = wrong(call, backend)
            except Exception:
                why = [traceback.format_exc()[-800:]]
            if why:
                yield f"# seed {seed}, {backend}\n{call}\n    " + "\n    ".join(why)


def main() -> int:
    """Prints the calls that differ; how many they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--loss", default="", choices=["", *LOSSES])
    args = parser.parse_args()
    count = 0
    for text in failures(range(args.seed, args.seed + args.count), args.backend, args.loss):
        print(text, flush=True)
        count += 1
    print(f"{args.count} calls, {count} wrong")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
