"""Attention by kernels of ours on a GPU: what PyTorch's operators for it become, forward and backward.

The operators of flash, memory-efficient and cuDNN attention compute the same and keep the same logarithms of sums, so
either half may be ours while the other one is a library's. By rule they are ours where PyTorch chose its flash or its
memory-efficient kernels, which take 1.3 to 1.6 times as long on an H100 (docs/benchmarks.md), and cuDNN's where it
chose those; under the option `autotune` whatever was faster on this machine (`stator/tuning.py`). Where roundings are
left out, gradients of few keys are ours instead of cuDNN's too: a library's are no better than the result was rounded.
Dropout, gradients of a bias, double precision and rows of more than 256 elements are the library's. A bias is computed
where it is added, if no other kernel needs it in memory.
Neighbours: `loop/attention.py` is what is made, `product.py` has the other operators that libraries compute too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from stator.base.device import HOST
from stator.graphs.scores import ATTEND, SCORES
from stator.loop import expr as e
from stator.loop.attention import EXACT, PER_ROW, TENSORS, WIDEST, Attention, apart, axes, given, shortened
from stator.loop.expr import Expr, Rewriter, load, postorder
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel, Param, kernel
from stator.loop.nest import Buffer, Extern, View
from stator.loop.resize import Resizer, symbols_of_attention
from stator.lowering.context import Context
from stator.lowering.extern import call, extern, read_results
from stator.lowering.product import TAKES_LOOP
from stator.lowering.table import lowers, replaces
from stator.lowering.value import HALF, Indices, LazyTensor, Place, Size, Spec, broadcast, over, placed
from stator.sizes import Condition, Extent, Symbol, hint, prove
from stator.sizes.strides import contiguous, span

#: Weight of a bias up to which it is computed where it is added.
CHEAP = 16
#: Keys up to which gradients without roundings are worth what they take longer than cuDNN's.
FEW_KEYS = 512
#: Elements of a batch: positions within one have 32 bits.
MOST = 2**31


@dataclass(frozen=True, slots=True)
class _Call:
    """What one of the operators was asked for, whichever it is."""

    q: LazyTensor
    k: LazyTensor
    v: LazyTensor
    bias: LazyTensor | None
    dropout: float
    causal: bool
    scale: float | None
    by_rule: bool
    #: What the program made of scaled products, and the buffer that these would lie in.
    scores: LazyTensor | None = None
    plain: str = ""


@replaces("_scaled_dot_product_flash_attention")
def flash(
    context: Context, out: Any, q: LazyTensor, k: LazyTensor, v: LazyTensor, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    asked = _Call(q, k, v, None, dropout_p, is_causal, scale, True)
    return None if return_debug_mask else _forward(context, out, asked)


@replaces("_scaled_dot_product_efficient_attention")
def efficient(
    context: Context, out: Any, q: LazyTensor, k: LazyTensor, v: LazyTensor, attn_bias: LazyTensor | None,
    compute_log_sumexp: bool, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return _forward(context, out, _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, True))


@replaces("_scaled_dot_product_cudnn_attention")
def cudnn(
    context: Context, out: Any, q: LazyTensor, k: LazyTensor, v: LazyTensor, attn_bias: LazyTensor | None,
    compute_log_sumexp: bool, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    asked = _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, False)
    return None if return_debug_mask else _forward(context, out, asked)


@replaces("_scaled_dot_product_flash_attention_backward")
def flash_backward(
    context: Context, out: Any, grad: LazyTensor, q: LazyTensor, k: LazyTensor, v: LazyTensor, o: LazyTensor,
    logs: LazyTensor, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any, dropout_p: float, is_causal: bool,
    seed: Any, offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return _backward(context, out, _Call(q, k, v, None, dropout_p, is_causal, scale, True), grad, o, logs)


@replaces("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    context: Context, out: Any, grad: LazyTensor, q: LazyTensor, k: LazyTensor, v: LazyTensor,
    attn_bias: LazyTensor | None, o: LazyTensor, logs: LazyTensor, seed: Any, offset: Any, dropout_p: float,
    grad_input_mask: Sequence[bool], is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if grad_input_mask[3] and 3 in read_results(context.node, 4):
        return None
    return _backward(context, out, _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, True), grad, o, logs)


@replaces("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(
    context: Context, out: Any, grad: LazyTensor, q: LazyTensor, k: LazyTensor, v: LazyTensor, o: LazyTensor,
    logs: LazyTensor, seed: Any, offset: Any, attn_bias: LazyTensor | None, cum_q: Any, cum_k: Any, max_q: Any,
    max_k: Any, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    by_rule = not context.rounds and hint(k.size[2]) <= FEW_KEYS
    return _backward(context, out, _Call(q, k, v, attn_bias, dropout_p, is_causal, scale, by_rule), grad, o, logs)


# ---- scores that the program changes ---------------------------------------------------------------------------------


@lowers(SCORES)
def scores(context: Context, out: Spec, q: LazyTensor, k: LazyTensor, scale: float) -> LazyTensor:
    """In memory, if anything reads them there."""
    groups = _known(q.size[1:2])[0] // _known(k.size[1:2])[0]
    for x in (q, k):
        context.place(x)  # each element is read many times

    def body(at: Indices) -> Expr:
        batch, head, row, column, element = at
        factors = q.load((batch, head, row, element)), k.load((batch, head // groups, column, element))
        total = e.reduce("sum", e.op("mul", *[e.cast(factor, "f32") for factor in factors]))
        return e.op("mul", total, e.const(scale, "f32"))

    made = context.reduce((*out.size, q.size[3]), [4], "f32", body, False)
    context.spare.add(context.place(made).buffer.name)
    return made


@lowers(ATTEND)
def attend(
    context: Context, out: Spec, scores: LazyTensor, plain: LazyTensor, q: LazyTensor, k: LazyTensor, v: LazyTensor,
    scale: float,
) -> Any:  # fmt: skip
    """One kernel, where it can compute the scores: of each product alone, of none at another place."""
    place = context.place(plain)
    asked = _Call(q, k, v, None, 0.0, False, scale, True, scores, place.buffer.name)
    if out.stride != contiguous(out.size) or not _may(context, asked) or not _is_of_each(context, asked, place):
        return extern(context, out, scores, plain, q, k, v, scale)
    o = _buffer(context, out)
    sums = context.buffer(q.size[:3], contiguous(q.size[:3]), "f32")
    _launch(context, "forward", asked, {"q": q, "k": k, "v": v}, {"o": o, "l": sums}, ())
    return _value(o)


def _is_of_each(context: Context, asked: _Call, place: Place) -> bool:
    """Whether scores are computed of the product at their own place, without looking anything up or drawing numbers."""
    value = _changed(context, asked)
    assert value is not None and asked.scores is not None
    at = tuple([axis.index for axis in _axes(asked)])
    for node in postorder([value]):
        if node.op in ("reduce", "scan", "random"):
            return False
        if node.op == "load":
            name, index = node.attr
            if index.has_indirect or (name == asked.plain and index != place.position(at)):
                return False
    return True


# ---- which ones ------------------------------------------------------------------------------------------------------


def takes_ours(context: Context, asked: _Call) -> bool:
    """Whether a kernel of ours computes it: one that may, where that was measured to be faster, or by rule."""
    if not _may(context, asked):
        return False
    measured = context.node.meta.get(TAKES_LOOP) if context.node is not None else None
    return asked.by_rule if measured is None else bool(measured)


def _may(context: Context, asked: _Call) -> bool:
    tensors = [asked.q, asked.k, asked.v, *([asked.bias] if asked.bias is not None else [])]
    if not context.device.tile_products or asked.dropout:
        return False
    if any(n == 0 for x in tensors for n in x.size) or any(
        type(n) is not int for x in tensors[:3] for n in x.size[1::2]
    ):
        return False  # numbers of heads and elements of rows are numbers
    (_, heads, queries, width), (_, shared, keys, _) = asked.q.size, asked.k.size
    if {x.dtype for x in tensors[:3]} != {asked.q.dtype} or asked.q.dtype not in HALF:
        return False
    if max(width, asked.v.size[-1]) > WIDEST or heads % shared or asked.v.size[1] != shared:
        return False
    if asked.bias is not None and asked.bias.dtype not in (*HALF, "f32"):
        return False
    if asked.causal and queries != keys:  # libraries do not agree on where the diagonal is
        return False
    if any(type(context.place(x).offset) is not int for x in tensors[:3]):
        return False
    return all(reaches < MOST for reaches in _reaches(context, asked) if type(reaches) is int)


def _reaches(context: Context, asked: _Call) -> list[Extent]:
    """How many elements lie between the first and the last of a batch; of what is symbolic a launch asks that."""
    parts = [(x.size, context.place(x).stride) for x in (asked.q, asked.k, asked.v)]
    found = [span(size[1:], stride[1:]) for size, stride in parts]
    if asked.bias is not None:
        found.append(prod((*asked.q.size[1:3], asked.k.size[2])))
    return found


# ---- kernels ---------------------------------------------------------------------------------------------------------


def _forward(context: Context, out: Sequence[Any], asked: _Call) -> Any:
    """The result and the logarithms; what else a library gives nothing needs, but where gradients are a library's."""
    if not takes_ours(context, asked):
        return None
    result, logs, *others = out
    read = read_results(context.node, len(out))
    o = _buffer(context, result)
    if isinstance(logs, Spec) and len(logs.size) >= 3 and prove(Condition("<=", asked.q.size[2], logs.size[2])):
        sums = _buffer(context, logs)
    else:
        sums = context.buffer(asked.q.size[:3], contiguous(asked.q.size[:3]), "f32")
    spares = [_buffer(context, one) for i, one in enumerate(others, 2) if i in read and _is_spare(context, one)]
    values = {"q": asked.q, "k": asked.k, "v": asked.v}
    _launch(context, "forward", asked, values, {"o": o, "l": sums}, spares)
    made: list[Any] = [_value(o), _value(sums) if isinstance(logs, Spec) else None]
    rest = iter(spares)
    for i, one in enumerate(others, 2):
        if not isinstance(one, Spec) or i not in read:
            made.append(None if isinstance(one, Spec) else one)
        elif _is_spare(context, one):
            made.append(_value(next(rest)))
        else:  # of random numbers, which lie on the host
            options = {"dtype": torch.int64, "device": torch.device(HOST)}
            made.append(call(context, "aten.zeros.default", one, ((),), options))
    return tuple(made)


