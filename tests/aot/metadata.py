"""Random programs that ask what tensors are, and whose results are asked: `python -m tests.aot.metadata --count 500`.

Inputs lie in memory in every way: stepped, expanded, overlapping each other, behind an offset, channels last, with a
pending conjugation or negation, 0-dim, empty. Statements cut views, write in place and through `out=`, and mix dtypes,
0-dim tensors and Python numbers. Questions are asked inside of the program and of what a call leaves: dtype, strides,
offset, who shares memory with whom and is a view of whom, versions of inputs, leaves and histories. Eager's answers are
right, and what it refuses has to be refused. Neighbours: `histories.py` (histories alone, and later gradients),
`relations.py` (programs by hand).
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import stator
from stator.base import faults
from stator.base.errors import StatorError, StatorWarning

DTYPES = (
    torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip
#: How an input lies in memory.
LAYOUTS = (
    "plain", "plain", "transposed", "stepped", "expanded", "offset", "channels last", "conjugate", "negative",
    "0-dim", "empty", "one", "view of a leaf", "overlapping", "same", "window",
)  # fmt: skip
NUMBERS = (
    "2", "2.5", "True", "-1", "0", "1j", "3", "0.5", "2**40",
)  # fmt: skip
BINARY = (
    "+", "-", "*", "/", "//", "%", "**", "==", "<", "&", "|", "@",
)  # fmt: skip
UNARY = (
    "-{}", "abs({})", "~{}", "{}.sin()", "{}.sum()", "{}.mean(0)", "{}.float()", "{}.to(torch.float64)",
    "{}.cumsum(0)", "{}.sum(0, dtype=torch.int32)", "{}.clamp(0, 1)", "{}.clone()", "{}.contiguous()",
    "torch.zeros_like({})", "{}.round()", "{}.argmax()", "{}.amax(-1, keepdim=True)", "torch.softmax({}, -1)",
    "{}.to({})", "{}.type_as({})", "torch.where({} > 0, {}, 1)", "torch.where({} > 0, {}, {})",
    "torch.result_type({}, {})", "{}.new_ones(2)", "torch.cat([{}, {}])", "torch.stack([{}, {}])",
    "torch.add({}, {}, alpha=2)", "{}.lerp({}, 0.5)", "{}.conj() * 1", "torch.empty_like({}).copy_({})",
    "torch.clamp({}, max={})", "torch.maximum({}, {})", "{}.masked_fill({} > 0, 2.5)", "{}.bool()",
    "{}.repeat_interleave(2)", "torch.atleast_1d({})", "{}.to(torch.float32)", "{}.tile(2)", "{}.prod()",
    "torch.full_like({}, 2)", "{}.norm()", "{}.std()", "{}.sort(-1)[0]", "{}.flip(0)", "{}.roll(1)", "{}.tril()",
    "torch.scalar_tensor(2.0) * {}", "torch.tensor(3) + {}", "{}.double() * torch.tensor(1.5)", "{} * {}.sum()",
)  # fmt: skip
VIEWS = (
    "{}[1:]", "{}[0]", "{}.t()", "{}.view(-1)", "{}.reshape(-1)", "{}.T", "{}.mT", "{}.unsqueeze(0)", "{}.squeeze()",
    "{}.expand(2, *{}.shape)", "{}.detach()", "{}.data", "{}[..., ::2]", "{}.real", "{}.imag", "{}.conj()",
    "{}.view_as({})", "{}.flatten()", "{}.diagonal()", "{}[:, 1]", "{}.narrow(0, 0, 1)", "{}.unbind(0)[0]",
    "{}.chunk(2)[-1]", "{}.as_strided((2,), (1,))", "{}.movedim(0, -1)", "{}.contiguous()", "torch.view_as_real({})",
    "{}.resolve_conj()", "{}.adjoint()", "{}[None]", "{}.view({}.dtype)", "{}.to({}.dtype)", "{}.expand_as({})",
    "torch._neg_view({})", "{}.resolve_neg()", "{}.alias()", "{}.unfold(0, 2, 1)",
    "{}.swapaxes(0, -1)", "{}.ravel()", "{}.reshape(({}).shape)", "{}.permute(*range({}.dim())[::-1])",
    "{}.select(-1, 0)", "{}.split(1)[0]", "{}.H", "{}.broadcast_to({}.shape)",
    "{}.positive()", "+{}",
)  # fmt: skip
WRITES = (
    "{}.add_(1)", "{}.mul_({})", "{}.copy_({})", "{}.zero_()", "{}.neg_()", "{}[0] = 1", "{} += {}", "{} *= 2.5",
    "{}.t_()", "{}.unsqueeze_(0)", "{}.squeeze_()", "{}[..., 0] = {}", "{}.fill_(True)", "{}.div_(2)",
    "{}.clamp_(0, 1)", "{}.sub_({})", "{}.requires_grad_()", "{}.detach_()", "with torch.no_grad(): {}.add_(1)",
    "{}.data.mul_(2)", "{}.conj_physical_()", "{}[{} > 0] = 0", "{}.masked_fill_({} > 0, 1)", "{}.transpose_(0, -1)",
    "{}.exp_()", "{}.floor_()", "{}.pow_(2)", "{}.eq_({})", "{}.set_({})", "{}.swapaxes_(0, -1)",
     "{}.lerp_({}, 0.5)", "{}.bitwise_and_(1)", "{}.logical_not_()", "{}.floor_divide_(2)",
    "{}.addcmul_({}, {})", "{}.cumsum_(0)", "{} -= {}.mean()", "{}.as_strided_((2,), (1,))", "{} //= 2", "{} **= 2",
    "{} &= {}", "{}.index_fill_(0, torch.tensor([0]), 2)",
)  # fmt: skip
OUTS = (
    "torch.add({}, {}, out={})", "torch.mul({}, 2.5, out={})", "torch.sin({}, out={})", "torch.sum({}, 0, out={})",
    "torch.cumsum({}, 0, out={})", "torch.eq({}, {}, out={})", "torch.abs({}, out={})", "torch.neg({}, out={})",
    "torch.stack([{}, {}], out={})", "torch.cat([{}, {}], out={})", "torch.mm({}, {}, out={})",
    "torch.argmax({}, out={})", "torch.clamp({}, 0, 1, out={})", "torch.where({} > 0, {}, {}, out={})",
    "torch.mean({}, 0, out={})", "torch.softmax({}, -1, out={})", "torch.floor({}, out={})",
    "torch.logical_not({}, out={})", "torch.pow({}, 2, out={})", "torch.arange(6, out={})",
    "torch.full((2,), 3, out={})", "torch.real({}).add_(1)", "torch.take({}, torch.tensor([0]), out={})",
)  # fmt: skip
#: What is asked of a tensor `t`, beside `x0`, inside of the program.
QUESTIONS = (
    "{}.dtype", "{}.stride()", "{}.storage_offset()", "{}._is_view()", "{}._base is x0", "{}._base is None",
    "{}.requires_grad", "{}.is_leaf", "{}.grad_fn is None", "{}.is_conj()", "{}.is_neg()", "{}._version",
    "{}.is_contiguous()", "{}.data_ptr() == x0.data_ptr()", "{} is x0", "{}.shape", "{}.numel()", "{}.is_set_to(x0)",
    "{}.type()", "{}.untyped_storage().nbytes()", "{}.is_contiguous(memory_format=torch.channels_last)",
    "len({}.shape)", "{}.untyped_storage().data_ptr() == x0.untyped_storage().data_ptr()", "{}.retains_grad",
    "{}.output_nr", "{}.itemsize", "{}.is_floating_point()", "{}.is_signed()", "{}.element_size()",
    "{}.grad is None", "{}.dim_order()", "{}.nbytes", "{}.is_non_overlapping_and_dense()",
    "torch.is_same_size({}, x0)", "torch.can_cast({}.dtype, x0.dtype)",
)  # fmt: skip


@dataclass(frozen=True)
class Given:
    """An input: how it lies in memory, its dtype, whether it takes gradients; `seed` of its numbers."""

    layout: str
    dtype: torch.dtype
    grad: bool = False
    seed: int = 0

    def build(self, first: Tensor | None) -> Tensor:
        """The tensor; `first` is the first input, for those that share its memory."""
        if self.layout in ("overlapping", "same", "window") and first is not None and first.numel() > 1:
            with torch.no_grad():
                flat = first.detach()
                if self.layout == "same":
                    return flat.view_as(flat)
                if self.layout == "overlapping" and first.dim():
                    return flat[:-1] if first.shape[0] > 1 else flat
                return flat.as_strided((2, 2), (1, 1), flat.storage_offset())
        generator = torch.Generator().manual_seed(self.seed)
        numbers = torch.randint(-3, 4, (3, 4), generator=generator).to(self.dtype)
        if self.dtype.is_complex:
            numbers = numbers + 1j * torch.randint(-3, 4, (3, 4), generator=generator)
        made = self._laid_out(numbers)
        if self.grad and (made.is_floating_point() or made.is_complex()):
            made.requires_grad_()
            if self.layout == "view of a leaf":
                made = made[:, 1:]
        return made

    def _laid_out(self, numbers: Tensor) -> Tensor:
        match self.layout:
            case "transposed":
                return numbers.t().contiguous().t()
            case "stepped":
                return torch.zeros(3, 9, dtype=self.dtype)[:, 1::2].copy_(numbers)
            case "expanded":
                return numbers[:1].expand(3, 4)
            case "offset":
                return torch.zeros(15, dtype=self.dtype)[3:].view(3, 4).copy_(numbers)
            case "channels last":
                return numbers.view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
            case "conjugate":
                return numbers.conj()
            case "negative":
                return torch._neg_view(numbers) if self.dtype is not torch.bool else numbers
            case "0-dim":
                return numbers[0, 0].clone()
            case "empty":
                return numbers[:0].clone()
            case "one":
                return numbers[:1, :1].clone()
        return numbers


@dataclass(frozen=True)
class Program:
    """Inputs x0, x1, …, statements, and the names that are returned."""

    inputs: tuple[Given, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def source(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        return (
            f"def f({names}):\n"
            + "".join(f"    {line}\n" for line in self.lines)
            + (f"    return [{', '.join(self.outputs)}]\n")
        )

    def function(self) -> Callable[..., Any]:
        """The function, newly made."""
        space: dict[str, Any] = {"torch": torch}
        exec(compile(self.source, "<program>", "exec"), space)
        return space["f"]  # type: ignore[no-any-return]

    def build(self) -> list[Tensor]:
        """Fresh inputs."""
        made: list[Tensor] = []
        for given in self.inputs:
            made.append(given.build(made[0] if made else None))
        return made

    def __str__(self) -> str:
        return self.source + "".join(f"    x{i}: {given}\n" for i, given in enumerate(self.inputs))


def write(rng: random.Random) -> Program:
    """A random program. What eager refuses alone is mostly left out, but for some."""
    main = rng.choice(DTYPES)
    inputs = []
    for i in range(rng.randint(1, 3)):
        dtype = rng.choice((main, main, rng.choice(DTYPES)))
        layout = rng.choice(LAYOUTS[: None if i else -3])
        inputs.append(
            Given(layout, torch.complex64 if layout == "conjugate" else dtype, rng.random() < 0.4, rng.randint(0, 99))
        )
    program = Program(tuple(inputs), (), ())
    names, asked = [f"x{i}" for i in range(len(inputs))], 0
    lines: list[str] = []
    wanted, tries = rng.randint(2, 10), 0
    while len(lines) < wanted and tries < 50:
        tries += 1
        kind = rng.choices(("unary", "binary", "view", "write", "out", "ask"), (4, 4, 6, 4, 2, 5))[0]
        line, made = _line(rng, kind, names, len(lines))
        if made:
            asked_now = [*names, made]
        else:
            asked_now = names
        trial = replace(program, lines=(*lines, line), outputs=tuple(asked_now))
        if not _runs(trial) and rng.random() > 0.03:
            continue
        lines.append(line)
        names = asked_now
        asked += kind == "ask"
        if not _runs(trial):
            break
    outputs = rng.sample(names, min(len(names), rng.choice((1, 2, 3, 4))))
    outputs += [name for name in names if name.startswith("q") and name not in outputs]
    return replace(program, lines=tuple(lines), outputs=tuple(outputs))


def _line(rng: random.Random, kind: str, names: Sequence[str], number: int) -> tuple[str, str]:
    tensors = [name for name in names if not name.startswith("q")]
    recent = tensors[-3:]

    def pick() -> str:
        return rng.choice(recent if rng.random() < 0.6 else tensors)

    def filled(template: str) -> str:
        one = pick()
        parts = template.split("{}")
        return parts[0] + "".join(
            (one if i == 0 or rng.random() < 0.5 else pick()) + p for i, p in enumerate(parts[1:])
        )

    match kind:
        case "ask":
            return f"q{number} = {filled(rng.choice(QUESTIONS))}", f"q{number}"
        case "write":
            return filled(rng.choice(WRITES)), ""
        case "out":
            return filled(rng.choice(OUTS)), ""
        case "view":
            return f"v{number} = {filled(rng.choice(VIEWS))}", f"v{number}"
        case "binary":
            a, b = pick(), rng.choice((pick(), rng.choice(NUMBERS)))
            a, b = (b, a) if rng.random() < 0.3 else (a, b)
            return f"v{number} = {a} {rng.choice(BINARY)} {b}", f"v{number}"
    return f"v{number} = {filled(rng.choice(UNARY))}", f"v{number}"


def _runs(program: Program) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.function()(*program.build())
    except Exception:
        return False
    return True


# ---- judging ---------------------------------------------------------------------------------------------------------


def seen(program: Program, function: Callable[..., Any]) -> dict[str, Any]:
    """All that a caller can ask after a call."""
    inputs = program.build()
    torch.manual_seed(0)
    versions = [t._version for t in inputs]
    told: dict[str, Any] = {}
    try:
        out = function(*inputs)
    except Exception as error:
        out, told["error"] = [], (type(error).__name__, str(error).split("\n")[0])
    results = [item for item in out if isinstance(item, Tensor)]
    told["answers"] = [item if not isinstance(item, Tensor) else "tensor" for item in out]
    named = {**{f"x{i}": t for i, t in enumerate(inputs)}, **{f"result {i}": t for i, t in enumerate(results)}}
    for name, t in named.items():
        told[name] = _facts(t)
    told["written"] = [t._version - before for t, before in zip(inputs, versions, strict=True)]
    told["relations"] = {
        (a, b): (s is t, _shares(s, t), s._base is t, s is not t and s._base is not None and s._base is t._base)
        for i, (a, s) in enumerate(named.items())
        for b, t in list(named.items())[:i]
    }
    return told


def _shares(a: Tensor, b: Tensor) -> Any:
    if not a.untyped_storage().nbytes() or a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return None
    return a.storage_offset() * a.itemsize - b.storage_offset() * b.itemsize


def _facts(t: Tensor) -> dict[str, Any]:
    try:
        history: Any = t.requires_grad, t.is_leaf, t.grad_fn is None
    except RuntimeError as error:
        history = type(error).__name__
    try:
        value: Any = t.detach().clone()
    except RuntimeError as error:  # there is no kernel for what is pending
        value = str(error)
    return {
        "value": value, "dtype": t.dtype, "shape": tuple(t.shape), "stride": t.stride(),
        "pending": (t.is_conj(), t.is_neg()), "history": history, "retains": t.retains_grad,
    }  # fmt: skip


def differing(mine: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """The places where two descriptions differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in theirs.keys() | mine.keys():
            if key not in mine or key not in theirs:
                yield f"{where} {key}: {mine.get(key, 'nothing')} for {theirs.get(key, 'nothing')}"
            else:
                yield from differing(mine[key], theirs[key], f"{where} {key}")
    elif isinstance(mine, Tensor) and isinstance(theirs, Tensor):
        same = mine.dtype is theirs.dtype and mine.shape == theirs.shape
        tolerance = {} if mine.dtype not in (torch.float16, torch.bfloat16) else {"rtol": 0.02, "atol": 0.02}
        if not (same and torch.allclose(mine, theirs, equal_nan=True, **tolerance)):
            yield f"{where}: {mine} for {theirs}"
    elif mine != theirs:
        yield f"{where}: {mine} for {theirs}"


