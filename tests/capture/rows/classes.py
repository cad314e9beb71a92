"""Changes of classes, metaclasses, descriptors, named tuples and modules in `sys.modules`, as rows of a table."""

from __future__ import annotations

from tests.capture.changing import IMPORTS, Rows

rows = Rows(IMPORTS)
row = rows.row

row(
    "sys_modules",
    "def f(y):\n import zz\n return y*zz.K",
    "b=types.ModuleType('zz'); b.K=5.; sys.modules['zz']=b",
    "a=types.ModuleType('zz'); a.K=2.; sys.modules['zz']=a",
    undo="sys.modules.pop('zz',None)",
)
row(
    "from_import",
    "def f(y):\n from zz import K\n return y*K",
    "b=types.ModuleType('zz'); b.K=5.; sys.modules['zz']=b",
    "a=types.ModuleType('zz'); a.K=2.; sys.modules['zz']=a",
    undo="sys.modules.pop('zz',None)",
)
row(
    "import_sub",
    "def f(y):\n import zz.q\n return y*zz.q.K",
    "b=types.ModuleType('zz.q'); b.K=5.; sys.modules['zz.q']=b; z.q=b",
    "z=types.ModuleType('zz'); z.__path__=[]; a=types.ModuleType('zz.q'); a.K=2.; sys.modules['zz']=z; sys.modules['zz.q']=a; z.q=a",
    undo="sys.modules.pop('zz',None);sys.modules.pop('zz.q')",
)
row(
    "import_sub_as",
    "def f(y):\n import zz.q as q\n return y*q.K",
    "b=types.ModuleType('zz.q'); b.K=5.; sys.modules['zz.q']=b; z.q=b",
    "z=types.ModuleType('zz'); z.__path__=[]; a=types.ModuleType('zz.q'); a.K=2.; sys.modules['zz']=z; sys.modules['zz.q']=a; z.q=a",
    undo="sys.modules.pop('zz',None);sys.modules.pop('zz.q')",
)
row(
    "import_removed",
    "def f(y):\n import zz\n return y*zz.K",
    "del sys.modules['zz']",
    "a=types.ModuleType('zz'); a.K=2.; sys.modules['zz']=a",
    undo="sys.modules.pop('zz',None)",
)
row(
    "from_import_submodule",
    "def f(y):\n from zz import q\n return y*q.K",
    "b=types.ModuleType('zz.q'); b.K=5.; sys.modules['zz.q']=b",
    "z=types.ModuleType('zz'); z.__path__=[]; a=types.ModuleType('zz.q'); a.K=2.; sys.modules['zz']=z; sys.modules['zz.q']=a",
    undo="sys.modules.pop('zz',None);sys.modules.pop('zz.q')",
)
row(
    "builtin_import",
    "def f(y):\n import zz\n return y*zz.K",
    "import builtins; old=builtins.__import__; builtins.__import__=lambda n,*a: types.SimpleNamespace(K=7.) if n=='zz' else old(n,*a)",
    "a=types.ModuleType('zz'); a.K=2.; sys.modules['zz']=a",
    undo="builtins.__import__=old; sys.modules.pop('zz',None)",
)
row(
    "meta_getattr",
    "lambda y: y*getattr(A,'q',2.)",
    "Meta.__getattr__=lambda c,n: 7.",
    "class Meta(type): pass\nclass A(metaclass=Meta): pass",
)
row(
    "meta_getattribute",
    "lambda y: y*A.v",
    "Meta.__getattribute__=lambda c,n: 7. if n=='v' else type.__getattribute__(c,n)",
    "class Meta(type): pass\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_call",
    "lambda y: y*A().v",
    "Meta.__call__=lambda c: types.SimpleNamespace(v=9.)",
    "class Meta(type): pass\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_len",
    "lambda y: y*len(A)",
    "Meta.__len__=lambda c: 9",
    "class Meta(type):\n def __len__(c): return 3\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_iter",
    "lambda y: y*sum(A)",
    "Meta.__iter__=lambda c: iter([5,6])",
    "class Meta(type):\n def __iter__(c): return iter([1,2])\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_contains",
    "lambda y: y*2 if 3 in A else y*3",
    "Meta.__contains__=lambda c,k: False",
    "class Meta(type):\n def __contains__(c,k): return True\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_getitem",
    "lambda y: y*A[3]",
    "Meta.__getitem__=lambda c,k: 9",
    "class Meta(type):\n def __getitem__(c,k): return 3\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_bool",
    "lambda y: y*2 if A else y*3",
    "Meta.__bool__=lambda c: False",
    "class Meta(type): pass\nclass A(metaclass=Meta):\n v=2.",
)
row(
    "meta_eq",
    "lambda y: y*2 if A==B else y*3",
    "Meta.__eq__=lambda c,o: True; Meta.__hash__=type.__hash__",
    "class Meta(type): pass\nclass A(metaclass=Meta):\n v=2.\nclass B(metaclass=Meta): pass",
)
row(
    "meta_instancecheck",
    "lambda y: y*2 if isinstance(a,A) else y*3",
    "Meta.__instancecheck__=lambda c,o: False",
    "class Meta(type): pass\nclass A(metaclass=Meta):\n v=2.\nclass B: pass\na=B()",
)
row(
    "meta_subclasscheck",
    "lambda y: y*2 if issubclass(B,A) else y*3",
    "Meta.__subclasscheck__=lambda c,o: True",
    "class Meta(type): pass\nclass A(metaclass=Meta):\n v=2.\nclass B: pass\na=B()",
)
row(
    "desc_set",
    "lambda y: y*a.v",
    "D.__set__=lambda s,i,v: None",
    "class D:\n def __get__(s,i,o): return 7.\nclass A:\n v=D()\na=A(); vars(a)['v']=2.",
)
row(
    "desc_delete",
    "lambda y: y*a.v",
    "D.__delete__=lambda s,i: None",
    "class D:\n def __get__(s,i,o): return 7.\nclass A:\n v=D()\na=A(); vars(a)['v']=2.",
)
row(
    "desc_get_gained",
    "lambda y: y*a.v.k",
    "D.__get__=lambda s,i,o: types.SimpleNamespace(k=9.)",
    "class D:\n k=3.\nclass A:\n v=D()\na=A()",
)
row(
    "desc_get_replaced",
    "lambda y: y*a.v",
    "D.__get__=lambda s,i,o: 9.",
    "class D:\n def __get__(s,i,o): return 7.\nclass A:\n v=D()\na=A()",
)
row(
    "desc_get_removed",
    "lambda y: y*(2. if isinstance(a.v,float) else 3.)",
    "del D.__get__",
    "class D:\n def __get__(s,i,o): return 7.\nclass A:\n v=D()\na=A()",
)
row(
    "desc_on_class",
    "lambda y: y*A.v",
    "D.__get__=lambda s,i,o: 9.",
    "class D:\n def __get__(s,i,o): return 7.\nclass A:\n v=D()\na=A()",
)
row(
    "is_param", "lambda a: a*2 if isinstance(a,nn.Parameter) else a*3", "b=x(); b._is_param=True", args="x()", after="b"
)
row("is_buffer", "lambda a: a*2 if isinstance(a,nn.Buffer) else a*3", "b=x(); b._is_buffer=True", args="x()", after="b")
row(
    "namedtuple_prop",
    "lambda y,n: y*n.a",
    "N.a=property(lambda s: 9.)",
    "N=collections.namedtuple('N','a b')\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_method",
    "lambda y,n: y*n.q()",
    "N.q=lambda s: 9.",
    "class N(collections.namedtuple('N','a b')):\n def q(s): return s.a\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_index",
    "lambda y,n: y*n[0]",
    "N.__getitem__=lambda s,i: 9.",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_fields",
    "lambda y,n: y*len(n._fields)",
    "N._fields=('a',)",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_replace",
    "lambda y,n: y*n._replace(a=4.).a",
    "N._replace=lambda s,**k: types.SimpleNamespace(a=11.)",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_asdict",
    "lambda y,n: y*n._asdict()['a']",
    "N._asdict=lambda s: {'a':11.}",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_new",
    "lambda y: y*N(2.,3.).a",
    "N.__new__=lambda c,a,b: tuple.__new__(c,(9.,9.))",
    "class N(collections.namedtuple('N','a b')):\n pass",
)
row(
    "namedtuple_len",
    "lambda y,n: y*len(n)",
    "N.__len__=lambda s: 9",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_iter",
    "lambda y,n: y*sum(n)",
    "N.__iter__=lambda s: iter([9.])",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "namedtuple_eq",
    "lambda y,n: y*2 if n==(2.,3.) else y",
    "N.__eq__=lambda s,o: False",
    "class N(collections.namedtuple('N','a b')):\n pass\nn=N(2.,3.)",
    args="x(),n",
)
row(
    "match_args",
    "def f(y):\n match p:\n  case P(v): return y*v",
    "P.__match_args__=('b',)",
    "class P:\n __match_args__=('a',)\n def __init__(s): s.a=2.; s.b=5.\np=P()",
)
row("class_name", "lambda y: y*len(A.__name__)", "A.__name__='Abc'", "class A: pass")
row("class_qualname", "lambda y: y*len(A.__qualname__)", "A.__qualname__='Abc'", "class A: pass")
row("class_module", "lambda y: y*len(A.__module__)", "A.__module__='Abcdef'", "class A: pass")
row("class_doc", "lambda y: y*len(A.__doc__)", "A.__doc__='Abcdef'", "class A:\n 'doc'")
row("class_bases", "lambda y: y*len(A.__bases__)", "A.__bases__=(B,C)", "class B: pass\nclass C:pass\nclass A(B): pass")
row("class_mro", "lambda y: y*len(A.__mro__)", "A.__bases__=(B,C)", "class B: pass\nclass C:pass\nclass A(B): pass")
row("class_mro_call", "lambda y: y*len(A.mro())", "A.__bases__=(B,C)", "class B: pass\nclass C:pass\nclass A(B): pass")
row("class_dict", "lambda y: y*len(A.__dict__)", "A.q=4", "class A: pass")
row("class_dict_vars", "lambda y: y*vars(A)['q']", "A.q=4", "class A:\n q=3")
row("class_annotations", "lambda y: y*len(A.__annotations__)", "A.__annotations__['z']=int", "class A:\n v: int")
row("subclasses", "lambda y: y*len(P.__subclasses__())", "class Q(P): pass", "class P: pass\nclass P1(P): pass")
row("dir", "lambda y: y*len(dir(a))", "a.q=3", "class A: pass\na=A()")
row("dir_class", "lambda y: y*len(dir(A))", "A.q=3", "class A: pass\na=A()")
row("dir_module", "lambda y: y*len(dir(m))", "m.q=3", "m=types.ModuleType('m')")
row(
    "isinstance_bases",
    "lambda y: y*2 if isinstance(a,C) else y*3",
    "A.__bases__=(B,C)",
    "class B: pass\nclass C:pass\nclass A(B): pass\na=A()",
)
row(
    "issubclass_bases",
    "lambda y: y*2 if issubclass(A,C) else y*3",
    "A.__bases__=(B,C)",
    "class B: pass\nclass C:pass\nclass A(B): pass\na=A()",
)
row(
    "abc_register",
    "lambda y: y*2 if isinstance(a,C) else y*3",
    "C.register(A)",
    "class C(abc.ABC):pass\nclass A: pass\na=A()",
)
row(
    "abc_register_sub",
    "lambda y: y*2 if issubclass(A,C) else y*3",
    "C.register(A)",
    "class C(abc.ABC):pass\nclass A: pass\na=A()",
)
row(
    "abc_hook",
    "lambda y: y*2 if isinstance(a,C) else y*3",
    "C.__subclasshook__=classmethod(lambda c,s: True); C._abc_caches_clear()",
    "class C(abc.ABC):pass\nclass A: pass\na=A()",
)
row(
    "protocol",
    "lambda y: y*2 if isinstance(a,C) else y*3",
    "a.close=lambda:1",
    "@typing.runtime_checkable\nclass C(typing.Protocol):\n def close(self): ...\nclass A: pass\na=A()",
)
row(
    "iterable_check",
    "lambda y: y*2 if isinstance(a,collections.abc.Sized) else y*3",
    "A.__len__=lambda s:1; collections.abc.Sized._abc_caches_clear()",
    "import collections.abc\nclass A: pass\na=A()",
)
row("callable", "lambda y: y*2 if callable(a) else y*3", "A.__call__=lambda s:1", "class A: pass\na=A()")
