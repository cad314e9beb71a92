"""Methods of tensors and functions of torch replaced, and tensors that differ in a fact, as rows of a table."""

from __future__ import annotations

from tests.capture.changing import IMPORTS, Rows

rows = Rows(IMPORTS)
row = rows.row

row(
    "tensor_sin",
    "lambda y: y.sin()",
    "old=torch.Tensor.sin; torch.Tensor.sin=lambda s: s*5",
    undo="del torch.Tensor.sin",
)
row(
    "tensor_add",
    "lambda y: y+1",
    "old=torch.Tensor.__add__; torch.Tensor.__add__=lambda s,o: s*5",
    undo="torch.Tensor.__add__=old",
)
for op, nm in [
    ("y-1", "sub"),
    ("y*2", "mul"),
    ("y/2", "truediv"),
    ("y//2", "floordiv"),
    ("y%2", "mod"),
    ("y**2", "pow"),
    ("y@y.mT", "matmul"),
]:
    row(
        "tensor_" + nm,
        "lambda y: " + op,
        f"old=torch.Tensor.__{nm}__; torch.Tensor.__{nm}__=lambda s,o: s.sum()",
        undo=f"torch.Tensor.__{nm}__=old",
    )
for op, nm in [
    ("1+y", "radd"),
    ("1-y", "rsub"),
    ("2*y", "rmul"),
    ("2/y", "rtruediv"),
    ("2//y", "rfloordiv"),
    ("2%y", "rmod"),
    ("2**y", "rpow"),
]:
    row(
        "tensor_" + nm,
        "lambda y: " + op,
        f"old=torch.Tensor.__{nm}__; torch.Tensor.__{nm}__=lambda s,o: s.sum()",
        undo=f"torch.Tensor.__{nm}__=old",
    )
for op, nm in [("y<1", "lt"), ("y!=1", "ne"), ("y>1", "gt"), ("y<=1", "le"), ("y>=1", "ge")]:
    row(
        "tensor_" + nm,
        "lambda y: " + op,
        f"old=torch.Tensor.__{nm}__; torch.Tensor.__{nm}__=lambda s,o: s.sum()",
        undo=f"torch.Tensor.__{nm}__=old",
    )
for op, nm in [("-y", "neg"), ("abs(y)", "abs"), ("~(y>1)", "invert")]:
    row(
        "tensor_" + nm,
        "lambda y: " + op,
        f"old=torch.Tensor.__{nm}__; torch.Tensor.__{nm}__=lambda s: s.sum()",
        undo=f"torch.Tensor.__{nm}__=old",
    )
