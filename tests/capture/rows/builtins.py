"""Builtins that the program replaces: its own uses of them are seen, ours go on to mean Python's."""

from __future__ import annotations

from tests.capture.changing import IMPORTS, Rows

rows = Rows(IMPORTS)
row = rows.row


def b(name: str, program: str, new: str, setup: str = "", way: str = "") -> None:
    change = f"import builtins; old = builtins.{name}; builtins.{name} = {new}"
    row(f"builtin_{name}{way}", program, change, setup, undo=f"builtins.{name} = old")


b("len", "lambda y: y*len([1,2])", "lambda o: old(o)+1")
b("len", "lambda y: y*len([1,2])", "lambda o: 7", way="_seven")
b("sum", "lambda y: y*sum([1,2])", "lambda o: 7")
b("max", "lambda y: y*max(1,2)", "lambda *o: 7")
b("min", "lambda y: y*min(1,2)", "lambda *o: 7")
b("abs", "lambda y: y*abs(-2)", "lambda *o: 7")
b("range", "def f(y):\n for i in range(3): y=y+1\n return y", "lambda n: [1]*5")
b("sorted", "lambda y: y*sorted([2,1])[0]", "lambda o: [7]")
b("isinstance", "lambda y: y*2 if isinstance(3,int) else y*3", "lambda a,b: old(a,b) if a!=3 else False")
b("getattr", "lambda y: y*getattr(o,'k',3)", "lambda a,b,*c: old(a,b,*c) if b!='k' else 9", setup="class O:pass\no=O()")
b("hasattr", "lambda y: y*2 if hasattr(y,'foo') else y*3", "lambda a,b: True")
b("int", "lambda y: y*int(2.5)", "lambda a: 9")
b("str", "lambda y: y*len(str(5))", "lambda a: 'abcd'")
b("tuple", "lambda y: y*len(tuple([5]))", "lambda a: 'abcd'")
b("list", "lambda y: y*len(list([5]))", "lambda a: 'abcd'")
b("dict", "lambda y: y*len(dict(a=5))", "lambda **a: 'abcd'")
b("zip", "lambda y: y*len(list(zip([5],[6])))", "lambda *a: 'abcd'")
b("enumerate", "lambda y: y*len(list(enumerate([5])))", "lambda *a: 'abcd'")
b("map", "lambda y: y*len(list(map(int,[5])))", "lambda *a: 'abcd'")
b("all", "lambda y: y*2 if all([1]) else y*3", "lambda a: False")
b("any", "lambda y: y*2 if any([1]) else y*3", "lambda a: False")
b("type", "lambda y: y*2 if type(5) is int else y*3", "lambda a: str")
b("iter", "lambda y: y*next(iter([5]))", "lambda a: old([6])")
b("round", "lambda y: y*round(5.4)", "lambda a: 6")
b("print", "lambda y: y*2", "lambda *a: 6")
b("property", "lambda y: y*2 if isinstance(v,property) else y*3", "int", setup="v=property()")
b("reversed", "lambda y: y*list(reversed([5,6]))[0]", "lambda a: [9]")
b("filter", "lambda y: y*len(list(filter(None,[5,6])))", "lambda *a: [9]")
b("set", "lambda y: y*len(set([5,6]))", "lambda *a: [9]")
b("float", "lambda y: y*float(5)", "lambda *a: 9.")
b("callable", "lambda y: y*2 if callable(5) else y*3", "lambda *a: True")
b("divmod", "lambda y: y*divmod(5,2)[0]", "lambda *a: (9,9)")
b("pow", "lambda y: y*pow(5,2)", "lambda *a: 9")
b("hash", "lambda y: y*hash(5)", "lambda *a: 9")
b("repr", "lambda y: y*len(repr(5))", "lambda *a: 'abc'")
b("ord", "lambda y: y*ord('a')", "lambda *a: 9")
b("slice", "lambda y: y[slice(0,1)]", "lambda *a: old(0,2)")
b("setattr", "def f(y):\n setattr(o,'k',3)\n return y*o.k", "lambda a,b,c: old(a,b,c)", setup="class O:pass\no=O()")
