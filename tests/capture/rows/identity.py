"""What is one object and what is two, where Python tells them apart: `is`, keys, members, nan."""

from __future__ import annotations

from tests.capture.changing import IMPORTS, Rows

rows = Rows(IMPORTS)
row = rows.row

row("is_float", "lambda y,k,n: y*2 if k is n else y*3", "", "k=1.5; n=float('1.5')", args="x(),k,k", after="x(),k,n")
row("is_float2", "lambda y,k,n: y*2 if k is n else y*3", "", "k=1.5; n=float('1.5')", args="x(),k,n", after="x(),k,k")
row(
    "is_str",
    "lambda y,k,n: y*2 if k is n else y*3",
    "",
    "k='abc'; n=''.join(['a','bc'])",
    args="x(),k,n",
    after="x(),k,k",
)
row(
    "is_str2",
    "lambda y,k,n: y*2 if k is n else y*3",
    "",
    "k='abc'; n=''.join(['a','bc'])",
    args="x(),k,k",
    after="x(),k,n",
)
row(
    "is_int",
    "lambda y,k,n: y*2 if k is n else y*3",
    "",
    "k=10**9; n=int('1000000000')",
    args="x(),k,n",
    after="x(),k,k",
)
row(
    "is_str_const",
    "lambda y,k: y*2 if k is 'abc' else y*3",
    "",
    "k='abc'; n=''.join(['a','bc'])",
    args="x(),k",
    after="x(),n",
)
row("is_tuple", "lambda y,k,n: y*2 if k is n else y*3", "", "k=(1,2); n=tuple([1,2])", args="x(),k,n", after="x(),k,k")
row("is_tuple2", "lambda y,k,n: y*2 if k is n else y*3", "", "k=(1,2); n=tuple([1,2])", args="x(),k,k", after="x(),k,n")
row("is_global", "lambda y: y*2 if k is n else y*3", "n=k", "k=1.5; n=float('1.5')")
row(
    "is_attr_str",
    "lambda y: y*2 if a.k is a.n else y*3",
    "a.n=a.k",
    "class A: pass\na=A(); a.k='abc'; a.n=''.join(['a','bc'])",
)
row(
    "is_bytes",
    "lambda y,k,n: y*2 if k is n else y*3",
    "",
    "k=b'abc'; n=bytes([97,98,99])",
    args="x(),k,n",
    after="x(),k,k",
)
row("is_complex", "lambda y,k,n: y*2 if k is n else y*3", "", "k=1j; n=complex('1j')", args="x(),k,n", after="x(),k,k")
row(
    "is_device",
    "lambda y,k,n: y*2 if k is n else y*3",
    "",
    "k=torch.device('cpu'); n=torch.device('cpu')",
    args="x(),k,n",
    after="x(),k,k",
)
row("is_list", "lambda y,k,n: y*2 if k is n else y*3", "", "k=[1]; n=[1]", args="x(),k,n", after="x(),k,k")
row(
    "is_strip",
    "lambda y,k,n: y*2 if k.strip() is n else y*3",
    "",
    "k='abc'; n=''.join(['a','bc'])",
    args="x(),k,k",
    after="x(),k,n",
)
row(
    "is_str_str",
    "lambda y,k,n: y*2 if str(k) is n else y*3",
    "",
    "k='abc'; n=''.join(['a','bc'])",
    args="x(),k,k",
    after="x(),k,n",
)
row(
    "is_float_float",
    "lambda y,k,n: y*2 if float(k) is n else y*3",
    "",
    "k=1.5; n=float('1.5')",
    args="x(),k,k",
    after="x(),k,n",
)
row(
    "is_tuple_tuple",
    "lambda y,k,n: y*2 if tuple(k) is n else y*3",
    "",
    "k=(1,2); n=tuple([1,2])",
    args="x(),k,k",
    after="x(),k,n",
)
row("nan_in_list", "lambda y,l,n: y*2 if n in l else y*3", "", "l=[nan]", args="x(),l,nan", after="x(),l,float('nan')")
row("nan_in_list2", "lambda y,l,n: y*2 if n in l else y*3", "", "l=[nan]", args="x(),l,float('nan')", after="x(),l,nan")
row(
    "nan_in_tuple", "lambda y,l,n: y*2 if n in l else y*3", "", "l=(nan,)", args="x(),l,nan", after="x(),l,float('nan')"
)
row("nan_in_set", "lambda y,l,n: y*2 if n in l else y*3", "", "l={nan}", args="x(),l,nan", after="x(),l,float('nan')")
row(
    "nan_in_fset",
    "lambda y,l,n: y*2 if n in l else y*3",
    "",
    "l=frozenset([nan])",
    args="x(),l,nan",
    after="x(),l,float('nan')",
)
row("nan_dget", "lambda y,l,n: y*l.get(n,5.)", "", "l={nan:2.}", args="x(),l,nan", after="x(),l,float('nan')")
row("nan_dict_new", "lambda y,k,n: y*len({k:1,n:2})", "", "", args="x(),nan,nan", after="x(),nan,float('nan')")
row("nan_list_eq", "lambda y,k,n: y*2 if [k]==[n] else y*3", "", "", args="x(),nan,nan", after="x(),nan,float('nan')")
row(
    "nan_tuple_eq", "lambda y,k,n: y*2 if (k,)==(n,) else y*3", "", "", args="x(),nan,nan", after="x(),nan,float('nan')"
)
row(
    "nan_tuples_eq", "lambda y,k,n: y*2 if k==n else y*3", "", "t=(nan,)", args="x(),t,t", after="x(),t,(float('nan'),)"
)
row("nan_index", "lambda y,k,n: y*[k,1.,2.].count(n)", "", "", args="x(),nan,nan", after="x(),nan,float('nan')")
row(
    "nan_dict_eq",
    "lambda y,k,n: y*2 if {1:k}=={1:n} else y*3",
    "",
    "",
    args="x(),nan,nan",
    after="x(),nan,float('nan')",
)
row(
    "nan_deque",
    "lambda y,k,n: y*2 if n in collections.deque([k]) else y*3",
    "",
    "",
    args="x(),nan,nan",
    after="x(),nan,float('nan')",
)
row("nan_attr", "lambda y: y*2 if a.n in a.l else y*3", "a.n=float('nan')", "class A: pass\na=A(); a.n=nan; a.l=[nan]")


