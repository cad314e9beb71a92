"""Plans as bytes and back, exactly: JSON in which a record is `{"Launch": [field, …]}` and a tuple a list.

Reading runs no code: records are those of `ir`, sizes are put together from their parts (`sizes.load`), and what is
read is verified.
"""

from __future__ import annotations

import json
from typing import Any

from stator.plan import ir
from stator.plan.verify import verify
from stator.sizes import Size, dump, load
from stator.sizes.real import Bits

FORMAT = 1


def to_bytes(plan: ir.Plan) -> bytes:
    """The plan, as `from_bytes` takes it."""
    return json.dumps({"format": FORMAT, "plan": _written(plan)}, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> ir.Plan:
    """The plan that was written; ValueError where the bytes are of another format or make no plan."""
    found = json.loads(data)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"a plan of format {found.get('format') if isinstance(found, dict) else None}, not {FORMAT}")
    plan = _read(found["plan"])
    if not isinstance(plan, ir.Plan):
        raise ValueError("what was read is no plan")
    verify(plan)
    return plan


def _written(value: Any) -> Any:
    match value:
        case tuple():
            return [_written(item) for item in value]
        case Size():
            return {"size": dump(value)}
        case Bits():
            return {"bits": dump(value.size)}
        case float():
            return {"float": value.hex()}
        case complex():
            return {"complex": [value.real.hex(), value.imag.hex()]}
        case None | bool() | int() | str():
            return value
    kind = type(value)
    return {kind.__name__: [_written(getattr(value, name)) for name in ir.FIELDS[kind]]}


def _read(data: Any) -> Any:
    match data:
        case list():
            return tuple([_read(item) for item in data])
        case {"size": size}:
            return load(size)
        case {"bits": size}:
            return Bits(load(size))
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"complex": [str(real), str(imaginary)]}:
            return complex(float.fromhex(real), float.fromhex(imaginary))
        case None | bool() | int() | str():
            return data
        case dict() if len(data) == 1:
            ((name, values),) = data.items()
            record = ir.RECORDS.get(name)
            if record is not None and isinstance(values, list) and len(values) == len(ir.FIELDS[record]):
                return record(*[_read(value) for value in values])
    raise ValueError(f"{str(data)[:60]} is no part of a plan")
