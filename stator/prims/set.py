"""The closed set: every ATen operator that may reach lowering, with its class, type rule and meaning.

`TABLE` is the whole truth on a few screens: one line an operator. Decompositions reduce all others
to these; what has neither a decomposition nor a line here still runs, as an extern call.
In add, sub, mul and div a number stands in the Tensor overload (`mul.Tensor(x, 0.5)`): a wrapped
number, exactly as in eager; elsewhere the dispatcher wants the Scalar overload, which stands in the same line.

Invariant: at most 120 lines; every overload that is not of class `extern` has a lowering.
Neighbours: `names.py` (short names), `table.py` (what reduces to these), `stator.lowering`.
"""

from __future__ import annotations

from typing import NamedTuple

from torch._ops import OpOverload

from stator.fake.overloads import overload
from stator.prims.types import TYPE_RULES, TypeRule


class Primitive(NamedTuple):
    """One line of the set: its class, the type rule of each result, what it means."""

    kind: str
    types: tuple[TypeRule, ...]
    meaning: str


#: class → lines of "operator.overload|overload -> type rule of each result: meaning" (`types.py` has the rules);
#: operators without a dot have `.default`.
TABLE: dict[str, str] = {
    "pointwise": """
        abs -> real: magnitude
        neg -> same: sign change
        exp -> float: e to the x
        exp2 -> float: 2 to the x
        expm1 -> float: exp(x) - 1 without cancellation
        log -> float: natural logarithm
        log2 -> float: base-2 logarithm
        log1p -> float: log(1 + x) without cancellation
        sqrt -> float: square root
        rsqrt -> float: 1 / sqrt(x)
        reciprocal -> float: 1 / x
        sin -> float: sine
        cos -> float: cosine
        tan -> float: tangent
        asin -> float: inverse sine
        acos -> float: inverse cosine
        atan -> float: inverse tangent
        sinh -> float: hyperbolic sine
        cosh -> float: hyperbolic cosine
        tanh -> float: hyperbolic tangent
        erf -> float: error function
        erfc -> float: 1 - erf(x)
        sigmoid -> float: 1 / (1 + exp(-x))
        sign -> same: -1, 0 or 1
        floor -> same: round down
        ceil -> same: round up
        trunc -> same: round towards zero
        round -> same: round half to even
        isnan -> bool: is not a number
        isinf -> bool: is an infinity
        bitwise_not -> same: all bits flipped (logical not of bool)
        add.Tensor -> promoted: a + alpha * b
        sub.Tensor -> promoted: a - alpha * b
        mul.Tensor -> promoted: a * b
        div.Tensor|Tensor_mode -> quotient: a / b, or its floor or trunc
        pow.Tensor_Tensor|Tensor_Scalar -> promoted: a to the b
        remainder.Tensor -> promoted: modulo with the sign of the divisor
        fmod.Tensor -> promoted: modulo with the sign of the dividend
        minimum -> promoted: smaller one, NaN wins
        maximum -> promoted: larger one, NaN wins
        atan2 -> float: angle of (b, a)
        eq.Tensor|Scalar -> bool: a == b
        ne.Tensor|Scalar -> bool: a != b
        lt.Tensor|Scalar -> bool: a < b
        le.Tensor|Scalar -> bool: a <= b
        gt.Tensor|Scalar -> bool: a > b
        ge.Tensor|Scalar -> bool: a >= b
        bitwise_and.Tensor -> promoted: bits of both
        bitwise_or.Tensor -> promoted: bits of one
        bitwise_xor.Tensor -> promoted: bits of exactly one
        bitwise_left_shift.Tensor -> promoted: a << b
        bitwise_right_shift.Tensor -> promoted: a >> b
        clamp -> promoted: no less than a number, no more than another
        where.self|ScalarSelf|ScalarOther -> promoted: a where the condition holds, else b
        clone -> same: copy, with a memory format
        _to_copy -> asked: copy with another dtype, device or memory format
        copy -> same: the second operand, in the size, strides and dtype of the first
        copy_ -> same: write the final value of a mutated input (end of a forward graph only)
    """,
    "reduction": """
        sum.dim_IntList -> total: sum over dims
        mean.dim -> asked: sum over dims / count
        prod.dim_int -> total: product over one dim
        amax -> same: largest over dims
        amin -> same: smallest over dims
        any.dims -> flag: whether one is non-zero over dims
        argmax -> int: position of the first largest
        argmin -> int: position of the first smallest
    """,
    "scan": """
        cumsum -> total: running sum
        cumprod -> total: running product
        cummax -> same, int: running maximum and where it was last
        cummin -> same, int: running minimum and where it was last
        logcumsumexp -> same: logarithm of the running sum of exponentials
    """,
    "view": """
        view -> same: same elements, another shape
        permute -> same: dims reordered
        expand -> same: size-1 dims repeated
        slice.Tensor -> same: every step-th of a range of one dim
        select.int -> same: one index of one dim
        unsqueeze -> same: a dim of size 1 more
        squeeze.dims -> same: dims of size 1 dropped
        as_strided -> same: elements by size, stride and offset of the storage
        diagonal -> same: the diagonal of two dims, as the last dim
        unfold -> same: sliding windows of one dim, as the last dim
        view.dtype -> asked: the same bits as another dtype
        view_as_real -> real: complex numbers as pairs
        view_as_complex -> complex: pairs as complex numbers
        _conj -> same: complex conjugate
        _neg_view -> same: sign change that is put off
    """,
    "index": """
        cat -> promoted: joined along one dim
        constant_pad_nd -> same: bordered with a constant
        flip -> same: dims reversed
        index.Tensor -> same: elements at integer positions, broadcast
        index_select -> same: slices at positions of one dim
        gather -> same: elements at positions along one dim
        slice_scatter -> same: copy with a slice replaced
        select_scatter -> same: copy with one index replaced
        index_put -> same: copy with elements at positions replaced or added to
        scatter.src -> same: copy with elements along one dim replaced
        scatter_add -> same: copy with elements along one dim added to
        scatter_reduce.two -> same: copy with elements along one dim combined with others
        index_add -> same: copy with slices at positions of one dim added to
        index_copy -> same: copy with slices at positions of one dim replaced
        index_reduce -> same: copy with slices at positions of one dim combined with others
        searchsorted.Tensor -> int: where in sorted rows elements belong
    """,
    "creation": """
        full -> filled: a constant
        full_like -> asked: a constant, with the strides of another
        arange.start_step -> filled: start + i * step
    """,
    "extern": """
        mm -> same: matrix product
        bmm -> same: matrix products of a batch
        addmm -> same: bias + matrix product
        convolution -> same: convolution of any rank
        convolution_backward -> same, same, same: its gradients
        _scaled_dot_product_flash_attention_for_cpu -> same, open: attention
        _scaled_dot_product_flash_attention_for_cpu_backward -> same, same, same: its gradients
        _scaled_dot_product_flash_attention -> same, open: attention on CUDA
        _scaled_dot_product_flash_attention_backward -> same, same, same: its gradients
        _scaled_dot_product_efficient_attention -> same, open: attention with a bias on CUDA
        _scaled_dot_product_efficient_attention_backward -> same, same, same, same: its gradients
        embedding_dense_backward -> same: gradient rows summed by index
        max_pool2d_with_indices -> same, int: largest of each window and where it was
        max_pool2d_with_indices_backward -> same: its gradient
        sort.stable -> same, int: sorted values and positions
    """,
}


def _parts(line: str) -> tuple[str, str, str]:
    declared, _, meaning = line.strip().partition(": ")
    names, _, rules = declared.partition(" -> ")
    return names, rules, meaning


def _read(table: dict[str, str]) -> dict[OpOverload, Primitive]:
    found: dict[OpOverload, Primitive] = {}
    for kind, lines in table.items():
        for line in lines.strip().splitlines():
            names, rules, meaning = _parts(line)
            operator, _, variants = names.partition(".")
            types = tuple(TYPE_RULES[rule] for rule in rules.split(", "))
            for variant in variants.split("|"):
                op = overload(f"{operator}.{variant}")
                if op is not None:
                    found[op] = Primitive(kind, types, meaning)
    return found


#: The set; `stator::random` and `stator::special` join it when `stator.prims` is imported.
PRIMITIVES: dict[OpOverload, Primitive] = _read(TABLE)
