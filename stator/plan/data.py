"""Plans as bytes and back, exactly: JSON in which a record is the list of its fields.

`_FIELDS` says how each field is written, so what is read is known by its place. Where several records may stand, the
name of the one that does comes before its fields; where an argument of any kind may, a record is `{"Whole": fields}`
and a tuple a list. What there is most of is a text: forms without symbols, tensors as they were declared, and addresses
of these. Reading runs no code: records are those of `ir`, sizes are put together from their parts (`sizes.load`), and
what is read is verified.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from stator.plan import ir
from stator.plan.verify import verify
from stator.sizes import Size, dump, load
from stator.sizes.real import Bits

FORMAT = 3
#: What follows the name of a tensor that a kernel writes.
WRITTEN = "!"


def to_bytes(plan: ir.Plan) -> bytes:
    """The plan, as `from_bytes` takes it."""
    return json.dumps({"format": FORMAT, "plan": _PLAN.write(plan)}, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> ir.Plan:
    """The plan that was written; ValueError where the bytes are of another format or make no plan."""
    found = json.loads(data)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"a plan of format {found.get('format') if isinstance(found, dict) else None}, not {FORMAT}")
    plan: ir.Plan = _PLAN.read(found["plan"])
    verify(plan)
    return plan


class _Codec(NamedTuple):
    """How a value becomes JSON and comes back; reading raises ValueError for what was not written so."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _unread(data: Any) -> ValueError:
    return ValueError(f"{str(data)[:60]} is no part of a plan")


# ---- numbers and names ----------------------------------------------------------------------------------------------


def _as(kind: type) -> _Codec:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise _unread(data)
        return data

    return _Codec(lambda value: value, read)


def _write_extent(value: Any) -> Any:
    return value if type(value) is int else dump(value)


def _read_extent(data: Any) -> Any:
    if type(data) is int:
        return data
    try:
        return load(data)
    except (LookupError, TypeError) as error:
        raise _unread(data) from error


def _write_shape(value: Any) -> Any:
    return [n if type(n) is int else dump(n) for n in value]


def _read_shape(data: Any) -> Any:
    if type(data) is not list:
        raise _unread(data)
    return tuple([n if type(n) is int else _read_extent(n) for n in data])


# ---- what codecs are made of ----------------------------------------------------------------------------------------


def _maybe(codec: _Codec) -> _Codec:
    """Or None."""
    write, read = codec
    return _Codec(
        lambda value: None if value is None else write(value), lambda data: None if data is None else read(data)
    )


def _many(codec: _Codec) -> _Codec:
    """A tuple of any length."""
    write, read = codec

    def read_many(data: Any) -> Any:
        if type(data) is not list:
            raise _unread(data)
        return tuple([read(item) for item in data])

    return _Codec(lambda values: [write(value) for value in values], read_many)


def _pair(first: _Codec, second: _Codec) -> _Codec:
    def read(data: Any) -> Any:
        if type(data) is not list or len(data) != 2:
            raise _unread(data)
        return first.read(data[0]), second.read(data[1])

    return _Codec(lambda pair: [first.write(pair[0]), second.write(pair[1])], read)


def _record(kind: type) -> _Codec:
    """The list of a record's fields, whose codecs are looked up when they are first asked for: records are nested."""
    names: list[str] = []
    writers: list[Callable[[Any], Any]] = []
    readers: list[Callable[[Any], Any]] = []

    def look_up() -> None:
        names.extend(_FIELDS[kind])
        writers.extend([codec.write for codec in _FIELDS[kind].values()])
        readers.extend([codec.read for codec in _FIELDS[kind].values()])

    def write(value: Any) -> Any:
        if not names:
            look_up()
        return [write(getattr(value, name)) for name, write in zip(names, writers, strict=True)]

    def read(data: Any) -> Any:
        if not names:
            look_up()
        if type(data) is not list or len(data) != len(readers):
            raise _unread(data)
        return kind(*[read(item) for read, item in zip(readers, data)])  # noqa: B905 (counted above)

    return _Codec(write, read)


