"""Operators and containers of users' classes: the special methods behind them."""

from tests.capture.programs.table import program, x


class Vector:
    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + (other.data if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __mul__(self, other):
        return NotImplemented if other is None else Vector(self.data * other)

    def __iadd__(self, other):
        self.data = self.data + other
        return self

    def __neg__(self):
        return Vector(-self.data)

    def __matmul__(self, other):
        return Vector(self.data @ other.data.T)

    def __eq__(self, other):
        return isinstance(other, Vector) and self.data is other.data

    def __hash__(self):
        return 5

    def __len__(self):
        return len(self.data)

    def __bool__(self):
        return True

    def __getitem__(self, index):
        return self.data[index]

    def __setitem__(self, index, value):
        self.data = self.data.clone()
        self.data[index] = value

    def __contains__(self, n):
        return n == 3

    def __iter__(self):
        return iter(self.data)

    def __lt__(self, other):
        return len(self) < len(other)

    def __repr__(self):
        return f"Vector({len(self)})"

    def __abs__(self):
        return Vector(self.data.abs())


@program()
def arithmetic_methods(x):
    v = Vector(x)
    return (v + v).data, (1 + v).data, (v * 2).data, (-v).data, (v @ v).data, abs(v).data


@program()
def not_implemented_operator(x):
    try:
        Vector(x) * None
    except TypeError as error:
        return x + 1, str(error)


@program(lambda: (Vector(x()),))
def in_place_operator(v):
    w = v
    v += 1
    return v is w, v.data


@program()
def container_methods(x):
    v = Vector(x)
    v[0] = 1.0
    return len(v), v[1], 3 in v, 4 in v, [row * 2 for row in v], bool(v)


@program()
def comparison_and_hash(x):
    v, w = Vector(x), Vector(x)
    return v == w, v != w, v < w, {v: 1}[w], repr(v), f"{v}", x + 1