def two(name, program, setup="T=x();U=x()", n=2):
    row(name + "_alias", program, "", setup, args="x(),T,U", after="x(),T,T")
    row(name + "_unalias", program, "", setup, args="x(),T,T", after="x(),T,U")


for what, setup in [("t", "T=x();U=x()"), ("o", "class A: pass\nT=A();U=A()")]:
    two(what + "_set", "lambda y,a,b: y+len({a,b})", setup)
    two(what + "_fset", "lambda y,a,b: y+len(frozenset([a,b]))", setup)
    two(what + "_dict", "lambda y,a,b: y+len({a:1,b:2})", setup)
    two(what + "_dictval", "lambda y,a,b: y+{a:1,b:2}[a]", setup)
    two(what + "_inset", "lambda y,a,b: y*2 if b in {a} else y*3", setup)
    two(what + "_get", "lambda y,a,b: y*{a:2}.get(b,3)", setup)
    two(what + "_fromkeys", "lambda y,a,b: y+len(dict.fromkeys([a,b]))", setup)
    two(what + "_setdefault", "def f(y,a,b):\n d={a:2}\n d.setdefault(b,3)\n return y*d[b]*len(d)", setup)
    two(what + "_add", "def f(y,a,b):\n d={a}\n d.add(b)\n return y*len(d)", setup)
    two(what + "_discard", "def f(y,a,b):\n d={a}\n d.discard(b)\n return y*len(d)", setup)
    two(what + "_union", "lambda y,a,b: y*len({a}|{b})", setup)
    two(what + "_inter", "lambda y,a,b: y*len({a}&{b})", setup)
    two(what + "_diff", "lambda y,a,b: y*len({a}-{b})", setup)
    two(what + "_symdiff", "lambda y,a,b: y*len({a}^{b})", setup)
    two(what + "_seteq", "lambda y,a,b: y*2 if {a}=={b} else y*3", setup)
    two(what + "_subset", "lambda y,a,b: y*2 if {a}<={b} else y*3", setup)
    two(what + "_disjoint", "lambda y,a,b: y*2 if {a}.isdisjoint({b}) else y*3", setup)
    two(what + "_keyseq", "lambda y,a,b: y*2 if {a:1}.keys()=={b:1}.keys() else y*3", setup)
    two(what + "_dicteq", "lambda y,a,b: y*2 if {a:1}=={b:1} else y*3", setup)
    two(what + "_update", "def f(y,a,b):\n d={a:1}\n d.update({b:2})\n return y*len(d)", setup)
    two(what + "_or", "lambda y,a,b: y*len({a:1}|{b:2})", setup)
    two(what + "_pop", "lambda y,a,b: y*{a:2}.pop(b,3)", setup)
    two(what + "_is", "lambda y,a,b: y*2 if a is b else y*3", setup)
    two(what + "_isnot", "lambda y,a,b: y*2 if a is not b else y*3", setup)
    two(what + "_id", "lambda y,a,b: y*2 if id(a)==id(b) else y*3", setup)
    two(what + "_tuplekey", "lambda y,a,b: y*len({(a,1),(b,1)})", setup)
    two(what + "_groupby", "lambda y,a,b: y*len({id(v) for v in (a,b)})", setup)
    two(what + "_counter", "lambda y,a,b: y*len(collections.Counter([a,b]))", setup)
    two(
        what + "_defaultdict",
        "def f(y,a,b):\n d=collections.defaultdict(int)\n d[a]+=1\n d[b]+=1\n return y*len(d)",
        setup,
    )
    row(
        what + "_dictin_alias",
        "lambda y,d,b: y*2 if b in d else y*3",
        "",
        setup,
        args="x(),{T:1},T",
        after="x(),{T:1},U",
    )
    row(
        what + "_dictin_alias2",
        "lambda y,d,b: y*2 if b in d else y*3",
        "",
        setup,
        args="x(),{T:1},U",
        after="x(),{T:1},T",
    )
    row(what + "_dictget", "lambda y,d,b: y*d.get(b,5)", "", setup, args="x(),{T:1},U", after="x(),{T:1},T")
    row(what + "_dictget2", "lambda y,d,b: y*d.get(b,5)", "", setup, args="x(),{T:1,U:2},U", after="x(),{T:1,U:2},T")
    row(what + "_setin", "lambda y,d,b: y*2 if b in d else y*3", "", setup, args="x(),{T},U", after="x(),{T},T")
    row(
        what + "_attrset",
        "lambda y,b: y*2 if b in o.s else y*3",
        "o.s.add(U)",
        setup + "\nclass O:pass\no=O();o.s={T}",
        args="x(),U",
    )