def _text_or(codec: _Codec, text: Callable[[Any], str | None], value: Callable[[str], Any]) -> _Codec:
    """The text of a value, where it has one, else what `codec` makes of it."""
    write, read = codec

    def write_short(found: Any) -> Any:
        short = text(found)
        return write(found) if short is None else short

    return _Codec(write_short, lambda data: value(data) if type(data) is str else read(data))


def _one_of(*kinds: type) -> _Codec:
    """One of several records: its name, then its fields."""
    records = {kind: _record(kind) for kind in kinds}
    by_name = {kind.__name__: codec.read for kind, codec in records.items()}

    def read(data: Any) -> Any:
        if type(data) is not list or not data or type(data[0]) is not str or data[0] not in by_name:
            raise _unread(data)
        return by_name[data[0]](data[1:])

    return _Codec(lambda value: [type(value).__name__, *records[type(value)].write(value)], read)


def _write_argument(value: ir.Argument) -> Any:
    match value:
        case tuple():
            return [_write_argument(item) for item in value]
        case Size():
            return {"size": dump(value)}
        case Bits():
            return {"bits": dump(value.size)}
        case float() if not math.isfinite(value):
            return {"float": str(value)}
        case complex():
            return {"complex": [value.real.hex(), value.imag.hex()]}
        case None | bool() | int() | float() | str():
            return value
    return {type(value).__name__: _ARGUMENTS[type(value).__name__].write(value)}


def _read_argument(data: Any) -> Any:
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return tuple([_read_argument(item) for item in data])
        case {"size": size}:
            return _read_extent(size)
        case {"bits": size}:
            return Bits(_read_extent(size))
        case {"float": str(text)}:
            return float(text)
        case {"complex": [str(real), str(imaginary)]}:
            return complex(float.fromhex(real), float.fromhex(imaginary))
        case dict() if len(data) == 1:
            ((name, fields),) = data.items()
            if name in _ARGUMENTS:
                return _ARGUMENTS[name].read(fields)
    raise _unread(data)


# ---- what has a text ------------------------------------------------------------------------------------------------


@lru_cache(4096)
def _form_text(form: ir.Form) -> str | None:
    """`f32 2,3 3,1`, where no symbol is in it."""
    if ir.is_sized(form.size, form.stride):
        return None
    return f"{form.dtype} {','.join(map(str, form.size))} {','.join(map(str, form.stride))}"


@lru_cache(4096)
def _form(text: str) -> ir.Form:
    dtype, *shapes = text.split(" ")
    if len(shapes) != 2:
        raise _unread(text)
    size, stride = [tuple([int(n) for n in shape.split(",") if n]) for shape in shapes]
    return ir.Form(dtype, size, stride)


def _name_of(tensor: ir.Tensor) -> str | None:
    return tensor.name if type(tensor) is ir.Whole else None


def _start_of(address: ir.Address) -> str | None:
    """The name of a tensor that a kernel is given from its beginning; with a mark, where it writes there."""
    name = _name_of(address.tensor) if address.moved == 0 else None
    return name and f"{name}{WRITTEN}" if address.written else name


@lru_cache(4096)
def _start(text: str) -> ir.Address:
    name = text.removesuffix(WRITTEN)
    return ir.Address(ir.Whole(name), written=name != text)


# ---- the records ----------------------------------------------------------------------------------------------------

