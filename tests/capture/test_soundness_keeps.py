"""What happens between two calls and does not concern the program: the second call runs what the first compiled."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import types
import warnings
import weakref
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.changing import Calls, Table, check, ids_of, patched, x

table = Table()
keeps = table.keeps

here: Any = sys.modules[__name__]
SCALE: Any = 1234.5
OPTIONS: Any = {"shift": 1234.5, "names": ["a", "b"]}
UNREAD: Any = 1


def shift(y: torch.Tensor) -> torch.Tensor:
    return y + SCALE


def program(y: torch.Tensor) -> torch.Tensor:
    return shift(y) * OPTIONS["shift"] + len(OPTIONS["names"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.scale = 1234.5
        self.names = ["a", "b"]

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(y)) * self.scale + len(self.names)


def between(name: str, happens: Any) -> None:
    """A case for functions: call, something happens, call."""

    def case(call: Calls) -> None:
        call(program, x())
        happens()
        call(program, x())
        call(program, x())

    case.__name__ = name
    keeps(case)


def between_modules(name: str, happens: Any) -> None:
    """A case for modules: call, something happens to the module, call."""

    def case(call: Calls) -> None:
        module = Net().eval()
        call(module, x())
        happens(module)
        call(module, x())
        call(module, x())

    case.__name__ = name
    keeps(case)


def in_a_thread(action: Any) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def other_modes() -> None:
    """Grad mode, autocast and inference mode belong to threads."""
    torch.set_grad_enabled(False)
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    torch.inference_mode().__enter__()


def new_float(text: str = "1234.5") -> float:
    return float(text)


def set_here(name: str, value: Any) -> Any:
    return lambda: setattr(here, name, value())


# -- functions and globals ---------------------------------------------------------------------------------

between("nothing", lambda: None)
between("garbage_collected", gc.collect)
between("modes_of_another_thread", lambda: in_a_thread(other_modes))
between("grad_mode_there_and_back", lambda: (torch.set_grad_enabled(False), torch.set_grad_enabled(True)))
between("equal_float_as_new_object", set_here("SCALE", new_float))
between("equal_float_in_dict", lambda: OPTIONS.update(shift=new_float()))
between("dict_value_stored_again", lambda: OPTIONS.update(OPTIONS))
between("equal_dict", set_here("OPTIONS", lambda: copy.deepcopy(OPTIONS)))
between("equal_list", lambda: OPTIONS.update(names=["a", "b"]))
between("list_grown_and_shrunk", lambda: (OPTIONS["names"].append(1), OPTIONS["names"].pop()))
between("key_added_and_removed", lambda: (OPTIONS.update(more=1), OPTIONS.pop("more")))
between("unread_global", set_here("UNREAD", object))
between("new_global", lambda: vars(here).update(another=1))
between("function_doc_and_annotations", lambda: shift.__annotations__.update(z=int))
between("function_attribute", lambda: setattr(shift, "note", 1))
between("equal_code", lambda: setattr(shift, "__code__", shift.__code__))
between("random_state", lambda: (torch.manual_seed(3), torch.rand(3)))
between("module_imported", lambda: __import__("colorsys"))
between("warning_filters", lambda: warnings.simplefilter("error"))
between(
    "default_dtype_there_and_back",
    lambda: (torch.set_default_dtype(torch.float64), torch.set_default_dtype(torch.float32)),
)
between("class_made_elsewhere", lambda: type("Elsewhere", (Net,), {"forward": None}))
between("hook_on_another_module", lambda: nn.Linear(2, 2).register_forward_hook(lambda *a: None))
between("recursion_limit", lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1))
between("tensors_made_and_freed", lambda: [torch.ones(2, 3) for _ in range(50)].clear())

# -- modules -------------------------------------------------------------------------------------------------

between_modules("equal_attribute_as_new_object", lambda m: setattr(m, "scale", new_float()))
between_modules("attribute_by_dict", lambda m: vars(m).update(scale=new_float()))
between_modules("equal_list_attribute", lambda m: setattr(m, "names", ["a", "b"]))
between_modules("many_new_attributes", lambda m: vars(m).update({f"n{i}": i for i in range(50)}))
between_modules("attribute_added_and_removed", lambda m: (setattr(m, "more", 1), delattr(m, "more")))
between_modules("hook_added_and_removed", lambda m: m.register_forward_hook(lambda *a: None).remove())
between_modules("hook_on_a_copy", lambda m: copy.deepcopy(m).register_forward_hook(lambda *a: None))
between_modules("copies_and_pickles", lambda m: pickle.loads(pickle.dumps(m)).train())
between_modules("eval_again", lambda m: m.eval())
between_modules("train_and_back", lambda m: m.train().eval())
between_modules("gradients_set_and_dropped", lambda m: (m(x()).sum().backward(), m.zero_grad()))
between_modules("an_optimizer_step", lambda m: (m(x()).sum().backward(), torch.optim.SGD(m.parameters(), 0.1).step()))
between_modules("state_loaded", lambda m: m.load_state_dict(copy.deepcopy(m.state_dict())))
between_modules("state_dict_hook", lambda m: m.register_state_dict_post_hook(lambda *a: None))
between_modules("same_parameter_again", lambda m: setattr(m.linear, "weight", m.linear.weight))
between_modules("data_of_the_same_shape", lambda m: setattr(m.linear.weight, "data", torch.ones(3, 3)))
between_modules("values_in_place", lambda m: m.linear.weight.data.zero_())
between_modules("buffers_in_place", lambda m: m.norm.running_mean.add_(1))
between_modules("same_type_and_device", lambda m: m.to("cpu", torch.float32))
between_modules("gradients_off_and_on", lambda m: m.requires_grad_(False).requires_grad_(True))
between_modules("same_class_again", lambda m: setattr(m, "__class__", Net))
between_modules("weak_references", lambda m: weakref.finalize(m, int))
between_modules("other_instances_die", lambda m: [Net() for _ in range(5)].clear())
between_modules("dict_swapped_for_an_equal_one", lambda m: setattr(m, "__dict__", dict(vars(m))))
between_modules("shared_memory", lambda m: m.share_memory())
between_modules("parameters_listed", lambda m: (list(m.named_parameters()), repr(m), list(m.modules())))


# -- arguments -----------------------------------------------------------------------------------------------


def same(name: str, fn: Any, *makers: Any) -> None:
    """A case of calls with arguments that are made anew each time."""

    def case(call: Calls) -> None:
        for make in makers:
            call(fn, make(), x())

    case.__name__ = name
    keeps(case)


@dataclass
class Config:
    width: float = 1234.5
    note: str = "a"


def scaled(value: Any, y: torch.Tensor) -> torch.Tensor:
    return y * value


def summed(values: Any, y: torch.Tensor) -> torch.Tensor:
    for value in values:
        y = y + value
    return y


def looked_up(values: Any, y: torch.Tensor) -> torch.Tensor:
    return y * values["a"]


def configured(config: Any, y: torch.Tensor) -> torch.Tensor:
    return y * config.width


same("new_tensor_of_the_same_shape", scaled, lambda: torch.ones(3), lambda: torch.zeros(3), lambda: torch.rand(3))
same("view_with_the_same_geometry", scaled, lambda: torch.rand(6)[:3], lambda: torch.rand(6)[3:], lambda: torch.rand(3))
same("equal_floats", scaled, new_float, lambda: new_float("12345e-1"))
same("equal_strings", looked_up, lambda: {"a": 2.0}, lambda: {"".join(["a"]): 2.0})
same("equal_dicts", looked_up, lambda: {"a": 2.5}, lambda: {"a": 2.5}, lambda: {"a": 2.5})
same("unread_values", looked_up, lambda: {"a": 2.5, "b": 1}, lambda: {"a": 2.5, "b": 2})
same("equal_ordered_dicts", looked_up, lambda: OrderedDict(a=2.5), lambda: OrderedDict([("a", 2.5)]))
same("equal_defaultdicts", looked_up, lambda: defaultdict(int, a=2.5), lambda: defaultdict(int, [("a", 2.5)]))
same("equal_lists", summed, lambda: [1.5, 2.5], lambda: [1.5, 2.5])
same("equal_tuples", summed, lambda: (1.5, new_float()), lambda: (1.5, new_float()))
same("equal_deques", summed, lambda: deque([1.5, 2.5]), lambda: deque([1.5, 2.5]))
same("equal_ranges", summed, lambda: range(3), lambda: range(3))
same("equal_objects", configured, Config, lambda: replace(Config()), lambda: copy.copy(Config()))
same("unread_field", configured, Config, lambda: Config(note="b"))
same(
    "simple_namespaces",
    configured,
    lambda: types.SimpleNamespace(width=1234.5),
    lambda: types.SimpleNamespace(width=new_float()),
)


@keeps
def keyword_or_positional(call: Calls) -> None:
    call(scaled, 2.0, x())
    call(scaled, 2.0, y=x())
    call(scaled, y=x(), value=2.0)


@keeps
def from_another_thread(call: Calls) -> None:
    call(program, x())
    in_a_thread(lambda: call(program, x()))


@keeps
def two_functions_apart(call: Calls) -> None:
    def local(y: torch.Tensor) -> torch.Tensor:
        return y * factor

    factor = 2.0
    call(local, x())
    with patched(here, "scaled", None):
        call(local, x())


def remember(y: torch.Tensor, told: list[torch.Tensor]) -> torch.Tensor:
    told.append(y.sum())
    told += [y, y * 2]
    return told[-1] + told[-2]


@keeps
def a_list_that_only_grows(call: Calls) -> None:
    told: list[torch.Tensor] = []
    for _ in range(3):
        call(remember, x(), told)


def sized(y: torch.Tensor, items: list[int], named: dict[str, int]) -> torch.Tensor:
    return y * (len(items) + len(named)) if items and named else y


@keeps
def other_items_where_only_the_number_is_asked_for(call: Calls) -> None:
    call(sized, x(), [1, 2], {"a": 1})
    call(sized, x(), [3, 4], {"b": 2})


@pytest.fixture(autouse=True)
def restored() -> Any:
    """Globals, warning filters and limits as they were."""
    before = {name: value for name, value in vars(here).items() if name.isupper()}
    options, limit = copy.deepcopy(OPTIONS), sys.getrecursionlimit()
    with warnings.catch_warnings():
        yield
    vars(here).update(before)
    OPTIONS.clear()
    OPTIONS.update(options)
    sys.setrecursionlimit(limit)
    vars(here).pop("another", None)
    shift.__annotations__.pop("z", None)


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_case(kind: str, case: Any) -> None:
    check(kind, case)