def _backward(
    context: Context, out: Sequence[Any], asked: _Call, grad: LazyTensor, o: LazyTensor, logs: LazyTensor
) -> Any:
    """The gradients that are read, in two kernels; the second one takes what the first one finds out, if it does."""
    if not takes_ours(context, asked) or any(x.raw is not None for x in (grad, o, logs)):
        return None
    read = read_results(context.node, len(out))
    size = asked.q.size[:3] + asked.v.size[-1:]
    for x in (grad, o):
        context.place(x)

    def body(at: Indices) -> Expr:
        return e.reduce("sum", e.op("mul", *[e.cast(x.load(at), "f32") for x in (grad, o)]))

    delta = context.reduce(size, [3], "f32", body, False)
    values = {"q": asked.q, "k": asked.k, "v": asked.v, "g": grad, "l": logs, "delta": delta}
    dq, dk, dv = [_buffer(context, one) for one in out[:3]]
    written = {"dq": dq}
    if not context.rounds and read >= {0, 1}:
        written[EXACT] = context.buffer(asked.q.size[:3], contiguous(asked.q.size[:3]), "f32")
        _launch(context, "queries", asked, values, written, ())
        values["delta"] = placed(asked.q.size[:3], Place(written[EXACT], written[EXACT].stride))
    if read & {1, 2}:
        _launch(context, "keys", asked, values, {"dk": dk, "dv": dv}, ())
    if 0 in read and EXACT not in written:
        _launch(context, "queries", asked, values, written, ())
    made = [_value(buffer) for buffer in (dq, dk, dv)]
    kept = [value if i in read else None for i, value in enumerate(made)]
    return (*kept, *[None] * (len(out) - 3))


