"""Changes of tensors and of torch's own state between two calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.changing import Calls, Table, check, ids_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning"),
    pytest.mark.filterwarnings("ignore:Named tensors:UserWarning"),
]

table = Table()
changes, keeps, breaks = table.changes, table.keeps, table.breaks


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


def same(y: torch.Tensor) -> Any:
    return y * 2 + 1


def facts(y: torch.Tensor) -> Any:
    return y * 2, y.shape, y.stride(), y.dtype, y.requires_grad, y.is_contiguous(), type(y)


def input_case(name: str, fn: Any, *tensors: Any, kind: str = "changes") -> None:
    def case(call: Calls) -> None:
        for tensor in tensors:
            call(fn, *(tensor if isinstance(tensor, tuple) else (tensor,)))

    case.__name__ = f"input_{name}"
    getattr(table, kind)(case)


def retaining() -> torch.Tensor:
    value = x().requires_grad_() * 1
    value.retain_grad()
    return value


class Named(torch.Tensor):
    pass


input_case("values", same, x(), x() + 1, kind="keeps")
input_case("dtype", facts, x(), x().double(), x().int(), x().bool())
input_case("size", facts, x(), torch.ones(3, 3))
input_case("rank", facts, x(), torch.ones(2, 3, 1), torch.ones(()))
input_case("size_one", lambda y: y + torch.ones(2, 3), torch.ones(2, 3), torch.ones(1, 3), torch.ones(3))
input_case("empty", facts, x(), torch.ones(0, 3))
input_case("stride", facts, x(), torch.ones(3, 2).t(), torch.ones(2, 6)[:, ::2])
input_case("expanded", facts, x(), torch.ones(1, 3).expand(2, 3))
input_case("requires_grad", facts, x(), x().requires_grad_(), x().requires_grad_() * 1)
input_case("parameter", facts, x().requires_grad_(), nn.Parameter(x()))
input_case("offset", same, torch.arange(12.0)[:6], torch.arange(12.0)[6:], kind="keeps")
input_case("offset_read", lambda y: y * y.storage_offset(), torch.arange(12.0)[:6], torch.arange(12.0)[6:])
input_case("offset_of_view", lambda y: y * y[1:].storage_offset(), torch.arange(12.0)[:6], torch.arange(12.0)[6:])
input_case("leaf_read", lambda y: y * 2 if y.is_leaf else y * 3, x().requires_grad_(), x().requires_grad_() * 1)
input_case("retains_grad", lambda y: y * 2 if y.retains_grad else y * 3, x().requires_grad_() * 1, retaining())
input_case("conjugate", lambda y: y * 2, torch.ones(2) * 1j, (torch.ones(2) * 1j).conj())
input_case("attribute", lambda y: y * 2 if hasattr(y, "extra") else y * 3, x(), torch.nn.Buffer(x()))
input_case("subclass", same, x(), x().as_subclass(Named))
input_case("layout", lambda y: torch.relu(y).to_dense(), x(), x().to_sparse())
input_case("meta", lambda y: (y * 2).shape, x(), x().to("meta"))
input_case("none_and_tensor", lambda y, z: y * 2 if z is None else y + z, (x() * 1, None), (x(), x()))


@changes
def attribute_of_input(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * getattr(y, "extra", 3.0)

    value = x()
    call(fn, value)
    value.extra = 5.0  # type: ignore[attr-defined]
    call(fn, value)
    value.extra = 6.0  # type: ignore[attr-defined]
    call(fn, value)


@changes
def offset_of_parameter(call: Calls) -> None:
    module = nn.Linear(3, 3)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * module.bias.storage_offset()

    call(fn, x())
    module.bias.data = torch.arange(6.0)[3:]
    call(fn, x())


@changes
def same_or_different(call: Calls) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * 2 if a is b else a + b

    a, b = x(), x()
    call(fn, a, b)
    call(fn, a, a)
    call(fn, b, a)


@changes
def input_is_a_parameter(call: Calls) -> None:
    module = nn.Linear(3, 3)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * 2 if y is module.weight else module(y)  # type: ignore[no-any-return]

    call(fn, torch.ones(3, 3, requires_grad=True))
    call(fn, module.weight)
    call(fn, nn.Parameter(torch.ones(3, 3)))


def in_place(name: str, fn: Callable[..., Any], *makers: Callable[[], tuple[Any, ...]], kind: str = "changes") -> None:
    """Arguments are made for each way of calling, and compared afterwards, too."""

    def case(call: Calls) -> None:
        from tests.capture.changing import compare

        for make in makers:
            ours, theirs = make(), make()
            before = call.graphs
            found = call.of(fn)(*ours)
            call.captured.append(call.graphs > before)
            compare(found, fn(*theirs))
            compare(ours, theirs)

    case.__name__ = f"in_place_{name}"
    getattr(table, kind)(case)


def apart() -> tuple[Any, ...]:
    return x(), x()


def one() -> tuple[Any, ...]:
    value = x()
    return value, value


def overlapping() -> tuple[Any, ...]:
    value = torch.arange(9.0)
    return value[:6].view(2, 3), value[3:].view(2, 3)


def add_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return a + b


def add_through_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.view(-1)[1:].mul_(3)
    return a + b


def add_detached(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.detach().add_(1)
    return a + b


def add_data(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.data.add_(1)
    return a + b


def set_item(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[0] = 5
    return a + b


def augmented(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a += b
    return a * b


def out_of(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.add(b, 1, out=a)
    return a * b


def relu_in_place(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.nn.functional.relu(a.sub_(3), inplace=True)
    return a * b


def copied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.copy_(b * 2)
    return a * b


for _fn in (add_first, add_through_view, add_detached, add_data, set_item, relu_in_place, copied):
    in_place(_fn.__name__, _fn, apart, one, overlapping, apart)
in_place("augmented", augmented, apart, one, apart)
in_place("out_of", out_of, apart, one, apart, kind="breaks")


def inference(fn: Callable[..., Any]) -> Callable[..., Any]:
    def under(*args: Any) -> Any:
        with torch.inference_mode():
            return fn(*args)

    return under


@changes
def in_place_in_inference_mode(call: Calls) -> None:
    compiled = call.of(add_first)
    with torch.inference_mode():
        for make in (apart, one, overlapping):
            ours, theirs = make(), make()
            before = call.graphs
            found = compiled(*ours)
            call.captured.append(call.graphs > before)
            assert torch.equal(found, add_first(*theirs)) and torch.equal(ours[1], theirs[1])


@changes
def parameter_in_place_and_input(call: Calls) -> None:
    module = nn.Linear(3, 3)

    def fn(y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            module.weight.add_(1)
        return y * 2

    other = torch.ones(3, 3)
    for value in (other, module.weight.detach(), module.weight.data.view(3, 3), other):
        before = call.graphs
        kept = value.clone(), module.weight.detach().clone()
        found = call.of(fn)(value)
        call.captured.append(call.graphs > before)
        changed = (kept[0] + 1 if value is not other else kept[0]) * 2
        assert torch.equal(found, changed)


@changes
def input_in_place_and_parameter(call: Calls) -> None:
    module = nn.Linear(3, 3)

    def fn(y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y.add_(1)
            return module.weight * 2

    for value in (torch.ones(3, 3), module.weight.detach(), torch.ones(3, 3)):
        kept = module.weight.detach().clone() + (1 if value.data_ptr() == module.weight.data_ptr() else 0)
        before = call.graphs
        found = call.of(fn)(value)
        call.captured.append(call.graphs > before)
        assert torch.equal(found, kept * 2)


@changes
def small_constants_in_place(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        t = torch.tensor([1, 2])
        view = t[0]
        view.fill_(7)
        u = torch.tensor(1)
        u.add_(1)
        return y * t[0], u + 0

    call(fn, x())
    call(fn, x())


@breaks
def small_constants_read(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        t = torch.tensor([1, 2])
        view = t[0]
        view.fill_(7)
        u = torch.tensor(1)
        u.add_(1)
        w = torch.zeros(2)
        w[0] = 4
        return y * t.tolist()[0] * u.item() * w[0].item() + t[0].item()

    call(fn, x())
    call(fn, x())


# -- torch's state ---------------------------------------------------------------------------------------


def state_case(
    name: str, *contexts: Callable[[], AbstractContextManager[Any]], fn: Any = None, kind: str = "changes"
) -> None:
    module = nn.Linear(3, 3)

    def default(y: torch.Tensor) -> Any:
        z = module(y)
        return z, torch.ones(3) + 1.0, z.requires_grad, torch.is_grad_enabled(), y @ y.t()

    fn = fn or default

    def case(call: Calls) -> None:
        call(fn, x())
        for context in contexts:
            with context():
                call(fn, x())
        call(fn, x())

    case.__name__ = f"state_{name}"
    getattr(table, kind)(case)


class Sets:
    """A global setting as a context manager."""

    def __init__(self, setter: Callable[[Any], Any], value: Any, before: Any) -> None:
        self.setter, self.value, self.before = setter, value, before

    def __enter__(self) -> None:
        self.setter(self.value)

    def __exit__(self, *_: Any) -> None:
        self.setter(self.before)


state_case("grad_mode", torch.no_grad, torch.inference_mode, torch.no_grad)
state_case("autocast", lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.autocast("cpu", torch.float16))
state_case("autocast_disabled", lambda: torch.autocast("cpu", enabled=False))
state_case("default_dtype", lambda: Sets(torch.set_default_dtype, torch.float64, torch.float32))
state_case("deterministic", lambda: Sets(torch.use_deterministic_algorithms, True, False))
state_case(
    "autocast_dtype_read",
    lambda: Sets(lambda d: torch.set_autocast_dtype("cpu", d), torch.float16, torch.bfloat16),
    fn=lambda y: y.to(torch.get_autocast_dtype("cpu")),
)
state_case(
    "precision_read",
    lambda: Sets(torch.set_float32_matmul_precision, "high", "highest"),
    fn=lambda y: y * len(torch.get_float32_matmul_precision()),
)
state_case(
    "warn_only_read",
    lambda: Sets(lambda on: torch.use_deterministic_algorithms(on, warn_only=on), True, False),
    fn=lambda y: y * (2 if torch.is_deterministic_algorithms_warn_only_enabled() else 3),
)
state_case(
    "threads_read",
    lambda: Sets(torch.set_num_threads, 1, torch.get_num_threads()),
    fn=lambda y: y * torch.get_num_threads(),
)
state_case(
    "backend_flag_read",
    lambda: torch.backends.cudnn.flags(enabled=False),
    fn=lambda y: y * (2 if torch.backends.cudnn.enabled else 3),
)
state_case(
    "attention_flag_read",
    lambda: Sets(torch.backends.cuda.enable_flash_sdp, False, True),
    fn=lambda y: y * (2 if torch.backends.cuda.flash_sdp_enabled() else 3),
)
state_case(
    "fill_uninitialized",
    lambda: Sets(lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on), False, True),
    fn=lambda y: y * (2 if torch.utils.deterministic.fill_uninitialized_memory else 3),
)


@breaks
def seed_read(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * (torch.initial_seed() % 1000)

    torch.manual_seed(5)
    call(fn, x())
    torch.manual_seed(6)
    call(fn, x())


@breaks
def seeded_inside(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return y + torch.rand(3)

    call(fn, x())
    call(fn, x())


@breaks
def settings_inside(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        z = y @ y.t()
        torch.set_float32_matmul_precision(before)
        return z

    call(fn, x())
    call(fn, x())
    assert torch.get_float32_matmul_precision() == "highest"


@breaks
def attention_setting_inside(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        torch.backends.cuda.enable_flash_sdp(False)
        return y * 2

    assert torch.backends.cuda.flash_sdp_enabled()
    try:
        call(fn, x())
        assert not torch.backends.cuda.flash_sdp_enabled()
        torch.backends.cuda.enable_flash_sdp(True)
        call.of(fn)(x())
        assert not torch.backends.cuda.flash_sdp_enabled()
        call(fn, x())
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


@breaks
def deterministic_inside(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        torch.use_deterministic_algorithms(True)
        return y * 2

    try:
        call.of(fn)(x())
        assert torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        call.of(fn)(x())
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    call.captured += [False, False]


@breaks
def grad_read(call: Calls) -> None:
    value = x().requires_grad_()

    def fn(y: torch.Tensor) -> Any:
        return y * 2 if y.grad is None else y + y.grad

    call(fn, value)
    value.grad = torch.ones(2, 3)
    call(fn, value)


@breaks
def requires_grad_inside(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        z = (y * 2).detach().requires_grad_()
        return (z * 3).requires_grad, z

    call(fn, x())
    call(fn, x())


@breaks
def version_read(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        return y * y._version

    value = x()
    call(fn, value)
    value.add_(1)
    call(fn, value)


@breaks
def data_set_inside(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        z = y * 2
        z.data = torch.ones(3)
        return z + 1

    call(fn, x())
    call(fn, x())


@breaks
def names(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        return y.rename(None) * (2 if y.names[0] == "a" else 3)

    if hasattr(torch.Tensor, "rename"):  # until torch 2.12
        call(fn, x().rename("a", "b"))
        call(fn, x().rename("b", "a"))
    else:
        call(same, x())
        call(same, x())


@changes
def errors_of_the_data_are_handled(call: Calls) -> None:
    def fn(y: torch.Tensor) -> Any:
        try:
            return torch.linalg.cholesky(y) + 1
        except torch.linalg.LinAlgError:
            return y - 1

    call(fn, torch.eye(3) * 2)
    call(fn, -torch.eye(3))


@breaks
def error_texts_are_eagers(call: Calls) -> None:
    def fn(y: torch.Tensor, z: torch.Tensor) -> Any:
        try:
            return y @ z
        except RuntimeError as error:
            return str(error)

    call(fn, x(), x())
    call(fn, x(), x())


@changes
def index_errors_are_eagers(call: Calls) -> None:
    def fn(y: torch.Tensor, z: torch.Tensor) -> Any:
        return y[z]

    call(fn, x(), torch.tensor([0]))
    call(fn, x(), torch.tensor([7]))


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_change(kind: str, case: Any) -> None:
    check(kind, case)
