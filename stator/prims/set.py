"""The closed set: every ATen operator that may reach lowering, with its class, type rule, scalar operator and meaning.

`TABLE` is the whole truth on a few screens: one line an operator. An operator that is one of the loop IR's scalar
operators on each element is lowered from its line; the others have a function in `stator.lowering`. Decompositions
reduce all others to these; what has neither a decomposition nor a line here still runs, as an extern call.
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
    """One line of the set: its class, the type rule of each result, what it means, and the operator of `loop/scalar.py`
    that it is on each element, if it is one."""

    kind: str
    types: tuple[TypeRule, ...]
    meaning: str
    scalar: str | None = None


#: class → lines of "operator.overload|overload -> type rule of each result = scalar operator: meaning" (`types.py` has
#: the rules); operators without a dot have `.default`; `-` where one overload of several is no scalar operator.
TABLE: dict[str, str] = {
    "pointwise": """
        abs -> real: magnitude
        neg -> same = neg: sign change
        exp -> float = exp: e to the x
        exp2 -> float = exp2: 2 to the x
        expm1 -> float = expm1: exp(x) - 1 without cancellation
        log -> float = log: natural logarithm
        log2 -> float = log2: base-2 logarithm
        log1p -> float = log1p: log(1 + x) without cancellation
        sqrt -> float = sqrt: square root
        rsqrt -> float = rsqrt: 1 / sqrt(x)
        reciprocal -> float = reciprocal: 1 / x
        sin -> float = sin: sine
        cos -> float = cos: cosine
        tan -> float = tan: tangent
        asin -> float = asin: inverse sine
        acos -> float = acos: inverse cosine
        atan -> float = atan: inverse tangent
        sinh -> float = sinh: hyperbolic sine
        cosh -> float = cosh: hyperbolic cosine
        tanh -> float = tanh: hyperbolic tangent
        erf -> float = erf: error function
        erfc -> float = erfc: 1 - erf(x)
        sigmoid -> float = sigmoid: 1 / (1 + exp(-x))
        sign -> same: -1, 0 or 1
        floor -> same = floor: round down
        ceil -> same = ceil: round up
        trunc -> same = trunc: round towards zero
        round -> same = round: round half to even
        isnan -> bool: is not a number
        isinf -> bool: is an infinity
        bitwise_not -> same = not: all bits flipped (logical not of bool)
        add.Tensor -> promoted: a + alpha * b
        sub.Tensor -> promoted: a - alpha * b
        mul.Tensor -> promoted = mul: a * b
        div.Tensor|Tensor_mode -> quotient = div|-: a / b, or its floor or trunc
        pow.Tensor_Tensor|Tensor_Scalar -> promoted = pow: a to the b
        remainder.Tensor -> promoted = mod: modulo with the sign of the divisor
        fmod.Tensor -> promoted: modulo with the sign of the dividend
        minimum -> promoted = minimum: smaller one, NaN wins
        maximum -> promoted = maximum: larger one, NaN wins
        atan2 -> float = atan2: angle of (b, a)
        eq.Tensor|Scalar -> bool = eq: a == b
        ne.Tensor|Scalar -> bool = ne: a != b
        lt.Tensor|Scalar -> bool = lt: a < b
        le.Tensor|Scalar -> bool = le: a <= b
        gt.Tensor|Scalar -> bool = gt: a > b
        ge.Tensor|Scalar -> bool = ge: a >= b
        bitwise_and.Tensor -> promoted = and: bits of both
        bitwise_or.Tensor -> promoted = or: bits of one
        bitwise_xor.Tensor -> promoted = xor: bits of exactly one
        bitwise_left_shift.Tensor -> promoted = shl: a << b
        bitwise_right_shift.Tensor -> promoted = shr: a >> b
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


def _parts(line: str) -> tuple[str, str, str, str]:
    declared, _, meaning = line.strip().partition(": ")
    names, _, computed = declared.partition(" -> ")
    rules, _, scalars = computed.partition(" = ")
    return names, rules, scalars, meaning


def _read(table: dict[str, str]) -> dict[OpOverload, Primitive]:
    found: dict[OpOverload, Primitive] = {}
    for kind, lines in table.items():
        for line in lines.strip().splitlines():
            names, rules, scalars, meaning = _parts(line)
            operator, _, variants = names.partition(".")
            types = tuple(TYPE_RULES[rule] for rule in rules.split(", "))
            scalar = scalars.split("|") if "|" in scalars else [scalars] * (variants.count("|") + 1)
            for variant, computed in zip(variants.split("|"), scalar, strict=True):
                op = overload(f"{operator}.{variant}")
                if op is not None:
                    found[op] = Primitive(kind, types, meaning, computed.strip("-") or None)
    return found


#: The set; `stator::random`, `stator::special` and `stator::fma` join it when `stator.prims` is imported.
PRIMITIVES: dict[OpOverload, Primitive] = _read(TABLE)
