"""What a program reads from everywhere that Python keeps values, replaced by values of every kind, as a table.

A row is a place (a global, a slot, a default, a parameter of a partial…) and a value that it has afterwards: another
one, one of another type that is equal, nothing. Equal values of the same type compile nothing again.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.capture.changing import IMPORTS, Rows

#: What the programs do with a value, so that its type and all of it decide.
USE = """
def use(y, v):
    if v is None: return y - 1
    if isinstance(v, torch.Tensor): return y + v
    if isinstance(v, bool): return y * 5 if v else y * 6
    if isinstance(v, int): return y * v - 7
    if isinstance(v, float): return y * v
    if isinstance(v, str): return y + len(v) + ord(v[0])
    if isinstance(v, (list, tuple)): return y * sum(v) + (1 if isinstance(v, list) else 2)
    if isinstance(v, dict): return y * sum(v.values()) + len(list(v)[0])
    return v(y)
V = 2.0
"""

rows = Rows(IMPORTS + USE)


class Place(NamedTuple):
    """Where a value is: how it gets there first, how it is read, replaced by `W`, and taken away."""

    name: str
    setup: str
    read: str
    replace: str
    drop: str = ""


PLACES = [
    Place("global", "", "V", "global V; V = W", "global V; del V"),
    Place("module", "m = types.ModuleType('m'); m.v = V", "m.v", "m.v = W", "del m.v"),
    Place("class", "class A: v = V", "A.v", "A.v = W", "del A.v"),
    Place("base", "class B: v = V\nclass A(B): pass", "A.v", "B.v = W", "del B.v"),
    Place("shadowed", "class B: v = V\nclass A(B): pass\na = A()", "a.v", "A.v = W"),
    Place("metaclass", "class M(type): v = V\nclass A(metaclass=M): pass", "A.v", "M.v = W", "del M.v"),
    Place("instance", "class A: pass\na = A(); a.v = V", "a.v", "a.v = W", "del a.v"),
    Place("slot", "class A: __slots__ = ('v',)\na = A(); a.v = V", "a.v", "a.v = W", "del a.v"),
    Place("namespace", "a = types.SimpleNamespace(v=V)", "a.v", "a.v = W", "del a.v"),
    Place(
        "cell", "def make(v):\n def g(): return v\n return g\ng = make(V)", "g()", "g.__closure__[0].cell_contents = W"
    ),
    Place("default", "def g(v=V): return v", "g()", "g.__defaults__ = (W,)"),
    Place("keyword", "def g(*, v=V): return v", "g()", "g.__kwdefaults__['v'] = W", "del g.__kwdefaults__['v']"),
    Place("code", "def g(): return 2.0", "g()", "g.__code__ = (lambda: 3.0).__code__"),
    Place("list", "a = [1, V]", "a[1]", "a[1] = W", "a.pop()"),
    Place("tuple", "a = (1, V)", "a[1]", "global a; a = (1, W)"),
    Place("dict", "a = {'k': V}", "a['k']", "a['k'] = W", "del a['k']"),
    Place("nested", "a = {'k': [(V,)]}", "a['k'][0][0]", "a['k'][0] = (W,)", "a['k'].clear()"),
    Place("get", "a = {'k': V}", "a.get('k', 9)", "a['k'] = W", "del a['k']"),
    Place("property", "class A:\n v = property(lambda s: s.w)\na = A(); a.w = V", "a.v", "a.w = W", "del a.w"),
    Place(
        "descriptor",
        "class D:\n def __get__(s, i, o): return s.w\nclass A: v = D()\nd = vars(A)['v']; d.w = V",
        "A().v",
        "d.w = W",
        "del d.w",
    ),
    Place(
        "cached",
        "class A:\n v = functools.cached_property(lambda s: 1)\na = A(); vars(a)['v'] = V",
        "a.v",
        "vars(a)['v'] = W",
        "vars(a).clear()",
    ),
    Place("getattr", "class A:\n def __getattr__(s, n): return T[n]\nT = {'v': V}", "A().v", "T['v'] = W", "T.clear()"),
    Place("dataclass", "@dataclasses.dataclass\nclass A:\n v: object\na = A(V)", "a.v", "a.v = W", "del a.v"),
    Place("enum", "class E(enum.Enum):\n A = 1\nE.A.v = V", "E.A.v", "E.A.v = W", "del E.A.v"),
    Place("namedtuple", "N = collections.namedtuple('N', 'v'); a = N(V)", "a.v", "global a; a = N(W)"),
    Place("partial", "p = functools.partial(lambda v: v, V)", "p()", "global p; p = functools.partial(lambda v: v, W)"),
    Place(
        "partial_keyword", "p = functools.partial(lambda v: v, v=V)", "p()", "p.keywords['v'] = W", "p.keywords.clear()"
    ),
    Place("method", "class A:\n def g(s): return s.v\na = A(); a.v = V; g = a.g", "g()", "a.v = W", "del a.v"),
    Place("static", "class A:\n @staticmethod\n def g(v=V): return v", "A.g()", "A.g.__defaults__ = (W,)"),
    Place("class_method", "class A:\n v = V\n @classmethod\n def g(c): return c.v", "A.g()", "A.v = W", "del A.v"),
    Place("function_attribute", "def g(): return g.v\ng.v = V", "g()", "g.v = W", "del g.v"),
    Place("deque", "a = collections.deque([V])", "a[0]", "a[0] = W", "a.clear()"),
    Place("ordered", "a = collections.OrderedDict(k=V)", "a['k']", "a['k'] = W", "a.clear()"),
    Place("list_subclass", "class L(list): pass\na = L([V])", "a[0]", "a[0] = W", "a.clear()"),
    Place("dict_subclass", "class L(dict): pass\na = L(k=V)", "a['k']", "a['k'] = W", "a.clear()"),
    Place("chain", "a = collections.ChainMap({}, {'k': V})", "a['k']", "a.maps[0]['k'] = W", "a.maps[1].clear()"),
    Place("proxy", "d = {'k': V}; a = types.MappingProxyType(d)", "a['k']", "d['k'] = W", "d.clear()"),
    Place("context", "import contextvars; c = contextvars.ContextVar('c'); c.set(V)", "c.get()", "c.set(W)"),
    Place("layer", "m = nn.Linear(3, 3); m.v = V", "m.v", "m.__dict__.pop('v', None); m.v = W", "del m.v"),
    Place("sys", "sys.zz_row = V", "sys.zz_row", "sys.zz_row = W", "del sys.zz_row"),
    Place(
        "import",
        "m = types.ModuleType('zz_row'); m.v = V; sys.modules['zz_row'] = m",
        "__import__('zz_row').v",
        "m.v = W",
        "del m.v",
    ),
]

#: What a place has after the change.
OTHERS = {
    "value": "3.0", "int": "2", "bool": "True", "none": "None", "text": "'ab'", "tuple": "(1.0, 2.0)",
    "list": "[1.0, 2.0]", "dict": "{'a': 1.0}", "tensor": "x() + 1", "function": "lambda y: y * 9", "minus": "-2.0",
}  # fmt: skip

#: Attributes of classes are guarded by identity: they seldom change, and all instances share the guard.
BY_IDENTITY = ("class", "base", "metaclass", "class_method")

for place in PLACES:
    program = f"lambda y: use(y, {place.read})"
    change = place.replace if place.replace.startswith("global") else f"{place.replace}"
    change = change.partition("; ")[2] if change.startswith("global") else change
    for name, text in OTHERS.items():
        if place.name == "code" and name != "value":
            continue
        rows.row(
            f"{place.name}_{name}", program, f"W = {text}; {change}", place.setup, undo="sys.modules.pop('zz_row', 0)"
        )
    if place.drop:
        drop = place.drop.partition("; ")[2] if place.drop.startswith("global") else place.drop
        rows.row(f"{place.name}_dropped", program, drop, place.setup)
    if place.name not in ("code", "shadowed", "chain", "partial", *BY_IDENTITY):
        rows.row(f"{place.name}_equal", program, f"W = float('2.0'); {change}", place.setup, kind="keeps")
