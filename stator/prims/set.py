"""The closed set: every ATen operator that may reach lowering, with its class and meaning.

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


class Primitive(NamedTuple):
    """One line of the set."""

    kind: str
    meaning: str


#: class → lines of "operator.overload|overload: meaning"; operators without a dot have `.default`.
TABLE: dict[str, str] = {
    "pointwise": """
        abs: magnitude
        neg: sign change
        exp: e to the x
        exp2: 2 to the x
        expm1: exp(x) - 1 without cancellation
        log: natural logarithm
        log2: base-2 logarithm
        log1p: log(1 + x) without cancellation
        sqrt: square root
        rsqrt: 1 / sqrt(x)
        reciprocal: 1 / x
        sin: sine
        cos: cosine
        tan: tangent
        asin: inverse sine
        acos: inverse cosine
        atan: inverse tangent
        sinh: hyperbolic sine
        cosh: hyperbolic cosine
        tanh: hyperbolic tangent
        erf: error function
        erfc: 1 - erf(x)
        sigmoid: 1 / (1 + exp(-x))
        sign: -1, 0 or 1
        floor: round down
        ceil: round up
        trunc: round towards zero
        round: round half to even
        isnan: is not a number
        isinf: is an infinity
        bitwise_not: all bits flipped (logical not of bool)
        add.Tensor: a + alpha * b
        sub.Tensor: a - alpha * b
        mul.Tensor: a * b
        div.Tensor|Tensor_mode: a / b, or its floor or trunc
        pow.Tensor_Tensor|Tensor_Scalar: a to the b
        remainder.Tensor: modulo with the sign of the divisor
        fmod.Tensor: modulo with the sign of the dividend
        minimum: smaller one, NaN wins
        maximum: larger one, NaN wins
        atan2: angle of (b, a)
        eq.Tensor|Scalar: a == b
        ne.Tensor|Scalar: a != b
        lt.Tensor|Scalar: a < b
        le.Tensor|Scalar: a <= b
        gt.Tensor|Scalar: a > b
        ge.Tensor|Scalar: a >= b
        bitwise_and.Tensor: bits of both
        bitwise_or.Tensor: bits of one
        bitwise_xor.Tensor: bits of exactly one
        bitwise_left_shift.Tensor: a << b
        bitwise_right_shift.Tensor: a >> b
        clamp: no less than a number, no more than another
        where.self|ScalarSelf|ScalarOther: a where the condition holds, else b
        clone: copy, with a memory format
        _to_copy: copy with another dtype, device or memory format
        copy_: write the final value of a mutated input (end of a forward graph only)
    """,
    "reduction": """
        sum.dim_IntList: sum over dims
        mean.dim: sum over dims / count
        prod.dim_int: product over one dim
        amax: largest over dims
        amin: smallest over dims
        any.dims: whether one is non-zero over dims
        argmax: position of the first largest
        argmin: position of the first smallest
    """,
    "scan": """
        cumsum: running sum
        cumprod: running product
        cummax: running maximum and where it was last
        cummin: running minimum and where it was last
        logcumsumexp: logarithm of the running sum of exponentials
    """,
    "view": """
        view: same elements, another shape
        permute: dims reordered
        expand: size-1 dims repeated
        slice.Tensor: every step-th of a range of one dim
        select.int: one index of one dim
        unsqueeze: a dim of size 1 more
        squeeze.dims: dims of size 1 dropped
        as_strided: elements by size, stride and offset of the storage
        diagonal: the diagonal of two dims, as the last dim
        unfold: sliding windows of one dim, as the last dim
        alias: the value itself
        view.dtype: the same bits as another dtype
        view_as_real: complex numbers as pairs
        view_as_complex: pairs as complex numbers
        _conj: complex conjugate
        _neg_view: sign change that is put off
    """,
    "index": """
        cat: joined along one dim
        constant_pad_nd: bordered with a constant
        flip: dims reversed
        index.Tensor: elements at integer positions, broadcast
        index_select: slices at positions of one dim
        gather: elements at positions along one dim
        slice_scatter: copy with a slice replaced
        select_scatter: copy with one index replaced
        index_put: copy with elements at positions replaced or added to
        scatter.src: copy with elements along one dim replaced
        scatter_add: copy with elements along one dim added to
        scatter_reduce.two: copy with elements along one dim combined with others
        index_add: copy with slices at positions of one dim added to
        index_copy: copy with slices at positions of one dim replaced
        index_reduce: copy with slices at positions of one dim combined with others
        searchsorted.Tensor: where in sorted rows elements belong
    """,
    "creation": """
        full: a constant
        full_like: a constant, with the strides of another
        arange.start_step: start + i * step
    """,
    "extern": """
        mm: matrix product
        bmm: matrix products of a batch
        addmm: bias + matrix product
        convolution: convolution of any rank
        convolution_backward: its gradients
        _scaled_dot_product_flash_attention_for_cpu: attention
        _scaled_dot_product_flash_attention_for_cpu_backward: its gradients
        _scaled_dot_product_flash_attention: attention on CUDA
        _scaled_dot_product_flash_attention_backward: its gradients
        _scaled_dot_product_efficient_attention: attention with a bias on CUDA
        _scaled_dot_product_efficient_attention_backward: its gradients
        embedding_dense_backward: gradient rows summed by index
        max_pool2d_with_indices: largest of each window and where it was
        max_pool2d_with_indices_backward: its gradient
        sort.stable: sorted values and positions
    """,
}


def _read(table: dict[str, str]) -> dict[OpOverload, Primitive]:
    found: dict[OpOverload, Primitive] = {}
    for kind, lines in table.items():
        for line in lines.strip().splitlines():
            names, _, meaning = line.strip().partition(": ")
            operator, _, variants = names.partition(".")
            for variant in variants.split("|"):
                op = overload(f"{operator}.{variant}")
                if op is not None:
                    found[op] = Primitive(kind, meaning)
    return found


#: The set; `stator::random` and `stator::special` join it when `stator.prims` is imported.
PRIMITIVES: dict[OpOverload, Primitive] = _read(TABLE)