row(
    "tensor_getitem",
    "lambda y: y[0]",
    "old=torch.Tensor.__getitem__; torch.Tensor.__getitem__=lambda s,k: s.sum()",
    undo="torch.Tensor.__getitem__=old",
)
row(
    "tensor_setitem",
    "def f(y):\n y=y*1\n y[0]=3\n return y",
    "old=torch.Tensor.__setitem__; torch.Tensor.__setitem__=lambda s,k,v: s.zero_()",
    undo="torch.Tensor.__setitem__=old",
)
row(
    "tensor_len",
    "lambda y: y*len(y)",
    "old=torch.Tensor.__len__; torch.Tensor.__len__=lambda s: 7",
    undo="torch.Tensor.__len__=old",
)
row(
    "tensor_iter",
    "lambda y: [a*2 for a in y]",
    "old=torch.Tensor.__iter__; torch.Tensor.__iter__=lambda s: iter([s])",
    undo="torch.Tensor.__iter__=old",
)
row("tensor_size", "lambda y: y*y.size(0)", "torch.Tensor.size=lambda s,d:9", undo="del torch.Tensor.size")
row(
    "tensor_dtype",
    "lambda y: y*(y.dtype==torch.float32)",
    "torch.Tensor.dtype=property(lambda s:torch.int32)",
    undo="del torch.Tensor.dtype",
)
row("tensor_T", "lambda y: y.T", "torch.Tensor.T=property(lambda s:s)", undo="del torch.Tensor.T")
row("tensor_data", "lambda y: y.data*1", "torch.Tensor.data=property(lambda s:s.sum())", undo="del torch.Tensor.data")
row(
    "tensor_getattr",
    "lambda y: y*getattr(y,'foo',2)",
    "torch.Tensor.__getattr__=lambda s,n: 7 if n=='foo' else object.__getattribute__(s,n)",
    undo="del torch.Tensor.__getattr__",
)
row(
    "tensor_iadd",
    "def f(y):\n y=y*1\n y+=1\n return y",
    "old=torch.Tensor.__iadd__; torch.Tensor.__iadd__=lambda s,o: s*5",
    undo="torch.Tensor.__iadd__=old",
)
row(
    "tensor_newmethod",
    "lambda y: y.frob() if hasattr(y,'frob') else y*2",
    "torch.Tensor.frob=lambda s:s*9",
    undo="del torch.Tensor.frob",
)
row(
    "tensor_sin_before",
    "lambda y: y.sin()",
    "torch.Tensor.sin=lambda s: s*7",
    "torch.Tensor.sin=lambda s: s*5",
    undo="del torch.Tensor.sin",
)
row("torch_sin", "lambda y: torch.sin(y)", "old=torch.sin; torch.sin=lambda s: s*5", undo="torch.sin=old")
row("F_relu", "lambda y: F.relu(y-1)", "old=F.relu; F.relu=lambda s: s*5", undo="F.relu=old")
row("F_relu_inner", "lambda y: F.relu(y-1)", "old=torch.relu; torch.relu=lambda s: s*5", undo="torch.relu=old")
row(
    "F_relu_code",
    "lambda y: F.relu(y-1)",
    "old=F.relu.__code__; F.relu.__code__=(lambda input,inplace=False: input*5).__code__",
    undo="F.relu.__code__=old",
)
row(
    "F_relu_defaults",
    "lambda y: F.leaky_relu(y-1)",
    "old=F.leaky_relu.__defaults__; F.leaky_relu.__defaults__=(0.5,False)",
    undo="F.leaky_relu.__defaults__=old",
)
row(
    "F_gelu_inner",
    "lambda y: F.normalize(y)",
    "old=torch.Tensor.norm; torch.Tensor.norm=lambda s,*a,**k: s.sum()",
    undo="torch.Tensor.norm=old",
)
row(
    "F_linear",
    "def f(y):\n return lin(y)",
    "old=F.linear; F.linear=lambda a,w,b: a.sum()",
    "lin=nn.Linear(3,2)",
    undo="F.linear=old",
)
row(
    "Module_call",
    "lambda y: lin(y)",
    "old=nn.Module.__call__; nn.Module.__call__=lambda s,y: y*3",
    "lin=nn.Linear(3,2)",
    undo="nn.Module.__call__=old",
)
row(
    "Module_call_impl",
    "lambda y: lin(y)",
    "old=nn.Module._call_impl; nn.Module._call_impl=lambda s,y: y*3",
    "lin=nn.Linear(3,2)",
    undo="nn.Module._call_impl=old",
)
row(
    "Module_getattr",
    "lambda y: y*lin.weight.sum()",
    "old=nn.Module.__getattr__; nn.Module.__getattr__=lambda s,n: torch.ones(())*3 if n=='weight' else old(s,n)",
    "lin=nn.Linear(3,2)",
    undo="nn.Module.__getattr__=old",
)
row(
    "Linear_forward",
    "lambda y: lin(y)",
    "old=nn.Linear.forward; nn.Linear.forward=lambda s,y: y*3",
    "lin=nn.Linear(3,2)",
    undo="nn.Linear.forward=old",
)
row(
    "Module_setattr_new",
    "lambda y: y*m.z",
    "M.__getattr__=lambda s,n: 5.",
    "class M(nn.Module):\n pass\nm=M(); m.z=2.\n",
)

