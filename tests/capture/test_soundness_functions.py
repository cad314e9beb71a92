"""Changes of globals, builtins, cells and functions between two calls."""

from __future__ import annotations

import builtins
import functools
import sys
from collections import defaultdict
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning
from tests.capture.changing import Calls, Table, check, ids_of, patched, x

table = Table()
changes, keeps, breaks = table.changes, table.keeps, table.breaks

here: Any = sys.modules[__name__]
SCALE: Any = 2.0
TABLE: Any = {"a": 1.0, "b": [1.0, 2.0]}
LIST: Any = [1.0, 2.0]
TENSOR = torch.ones(3)


def helper(y: torch.Tensor, by: float = 2.0, *, plus: float = 1.0) -> torch.Tensor:
    return y * by + plus


# -- globals ---------------------------------------------------------------------------------------------


def uses_global(y: torch.Tensor) -> torch.Tensor:
    return y * SCALE


def uses_table(y: torch.Tensor) -> torch.Tensor:
    return y * TABLE["a"] + sum(TABLE["b"])


def uses_length(y: torch.Tensor) -> torch.Tensor:
    return y * len(LIST) + len(TABLE)


def uses_helper(y: torch.Tensor) -> torch.Tensor:
    return helper(y)


def global_case(name: str, fn: Any, target: str, value: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        call(fn, x())
        with patched(here, target, value):
            call(fn, x())
        call(fn, x())

    case.__name__ = name
    getattr(table, kind)(case)


global_case("global_value", uses_global, "SCALE", 3.0)
global_case("global_type_int", uses_global, "SCALE", 2)
global_case("global_type_bool", uses_global, "SCALE", True)
global_case("global_nan", uses_global, "SCALE", float("nan"))
global_case("global_minus_zero", uses_global, "SCALE", -0.0)
global_case("global_tensor", uses_global, "SCALE", torch.tensor(4.0))
global_case("global_dict", uses_table, "TABLE", {"a": 3.0, "b": [0.0]})
global_case("global_dict_subclass", uses_table, "TABLE", defaultdict(lambda: [5.0], a=2.0))
global_case("global_function", uses_helper, "helper", lambda y: y * 30)
global_case("global_shadows_builtin", uses_length, "len", lambda items: 77)
global_case("unrelated_global", uses_global, "UNRELATED", 1, "keeps")
global_case("tensor_global", lambda y: y + TENSOR, "TENSOR", torch.full((3,), 9.0), "keeps")
global_case("tensor_global_dtype", lambda y: y + TENSOR, "TENSOR", torch.ones(3, dtype=torch.float64))


def mutation(name: str, fn: Any, change: Any, undo: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        call(fn, x())
        change()
        try:
            call(fn, x())
        finally:
            undo()
        call(fn, x())

    case.__name__ = name
    getattr(table, kind)(case)


mutation("dict_item", uses_table, lambda: TABLE.update(a=5.0), lambda: TABLE.update(a=1.0))
mutation("dict_key_added", uses_length, lambda: TABLE.update(c=5.0), lambda: TABLE.pop("c"))
mutation("dict_key_unrelated", uses_table, lambda: TABLE.update(c=5.0), lambda: TABLE.pop("c"), "keeps")
mutation("list_in_dict", uses_table, lambda: TABLE["b"].append(9.0), lambda: TABLE["b"].pop())
mutation(
    "list_in_dict_item", uses_table, lambda: TABLE["b"].__setitem__(0, 9.0), lambda: TABLE["b"].__setitem__(0, 1.0)
)
mutation("list_length", uses_length, lambda: LIST.append(9.0), lambda: LIST.pop())


@changes
def builtin_patched(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return a_builtin(y)  # type: ignore[name-defined,no-any-return]  # noqa: F821

    with patched(builtins, "a_builtin", lambda y: y * 2):
        call(fn, x())
        with patched(builtins, "a_builtin", lambda y: y * 3):
            call(fn, x())


@changes
def builtin_added(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        try:
            return y * not_a_name  # type: ignore[name-defined,no-any-return]
        except NameError:
            return y

    def calls(y: torch.Tensor) -> torch.Tensor:
        return fn(y) + 1

    call(calls, x())
    with patched(builtins, "not_a_name", 3.0):
        call(calls, x())


@changes
def global_deleted(call: Calls) -> None:
    namespace: dict[str, Any] = {"value": 2.0}
    exec("def fn(y):\n    return y * value", namespace)
    call(namespace["fn"], x())
    del namespace["value"]
    call(namespace["fn"], x())


# -- functions -------------------------------------------------------------------------------------------


def function_case(name: str, change: Any, kind: str = "changes", keyword: bool = False) -> None:
    def case(call: Calls) -> None:
        def inner(y: torch.Tensor, by: float = 2.0, *, plus: float = 1.0) -> torch.Tensor:
            return y * by + plus

        def fn(y: torch.Tensor) -> torch.Tensor:
            return inner(y) + 1

        call(fn, x())
        change(inner)
        call(fn, x())

    case.__name__ = name
    getattr(table, kind)(case)


def other(y: torch.Tensor, by: float = 2.0, *, plus: float = 1.0) -> torch.Tensor:
    return y - by - plus


function_case("code_replaced", lambda f: setattr(f, "__code__", other.__code__))
function_case("default_replaced", lambda f: setattr(f, "__defaults__", (7.0,)))
function_case("defaults_more", lambda f: setattr(f, "__defaults__", (torch.ones(3), 7.0)))
function_case("defaults_none", lambda f: setattr(f, "__defaults__", None))
function_case("kwdefault_replaced", lambda f: f.__kwdefaults__.update(plus=9.0))
function_case("kwdefaults_replaced", lambda f: setattr(f, "__kwdefaults__", {"plus": 8.0}))
function_case("kwdefaults_none", lambda f: setattr(f, "__kwdefaults__", None))
function_case("function_attribute", lambda f: setattr(f, "unused", 1), "keeps")
function_case("function_name", lambda f: setattr(f, "__name__", "other"), "keeps")


@changes
def own_default(call: Calls) -> None:
    def fn(y: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return y * by

    call(fn, x())
    fn.__defaults__ = (3.0,)
    call(fn, x())


@changes
def own_code(call: Calls) -> None:
    def fn(y: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return y * by

    call(fn, x())
    fn.__code__ = other.__code__.replace(co_name="fn")
    call(fn, x())


@changes
def default_container_changed(call: Calls) -> None:
    def fn(y: torch.Tensor, by: Any = [2.0]) -> torch.Tensor:  # noqa: B006
        return y * by[0]  # type: ignore[no-any-return]

    call(fn, x())
    fn.__defaults__[0][0] = 5.0  # type: ignore[index]
    call(fn, x())


@changes
def cell_changed(call: Calls) -> None:
    by = 2.0

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * by

    call(fn, x())
    by = 4.0
    call(fn, x())


@changes
def cell_of_inner_changed(call: Calls) -> None:
    by: Any = 2.0

    def inner(y: torch.Tensor) -> torch.Tensor:
        return y * by  # type: ignore[no-any-return]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return inner(y) + 1

    call(fn, x())
    by = 4
    call(fn, x())


@changes
def empty_cell_filled(call: Calls) -> None:
    def inner(y: torch.Tensor) -> torch.Tensor:
        try:
            return y * late
        except NameError:
            return y

    def fn(y: torch.Tensor) -> torch.Tensor:
        return inner(y) + 1

    call(fn, x())
    late = 4.0
    call(fn, x())


def scaler(by: float, plus: float = 0.0) -> Any:
    def scale(y: torch.Tensor) -> torch.Tensor:
        return y * by + plus

    return scale


def applies(function: Any, y: torch.Tensor) -> torch.Tensor:
    return function(y) + 1  # type: ignore[no-any-return]


@changes
def closure_argument(call: Calls) -> None:
    call(applies, scaler(2.0), x())
    call(applies, scaler(3.0), x())
    call(applies, helper, x())
    call(applies, torch.relu, x())
    call(applies, torch.sin, x())
    call(applies, functools.partial(helper, by=4.0), x())
    call(applies, functools.partial(helper, by=5.0), x())


@keeps
def closure_argument_made_anew(call: Calls) -> None:
    for _ in range(3):
        call(applies, scaler(2.0), x())


@changes
def closure_argument_identity(call: Calls) -> None:
    def fn(f: Any, g: Any, y: torch.Tensor) -> torch.Tensor:
        return y * 2 if f is g else y * 3

    first = scaler(2.0)
    call(fn, first, first, x())
    call(fn, first, scaler(2.0), x())
    call(fn, scaler(2.0), scaler(2.0), x())


@changes
def closure_argument_name(call: Calls) -> None:
    def fn(f: Any, y: torch.Tensor) -> torch.Tensor:
        return f(y) * len(f.__name__)  # type: ignore[no-any-return]

    first, second = scaler(2.0), scaler(2.0)
    second.__name__ = "another"
    call(fn, first, x())
    call(fn, second, x())


@changes
def partial_replaced(call: Calls) -> None:
    holder: list[Any] = [functools.partial(helper, by=2.0)]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return holder[0](y)  # type: ignore[no-any-return]

    call(fn, x())
    holder[0] = functools.partial(helper, by=2.0, plus=5.0)
    call(fn, x())
    holder[0].keywords["by"] = 9.0
    call(fn, x())


@changes
def cached_function(call: Calls) -> None:
    state = [2.0]

    @functools.lru_cache
    def cached(key: int) -> float:
        return state[0]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * cached(1)

    call(fn, x())
    state[0] = 5.0
    call(fn, x())  # the cache keeps its answer
    cached.cache_clear()
    call(fn, x())


@breaks
def cached_random_tensor(call: Calls) -> None:
    @functools.lru_cache
    def cached(size: int) -> torch.Tensor:
        return torch.randn(size)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * cached(3)

    call(fn, x())
    call(fn, x())
    cached.cache_clear()
    call(fn, x())


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_change(kind: str, case: Any) -> None:
    check(kind, case)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_cached_tensors_are_made_in_the_mode_of_the_program() -> None:
    @functools.lru_cache
    def cached(size: int) -> torch.Tensor:
        return torch.ones(size)

    def fn(y: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return y * cached(3)

    with torch.no_grad():
        assert torch.equal(stator.compile(fn, backend="eager")(x()), x())
    assert cached(3).is_inference()


def test_operators_are_what_their_namespace_holds() -> None:
    library = torch.library.Library("stator_replaced_tests", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    torch.library.register_fake("stator_replaced_tests::twice", torch.empty_like, lib=library)
    namespace: Any = torch.ops.stator_replaced_tests
    operator = namespace.twice

    def fn(y: torch.Tensor) -> torch.Tensor:
        return namespace.twice(y + 1) * 3

    compiled = stator.compile(fn)
    for held in (operator, lambda y: y - 1, operator.default, operator):
        namespace.twice = held
        assert torch.equal(compiled(x()), fn(x()))
    namespace.twice = stator.disable(operator)
    with pytest.warns(FallbackWarning, match="marked with stator.disable"):
        assert torch.equal(compiled(x()), fn(x()))
