"""The tables that cases are made of: receivers by type, arguments, keywords, and what else is done with an object.

Texts are Python expressions over `t`, a tensor, and the names of `NAMESPACE`. What is left out says why.
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import operator
from typing import Any

from tests.capture.containers import classes

NAMESPACE: dict[str, Any] = {
    "collections": collections, "copy": copy, "functools": functools, "itertools": itertools, "math": math,
    "operator": operator, "Counter": collections.Counter, "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict, "deque": collections.deque,
    **{name: item for name, item in vars(classes).items() if isinstance(item, type)},
}  # fmt: skip

#: Type -> expressions of its instances.
RECEIVERS: dict[str, tuple[str, ...]] = {
    "list": ("[3, 1, 2]", "[]", "[t, 1, t, 'a', None]", "[[1], (2,), 1.0, True]", "[Same(2), 1, Same(1)]"),
    "tuple": ("(3, 1, 2)", "()", "(t, 1, 'a', t)", "([1], (2,), 1.0, None)", "(Same(2), Same(1))"),
    "dict": ("{'a': 1, 'b': [2]}", "{}", "{1: t, (2, 3): None, None: 'x'}", "{Same(1): 'a', 2: t}"),
    "set": ("{3, 1, 2}", "set()", "{'a', 1, None, (1, 2)}", "{Same(1), 2}"),
    "frozenset": ("frozenset({3, 1, 2})", "frozenset()", "frozenset(['a', 1, None])"),
    "deque": ("deque([3, 1, 2])", "deque([1, 2], 2)", "deque([], 0)", "deque([t, 1, t, 'a'], maxlen=5)"),
    "OrderedDict": ("OrderedDict(a=1, b=[2])", "OrderedDict()", "OrderedDict([(1, t), ((2, 3), None)])"),
    "defaultdict": ("defaultdict(list, a=[1], b=2)", "defaultdict(None, {1: t})", "defaultdict(lambda: 7)"),
    "Counter": ("Counter('abca')", "Counter()", "Counter({'a': 2, 'b': -1, 3: 0})"),
    "str": ("'ab c'", "''", "'AbaX'", "'12'", "'{} {a}'"),
    "bytes": ("b'ab c'", "b''", "b'Aba'"),
    "bytearray": ("bytearray(b'ab c')", "bytearray()", "bytearray(b'Aba')"),
    "range": ("range(3)", "range(0)", "range(5, -3, -2)", "range(1, 9, 3)"),
    "slice": ("slice(2)", "slice(1, None, 2)", "slice(None, t, None)", "slice('a', [1])"),
    "int": ("5", "0", "-3", "2**70", "2"),
    "float": ("1.5", "-0.0", "float('nan')", "float('inf')", "2.0"),
    "complex": ("1+2j", "0j"),
    "bool": ("True", "False"),
    "NoneType": ("None",),
    "Pair": ("Pair(1, 2)", "Pair(t)", "Pair([1], 'a')"),
    "Color": ("Color.RED", "Color.GREEN"),
    "Level": ("Level.LOW", "Level.HIGH"),
    "Mask": ("Mask.READ", "Mask.BOTH", "Mask(0)"),
    "Word": ("Word.YES", "Word.NO"),
    "Stack": ("Stack([3, 1, 2])", "Stack()", "Stack([t, 1, 'a'])"),
    "Row": ("Row((3, 1, 2))", "Row()", "Row([t, 1])"),
    "Table": ("Table(a=1, b=[2])", "Table()", "Table({1: t, 'k': None})"),
    "Bunch": ("Bunch({3, 1})", "Bunch()"),
    "Frozen": ("Frozen({3, 1})", "Frozen()"),
    "Line": ("Line([3, 1, 2])", "Line([1, 2], 2)", "Line([t, 1, 'a'])"),
    "Ordered": ("Ordered(a=1, b=[2])", "Ordered([(1, t)])"),
    "Groups": ("Groups(list, a=[1])", "Groups(None, {1: t})"),
    "Tally": ("Tally('abca')", "Tally()"),
    "Text": ("Text('ab c')", "Text('')"),
    "Data": ("Data(b'ab c')",),
    "Buffer": ("Buffer(b'ab c')",),
    "Whole": ("Whole(5)", "Whole(0)"),
    "Real": ("Real(1.5)",),
    "Angle": ("Angle(1+2j)",),
    "dict_keys": ("{'a': 1, 'b': [2]}.keys()", "{}.keys()", "OrderedDict(a=1).keys()"),
    "dict_values": ("{'a': 1, 'b': [2]}.values()", "{1: t}.values()"),
    "dict_items": ("{'a': 1, 'b': [2]}.items()", "{'a': 1}.items()"),
}  # fmt: skip

#: Python's operators of two operands.
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")

#: Arguments that any method may be given.
ARGUMENTS = (
    "0", "1", "-1", "2", "7", "True", "None", "'a'", "'b'", "'ab'", "''", "' '", "1.5", "2.0", "1j", "b'a'", "b'ab'",
    "[1, 2]", "[]", "(1, 2)", "()", "{'a': 1}", "{'c': 3, 'a': t}", "{}", "{1, 2}", "frozenset({1})", "slice(0, 2)",
    "slice(None, None, -1)", "slice(5, 0, -2)", "slice(None, None, 0)", "t", "iter([4, 5])", "(c for c in (1, 2))",
    "lambda c: c", "lambda *c: None", "len", "str", "Same(1)", "At(1)", "At(-9)", "Keyed()", "[('a', 1), ('b', 2)]",
    "[('a', 1, 2)]", "[1, [2]]", "range(3)", "float('nan')", "2**70", "{'a': 1}.keys()", "{1: 2}.items()",
    "deque([1, 2])", "OrderedDict(a=1)", "Counter('ab')", "Stack([1])", "Table(c=1)", "Whole(1)", "Text('a')",
    "Level.LOW", "bytearray(b'a')", "[[1, 2], [3, 4]]", "object", "int", "'__len__'", "'count'", "'real'", "'>6'",
    "'04d'", "'x'", "{2: 'z'}", "utf", "NotImplemented", "...",
)  # fmt: skip

#: Names that arguments may be given by, besides those of the method's own signature.
KEYWORDS = (
    "self", "tx", "other", "key", "value", "default", "iterable", "last", "maxlen", "args", "kwargs", "name", "item",
    "index", "cls", "sep", "x", "start", "stop", "step", "reverse", "maxsplit", "encoding", "count", "n", "function",
    "named", "keepends", "tabsize", "object", "source", "mapping", "owner", "items", "others", "limit", "strict",
    "first",
)  # fmt: skip

#: Attribute -> why it is not tried.
LEFT_OUT = {
    "__sizeof__": "how much memory an object takes is the interpreter's own affair",
    "__alloc__": "how much memory an object takes is the interpreter's own affair",
    "__dir__": "its errors name the class by the way in which the method was found",
    "__getstate__": "its errors name the class by the way in which the method was found",
    "__reduce__": "what pickling takes an object apart into is nobody's business but pickle's",
    "__reduce_ex__": "what pickling takes an object apart into is nobody's business but pickle's",
    "__subclasshook__": "asked by abstract classes alone",
    "__init_subclass__": "runs where a class is made, not where an object is used",
    "__abstractmethods__": "of classes, not of objects",
}

#: Functions and classes that an object is given to.
FUNCTIONS = (
    "len", "bool", "str", "repr", "ascii", "hash", "copy.copy", "copy.deepcopy", "sorted", "min", "max", "sum", "any",
    "all", "list", "tuple", "set", "frozenset", "dict", "bytes", "bytearray", "int", "float", "complex", "abs",
    "round", "operator.index", "range", "slice", "callable", "type", "deque", "OrderedDict", "Counter", "chr", "ord",
    "hex", "bin", "math.prod", "math.floor", "math.isnan", "enumerate", "reversed", "zip", "next", "iter",
    "operator.length_hint", "operator.not_", "operator.truth", "operator.neg", "vars", "collections.ChainMap",
    "itertools.chain", "format", "itertools.cycle", "itertools.accumulate", "itertools.pairwise",
    "itertools.chain.from_iterable", "memoryview", "divmod", "pow", "super", "object", "defaultdict", "Stack",
    "Table", "Row", "Bunch", "Line", "Ordered", "Tally", "Text", "Whole", "Real", "Frozen", "Pair._make", "Groups",
    "property", "map", "filter", "isinstance", "getattr",
)  # fmt: skip

#: What is done with an object besides calling its methods: expressions and statements that leave `result`.
TEMPLATES = (
    *(f"result = r {op} x" for op in OPERATORS),
    *(f"result = x {op} r" for op in OPERATORS),
    *(f"q = r; r {op}= x; result = r is q, r" for op in OPERATORS),
    *(f"result = r {op} x" for op in ("<", "<=", "==", "!=", ">", ">=", "is", "is not", "in", "not in", "and", "or")),
    *(f"result = x {op} r" for op in ("<", "==", "!=", ">=", "in", "not in")), "result = -r", "result = +r",
    "result = ~r", "result = not r", "result = 1 if r else 2", "result = r[x]", "r[x] = y; result = r",
    "del r[x]; result = r", "result = r[x:y]", "result = r[x:y:z]", "r[x:y] = z; result = r",
    "del r[x:y]; result = r", "r[x] += y; result = r", "result = r[0], r[-1]", "result = r[::-1]",
    "result = r[1:], r[:-1]", "r[:] = x; result = r", "r[::2] = x; result = r", "del r[::2]; result = r",
    "result = r['a']", "r['a'] = x; result = r", "del r['a']; result = r",
    "result = r[:]; result = result is r, result", "a, b, c = r; result = a, b, c", "a, *b = r; result = a, b",
    "*a, b = r; result = a, b", "result = [*r, *x]", "result = (*r, x)", "result = {*r}", "result = {**r}",
    "result = {**r, **x}", "result = {'z': 0, **r}", "result = take(*r)", "result = take(**r)",
    "result = take(x, *r, **y)", "a, (b, c) = x, r; result = a, b, c", "result = [c for c in r]",
    "result = {c: 1 for c in r}", "result = {c for c in r}", "result = [c for c in r if c]",
    "result = list(c for c in r)", "result = []\nfor c in r:\n    result.append(c)\nelse:\n    result.append('end')",
    "result = []\n" "for c in r:\n" "    result.append(c)\n" "    if len(result) < 6 and hasattr(r, 'append'):\n"
    "        r.append(c)",
    "for c in r:\n    r.pop()\nresult = r", "for c in r:\n    r[c] = 1\n    r[str(c)] = 2\nresult = r",
    "i = iter(r); next(i); result = i", "i = iter(r); result = next(i), list(i), list(i), next(i, 'end')",
    "i = iter(r); result = iter(i) is i, type(i).__name__, i.__length_hint__()", "result = iter(r)",
    "result = list(iter(r, x))", "result = x, r",
    *(f"result = {name}(r)" for name in FUNCTIONS),
    "result = f'{r}'", "result = f'{r!r:>12}|{r!s}|{r!a}'", "result = f'{r:{x}}'", "result = '%s|%r' % (r, r)",
    "result = '%d' % r", "result = '{!r} {}'.format(r, x)", "result = format(r, x)", "result = 'a%s' % r",
    "result = '{0[0]}'.format(r)", "result = sorted(r, key=x)", "result = sorted(r, reverse=x)",
    "result = sorted(r, key=str, reverse=True)", "result = sorted(r, x)", "result = min(r, x)",
    "result = max(r, default=x)", "result = max(r, key=x, default=y)", "result = min(r, key=str)",
    "result = sum(r, x)", "result = sum(r, start=x)", "result = list(zip(r, x))",
    "result = list(zip(r, x, strict=True))", "result = zip(r, x)", "result = map(x, r)", "result = list(map(x, r))",
    "result = list(map(x, r, y))", "result = filter(x, r)", "result = list(filter(x, r))",
    "result = list(enumerate(r, x))", "result = list(enumerate(r, start=x))", "result = list(reversed(r))",
    "result = divmod(r, x)", "result = divmod(x, r)", "result = pow(r, x)", "result = pow(x, r)",
    "result = pow(r, x, y)", "result = round(r, x)", "result = isinstance(r, x)",
    "result = isinstance(r, (int, str, dict)), isinstance(r, list | tuple)", "result = type(r)(x)",
    "result = type(r)()", "result = type(r)(r); result = result is r, result", "result = type(r)(x, y)",
    "result = type(r).__name__, type(r).__mro__", "result = getattr(r, x)", "result = getattr(r, x, y)",
    "setattr(r, x, y); result = r", "r.attribute = x; result = r.attribute", "del r.attribute; result = r",
    "r.attribute = x; del r.attribute; result = hasattr(r, 'attribute'), r", "result = hasattr(r, x)",
    "result = r.__class__", "result = r.missing", "result = list(r)[x]", "result = dict(r, x=1)",
    "result = dict(r, other=x, self=y)", "result = dict(x, **r)", "result = OrderedDict(r, other=x)",
    "result = defaultdict(x, r)", "result = defaultdict(list, r, other=x)", "result = Counter(r, self=x)",
    "result = deque(r, x)", "result = deque(r, maxlen=x)", "result = deque(iterable=r)", "result = dict(zip(r, x))",
    "result = dict.fromkeys(r)", "result = dict.fromkeys(r, x)", "result = OrderedDict.fromkeys(r, value=x)",
    "result = OrderedDict.fromkeys(iterable=r)", "result = defaultdict.fromkeys(r, x)",
    "result = Ordered.fromkeys(r, x)", "result = Table.fromkeys(r, x)", "result = Groups.fromkeys(r)",
    "result = ','.join(r)", "result = b','.join(r)", "result = str(r, x)", "result = str(r, 'utf8', x)",
    "result = int(r, x)", "result = int(x, base=r)", "result = bytes(r, 'utf8')", "result = complex(r, x)",
    "result = complex(real=r, imag=x)", "result = range(r, x)", "result = range(x, y, r)", "result = slice(r, x)",
    "result = [5, 6, 7][r]", "result = 'abcd'[r]", "result = (5, 6, 7)[r]", "result = range(9)[r]",
    "result = [0, 1] * r", "result = {1: 2}.get(r, x)", "result = {r: 1}", "result = {r}", "result = [r].count(x)",
    "result = [r, 1].index(x)", "result = r in [x, y]", "result = x in (r, y)", "result = [r] == [x]",
    "result = (r, 1) < (x, 2)", "result = {'k': r} == {'k': x}", "q = [1]; q.extend(r); result = q",
    "q = {9}; q.update(r, x); result = q", "q = {9: 0}; q.update(r); result = q", "q = [1]; q += r; result = q",
    "q = deque([1], 2); q.extend(r); result = q", "result = functools.reduce(operator.add, r)",
    "result = functools.reduce(operator.add, r, x)", "result = list(itertools.islice(r, x))",
    "result = list(itertools.chain(r, x))", "result = list(itertools.zip_longest(r, x, fillvalue=y))",
    "result = list(itertools.product(r, repeat=x))", "result = list(itertools.accumulate(r, initial=x))",
    "result = list(itertools.starmap(x, r))", "result = list(itertools.compress(r, x))",
    "result = list(itertools.islice(itertools.repeat(r), 2))", "result = list(itertools.repeat(r, x))",
    "result = list(itertools.permutations(r, x))", "result = list(itertools.takewhile(x, r))",
    "result = [(k, list(g)) for k, g in itertools.groupby(r)]", "result = operator.getitem(r, x)",
    "result = operator.setitem(r, x, y)", "result = operator.concat(r, x)", "result = operator.iadd(r, x), r",
    "result = operator.contains(r, x)", "result = operator.countOf(r, x)", "result = operator.indexOf(r, x)",
    "result = operator.methodcaller('count', x)(r)", "result = operator.itemgetter(x)(r)",
    "result = operator.attrgetter('real')(r)", "result = math.sqrt(r)", "result = math.gcd(r, x)",
    "result = math.fsum(r)",
    "match r:\n" "    case []:\n" "        result = 'empty'\n" "    case [a]:\n" "        result = a\n"
    "    case [a, *b]:\n" "        result = a, b\n" "    case {'a': a, **b}:\n" "        result = a, b\n"
    "    case int() | float() | str():\n" "        result = 'plain', r\n" "    case _:\n" "        result = None",
    "match r:\n" "    case 5 | 'ab c' | True | None:\n" "        result = 1\n" "    case {1: a}:\n"
    "        result = a\n" "    case Pair(a, b):\n" "        result = a, b\n" "    case Color.RED | Level.LOW:\n"
    "        result = 2\n" "    case list() | dict() | set():\n" "        result = len(r)\n" "    case _:\n"
    "        result = 0",
    "with r as q:\n    result = q", "result = r(x)", "result = r()", "assert r, x\nresult = 1", "raise r",
    "try:\n" "    result = r[x]\n" "except KeyError as error:\n" "    result = 'key', error.args\n"
    "except IndexError as error:\n" "    result = 'index', str(error)\n" "except TypeError as error:\n"
    "    result = 'type', str(error)\n" "finally:\n" "    q = 1",
    "result = r.__getattribute__(x)", "result = object.__getattribute__(r, x)",
    "result = object.__repr__.__name__, object.__eq__(r, x), object.__ne__(r, r)",
    "result = object.__hash__(r) == object.__hash__(r)", "result = object.__str__(r)",
)  # fmt: skip