two("o_index", "lambda y,a,b: y*[1,a,b].index(b)", "class A: pass\nT=A();U=A()")
two("o_count", "lambda y,a,b: y*[a,b].count(b)", "class A: pass\nT=A();U=A()")
two(
    "o_remove",
    "def f(y,a,b):\n l=[a,b,b]\n l.remove(b)\n return y*2 if l[0] is a else y*3",
    "class A: pass\nT=A();U=A()",
)
two("o_listeq", "lambda y,a,b: y*2 if [a]==[b] else y*3", "class A: pass\nT=A();U=A()")
two("o_tupeq", "lambda y,a,b: y*2 if (a,)==(b,) else y*3", "class A: pass\nT=A();U=A()")
two("o_eq", "lambda y,a,b: y*2 if a==b else y*3", "class A: pass\nT=A();U=A()")
two("o_inlist", "lambda y,a,b: y*2 if b in [a] else y*3", "class A: pass\nT=A();U=A()")
two("f_is", "lambda y,a,b: y*2 if a is b else y*3", "def mk():\n k=1\n def g(): return k\n return g\nT=mk();U=mk()")
two("f_set", "lambda y,a,b: y*len({a,b})", "def mk():\n k=1\n def g(): return k\n return g\nT=mk();U=mk()")
two("m_is", "lambda y,a,b: y*2 if a is b else y*3", "T=[1];U=[1]")
two("d_is", "lambda y,a,b: y*2 if a is b else y*3", "T={1:2};U={1:2}")
two("bm_is", "lambda y,a,b: y*2 if a==b else y*3", "class A:\n def m(s):1\nT=A().m;U=A().m")
two("part_is", "lambda y,a,b: y*2 if a is b else y*3", "T=functools.partial(int,1);U=functools.partial(int,1)")
two("tuple_in_set", "lambda y,a,b: y*len({a,b})", "o1=object();o2=object();T=(o1,);U=(o2,)")
two("fs_is", "lambda y,a,b: y*2 if a is b else y*3", "T=frozenset([1]);U=frozenset([1])")
two("set_is", "lambda y,a,b: y*2 if a is b else y*3", "T=set([1]);U=set([1])")
two("range_is", "lambda y,a,b: y*2 if a is b else y*3", "T=range(3);U=range(3)")
two("slice_is", "lambda y,a,b: y*2 if a is b else y*3", "T=slice(3);U=slice(3)")
two("deque_is", "lambda y,a,b: y*2 if a is b else y*3", "T=collections.deque();U=collections.deque()")
two("t_listeq", "lambda y,a,b: y*2 if [a]==[b] else y*3", "T=torch.tensor(1.);U=torch.tensor(1.)")
two("t_index", "lambda y,a,b: y*[a,b].index(b)", "T=torch.tensor(1.);U=torch.tensor(2.)")
two("t_tupeq", "lambda y,a,b: y*2 if (a,)==(b,) else y*3", "T=torch.tensor(nan);U=torch.tensor(nan)")