def _launch(
    context: Context,
    kind: str,
    asked: _Call,
    values: dict[str, LazyTensor],
    written: dict[str, Buffer],
    spares: Sequence[Buffer],
) -> None:
    """A kernel on the memory of what it reads and writes."""
    read, _ = TENSORS[kind]
    views = [context.view(values[name]) for name in read]
    lying: list[tuple[str, View | Buffer]] = [*zip(read, views, strict=True), *written.items()]
    strides = [(name, tuple(x.stride)[: 3 if name in PER_ROW else 4]) for name, x in lying]
    score, causal, extra = _score(context, asked, len(views))
    views += extra
    batches, _, queries, _ = asked.q.size
    heads, width, shared, depth = _known((*asked.q.size[1::2], *asked.v.size[1::2]))
    attention = Attention(
        kind, asked.q.dtype, batches, heads, heads // shared, queries, asked.k.size[2], width, depth,
        tuple(strides), width**-0.5 if asked.scale is None else float(asked.scale), causal, score, len(spares),
        written["l"].size[2] if "l" in written else queries, EXACT in written,
    )  # fmt: skip
    buffers = [*written.values(), *spares]
    made, sizes = _kernel(context, attention, views, buffers)
    name = context.node.name if context.node is not None else "attention"
    target = f"stator.attention_{kind}"
    node = Extern(name, target, tuple(views), (), tuple(buffers), fails=False, kernel=made, sizes=sizes)
    context.nodes.append(node)


