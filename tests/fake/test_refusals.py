"""Operators refuse on fakes what their kernels refuse: dtypes, casts in place, overlapping memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import stator
from stator.fake import FakeMode, make, refusals
from stator.fake.execute import plan_of
from tests.differential import promotion

WHOLE = torch.tensor([4, 5])
FLAGS = torch.tensor([True, False])
SQUARE = torch.arange(9.0).view(3, 3)
IMAGE = torch.ones(1, 1, 4, 4, dtype=torch.int64)

REFUSED: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
    "bool - bool": (lambda x: x - x, FLAGS),
    "1 - bool": (lambda x: 1 - x, FLAGS),
    "-bool": (lambda x: -x, FLAGS),
    "int - True": (lambda x: x - True, WHOLE),
    "True - int": (lambda x: True - x, WHOLE),
    "True - float": (lambda x: True - x, SQUARE),
    "int -= True": (lambda x: x.clone().sub_(True), WHOLE),
    "int + True * int": (lambda x: torch.add(x, x, alpha=True), WHOLE),
    "int < complex": (lambda x: x < 1j, WHOLE),
    "float *= complex": (lambda x: x.clone().mul_(2j), SQUARE),
    "int + 0.5 * int": (lambda x: torch.add(x, x, alpha=0.5), WHOLE),
    "int // 0": (lambda x: x // 0, WHOLE),
    "int % 0": (lambda x: x % 0, WHOLE),
    "int ** -1": (lambda x: x**-1, WHOLE),
    "float - True": (lambda x: x - True, SQUARE),
    "True - bool": (lambda x: True - x, FLAGS),
    "float > 1j": (lambda x: x > 1j, SQUARE),
    "int <= 1j": (lambda x: x <= 1j, WHOLE),
    "float // 1j": (lambda x: x // 1j, SQUARE),
    "float += 1j": (lambda x: x.clone().add_(1j), SQUARE),
    "int & 1.5": (lambda x: x & 1.5, WHOLE),
    "float - True * float": (lambda x: torch.sub(x, x, alpha=True), SQUARE),
    "clamp to 1j": (lambda x: x.clamp(max=1j), SQUARE),
    "int += 1.5": (lambda x: x.clone().add_(1.5), WHOLE),
    "int /= 2": (lambda x: x.clone().div_(2), WHOLE),
    "bool += 1": (lambda x: x.clone().add_(1), FLAGS),
    "int.sqrt_": (lambda x: x.clone().sqrt_(), WHOLE),
    "masked fill with inf": (lambda x: x.masked_fill(x > 4, float("inf")), WHOLE),
    "~float": (lambda x: ~x, SQUARE),
    "float & float": (lambda x: x & x, SQUARE),
    "float << float": (lambda x: x << x, SQUARE),
    "softmax of ints": (lambda x: F.softmax(x, 0), WHOLE),
    "gelu of ints": (F.gelu, WHOLE),
    "silu of ints": (F.silu, WHOLE),
    "average pooling of ints": (lambda x: F.avg_pool2d(x.int(), 2), IMAGE),
    "adaptive pooling of ints": (lambda x: F.adaptive_avg_pool2d(x, 2), IMAGE),
    "nearest of ints": (lambda x: F.interpolate(x, size=(3, 3), mode="nearest"), IMAGE),
    "random ints of a normal distribution": (lambda x: torch.randn(x.shape, dtype=torch.int64), WHOLE),
    "normal_ of a negative deviation": (lambda x: x.clone().normal_(0, -1), SQUARE),
    "uniform_ of nothing": (lambda x: x.clone().uniform_(3, -1), SQUARE),
    "m += m.t()": (lambda x: _transposed(x.clone()), SQUARE),
    "a shifted copy onto itself": (lambda x: _shifted(x.clone()), SQUARE),
    "a write to expanded memory": (lambda x: x[:1].clone().expand(3, 3).mul_(2), SQUARE),
}


def _transposed(m: torch.Tensor) -> torch.Tensor:
    m += m.t()
    return m


def _shifted(m: torch.Tensor) -> torch.Tensor:
    m[1:] = m[:-1]
    return m


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_is_refused_as_in_eager(name: str, dynamic: bool) -> None:
    function, x = REFUSED[name]
    with pytest.raises((RuntimeError, TypeError)) as eager:
        function(x)
    with pytest.raises(type(eager.value)) as compiled:
        stator.compile(function, options={"cache": False, "strict": True}, dynamic=dynamic)(x)
    assert str(compiled.value) == str(eager.value)


TAKEN: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
    "m += m": (lambda x: x.clone().add_(x), SQUARE),
    "a write beside what is read": (lambda x: _beside(x.clone()), SQUARE),
    "int *= 2.0": (lambda x: x.clone().mul_(2), WHOLE),
    "int // int": (lambda x: x // x, WHOLE),
    "positions": (lambda x: x[torch.tensor([2, 1])], SQUARE),
    "bfloat16": (lambda x: F.softmax(x.bfloat16(), 0), SQUARE),
    "uint8 nearest": (lambda x: F.interpolate(x.to(torch.uint8), size=(3, 3), mode="nearest"), IMAGE),
    "one element's variance": (lambda x: x.double().var(), SQUARE),
    "complex": (lambda x: (x * 1j).exp(), SQUARE),
    "float == 1j": (lambda x: x == 1j, SQUARE),
    "float * True": (lambda x: x * True + True, SQUARE),
    "bool + True": (lambda x: torch.add(x, x, alpha=True), FLAGS),
}


def _beside(m: torch.Tensor) -> torch.Tensor:
    m[:1] += m[2:]
    return m


@pytest.mark.parametrize("name", TAKEN)
def test_is_taken_as_in_eager(name: str) -> None:
    function, x = TAKEN[name]
    compiled = stator.compile(function, options={"cache": False, "strict": True}, fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))


def test_what_eager_refuses_for_its_numbers_is_refused() -> None:
    """A sample of all elementwise operators with numbers of every type, which may be what is wrong."""
    wrong, refused = [], 0
    for case in promotion.sample(0.01, seed=7):
        operands = [*case.operands, *[operand for _, operand in case.keywords]]
        numbers = [type(operand.value) for operand in operands if operand.kind == "number"]
        sizes = {operand.kind for operand in operands if operand.kind != "number"}
        if len(sizes) != 1 or not {bool, complex, float} & set(numbers) or "backward" in str(case.overload):
            continue
        given = {a.name for a in case.overload._schema.arguments[: len(case.operands)]}
        if given & promotion.fixed(case.overload).keys():  # twice
            continue
        if case.overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            continue  # it is asked of its parts
        try:
            case.call(case.arguments())
        except refusals.ERRORS as error:
            refused += 1
            if _refused(case, [_moved(value, "cpu") for value in case.arguments()]) != str(error):
                wrong.append(f"{case}: {error}")
    assert not wrong
    assert refused > 20


def test_a_kernel_is_asked_once_for_each_kind_of_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = refusals._ask

    def counted(func: Any, *rest: Any) -> Any:
        asked.append(func)
        return ask(func, *rest)

    monkeypatch.setattr(refusals, "_ask", counted)
    monkeypatch.setattr(refusals, "_known", {})
    mode = FakeMode()
    with mode:
        for length in (3, 4):
            x = mode.from_real(torch.ones(length, dtype=torch.int64))
            _ = x + x
        _ = x + x.double()
    assert [func._opname for func in asked].count("add") == 2


def test_asking_draws_no_random_numbers() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    mode = FakeMode()
    with mode:
        mode.from_real(torch.ones(3, dtype=torch.bfloat16)).normal_()
        torch.rand(7, dtype=torch.float64)
    assert torch.equal(torch.rand(3), expected)


def test_no_kernel_is_asked_that_takes_pivots_on_trust() -> None:
    """LAPACK swaps rows where pivots say: the zeros of stand-ins are before the first row."""
    taking = set()
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        pivots = ["piv" in p.name.lower() and str(p.type) == "Tensor" and not p.is_out for p in schema.arguments]
        if namespace == "aten" and any(pivots):
            taking.add(name)
    assert {"linalg_ldl_solve", "linalg_lu_solve"} <= taking <= refusals.TRUSTING


def test_asking_warns_of_nothing() -> None:
    """Of the few elements of a stand-in: the variance of two numbers with a correction of two."""
    x = torch.rand(3, 21, dtype=torch.float64)
    compiled = stator.compile(lambda x: x.std(-1, correction=2), options={"strict": True, "cache": False})
    torch.testing.assert_close(compiled(x), x.std(-1, correction=2))


ONE = torch.device("cuda", 0), torch.device("cuda", 1)
HOST = torch.device("cpu")
APART: dict[str, Callable[[Any, Any], Any]] = {
    "addition": lambda x, y: x + y,
    "addition in place": lambda x, y: x.add_(y),
    "a condition": lambda x, y: torch.where(x > 0, x, y),
    "a product": lambda x, y: x @ y,
    "a layer": lambda x, y: F.linear(x, y),
    "a join": lambda x, y: torch.cat([x, y]),
    "an out": lambda x, y: torch.exp(x, out=y),
    "positions": lambda x, y: torch.gather(x, 0, y.long()),
}


@pytest.mark.parametrize("other", [HOST, ONE[1]])
@pytest.mark.parametrize("name", APART)
def test_tensors_are_on_one_device(name: str, other: torch.device) -> None:
    with FakeMode():
        for devices in ((ONE[0], other), (other, ONE[0])):
            x, y = [make((3, 3), torch.float32, device) for device in devices]
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                APART[name](x, y)
        x, y = [make((3, 3), torch.float32, other) for _ in range(2)]
        APART[name](x, y)


def test_numbers_of_the_host_and_copies_go_anywhere() -> None:
    with FakeMode():
        x, y = make((3, 3), torch.float32, ONE[0]), make((3, 3), torch.float32, HOST)
        number, at = make((), torch.float64, HOST), make((2,), torch.int64, HOST)
        found = [x + number, number * x, torch.where(x > number, x, number)]
        found.append(torch.ops.aten.index.Tensor(x, [at]))
        assert [t.device for t in found] == [ONE[0]] * len(found)
        assert (number + number).device == (y + number).device == HOST
    assert plan_of(torch.ops.aten.copy_.default).mixes and plan_of(torch.ops.aten.to.other).mixes
    assert not plan_of(torch.ops.aten.add_.Tensor).mixes


def test_what_is_checked_before_a_kernel_is_chosen_is_refused_on_any_device() -> None:
    """A sample of all elementwise operators with what they take: as the host's, but for what its kernels say."""
    raised = 0
    for case in promotion.sample(0.006, seed=4):
        given = case.arguments()
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        if all(tensor.dtype.is_floating_point for tensor in tensors):
            continue
        host, device = (_refused(case, [_moved(value, name) for value in given]) for name in ("cpu", "cuda:0"))
        own = host is not None and ("not implemented for '" in host or "ZeroDivision" in host)
        assert device == (None if own else host), str(case)
        raised += device is not None
    assert raised > 20


def _moved(value: Any, device: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return make(tuple(value.shape), value.dtype, torch.device(device))


def _refused(case: promotion.Case, given: list[Any]) -> str | None:
    count = len(case.operands)
    named = dict(zip([name for name, _ in case.keywords], given[count:], strict=True))
    try:
        refusals.check(
            case.overload, plan_of(case.overload), tuple(given[:count]), {**promotion.fixed(case.overload), **named}
        )
    except refusals.ERRORS as error:
        return str(error)
    return None