def wrong(program: Program, backend: str = "aot_eager", **arguments: Any) -> list[str]:
    """What the compiled program shows that eager does not, in two calls; faults of ours are differences."""
    stator.reset()
    options = {"cache": False} if backend == "inductor" else {}
    compiled = stator.compile(program.function(), backend=backend, options=options, **arguments)
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", StatorWarning)
        before = faults.total()
        want = seen(program, program.function())
        for call in (1, 2):
            found += [f"call {call}{line}" for line in differing(seen(program, compiled), want)]
            if found:
                break
        found += map(str, faults.recent(before))
    return found


def shortened(program: Program, backend: str) -> Program:
    """With as few statements, inputs that take gradients and outputs as still differ."""
    going = True
    while going:
        going = False
        for smaller in _smaller(program):
            try:
                if wrong(smaller, backend) and "NameError" not in str(seen(smaller, smaller.function()).get("error")):
                    program, going = smaller, True
                    break
            except StatorError:
                continue
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for i in range(len(program.lines)):
        lines = (*program.lines[:i], *program.lines[i + 1 :])
        gone = program.lines[i].partition(" = ")[0]
        yield replace(program, lines=lines, outputs=tuple(o for o in program.outputs if o != gone))
    for i in range(len(program.outputs)):
        yield replace(program, outputs=(*program.outputs[:i], *program.outputs[i + 1 :]))
    for i, given in enumerate(program.inputs):
        for other in (replace(given, grad=False), replace(given, layout="plain"), replace(given, dtype=torch.float32)):
            if other != given:
                yield replace(program, inputs=(*program.inputs[:i], other, *program.inputs[i + 1 :]))
    if len(program.inputs) > 1 and f"x{len(program.inputs) - 1}" not in " ".join((*program.lines, *program.outputs)):
        yield replace(program, inputs=program.inputs[:-1])


def main() -> int:
    """Prints the programs that differ; how many they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="aot_eager")
    args = parser.parse_args()
    count = 0
    for seed in range(args.seed, args.seed + args.count):
        program = write(random.Random(seed))
        try:
            why = wrong(program, args.backend)
        except Exception:
            why = [traceback.format_exc()[-800:]]
        if why:
            count += 1
            short = shortened(program, args.backend)
            print(f"# seed {seed}\n{short}#   {(wrong(short, args.backend) or why)[:3]}\n", flush=True)
    print(f"{args.count} programs, {count} wrong")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
