"""The classes of tensors: which of their attributes are torch's own, and what a program has put in their place.

Operations on tensors are calls of the graph as long as the class has torch's own methods, which is guarded for each
name that is used. What somebody has put there instead is found and called as on any other object.
Neighbours: `tensor.py` (asks for each attribute and operator), `leaves.py` (torch's functions that use them).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from stator.capture.source import ClassAttrSource, ConstSource, InstanceDictSource, ItemSource
from stator.capture.values import watch
from stator.capture.values.lookup import MISSING, look_up, static_attribute
from stator.capture.values.python.objects.descriptors import bind
from stator.capture.values.registry import wrap

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value
    from stator.capture.values.torch.tensor import TensorValue

#: Tensor classes without behaviour of their own.
PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

#: The class of `torch.FloatTensor` and its like.
TENSOR_TYPE = type(torch.FloatTensor)

#: What tensors of other classes are taken for by their attribute.
MARKED = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}

#: Attributes whose value the fake knows.
FACTS = frozenset(
    {
        "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "itemsize", "nbytes", "is_cuda",
        "is_cpu", "is_mps", "is_xpu", "is_meta", "is_mkldnn", "is_quantized", "is_sparse", "is_sparse_csr",
        "is_nested", "names", "output_nr", "retains_grad", "is_xla", "is_maia", "is_hpu", "is_ipu", "is_mtia",
        "is_vulkan",
    }
)  # fmt: skip

#: Methods that answer from the fake; with any argument they still do.
QUESTIONS = frozenset(
    {
        "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "storage_offset", "element_size",
        "is_floating_point", "is_complex", "is_signed", "get_device", "is_same_size", "is_conj",
        "is_neg", "has_names", "dense_dim", "sparse_dim", "dim_order",
    }
)  # fmt: skip

#: Those that a TENSOR guard does not hold.
UNGUARDED_FACTS = frozenset({"is_leaf", "names", "output_nr", "retains_grad"})

#: Facts and questions that torch answers for a whole batch, not for one element.
UNMAPPED = frozenset(
    {"requires_grad", "is_leaf", "output_nr", "stride", "is_contiguous", "storage_offset", "dim_order"}
)

#: Attributes that are views.
VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag"})

#: Methods whose result is a Python object made from the data.
DATA_METHODS = frozenset({"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__"})


def is_torchs(raw: Any) -> bool:
    """Whether a class attribute or function comes from torch."""
    raw = getattr(raw, "fget", None) or getattr(raw, "__func__", None) or raw
    if isinstance(raw, types.FunctionType):
        return raw.__module__.partition(".")[0] == "torch"
    return True


#: What the classes have by themselves.
OWN: dict[type, dict[str, Any]] = {
    cls: {name: raw for name in dir(cls) if is_torchs(raw := static_attribute(cls, name))} for cls in PLAIN_CLASSES
}


def replaced(cls: type, name: str, raw: Any) -> bool:
    """Whether what a tensor class has under a name is not what torch has put there."""
    own = OWN[cls].get(name, MISSING)
    return raw is not own and (own is not MISSING or not is_torchs(raw))


def override(tx: Machine, value: Value, name: str) -> Value | None:
    """The attribute of a tensor that somebody has put in the place of torch's own; None, guarded, if nobody has."""
    cls = value.python_type()
    raw = look_up(tx, cls, name)
    if not replaced(cls, name, raw):
        return None
    if raw is MISSING:
        raise value.refuse(f"the attribute {name!r}, which has been deleted from its class,")
    return bind(tx, raw, ClassAttrSource(ConstSource(cls), name), value, cls)


def call_override(tx: Machine, value: Value, name: str, *args: Value) -> Value | None:
    """What a special method gives that somebody has put in the place of torch's own; None if nobody has."""
    method = override(tx, value, name)
    return None if method is None else method.call(tx, args, {})


def own_method(name: str) -> Any:
    """Torch's own method for a call of the graph by name, where the class now has another one; else None."""
    return OWN[torch.Tensor].get(name) if replaced(torch.Tensor, name, static_attribute(torch.Tensor, name)) else None


def is_kind_of(tx: Machine, value: TensorValue, wanted: Any) -> bool | None:
    """Whether a tensor is of one of torch's old tensor types, or a parameter or buffer, which an attribute can say."""
    if isinstance(wanted, TENSOR_TYPE):
        facts = value.fake
        return bool(wanted.dtype is facts.dtype and wanted.is_cuda == facts.is_cuda and not wanted.is_sparse)
    if wanted not in MARKED:
        return None
    if issubclass(value.cls, wanted):
        return True
    name = MARKED[wanted]
    if value.real is None or value.source is None:
        return name in value.attributes and value.attributes[name].truth(tx)
    namespace = value.real.__dict__
    place = InstanceDictSource(value.source)
    if name not in namespace:
        watch.absent(tx, place, name)
        return False
    return wrap(tx, namespace[name], ItemSource(place, name)).truth(tx)