# -- facts
row("FloatTensor", "lambda y: y*2 if isinstance(y*2,torch.FloatTensor) else y*3", "", args="x()", after="x().double()")
row("FloatTensor_in", "lambda y: y*2 if isinstance(y,torch.FloatTensor) else y*3", "", args="x()", after="x().double()")
row(
    "LongTensor",
    "lambda y: y*2 if isinstance(y.long(),torch.LongTensor) else y*3",
    "",
    args="x()",
    after="x().double()",
)
row("is_view", "lambda y,a: y*2 if a._is_view() else y*3", "", args="x(),x()", after="x(),x()[0]")
row("is_view2", "lambda y,a: y*2 if a._is_view() else y*3", "", args="x(),x()[0]", after="x(),x().clone()[0]*1")
row("is_view_mid", "lambda y: y*2 if y[0]._is_view() else y*3", "")
row(
    "grad_fn",
    "lambda y,a: y*2 if a.grad_fn is None else y*3",
    "",
    args="x(),x().requires_grad_()",
    after="x(),x().requires_grad_()*1",
)
row(
    "grad_fn2",
    "lambda y,a: y*2 if a.grad_fn is None else y*3",
    "",
    args="x(),x().requires_grad_()*1",
    after="x(),x().requires_grad_()",
)
row("is_leaf_mid", "lambda y,a: y*2 if (a[0]).is_leaf else y*3", "", args="x(),x()", after="x(),x().requires_grad_()")
row("base", "lambda y,a: y*2 if a._base is None else y*3", "", args="x(),x()[0]", after="x(),x()[0]*1")
row("version", "lambda y,a: y*a._version", "t.add_(1)", "t=x()", args="x(),t")
row(
    "data_ptr",
    "lambda y,a,b: y*2 if a.data_ptr()==b.data_ptr() else y*3",
    "",
    "t=x()",
    args="x(),t,t",
    after="x(),t,x()",
)
row("is_shared", "lambda y,a: y*2 if a.is_shared() else y*3", "t.share_memory_()", "t=x()", args="x(),t")
row("is_pinned", "lambda y,a: y*2 if a.is_pinned() else y*3", "", "t=x()", args="x(),t")
row("grad", "lambda y,a: y*2 if a.grad is None else y*3", "a.sum().backward()", "a=x().requires_grad_()", args="x(),a")
row(
    "hooks",
    "lambda y,a: y*2 if a._backward_hooks is None else y*3",
    "a.register_hook(lambda g:g)",
    "a=x().requires_grad_()",
    args="x(),a",
)
row("name", "lambda y,a: y*2 if a.name is None else y*3", "", args="x(),x()", after="x(),x()")
row(
    "is_inference",
    "lambda y,a: y*2 if a.is_inference() else y*3",
    "with torch.inference_mode(): t=x()",
    args="x(),x()",
    after="x(),t",
)
row(
    "storage_size",
    "lambda y,a: y*a.untyped_storage().nbytes()",
    "",
    args="x(),x()",
    after="x(),torch.arange(12.)[:6].view(2,3)",
)
row("is_set_to", "lambda y,a,b: y*2 if a.is_set_to(b) else y*3", "", "t=x()", args="x(),t,t", after="x(),t,x()")
row(
    "is_contig",
    "lambda y,a: y*2 if a.is_contiguous(memory_format=torch.channels_last) else y*3",
    "",
    args="x(),torch.ones(2,3,4,5)",
    after="x(),torch.ones(2,3,4,5).to(memory_format=torch.channels_last)",
)
row("is_distributed", "lambda y,a: y*2 if a.is_distributed() else y*3", "", args="x(),x()")
row("is_coalesced", "lambda y,a: y*2 if a.is_sparse else y*3", "", args="x(),x()")
row("dir_tensor", "lambda y,a: y*len(dir(a))", "b=x(); b.foo=1", args="x(),x()", after="x(),b")
row("vars_tensor", "lambda y,a: y*len(vars(a))", "b=x(); b.foo=1", args="x(),x()", after="x(),b", kind="breaks")
row("tensor_has", "lambda y,a: y*2 if hasattr(a,'foo') else y*3", "b=x(); b.foo=1", args="x(),x()", after="x(),b")
row("tensor_shadow", "lambda y,a: a.sin()", "b=x(); b.sin=lambda: torch.ones(1)", args="x(),x()", after="x(),b")
row("tensor_shadow2", "lambda y,a: a.size(0)*y", "b=x(); b.size=lambda d: 9", args="x(),x()", after="x(),b")
row(
    "tensor_tp",
    "lambda y,a: y*2 if type(a) is nn.Parameter else y*3",
    "",
    args="x(),x()",
    after="x(),nn.Parameter(x())",
)