def _kernel(
    context: Context, attention: Attention, views: Sequence[View], buffers: Sequence[Buffer]
) -> tuple[Kernel, tuple[Extent, ...]]:
    """A kernel, whose symbols are n0, n1, … as those of any other are, and what they are here."""
    params = [
        Param(f"p{i}", context.buffers[view.buffer].dtype, "in", span(view.size, view.stride))
        for i, view in enumerate(views)
    ]
    params += [Param(f"p{i}", buffer.dtype, "out", buffer.span) for i, buffer in enumerate(buffers, len(views))]
    found = symbols_of_attention(attention, params)
    own = {symbol: Symbol(f"n{i}", symbol.low, symbol.high, symbol.hint) for i, symbol in enumerate(found)}
    resizer = Resizer({symbol: mine.size for symbol, mine in own.items()})
    *_, resized = resizer.kernel_parts((), (), (), params)
    made = kernel((), (), (), resized, tuple(own.values()), resizer.attention(attention))
    return made, tuple([symbol.size for symbol in found])


def _score(context: Context, asked: _Call, count: int) -> tuple[Expr | None, bool, list[View]]:
    """What is made of a scaled product, by the names of parameters from `count` on; whether the diagonal is the end."""
    value = _changed(context, asked)
    if value is None:
        return None, asked.causal, []
    views: dict[str, View] = {}

    def on_load(name: str, index: Index, dtype: str) -> Expr:
        if name == asked.plain and name:
            return given()
        if name in context.buffers and name not in views:
            buffer = context.buffers[name]
            views[name] = View(name, (buffer.span,), (1,))
        return load(f"p{count + list(views).index(name)}", index, dtype) if name in views else load(name, index, dtype)

    causal = asked.causal
    if asked.q.size[2] == asked.k.size[2]:
        *_, m, n = _axes(asked)
        value, diagonal = apart(value, m, n)
        causal = causal or diagonal
    made = Rewriter({}, on_load)(shortened(value))
    return None if made is given() else made, causal, list(views.values())


def _changed(context: Context, asked: _Call) -> Expr | None:
    """What is made of a scaled product, over `loop.attention.axes`: a bias is added, or the program says what."""
    at = tuple([axis.index for axis in _axes(asked)])
    if asked.scores is not None:
        return asked.scores.load(at)
    bias = asked.bias
    if bias is None:
        return None
    if bias.place is None and bias.weight > CHEAP:
        context.place(bias)
    return e.op("add", given(), e.cast(broadcast(bias, at), "f32"))


def _axes(asked: _Call) -> tuple[Axis, Axis, Axis, Axis]:
    batches, _, queries, _ = asked.q.size
    (heads,) = _known(asked.q.size[1:2])
    return axes(batches, heads, queries, asked.k.size[2])


def _is_spare(context: Context, one: Any) -> bool:
    """Whether it is a result on the device that a library would keep random numbers' state in: nobody looks at it."""
    return isinstance(one, Spec) and one.device == context.device.kind


def _buffer(context: Context, one: Spec) -> Buffer:
    size, stride, dtype, device = one.numbers
    known_as = one.dtype if one.dtype != dtype else ""
    return context.buffer(size, stride, dtype, device, exact=True, opaque=known_as)


def _value(buffer: Buffer) -> LazyTensor:
    value = placed(buffer.size, Place(buffer, buffer.stride))
    return over(value, buffer.opaque) if buffer.opaque else value


def _known(size: Size) -> tuple[int, ...]:
    """A size of numbers."""
    assert all(type(n) is int for n in size), "of heads and of elements of a row it is known how many there are"
    return tuple([int(n) for n in size])