_TEXT, _NUMBER, _FLAG = _as(str), _as(int), _as(bool)
_EXTENT = _Codec(_write_extent, _read_extent)
_SHAPE = _Codec(_write_shape, _read_shape)
_ARGUMENT = _Codec(_write_argument, _read_argument)
_PLAN = _record(ir.Plan)
_FORM = _text_or(_record(ir.Form), _form_text, _form)
_TENSOR = _text_or(_one_of(ir.Turned, ir.Reread), _name_of, lru_cache(4096)(ir.Whole))
_ADDRESS = _text_or(_record(ir.Address), _start_of, _start)
_STEP = _one_of(ir.Allocate, ir.Reuse, ir.Launch, ir.Invoke, ir.Release, ir.Wait)
_TEXTS, _NUMBERS, _EXTENTS = _many(_TEXT), _many(_NUMBER), _many(_EXTENT)
#: The records that may stand among the arguments of an operator.
_ARGUMENTS = {kind.__name__: _record(kind) for kind in (ir.Whole, ir.Turned, ir.Reread, ir.Torch)}

#: Record → its fields and how they are written.
_FIELDS: dict[type, dict[str, _Codec]] = {
    ir.Form: {"dtype": _TEXT, "size": _SHAPE, "stride": _SHAPE},
    ir.Whole: {"name": _TEXT},
    ir.Turned: {"name": _TEXT},
    ir.Reread: {"name": _TEXT, "form": _FORM, "offset": _EXTENT, "casts": _FLAG},
    ir.Torch: {"expression": _TEXT},
    ir.Address: {"tensor": _TENSOR, "moved": _NUMBER, "written": _FLAG},
    ir.Allocate: {"name": _TEXT, "form": _FORM, "device": _TEXT, "large": _FLAG, "stream": _NUMBER},
    ir.Reuse: {"name": _TEXT, "donor": _TEXT, "form": _maybe(_FORM)},
    ir.Launch: {
        "kernel": _TEXT, "addresses": _many(_ADDRESS), "sizes": _EXTENTS, "effects": _NUMBERS, "stream": _NUMBER,
    },
    ir.Result: {"position": _NUMBER, "name": _TEXT, "size": _SHAPE, "stride": _SHAPE, "device": _TEXT},
    ir.Into: {"target": _TEXT, "tensor": _TENSOR},
    ir.Invoke: {
        "target": _TEXT, "args": _many(_ARGUMENT), "kwargs": _many(_pair(_TEXT, _ARGUMENT)),
        "results": _many(_record(ir.Result)), "into": _maybe(_record(ir.Into)),
        "effects": _NUMBERS, "stream": _NUMBER,
    },
    ir.Release: {"names": _TEXTS},
    ir.Wait: {"stream": _NUMBER, "other": _NUMBER},
    ir.Piece: {"name": _TEXT, "form": _FORM, "start": _EXTENT, "block": _maybe(_NUMBER)},
    ir.Block: {"nbytes": _EXTENT, "first": _NUMBER, "last": _NUMBER, "names": _TEXTS},
    ir.Arena: {"nbytes": _NUMBER, "pieces": _many(_record(ir.Piece)), "blocks": _many(_record(ir.Block))},
    ir.Input: {"name": _TEXT, "form": _maybe(_FORM), "device": _TEXT, "number": _maybe(_EXTENT)},
    ir.Read: {"symbol": _TEXT, "name": _TEXT, "what": _TEXT, "dim": _NUMBER},
    ir.Effect: {"kind": _TEXT, "name": _TEXT},
    ir.Failure: {"begin": _NUMBER, "kept": _TEXTS, "unsure": _NUMBER, "spoiled": _maybe(_NUMBER)},
    ir.Plan: {
        "name": _TEXT, "device": _TEXT, "kernels": _TEXTS, "inputs": _many(_record(ir.Input)), "steps": _many(_STEP),
        "results": _many(_ARGUMENT), "reads": _many(_record(ir.Read)), "unused": _TEXTS, "arena": _record(ir.Arena),
        "failure": _record(ir.Failure), "hints": _many(_pair(_TEXT, _NUMBER)),
        "effects": _many(_record(ir.Effect)), "streams": _TEXTS,
    },
}  # fmt: skip
