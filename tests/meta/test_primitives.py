"""All that there is to say about a primitive is said: `prims/set.py` has its line, and here are the other places.

The packages have directions, so what C++ or Triton write for a scalar operator cannot stand in the line of the set. A
primitive that a place leaves out is named here, with the place; one that a place has and the set does not as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from stator.aot.checks import CHECKED
from stator.codegen.c import spelling as c
from stator.codegen.cpp import ops as cpp
from stator.codegen.triton import operators as triton
from stator.fake.execute import RULES
from stator.loop.scalar import COMPUTED, OF_GPUS, OPS, result_dtype
from stator.lowering import LOWERINGS
from stator.lowering import special_functions as formulas
from stator.lowering.complex import PAIRED
from stator.passes import checks
from stator.prims import DECOMPOSITIONS, PRIMITIVES, names, special_functions
from stator.prims.types import left_open

#: Primitive → why it has no lowering of its own.
NOT_LOWERED = {"aten.copy_.default": "the end of a graph, which the engine writes"}
#: Calls of libraries that passes make, what becomes one or a loop, and what capture makes of attention.
MADE_BY_PASSES = {
    "mkldnn._convolution_pointwise.default",
    "stator.multiply_pairs.default",
    "stator.multiply_pixels.default",
    "stator.scores.default",
    "stator.attend.default",
}
#: Scalar operators that no graph has on bools, because eager refuses them.
NOT_OF_BOOLS: dict[str, Callable[..., Any]] = {
    "floordiv": torch.floor_divide, "mod": torch.remainder, "pow": torch.pow, "neg": torch.neg,
    "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}  # fmt: skip
#: Short names of what is no primitive.
OTHER_NAMES = {"alias": "the tracer makes it without a node"}


def has_shape(op: OpOverload) -> bool:
    """Whether fakes know its results: by a rule, or by PyTorch's own."""
    keys = ("Meta", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
    return op in RULES or any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys)


def missing(op: OpOverload) -> list[str]:
    """The places that leave a primitive out."""
    line = PRIMITIVES[op]
    each_result = len(line.types) == len(op._schema.returns) or line.types[-1] is left_open
    lowered = line.kind == "extern" or op in LOWERINGS or str(op) in NOT_LOWERED
    at_positions = line.kind == "index" and op in CHECKED
    places: dict[str, bool] = {
        "prims/set.py: a meaning": bool(line.meaning),
        "prims/set.py: a type rule for each result": each_result,
        "fake/rules*.py: the shape of its results": has_shape(op),
        "lowering/: its loops": lowered,
        "loop/scalar.py: the scalar operator that its line names": line.scalar is None or line.scalar in OPS,
        "passes/checks.py: whether its kernel checks positions": at_positions == (op in checks.READS | checks.WRITES),
    }
    return [place for place, known in places.items() if not known]


@pytest.mark.parametrize("op", PRIMITIVES, ids=str)
def test_every_place_knows_the_primitive(op: OpOverload) -> None:
    assert not missing(op)


@pytest.mark.parametrize("table", [LOWERINGS, PAIRED], ids=["lowerings", "lowerings of complex numbers"])
def test_no_place_knows_what_is_no_primitive(table: dict[OpOverload, Any]) -> None:
    assert {str(op) for op in table if op not in PRIMITIVES} <= MADE_BY_PASSES


def test_only_what_needs_one_has_a_function() -> None:
    """A line that names a scalar operator is lowered from the line; `LOWERINGS` refuses a second function."""
    own = [
        op for op, line in PRIMITIVES.items() if line.scalar and LOWERINGS[op].__module__ != "stator.lowering.pointwise"
    ]
    assert own == []
    with pytest.raises(ValueError, match="has a lowering already"):
        LOWERINGS.register("exp")(lambda *args: None)


def test_short_names_are_of_primitives() -> None:
    named = {name: op for name, op in vars(names).items() if isinstance(op, OpOverload)}
    others = {name for name, op in named.items() if op not in PRIMITIVES and op not in DECOMPOSITIONS}
    assert others == set(OTHER_NAMES)


@pytest.mark.parametrize("name", OPS)
def test_scalar_operators_are_written_for_every_target(name: str) -> None:
    """`loop/scalar.py` says what it computes; how it is written is each target's."""
    assert (name in cpp.TEXT) != (name in OF_GPUS)
    taken = []
    for dtype in sorted(COMPUTED):
        dtypes = ("bool", dtype, dtype) if OPS[name].rule == "where" else (dtype,) * OPS[name].arity
        with contextlib.suppress(TypeError):  # it does not take this dtype
            result_dtype(name, dtypes)
            taken.append(dtype)
    assert taken
    for dtype in taken:
        if dtype == "bool" and name in NOT_OF_BOOLS:
            with pytest.raises(RuntimeError):
                NOT_OF_BOOLS[name](*[torch.tensor([True])] * OPS[name].arity)
            continue
        assert dtype != "bool" or name in cpp.ON_MASKS, dtype
        assert name in OF_GPUS or "a" in c.operator(name, dtype, dtype, ["a", "b", "c"][: OPS[name].arity])
        assert "{0}" in triton.spelling(name, dtype), dtype


def test_special_functions_have_a_formula_each() -> None:
    assert set(formulas.FUNCTIONS) == set(special_functions.FUNCTIONS)
