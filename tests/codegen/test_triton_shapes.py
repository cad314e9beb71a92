"""Every operator, cast, reduction, scan and masked load of the loop IR in Triton, on blocks of every shape.

A value in a kernel is a number, or has the lanes of the outer points (x), of the reduce axes (r) or of both, and what
takes several of them has to give the right shape: Triton refuses some mixtures, and its helpers are written for
blocks. The kernels are made here, not by programs, so that no mixture depends on what a program happens to need.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import pytest

from stator.base.dtypes import ITEMSIZE
from stator.codegen import triton
from stator.codegen.triton.operators import BOOLEAN, spelling
from stator.loop import scalar
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel, Param, Store
from stator.loop.verify import verify_kernel
from stator.targets import typical
from tests.codegen import hopper
from tests.codegen.harness import e, kernel

#: Outer points and points of the reduce axes: one element, a block, several, a persistent row, a row walked in a loop.
FRAMES: dict[str, tuple[int, int]] = {
    "one": (1, 0), "flat": (300, 0), "row": (1, 7), "rows": (5, 7), "point": (1, 1), "loop": (3, 20000),
}  # fmt: skip
SPREAD = 1 << 20


class Frame:
    """The axes of a kernel, and values of every shape that it has."""

    def __init__(self, points: int, reduced: int) -> None:
        self.x = Axis("x0", points)
        self.r = Axis("r0", reduced) if reduced else None
        self.shapes = ["none", "x"] + (["r", "xr"] if reduced else [])
        self.params: dict[str, Param] = {}
        self.stores: list[Store] = []

    def position(self, shape: str) -> Index:
        position = Index.of(self.x) * 3 if "x" in shape else Index.of(0)
        return position + Index.of(self.r) if "r" in shape and self.r is not None else position

    def load(self, dtype: str, shape: str, number: int = 0, position: Index | None = None) -> Expr:
        param = self.params.setdefault(f"{dtype}{number}", Param(f"p{len(self.params)}", dtype, "in", SPREAD))
        return e.load(param.name, self.position(shape) if position is None else position, dtype)

    def store(self, value: Expr, inner: bool = False) -> None:
        """Written for each outer point, or for each point of both."""
        param = Param(f"p{len(self.params)}", value.dtype, "out", SPREAD)
        self.params[param.name] = param
        where = Index.of(self.x) * (self.r.size if inner and self.r is not None else 1)
        where = where + Index.of(self.r) if inner and self.r is not None else where
        self.stores.append(Store(param.name, where, value, "inner" if inner else "outer"))

    def show(self, value: Expr, shape: str) -> None:
        """Store a value that has some shape."""
        self.store(value, inner="r" in shape)

    def kernel(self) -> Kernel:
        reduced = (self.r,) if self.r is not None else ()
        return kernel((self.x,), reduced, tuple(self.stores), tuple(self.params.values()))


def merged(*shapes: str) -> str:
    return "".join(letter for letter in "xr" if any(letter in shape for shape in shapes if shape != "none"))


def operands(frame: Frame, dtypes: Sequence[str]) -> Iterator[tuple[list[Expr], str]]:
    """Operands of the dtypes in every mixture of shapes, constants among them."""
    for shapes in itertools.product(["const", *frame.shapes], repeat=len(dtypes)):
        if all(shape == "const" for shape in shapes):
            continue
        made = [
            e.const(1, dtype) if shape == "const" else frame.load(dtype, shape, i)
            for i, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))
        ]
        yield made, merged(*[shape for shape in shapes if shape != "const"])


def legal(name: str) -> Iterator[list[str]]:
    """What dtypes an operator takes."""
    arity = scalar.OPS[name].arity
    for dtype in sorted(scalar.COMPUTED):
        dtypes = ["bool", dtype, dtype] if scalar.OPS[name].rule == "where" else [dtype] * arity
        try:
            scalar.result_dtype(name, tuple(dtypes))
            spelling(name, dtype)
        except (TypeError, KeyError):
            continue
        if dtype != "bool" or name in BOOLEAN or scalar.OPS[name].rule != "same":  # eager has no others of flags
            yield dtypes


def operator_kernels(frame: str) -> Iterator[Kernel]:
    for name in scalar.OPS:
        for dtypes in legal(name):
            made = Frame(*FRAMES[frame])
            for values, shape in operands(made, dtypes):
                made.show(e.op(name, *values), shape)
            yield made.kernel()


def special_kernels(frame: str) -> Iterator[Kernel]:
    """Casts, bitcasts and random numbers of every shape."""
    for source in ITEMSIZE:
        made = Frame(*FRAMES[frame])
        for shape, target in itertools.product(made.shapes, ITEMSIZE):
            value = made.load(source, shape)
            made.show(e.cast(value, target), shape)
            if ITEMSIZE[source] == ITEMSIZE[target] and "bool" not in (source, target):
                made.show(e.bitcast(value, target), shape)
        yield made.kernel()
    for kind in ("uniform", "normal"):
        made = Frame(*FRAMES[frame])
        for shape, dtype in itertools.product(made.shapes, ("f32", "f64")):
            seed = made.load("i64", "none")
            made.show(e.random(kind, seed, e.index(made.position(shape)), dtype), shape)
            made.show(e.random(kind, seed, made.load("i64", shape, 1), dtype), shape)
        yield made.kernel()


def mask_kernels(frame: str) -> Iterator[Kernel]:
    """Loads under no mask, one and two, at positions that are computed, of every shape, from reductions too."""
    conditions = [None, *Frame(*FRAMES[frame]).shapes]
    for outer, inner in itertools.product(conditions, conditions):
        made = Frame(*FRAMES[frame])
        for shape, value in placed(made):
            masks = [made.load("bool", mask, number) for number, mask in enumerate((inner, outer)) if mask is not None]
            for mask in masks:
                value = e.masked(mask, value, e.const(2, "f32"))
            made.show(value, merged(shape, inner or "", outer or ""))
        yield made.kernel()


def placed(frame: Frame) -> Iterator[tuple[str, Expr]]:
    """Loads at positions of every shape: plain, loaded, and computed of reductions."""
    for shape in frame.shapes:
        yield shape, frame.load("f32", shape)
        found = frame.load("i64", shape, 2)
        for other in frame.shapes:
            at = e.to_index(found, 100) + frame.position(other)
            yield merged(shape, other), frame.load("f32", "", 0, at)
    if frame.r is not None:
        for shape in ("none", "x", "r", "xr"):
            most = e.reduce("max", frame.load("i64", "xr", 3))
            yield merged(shape), frame.load("f32", "", 0, e.to_index(most, 100) + frame.position(shape))
        scanned = e.scan("sum", frame.load("i64", "r", 4))
        yield "r", frame.load("f32", "", 0, e.to_index(scanned, 100))


def reduction_kernels(frame: str) -> Iterator[Kernel]:
    """Reductions and scans of every dtype, of bodies of every shape, constants too."""
    for dtype in scalar.COMPUTED:
        for kind, of in [*[(kind, e.reduce) for kind in scalar.REDUCTIONS], *[(kind, e.scan) for kind in scalar.SCANS]]:
            made = Frame(*FRAMES[frame])
            bodies = [("const", e.const(1, dtype)), *[(shape, made.load(dtype, shape)) for shape in made.shapes]]
            try:
                values = [of(kind, body) for _, body in bodies]
            except TypeError:
                continue
            for value in values:
                made.store(value, inner=of is e.scan)
            if of is e.reduce:
                made.store(e.op("ne", values[-1], values[-2]), inner=False)
                made.store(e.op("eq", values[-1], e.cast(made.load(dtype, "xr"), values[-1].dtype)), inner=True)
            yield made.kernel()


FAMILIES = {
    "operators": operator_kernels,
    "special": special_kernels,
    "masks": mask_kernels,
    "reductions": reduction_kernels,
}
CASES = [(family, frame) for family in FAMILIES for frame in FRAMES if family != "reductions" or FRAMES[frame][1]]


@pytest.mark.parametrize(("family", "frame"), CASES)
def test_triton_takes_every_shape(family: str, frame: str) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    kernels = list(FAMILIES[family](frame))
    assert kernels
    hopper.parsed(kernels)


@pytest.mark.parametrize(("family", "frame"), CASES)
def test_loads_are_as_wide_as_their_masks(family: str, frame: str) -> None:
    """The same without Triton: a load's pointers have all lanes of its mask, and no name is used before it is given."""
    for made in FAMILIES[family](frame):
        verify_kernel(made)
        check_lanes(triton.emit([made], typical("cuda")).split("def k0(")[1].split("LAUNCHES")[0])


