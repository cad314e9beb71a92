"""Changes of everyday objects of the standard library, enums and subclasses of numbers and text, as rows of a table."""

from __future__ import annotations

from tests.capture.changing import IMPORTS, Rows

rows = Rows(IMPORTS)
row = rows.row

row("module_dict", "lambda y: y*len(m.__dict__)", "m.q=3", "m=types.ModuleType('m')")
row("module_vars_item", "lambda y: y*vars(m)['q']", "m.q=3", "m=types.ModuleType('m'); m.q=2")
row("cached_attr", "lambda y: y*g.extra", "g.extra=3", "@functools.lru_cache\ndef g(): return 1\ng.extra=2")
row("cached_body", "lambda y: y*g()", "g.cache_clear(); K=7", "K=2\n@functools.lru_cache\ndef g(): return K")
row(
    "signature",
    "lambda y: y*len(inspect.signature(g).parameters)",
    "g.__code__=(lambda a,b: 1).__code__",
    "import inspect\ndef g(a): return 1",
)
row(
    "signature_default",
    "lambda y: y*(inspect.signature(g).parameters['a'].default)",
    "g.__defaults__=(5,)",
    "import inspect\ndef g(a=2): return 1",
)
row(
    "signature_attr",
    "lambda y: y*len(inspect.signature(g).parameters)",
    "g.__wrapped__=lambda a,b,c: 1",
    "import inspect\ndef g(a): return 1",
)
row("getdoc", "lambda y: y*len(inspect.getdoc(g))", "g.__doc__='abcd'", "import inspect\ndef g(a):\n 'ab'\n return 1")
row("type_hints", "lambda y: y*len(typing.get_type_hints(A))", "A.__annotations__['b']=int", "class A:\n a: int")
row(
    "is_dataclass",
    "lambda y: y*2 if dataclasses.is_dataclass(A) else y*3",
    "dataclasses.dataclass(A)",
    "class A:\n a: int=1",
)
row(
    "is_dataclass_obj",
    "lambda y: y*2 if dataclasses.is_dataclass(a) else y*3",
    "dataclasses.dataclass(A)",
    "class A:\n a: int=1\na=A()",
)
row(
    "fields",
    "lambda y: y*len(dataclasses.fields(A))",
    "A.__dataclass_fields__=dict(list(A.__dataclass_fields__.items())[:1])",
    "@dataclasses.dataclass\nclass A:\n a: int=1\n b: int=2",
)
row(
    "import_module",
    "lambda y: y*importlib.import_module('zz').K",
    "b=types.ModuleType('zz'); b.K=5.; sys.modules['zz']=b",
    "import importlib; a=types.ModuleType('zz'); a.K=2.; sys.modules['zz']=a",
    undo="sys.modules.pop('zz',None)",
)
row("enum_value", "lambda y: y*E.A.value", "E.A._value_=5", "class E(enum.Enum):\n A=1\n B=2")
row("enum_attr", "lambda y: y*E.A.k", "E.A.k=5", "class E(enum.Enum):\n A=1\n B=2\nE.A.k=2")
row("enum_iter_attr", "lambda y: y*sum(e.k for e in E)", "E.A.k=5", "class E(enum.Enum):\n A=1\n B=2\nE.A.k=2; E.B.k=3")
row("enum_lookup", "lambda y: y*E(1).value", "E._value2member_map_[1]=E.B", "class E(enum.Enum):\n A=1\n B=2")
row("enum_name", "lambda y: y*E['A'].value", "E._member_map_['A']=E.B", "class E(enum.Enum):\n A=1\n B=2")
row("enum_len", "lambda y: y*len(E)", "E._member_names_.append('A')", "class E(enum.Enum):\n A=1\n B=2")
row("enum_method", "lambda y: y*E.A.m()", "E.m=lambda s: 9", "class E(enum.Enum):\n A=1\n def m(s): return s.value")
row("enum_eq", "lambda y: y*2 if E.A==E.B else y*3", "E.__eq__=lambda s,o: True", "class E(enum.Enum):\n A=1\n B=2")
row(
    "str_subclass_eq",
    "lambda y,a: y*2 if a=='q' else y*3",
    "S.__eq__=lambda s,o: True; S.__hash__=str.__hash__",
    "class S(str): pass\na=S('x')",
    args="x(),a",
)
row("str_subclass_len", "lambda y,a: y*len(a)", "S.__len__=lambda s: 9", "class S(str): pass\na=S('x')", args="x(),a")
row("str_subclass_attr", "lambda y,a: y*a.k", "a.k=9", "class S(str): pass\na=S('x'); a.k=3", args="x(),a")
row("int_subclass_add", "lambda y,a: y*(a+1)", "S.__add__=lambda s,o: 9", "class S(int): pass\na=S(3)", args="x(),a")
row(
    "int_subclass_bool",
    "lambda y,a: y*2 if a else y*3",
    "S.__bool__=lambda s: False",
    "class S(int): pass\na=S(3)",
    args="x(),a",
)
row("int_subclass_neg", "lambda y,a: y*(-a)", "S.__neg__=lambda s: 9", "class S(int): pass\na=S(3)", args="x(),a")
row(
    "int_subclass_index",
    "lambda y,a: y[a:]",
    "S.__index__=lambda s: 0",
    "class S(int): pass\na=S(1)",
    args="x(),a",
    kind="breaks",
)
row(
    "int_subclass_float",
    "lambda y,a: y*float(a)",
    "S.__float__=lambda s: 9.",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_str",
    "lambda y,a: y*len(str(a))",
    "S.__str__=lambda s: 'abc'",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_round",
    "lambda y,a: y*round(a)",
    "S.__round__=lambda s: 9",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row("int_subclass_abs", "lambda y,a: y*abs(a)", "S.__abs__=lambda s: 9", "class S(int): pass\na=S(1)", args="x(),a")
row(
    "int_subclass_hash",
    "lambda y,a: y*{1:2}.get(a,3)",
    "S.__hash__=lambda s: 77",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_iter",
    "lambda y,a: y*sum(a)",
    "S.__iter__=lambda s: iter([9])",
    "class S(int):\n def __iter__(s): return iter([1])\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_getitem",
    "lambda y,a: y*a[0]",
    "S.__getitem__=lambda s,k: 9",
    "class S(int):\n def __getitem__(s,k): return 2\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_contains",
    "lambda y,a: y*2 if 3 in a else y*3",
    "S.__contains__=lambda s,k: False",
    "class S(int):\n def __contains__(s,k): return True\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_lt",
    "lambda y,a: y*2 if a<3 else y*3",
    "S.__lt__=lambda s,k: False",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_divmod",
    "lambda y,a: y*divmod(a,2)[1]",
    "S.__divmod__=lambda s,k: (9,9)",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row(
    "int_subclass_format",
    "lambda y,a: y*len(f'{a:3}')",
    "S.__format__=lambda s,k: 'abcdefg'",
    "class S(int): pass\na=S(1)",
    args="x(),a",
)
row(
    "deepcopy_hook",
    "lambda y: y*copy.deepcopy(a).v",
    "A.__deepcopy__=lambda s,m: types.SimpleNamespace(v=9)",
    "import copy\nclass A: pass\na=A(); a.v=2",
)
row(
    "copy_hook",
    "lambda y: y*copy.copy(a).v",
    "A.__copy__=lambda s: types.SimpleNamespace(v=9)",
    "import copy\nclass A: pass\na=A(); a.v=2",
)
row(
    "reduce_hook",
    "lambda y: y*copy.copy(a).v",
    "A.__reduce_ex__=lambda s,p: (types.SimpleNamespace,(),{'v':9})",
    "import copy\nclass A: pass\na=A(); a.v=2",
)
row(
    "exc_bases",
    "def f(y):\n try: raise A()\n except C: return y*2\n except A: return y*3",
    "A.__bases__=(B,C)",
    "class B(Exception): pass\nclass C(Exception):pass\nclass A(B): pass",
)
row(
    "keys_gained",
    "lambda y: y*len(dict(a))",
    "A.keys=lambda s: ['k','l']; A.__getitem__=lambda s,k: 1",
    "class A:\n def __iter__(s): return iter([(1,2)])\na=A()",
)
row(
    "reflected_bases",
    "lambda y: y*(a+b)",
    "B.__bases__=(A,)",
    "class O: pass\nclass A(O):\n def __add__(s,o): return 2\nclass B(O):\n def __radd__(s,o): return 5\na=A();b=B()",
)
row(
    "float_gained",
    "lambda y: y*2 if hasattr(a,'__float__') else y*3",
    "A.__float__=lambda s: 2.",
    "class A: pass\na=A()",
)
row("slots_gained_dict", "lambda y: y*a.v", "A.v=9", "class A:\n __slots__=()\n v=2\na=A()")
row("property_fget", "lambda y: y*a.v", "A.v=property(lambda s: 9)", "class A:\n @property\n def v(s): return 2\na=A()")
row("property_doc", "lambda y: y*len(A.v.__doc__)", "A.v.__doc__='abcd'", "class A:\n v=property(lambda s:1, doc='ab')")
row("partial_attr", "lambda y: y*p.k", "p.k=9", "p=functools.partial(int); p.k=2")
row(
    "partial_func",
    "lambda y: p(y)",
    "p.__setstate__((g,(),{},{}))",
    "def h(y): return y*2\ndef g(y): return y*3\np=functools.partial(h)",
)
row("partial_kw", "lambda y: p(y)", "p.keywords['k']=9", "def h(y,k): return y*k\np=functools.partial(h,k=2)")
row(
    "classmethod_func",
    "lambda y: A.m(y)",
    "A.m=classmethod(lambda c,y: y*9)",
    "class A:\n @classmethod\n def m(c,y): return y*2",
)
row(
    "staticmethod_func",
    "lambda y: A.m(y)",
    "A.m=staticmethod(lambda y: y*9)",
    "class A:\n @staticmethod\n def m(y): return y*2",
)
row("code_replaced", "lambda y: g(y)", "g.__code__=(lambda y: y*9).__code__", "def g(y): return y*2")
row("generic_alias", "lambda y: y*len(T.__args__)", "T=list[int,str]", "T=list[int]")
row("typevar", "lambda y: y*len(T.__name__)", "T=typing.TypeVar('TT')", "T=typing.TypeVar('T')")
row(
    "weakref_dead",
    "lambda y: y*2 if r() is None else y*3",
    "del a",
    "import weakref\nclass A: pass\na=A(); r=weakref.ref(a)",
)
row("contextvar", "lambda y: y*v.get()", "v.set(9)", "import contextvars\nv=contextvars.ContextVar('v'); v.set(2)")
row("threadlocal", "lambda y: y*l.v", "l.v=9", "l=threading.local(); l.v=2")
row("simplenamespace", "lambda y: y*n.v", "n.v=9", "n=types.SimpleNamespace(v=2)")
row("mappingproxy", "lambda y: y*p['a']", "d['a']=9", "d={'a':2}; p=types.MappingProxyType(d)")
row("chainmap", "lambda y: y*c['a']", "c.maps[0]['a']=9", "c=collections.ChainMap({}, {'a':2})")
row("userdict", "lambda y: y*c['a']", "c.data['a']=9", "c=collections.UserDict({'a':2})")
row("counter_obj", "lambda y: y*c['a']", "c['a']+=5", "c=collections.Counter('aab')")
row(
    "defaultdict_factory",
    "lambda y: y*d.get('zz',1)*(d.default_factory() if d.default_factory else 7)",
    "d.default_factory=None",
    "d=collections.defaultdict(lambda: 3)",
)
row("deque_max", "lambda y: y*sum(d)", "d.append(5)", "d=collections.deque([1,2],maxlen=2)")
row("odict_order", "lambda y: y*list(d)[0]", "d.move_to_end(1)", "d=collections.OrderedDict({1:1,2:2})")
row("dict_order", "lambda y: y*list(d)[0]", "v=d.pop(1); d[1]=v", "d={1:1,2:2}")
row("set_order", "lambda y: y*next(iter(s))", "s.discard(1); s.add(9)", "s={1,2}")
row("bytearray", "lambda y: y*b[0]", "b[0]=9", "b=bytearray(b'a')")
row("memoryview", "lambda y: y*m[0]", "b[0]=9", "b=bytearray(b'a'); m=memoryview(b)")
row("array", "lambda y: y*a[0]", "a[0]=9", "import array; a=array.array('i',[2])")
row("nparray", "lambda y: y*float(a[0])", "a[0]=9", "import numpy as np; a=np.ones(2)")
row("npscalar", "lambda y: y*float(a)", "a=np.float64(5)", "import numpy as np; a=np.float64(2)")
row(
    "decimal_ctx",
    "lambda y: y*float(decimal.Decimal(1)/3)",
    "decimal.getcontext().prec=3",
    "import decimal",
    undo="decimal.getcontext().prec=28",
)
row("fraction", "lambda y: y*float(q)", "q=fractions.Fraction(2,3)", "import fractions; q=fractions.Fraction(1,3)")
row(
    "path_exists",
    "lambda y: y*2 if p.exists() else y*3",
    "p.touch()",
    "import pathlib; p=pathlib.Path(PATH)",
    undo="p.unlink()",
)
row(
    "gen_seed",
    "lambda y: y*(g.initial_seed()%100)",
    "g.manual_seed(77)",
    "g=torch.Generator(); g.manual_seed(5)",
)
row(
    "logger_handlers",
    "lambda y: y*len(l.handlers)",
    "l.addHandler(logging.NullHandler())",
    "import logging; l=logging.getLogger('zzq')",
)
row(
    "cell_swap",
    "lambda y: y*g()",
    "g.__closure__[0].cell_contents=9",
    "def mk():\n k=2\n def g(): return k\n return g\ng=mk()",
)
row(
    "class_cell_super",
    "lambda y: y*a.m()",
    "B.m=lambda s: 9",
    "class B:\n def m(s): return 2\nclass A(B):\n def m(s): return super().m()\na=A()",
)
row(
    "super_insert",
    "lambda y: y*a.m()",
    "A.__bases__=(C,)",
    "class B:\n def m(s): return 2\nclass C(B):\n def m(s): return 5\nclass A(B):\n def m(s): return super().m()\na=A()",
)
row("init_subclass", "lambda y: y*A.reg", "class Q(A): pass", "class A:\n reg=1\n def __init_subclass__(c): A.reg+=1")
row(
    "instance_getattr",
    "lambda y: y*a.zzz",
    "A.__getattr__=lambda s,n: 9",
    "class A:\n def __getattr__(s,n): return 2\na=A()",
)
row(
    "mod_getattr",
    "lambda y: y*m.zzz",
    "m.__getattr__=lambda n: 9",
    "m=types.ModuleType('m'); m.__getattr__=lambda n: 2",
)
row("mod_class", "lambda y: y*m.zzz", "M.zzz=property(lambda s: 9)", "class M(types.ModuleType):\n zzz=2\nm=M('m')")
row(
    "mod_class_swap",
    "lambda y: y*m.zzz",
    "m.__class__=M",
    "class M(types.ModuleType):\n zzz=property(lambda s: 9)\nm=types.ModuleType('m'); m.zzz=2",
)

# -- special methods, arguments and modules

row(
    "lsub_append",
    "def f(y):\n a=L(); a.append(1)\n return y*len(a)",
    "L.append=lambda s,v: None",
    "class L(list): pass",
)
row("lsub_len", "lambda y: y*len(a)", "L.__len__=lambda s: 9", "class L(list): pass\na=L([1])")
row("lsub_getitem", "lambda y: y*a[0]", "L.__getitem__=lambda s,k: 9", "class L(list): pass\na=L([1])")
row("lsub_iter", "lambda y: y*sum(a)", "L.__iter__=lambda s: iter([9])", "class L(list): pass\na=L([1])")
row("lsub_eq", "lambda y: y*2 if a==[1] else y*3", "L.__eq__=lambda s,k: False", "class L(list): pass\na=L([1])")
row(
    "lsub_contains",
    "lambda y: y*2 if 1 in a else y*3",
    "L.__contains__=lambda s,k: False",
    "class L(list): pass\na=L([1])",
)
row("dsub_getitem", "lambda y: y*a['k']", "L.__getitem__=lambda s,k: 9", "class L(dict): pass\na=L(k=1)")
row(
    "dsub_missing",
    "lambda y: y*a['z']",
    "L.__missing__=lambda s,k: 9",
    "class L(dict):\n def __missing__(s,k): return 2\na=L(k=1)",
)
row("dsub_get", "lambda y: y*a.get('k')", "L.get=lambda s,k: 9", "class L(dict): pass\na=L(k=1)")
row("dsub_keys", "lambda y: y*len(list(a.keys()))", "L.keys=lambda s: [1,2,3]", "class L(dict): pass\na=L(k=1)")
row(
    "dsub_items",
    "lambda y: y*sum(v for k,v in a.items())",
    "L.items=lambda s: [(1,9)]",
    "class L(dict): pass\na=L(k=1)",
)
row("dsub_bool", "lambda y: y*2 if a else y*3", "L.__bool__=lambda s: False", "class L(dict): pass\na=L(k=1)")
row("dsub_or", "lambda y: y*len(a|{1:2})", "L.__or__=lambda s,o: [1,2,3]", "class L(dict): pass\na=L(k=1)")
row(
    "ssub_contains",
    "lambda y: y*2 if 1 in a else y*3",
    "L.__contains__=lambda s,k: False",
    "class L(set): pass\na=L([1])",
)
row("tsub_add", "lambda y: y*len(a+(1,))", "L.__add__=lambda s,o: (1,2,3)", "class L(tuple): pass\na=L([1])")
row("obj_add", "lambda y: y*(a+1)", "A.__add__=lambda s,o: 9", "class A:\n def __add__(s,o): return 2\na=A()")
row("obj_radd", "lambda y: y*(1+a)", "A.__radd__=lambda s,o: 9", "class A:\n def __radd__(s,o): return 2\na=A()")
row(
    "obj_iadd",
    "def f(y):\n b=a\n b+=1\n return y*b",
    "A.__iadd__=lambda s,o: 9",
    "class A:\n def __add__(s,o): return 2\na=A()",
)
row("obj_ne", "lambda y: y*2 if a!=1 else y*3", "A.__ne__=lambda s,o: False", "class A: pass\na=A()")
row("obj_eq_gained", "lambda y: y*2 if a==b else y*3", "A.__eq__=lambda s,o: True", "class A: pass\na=A(); b=A()")
row(
    "obj_hash_gained",
    "lambda y: y*len({a,b})",
    "A.__eq__=lambda s,o: True; A.__hash__=lambda s: 1",
    "class A: pass\na=A(); b=A()",
)
row(
    "obj_lt",
    "lambda y: y*2 if a<b else y*3",
    "A.__lt__=lambda s,o: False",
    "class A:\n def __lt__(s,o): return True\na=A(); b=A()",
)
row("obj_bool_gained", "lambda y: y*2 if a else y*3", "A.__bool__=lambda s: False", "class A: pass\na=A()")
row("obj_len_gained", "lambda y: y*2 if a else y*3", "A.__len__=lambda s: 0", "class A: pass\na=A()")
row("obj_str", "lambda y: y*len(str(a))", "A.__str__=lambda s: 'abc'", "class A:\n def __str__(s): return 'a'\na=A()")
row(
    "obj_repr",
    "lambda y: y*len(repr(a))",
    "A.__repr__=lambda s: 'abc'",
    "class A:\n def __repr__(s): return 'a'\na=A()",
)
row(
    "obj_format",
    "lambda y: y*len(f'{a}')",
    "A.__format__=lambda s,p: 'abc'",
    "class A:\n def __format__(s,p): return 'a'\na=A()",
)
row(
    "obj_enter",
    "def f(y):\n with a as v: return y*v",
    "A.__enter__=lambda s: 9",
    "class A:\n def __enter__(s): return 2\n def __exit__(s,*e): pass\na=A()",
)
row(
    "obj_exit",
    "def f(y):\n try:\n  with a: raise ValueError\n except ValueError: return y*2\n return y*3",
    "A.__exit__=lambda s,*e: True",
    "class A:\n def __enter__(s): return 2\n def __exit__(s,*e): pass\na=A()",
)
row("obj_next", "lambda y: y*next(a)", "A.__next__=lambda s: 9", "class A:\n def __next__(s): return 2\na=A()")
row(
    "obj_reversed",
    "lambda y: y*list(reversed(a))[0]",
    "A.__reversed__=lambda s: iter([9])",
    "class A:\n def __len__(s): return 1\n def __getitem__(s,i): return 2\na=A()",
)
row("obj_index", "lambda y: y*[1,2,3][a]", "A.__index__=lambda s: 2", "class A:\n def __index__(s): return 1\na=A()")
row("obj_float", "lambda y: y*float(a)", "A.__float__=lambda s: 9.", "class A:\n def __float__(s): return 2.\na=A()")
row(
    "obj_setattr",
    "def f(y):\n a.v=3\n return y*a.v",
    "A.__setattr__=lambda s,n,v: object.__setattr__(s,n,9)",
    "class A: pass\na=A()",
)
row(
    "obj_delattr",
    "def f(y):\n a.v=3\n try: del a.v\n except Exception: pass\n return y*getattr(a,'v',1)",
    "A.__delattr__=lambda s,n: None",
    "class A: pass\na=A()",
)
row("obj_init", "lambda y: y*A().v", "A.__init__=lambda s: setattr(s,'v',9)", "class A:\n def __init__(s): s.v=2")
row("obj_new", "lambda y: y*A().v", "A.__new__=lambda c: types.SimpleNamespace(v=9)", "class A:\n v=2")
row("obj_call", "lambda y: a(y)", "A.__call__=lambda s,y: y*9", "class A:\n def __call__(s,y): return y*2\na=A()")
row(
    "obj_getitem_iter",
    "lambda y: y*sum(a)",
    "A.__iter__=lambda s: iter([9])",
    "class A:\n def __getitem__(s,i):\n  if i>1: raise IndexError\n  return 2\na=A()",
)
row(
    "obj_contains",
    "lambda y: y*2 if 2 in a else y*3",
    "A.__contains__=lambda s,k: False",
    "class A:\n def __iter__(s): return iter([2])\na=A()",
)
row("obj_missing_attr", "lambda y: y*getattr(a,'q',2)", "A.q=9", "class A: pass\na=A()")
row(
    "obj_torch_function",
    "lambda y: torch.add(y,a)",
    "A.__torch_function__=classmethod(lambda c,f,t,a,k=None: torch.ones(1))",
    "class A(float): pass\na=A(2.)",
    kind="breaks",
)
row(
    "cls_getitem",
    "lambda y: y*2 if A[int] is A else y*3",
    "A.__class_getitem__=classmethod(lambda c,k: c)",
    "class A:\n @classmethod\n def __class_getitem__(c,k): return 5",
)
row("exc_attr", "def f(y):\n try: raise E(2)\n except E as e: return y*e.v", "E.v=9", "class E(Exception): v=2")
row(
    "exc_init",
    "def f(y):\n try: raise E(2)\n except E as e: return y*e.v",
    "E.__init__=lambda s,v: setattr(s,'v',9)",
    "class E(Exception):\n def __init__(s,v): s.v=v",
)
row(
    "exc_str",
    "def f(y):\n try: raise E('ab')\n except E as e: return y*len(str(e))",
    "E.__str__=lambda s: 'abcd'",
    "class E(Exception): pass",
)
row("gen_func", "lambda y: y*sum(g())", "g.__code__=h.__code__", "def g():\n yield 1\n yield 2\ndef h():\n yield 9")
row("range_arg", "lambda y,i: y*sum(i)", args="x(),range(3)", after="x(),range(1,3)")
row("slice_arg", "lambda y,i: y[i]", args="x(),slice(0,1)", after="x(),slice(1,2)")
row("size_arg", "lambda y,i: y*i[0]", args="x(),torch.Size([2])", after="x(),torch.Size([3])")
row("dtype_arg", "lambda y,d: y.to(d)", args="x(),torch.float64", after="x(),torch.int32")
row(
    "device_arg",
    "lambda y,d: y*2 if d.type=='cpu' else y*3",
    args="x(),torch.device('cpu')",
    after="x(),torch.device('meta')",
)
row("module_arg", "lambda y,m: m(y)", "", "a=nn.Linear(3,3); b=nn.Linear(3,3)", args="x(),a", after="x(),b")
row("class_arg", "lambda y,c: y*c.v", "", "class A: v=2\nclass B: v=3", args="x(),A", after="x(),B")
row("func_arg", "lambda y,g: g(y)", args="x(),torch.sin", after="x(),torch.cos")
row("kwargs_order", "lambda y,d: y*list(d)[0]", args="x(),{1:1,2:2}", after="x(),{2:2,1:1}")
row("bool_int", "lambda y,k: y*2 if k is True else y*3", args="x(),True", after="x(),1")
row("neg_zero", "lambda y,k: y*0+1/math.copysign(1,k)", args="x(),0.0", after="x(),-0.0")
row(
    "F_module_global",
    "lambda y: lin(y)",
    "old=torch.nn.modules.linear.F; torch.nn.modules.linear.F=types.SimpleNamespace(linear=lambda a,w,b: a*2)",
    "lin=nn.Linear(3,3)",
    undo="torch.nn.modules.linear.F=old",
)
row("forward_inst", "lambda y: lin(y)", "lin.forward=lambda y: y*2", "lin=nn.Linear(3,3)")
row("param_swap", "lambda y: lin(y)", "lin.weight=nn.Parameter(torch.ones(3,3))", "lin=nn.Linear(3,3)")
row("param_data", "lambda y: lin(y)", "lin.weight.data=torch.ones(3,3)", "lin=nn.Linear(3,3)")
row("param_data_shape", "lambda y: y@w.t()", "w.data=torch.ones(5,3)", "w=nn.Parameter(torch.ones(3,3))")
row("train_mode", "lambda y: d(y).sum()*0+(2 if d.training else 3)", "d.eval()", "d=nn.Dropout(0.)")
row("buffer_reg", "lambda y: y*len(list(m.buffers()))", "m.register_buffer('q',torch.ones(1))", "m=nn.BatchNorm1d(3)")
row("hook_reg", "lambda y: lin(y)", "lin.register_forward_hook(lambda m,a,o: o*2)", "lin=nn.Linear(3,3)")
row("prehook_reg", "lambda y: lin(y)", "lin.register_forward_pre_hook(lambda m,a: (a[0]*2,))", "lin=nn.Linear(3,3)")
row("compiled_call_impl", "lambda y: lin(y)", "lin._compiled_call_impl=lambda y: y*2", "lin=nn.Linear(3,3)")
row(
    "globalhook",
    "lambda y: lin(y)",
    "h=torch.nn.modules.module.register_module_forward_hook(lambda m,a,o: o*2)",
    "lin=nn.Linear(3,3)",
    undo="h.remove()",
)
row("backward_hook", "lambda y: lin(y)", "lin.register_full_backward_hook(lambda m,a,o: None)", "lin=nn.Linear(3,3)")
row(
    "module_class_swap",
    "lambda y: lin(y)",
    "lin.__class__=L2",
    "lin=nn.Linear(3,3)\nclass L2(nn.Linear):\n def forward(s,y): return y*2",
)
row("seq_append", "lambda y: s(y)", "s.append(nn.ReLU())", "s=nn.Sequential(nn.Linear(3,3))")
row("modlist", "lambda y: y*len(l)", "l.append(nn.ReLU())", "l=nn.ModuleList([nn.Linear(3,3)])")
row(
    "requires_grad",
    "lambda y: (y@w).requires_grad and y*2",
    "w.requires_grad_(False)",
    "w=nn.Parameter(torch.ones(3,3))",
)
row("named", "lambda y: y*len([n for n,_ in lin.named_parameters()])", "lin.bias=None", "lin=nn.Linear(3,3)")
row("state_dict", "lambda y: y*len(lin.state_dict())", "lin.bias=None", "lin=nn.Linear(3,3)")
row("extra_repr", "lambda y: y*lin.in_features", "lin.in_features=9", "lin=nn.Linear(3,3)")
row(
    "parametrize",
    "lambda y: lin(y)",
    "torch.nn.utils.parametrize.register_parametrization(lin,'weight',P())",
    "import torch.nn.utils.parametrize\nlin=nn.Linear(3,3)\nclass P(nn.Module):\n def forward(s,w): return w*2",
)
row("weight_norm", "lambda y: lin(y)", "torch.nn.utils.weight_norm(lin)", "lin=nn.Linear(3,3)")
row("class_text", "lambda y: y*len(str(A))", "A.__qualname__='Abcdef'", "class A: pass")
row("enum_text", "lambda y: y*len(str(E.A))", "E.__str__=lambda s: 'ab'", "class E(enum.Enum):\n A=1")
row("function_text", "lambda y: y*len(repr(g).partition(' at ')[0])", "g.__qualname__='abcdef'", "def g(): pass")
