"""Names: globals, imports, del, walrus, assignments."""

import math

import torch

from tests.capture.programs import table
from tests.capture.programs.table import program, x

COUNT = 0
TOTAL = torch.zeros(2, 3)
ITEMS = []
TABLE = {"scale": 2.0}
LATER = None


@program()
def global_read(x):
    return x * TABLE["scale"] + COUNT


@program()
def global_number_written(x):
    global COUNT
    COUNT += 1
    return x + 1


@program()
def global_tensor_written(x):
    global TOTAL
    TOTAL = TOTAL + x
    return TOTAL * 2


@program()
def global_tensor_changed_in_place(x):
    TOTAL.add_(x)
    return x + 1


@program()
def global_list_grows(x):
    ITEMS.append(x.shape[0])
    ITEMS.append(x * 2)
    return x + len(ITEMS)


@program()
def global_dict_written(x):
    TABLE["last"] = x
    TABLE["scale"] *= 2
    return x * TABLE["scale"]


@program()
def global_made_and_deleted(x):
    global FRESH
    FRESH = x + 1
    y = FRESH
    del FRESH
    return y


@program()
def global_stays_made(x):
    global LATER
    LATER = [x * 2, COUNT]
    return LATER[0]


def helper(x):
    global COUNT
    COUNT = COUNT + 10
    return x + COUNT


@program()
def global_written_by_callee(x):
    return helper(helper(x)), COUNT


@program()
def global_of_another_module(x):
    return x + len(table.__name__)


@program()
def import_inside(x):
    import math as m
    from collections import OrderedDict

    return x * m.pi, OrderedDict.__name__


@program()
def import_submodule(x):
    import torch.nn.functional as F
    from torch import nn

    return F.relu(x), nn.ReLU()(x)


@program(breaks="a module is imported for the first time")
def import_missing(x):
    try:
        import not_there_at_all
    except ImportError as error:
        return x + 1, error.name


@program()
def module_attribute(x):
    return x * math.pi + math.e


@program()
def local_deleted(x):
    y = x + 1
    z = y
    del y
    try:
        y
    except UnboundLocalError:
        return z


@program()
def walrus(x):
    if (n := x.shape[0]) > 1:
        return x * n
    return x, (y := x + 1), y


@program()
def augmented(x):
    y = x
    y = y + 1
    n = 1
    n += 2
    n *= 3
    n -= 1
    n //= 2
    n **= 2
    return y * n


@program()
def multiple_targets(x):
    a = b = x + 1
    (c, d), [e, f] = (a, b), [1, 2]
    return a is b, c is d, c + e + f


@program()
def assertion_passes(x):
    assert x.dim() == 2, "two dimensions"
    assert isinstance(x, torch.Tensor)
    return x + 1


@program()
def annotated_local(x):
    y: int = 2
    z: "torch.Tensor" = x * y
    return z


@program()
def conditional_expression(x):
    mode = "train" if x.requires_grad else "eval"
    return x + len(mode), mode


@program()
def builtin_shadowed(x):
    len = lambda items: 7  # noqa: E731
    return x * len([])


@program()
def globals_function(x):
    return x + 1, callable(helper), helper.__module__ == __name__


@program()
def underscore_names(x):
    _, __ = x.shape
    for _ in range(2):
        x = x + 1
    return x, _