def check_lanes(text: str) -> None:
    flat = "x = x[:, None]" not in text
    lanes: dict[str, set[str]] = {"x": {"x"}, "xm": {"x"}}
    for line in text.split("):\n", 1)[1].splitlines():
        names, assigned, value = line.strip().partition(" = ")
        if not assigned:
            continue
        used = re.findall(r"\b(?:[tx]\d+[a-z_]*|r\d+|[xr]m|r)\b", value)
        assert set(used) <= lanes.keys(), line
        found = set().union(*[lanes[word] for word in used])
        if value.endswith("[:, None]"):
            found = {"x"}
        elif "[X, R]" in value:
            found = {"x", "r"}
        elif names == "r":
            found = {"r"}
        if value.startswith("tl.load(") and value.endswith("other=0)"):
            place, mask = value.removesuffix(", other=0)").rsplit(", ", 1)
            wide, narrow = (
                set().union(*[lanes[word] for word in re.findall(r"\b[a-z]\w*\b", part) if word in lanes])
                for part in (place, mask)
            )
            assert narrow <= wide, line
        for name in names.split(", "):
            lanes[name] = found - ({"r"} if flat else set())


@pytest.mark.parametrize("name", ["neg", "abs", "add", "sub", "mul", "floordiv", "mod", "pow"])
def test_short_numbers_are_cut_where_ptxas_does_not(name: str) -> None:
    """`ptxas` extends what `neg.s16` and `abs.s16` give without wrapping it, so that -(-32768) > 0."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    made = Frame(300, 0)
    arity = scalar.OPS[name].arity
    loaded = [made.load("i16", "x", i) for i in range(arity)]
    choices = [loaded, *([[loaded[0], e.const(-1, "i16")], [e.const(0, "i16"), loaded[0]]] if arity == 2 else [])]
    for values in choices:
        value = e.op(name, *values)
        made.store(e.op("gt", value, made.load("i16", "x", 2)))
        made.store(e.cast(value, "i64"))
        made.store(e.op("shr", value, e.const(1, "i16")))
        widened = e.op(name, *[e.cast(v, "i32") for v in values])
        made.store(e.op("gt", e.cast(widened, "i16"), made.load("i16", "x", 2)))
    for stages in hopper.built([made.kernel()]):
        lines = [line.strip() for line in stages["ptx"].splitlines()]
        signed = {line.split()[1].rstrip(",") for line in lines if re.match(r"(neg|abs)\.s16|sub\.s16\s+\S+ 0,", line)}
        for line in lines:
            reads = re.findall(r"%rs\d+", line.partition(",")[2])
            assert not (signed & set(reads)) or line.startswith("cvt.u32.u16"), line


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_quotients_of_the_lowest_number_may_wrap(name: str, dtype: str) -> None:
    """LLVM takes `x // -1` for a negation that stays in range, and tells the sign of the result by that of `x`."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    made = Frame(300, 0)
    value = e.op(name, made.load(dtype, "x", 0), e.const(-1, dtype))
    made.store(value)
    made.store(e.cast(value, "f32"))
    for stages in hopper.built([made.kernel()]):
        assert not re.findall(r"= sub nsw i\d+ 0,", stages["llir"])


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_the_lowest_number_is_its_own_absolute_value(dtype: str) -> None:
    """`ptxas` takes what `abs.s32` gives to be no less than 0, and drops the sign of a float made of it."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    made = Frame(300, 0)
    x, limit = made.load(dtype, "x", 0), made.load(dtype, "x", 1)
    negative = e.op("lt", x, e.const(0, dtype))
    for value in (e.op("abs", x), e.op("where", negative, e.op("neg", x), x)):
        made.store(e.op("gt", value, limit))
        made.store(e.cast(value, "f32"))
        made.store(e.cast(value, "f64"))
    for stages in hopper.built([made.kernel()]):
        assert not re.findall(r"\sabs\.s\d+", stages["ptx"])
