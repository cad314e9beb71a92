"""Inputs in one memory: what is written through one is seen in the others; other relations are told apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import StatorError
from tests.aot.relations import Inputs, differences, observe
from tests.aot.test_aliasing import check, ends, plain


def whole() -> torch.Tensor:
    return torch.arange(24.0).view(4, 6) + 1


def box() -> torch.Tensor:
    return torch.arange(120.0).view(4, 5, 6)


#: Overlapping or not, in rows, columns, steps, other orders of dimensions, with and without gaps.
TOGETHER: dict[str, Inputs] = {
    "base and view": lambda: [x := whole(), x[1:]],
    "overlapping": lambda: [(x := whole())[:3], x[1:]],
    "apart": lambda: [(x := whole())[:2], x[2:]],
    "same": lambda: [x := whole(), x],
    "detached": lambda: [x := whole(), x.detach()],
    "transposed": lambda: [x := torch.arange(16.0).view(4, 4), x.t()],
    "columns": lambda: [(x := whole())[:, :2], x[:, 3:5]],
    "overlapping columns": lambda: [(x := whole())[:, :4], x[:, 2:6]],
    "in steps": lambda: [(x := whole())[:, ::2], x[:, 1::2]],
    "boxes": lambda: [(x := box())[1:3, 1:3, 1:3], x[:2, 2:4, 3:5]],
    "turned boxes": lambda: [(x := box()).permute(2, 0, 1)[1:3, 1:3, 1:3], x[:2, 2:4, 3:5]],
    "base and row": lambda: [x := whole(), x[0]],
    "with an offset": lambda: [(x := torch.arange(48.0).view(8, 6))[2:6], x[3]],
    "base and number": lambda: [x := whole(), x[2, 3]],
    "extents of one": lambda: [x := whole().view(4, 1, 6), x[2:3]],
    "base and nothing": lambda: [x := whole(), x[:0]],
    "integers": lambda: [x := torch.arange(24).view(4, 6), x[1]],
    "another dtype": lambda: [x := whole(), x.view(torch.int32)],
    "a narrower dtype": lambda: [x := whole(), x[1:].view(torch.int16)[:, 3:7]],
    "a wider dtype": lambda: [(x := whole())[1:, :2], x.view(torch.float64)[1:, 1:]],
    "bytes": lambda: [x := torch.arange(24).view(4, 6), x[1].view(torch.uint8)],
    "complex and real": lambda: [x := torch.randn(4, 6, dtype=torch.complex64), torch.view_as_real(x)],
    "real and complex": lambda: [(x := whole())[1:], torch.view_as_complex(x.view(4, 3, 2))[:2]],
}


def recorded(rows: int = 4, cols: int = 6) -> Any:
    """A tensor in the middle of the caller's autograd graph."""
    source = (torch.arange(float(rows * cols)).view(rows, cols) / 7 + 1).requires_grad_()
    return of(source * 1, source)


def of(tensor: Any, source: torch.Tensor) -> Any:
    """The tensor, made from a leaf that gradients are asked of."""
    tensor.made_from = source
    return tensor


def unrecorded() -> list[torch.Tensor]:
    x = recorded()
    with torch.no_grad():
        return [x[1], x]


#: Of which some need gradients: views that share a history, and others that share memory only.
RECORDED: dict[str, Inputs] = {
    "whole and row": lambda: [x := recorded(), x[1]],
    "row and whole": lambda: [(x := recorded())[1], x],
    "views of another": lambda: [of((x := recorded())[:3], x.made_from), x[1:]],
    "views apart": lambda: [of((x := recorded())[:2], x.made_from), x[2:]],
    "whole and turned": lambda: [x := recorded(4, 4), x.t()],
    "turned and columns": lambda: [of((x := recorded()).t(), x.made_from)[1:], of(x[:, 2:4], x.made_from)],
    "whole and detached": lambda: [x := recorded(), x.detach()],
    "view and detached": lambda: [of((x := recorded())[1:], x.made_from), x.detach()[:2]],
    "whole and data": lambda: [x := recorded(), x.data[1:]],
    "leaf beside a base": lambda: [x := whole(), x[1].requires_grad_()],
    "leaf and detached": lambda: [x := whole().requires_grad_(), x.detach()],
    "leaf and data": lambda: [(x := whole().requires_grad_()).data, x],
    "leaf and view": lambda: [x := whole().requires_grad_(), x[1]],
    "another dtype": lambda: [x := recorded(), x.detach().view(torch.int32)],
}
#: These are left to eager PyTorch, and why.
REFUSED: dict[str, tuple[Inputs, str]] = {
    "expanded": (lambda: [x := whole(), x[:, :1].expand(4, 6)], "holds some elements several times"),
    "unrecorded": (unrecorded, "autograd has not recorded"),
}
USES = {
    text: ends(*text.split("; "))
    for text in (
        "x.add_(1); y * 2", "y.mul_(2); x + 1", "x.mul_(2); y.add_(1); x.sum() * y.sum()", "(x * 2, y)",
        "x.add_(1); (x, y)", "y.add_(1); (x[0], y)", "v = x[0:1]; v.mul_(3); (v, y * 1)", "x.add_(1); None",
        "z = y * 2; x.zero_(); (z, y * 2)", "x.add_(1); (x.t() if x.dim() == 2 else x, y.detach())",
        "x.copy_(x.flip(0)); y.sum()", "x.t_() if x.dim() == 2 else x; x.add_(1); y * 1", "x.data.add_(1); y * 1",
        "y.mul_(2); x.sum() * y.sum()",
        "x.add_(1); (y[..., None], x.view(x.shape))", "x.as_strided((2,), (1,), x.storage_offset()).add_(5); y * 1",
    )
}  # fmt: skip
#: Written where autograd looks away, used where it does not.
UNRECORDED_USES = {
    f"no_grad: {text}": ends("with torch.no_grad():", f"    {text.split('; ')[0]}", *text.split("; ")[1:])
    for text in (
        "x.add_(1); y * 2", "y.mul_(2); (x * x, y * 3)", "y.zero_(); (x, y[..., None])",
        "x.detach().add_(1); (x * 2, y)",
        "x.copy_(x.flip(0)); (x * 2, (y * y).sum())", "x.data.mul_(2); (x * y.sum(), y)",
    )
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inputs", [*TOGETHER, *REFUSED])
@pytest.mark.parametrize("name", USES)
def test_each_is_as_in_eager(name: str, inputs: str) -> None:
    check(USES[name], TOGETHER[inputs] if inputs in TOGETHER else REFUSED[inputs][0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inputs", RECORDED)
@pytest.mark.parametrize("name", [*USES, *UNRECORDED_USES])
def test_histories_are_as_in_eager(name: str, inputs: str) -> None:
    check({**USES, **UNRECORDED_USES}[name], RECORDED[inputs])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inputs", RECORDED)
@pytest.mark.parametrize("name", ["y.mul_(2); x.sum() * y.sum()", "no_grad: y.mul_(2); (x * x, y * 3)"])
def test_kernels_write_what_needs_gradients(name: str, inputs: str) -> None:
    check({**USES, **UNRECORDED_USES}[name], RECORDED[inputs], "inductor")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inputs", TOGETHER)
@pytest.mark.parametrize("name", ["x.mul_(2); y.add_(1); x.sum() * y.sum()", "y.add_(1); (x[0], y)"])
def test_kernels_write_the_memory(name: str, inputs: str) -> None:
    check(USES[name], TOGETHER[inputs], "inductor")


@pytest.mark.parametrize("inputs", TOGETHER)
def test_they_are_one_graph(inputs: str) -> None:
    function = ends("y.add_(1)", "x.mul_(2)", "x.sum() * y.sum()")
    with log.collect() as recorder:
        stator.compile(function, backend="aot_eager", fullgraph=True)(*TOGETHER[inputs]())
    assert [span.name for span in recorder.spans].count("backend") == 1


@pytest.mark.parametrize("inputs", REFUSED)
def test_refusals_say_why(inputs: str) -> None:
    make, why = REFUSED[inputs]
    with pytest.raises(StatorError, match=why):
        stator.compile(ends("x.data.add_(1)", "x.sum() * y.sum()"), backend="aot_eager", fullgraph=True)(*make())


#: In turn on one compiled function: the same relation elsewhere, other distances, none.
SEQUENCE: list[Inputs] = [
    lambda: [(x := whole())[:2], x[1:3]],
    lambda: [(x := whole())[1:3], x[2:]],
    lambda: [(x := whole())[:2], x[2:]],
    lambda: [whole()[:2], whole()[:2]],
    lambda: [(x := whole())[:2], x[:2]],
    lambda: [(x := whole())[2:], x[1:3]],
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", [name for name in USES if " if " not in name])
def test_relations_that_change_from_call_to_call(name: str, turned: bool) -> None:
    compiled = stator.compile(USES[name], backend="aot_eager")
    for make in reversed(SEQUENCE) if turned else SEQUENCE:
        found = differences(observe(compiled, make), observe(USES[name], make))
        assert not found, found


def watched(kind: str) -> list[torch.Tensor]:
    """A view whose gradient somebody looks at."""
    x, y = RECORDED["whole and row"]()
    if kind == "hook":
        y.register_hook(lambda gradient: gradient * 10)
    else:
        y.retain_grad()
    return [x, y]


#: In turn on one compiled function: other histories of what lies in memory as before.
HISTORIES: list[Inputs] = [
    RECORDED["whole and row"],
    lambda: [x := recorded(), x.detach()[1]],
    lambda: [recorded(), recorded()[1]],
    lambda: [of((x := recorded())[:], x.made_from), x[1]],
    lambda: [x := recorded(), x.data[1]],
    lambda: [x := recorded(), x[2]],
    lambda: [x := whole(), x[1]],
    lambda: [x := whole().requires_grad_(), x.detach()[1]],
    lambda: watched("hook"),
    lambda: watched("retain_grad"),
    lambda: [x := recorded(), x.unbind()[1]],
    RECORDED["whole and row"],
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["x.mul_(2); y * 3", "y.mul_(2); (x * 3, y)", "y.mul_(2); y.add_(1); x * y"])
def test_histories_that_change_from_call_to_call(name: str, turned: bool) -> None:
    function = ends(*name.split("; "))
    compiled = stator.compile(function, backend="aot_eager")
    for make in reversed(HISTORIES) if turned else HISTORIES:
        check_on(compiled, function, make)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["hook", "retain_grad"])
def test_gradients_that_are_looked_at_are_left_to_eager(kind: str) -> None:
    function = ends("y.mul_(2)", "x * 3")
    compiled = stator.compile(function, backend="aot_eager")
    seen = []
    for call in (function, compiled):
        x, y = watched(kind)
        call(x, y).sum().backward()
        seen.append((x.made_from.grad, y.grad if kind == "retain_grad" else None))  # type: ignore[attr-defined]
    assert not differences(seen[1], seen[0])
    with pytest.raises(StatorError, match="has a hook, or retains its gradient"):
        stator.compile(function, backend="aot_eager", fullgraph=True)(*watched(kind))


@pytest.mark.filterwarnings("ignore")
def test_a_complex_view_that_gets_a_new_history_is_left_to_eager() -> None:
    def make() -> list[torch.Tensor]:
        x = recorded()
        return [x, torch.view_as_complex(x.view(4, 3, 2))]

    function = ends("y.mul_(2)", "(x * 3).sum()")
    found = []
    for call in (function, stator.compile(function, backend="aot_eager")):
        x, y = make()
        call(x, y).backward()
        found.append(x.made_from.grad)  # type: ignore[attr-defined]
    torch.testing.assert_close(found[1], found[0])
    with pytest.raises(StatorError, match="another dtype, and gets a new history"):
        stator.compile(function, backend="aot_eager", fullgraph=True)(*make())


@pytest.mark.parametrize(
    ("inputs", "text", "why"),
    [
        ("whole and detached", "z = x * x; y.zero_(); z", "what backward needs is overwritten"),
        ("whole and row", "z = x * x; y.mul_(2); z", "what backward needs is overwritten"),
        ("leaf and view", "y.mul_(2); x * 1", "a leaf that needs gradients is written to"),
    ],
)
def test_errors_of_eager_are_left_to_eager(inputs: str, text: str, why: str) -> None:
    function = ends(*text.split("; "))
    with pytest.raises(StatorError, match=why):
        stator.compile(function, backend="aot_eager", fullgraph=True)(*RECORDED[inputs]())
    with pytest.raises(RuntimeError):
        function(*(given := RECORDED[inputs]())).sum().backward()
    del given


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", ["x.mul_(2); y * 3", "y.mul_(2); (x * 3, y)"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change_are_numbers_here(dynamic: bool | None, text: str) -> None:
    function = ends(*text.split("; "))
    compiled = stator.compile(function, backend="aot_eager", dynamic=dynamic)
    for rows in (4, 5, 7, 4):
        check_on(compiled, function, lambda rows=rows: [x := recorded(rows), x[1]])  # type: ignore[misc]
        check_on(compiled, function, lambda rows=rows: [x := recorded(rows).detach(), x[1:]])  # type: ignore[misc]


def test_the_store_tells_histories_apart(tmp_path: Any) -> None:
    function = ends("y.mul_(2)", "(x * 3, y)")
    for inputs in ("whole and row", "whole and row", "whole and detached row"):
        make = {**RECORDED, "whole and detached row": HISTORIES[1]}[inputs]
        options = {"cache_dir": str(tmp_path)}
        compiled = stator.compile(function, options=options)
        check_on(compiled, function, make)


def test_the_same_relation_elsewhere_is_served_by_what_is_compiled() -> None:
    compiled = stator.compile(USES["x.add_(1); y * 2"], backend="aot_eager", fullgraph=True)
    with log.collect() as recorder:
        for make in SEQUENCE[:2]:
            compiled(*make())
    assert [span.name for span in recorder.spans].count("backend") == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("text", ["x.as_strided((2, 2), (1, 2), 9) + 1", "x.as_strided((2, 2), (1, 2), 9)"])
def test_views_that_count_from_the_start_of_a_storage(text: str, backend: str) -> None:
    function = ends(text)
    compiled = stator.compile(function, backend=backend)
    for start in (1, 0, 1):
        check_on(compiled, function, lambda start=start: [whole()[start:], whole()])  # type: ignore[misc]


def sized(rows: int, gradients: bool) -> list[torch.Tensor]:
    """Two tensors of so many rows, in the middle of the caller's autograd graph if asked."""
    made = []
    for start in (1.0, 7.0):
        source = (torch.arange(6.0 * rows) / 7 + start).view(rows, 6).requires_grad_(gradients)
        tensor: Any = source * 1
        tensor.made_from = source
        made.append(tensor)
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "x.t_(); x * 2", "x.unsqueeze_(0); x * y", "x.add_(1); x.t_(); x.sum(0)", "x.mul_(y); x.t_(); (x, x[0])",
        "v = x[0]; x.unsqueeze_(1); (v * 1, x)", "x.t_(); x.mul_(2); y * 1", "x.as_strided_((2, 3), (3, 1)); x * 1",
        "x.squeeze_(); y.t_(); (x.t() * y).sum()", "x.transpose_(0, 1); x.transpose_(0, 1); x + y",
    ],
)  # fmt: skip
def test_shapes_that_change_in_place_and_from_call_to_call(text: str, gradients: bool) -> None:
    function = ends(*text.split("; "))
    compiled = stator.compile(function, backend="aot_eager", dynamic=True)
    for rows in (6, 4, 7, 9):
        check_on(compiled, function, lambda rows=rows: sized(rows, gradients))  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", ["t.add_(1); (t, x * 1)", "(t, t[0], x * 1)", "t.mul_(x[0, 0]); t[1:]"])
def test_constants_are_made_anew(text: str) -> None:
    function = ends("t = torch.tensor([1.0, 2.0])", *text.split("; "))
    compiled = stator.compile(function, backend="aot_eager")
    for _ in range(2):
        check_on(compiled, function, plain)


def check_on(compiled: Any, function: Any, make: Inputs) -> None:
    found = differences(observe(compiled, make), observe(function, make))
    assert not found, "; ".join(found)[:600]


def inference() -> list[torch.Tensor]:
    with torch.inference_mode():
        return plain()


def conjugated() -> list[torch.Tensor]:
    return [torch.randn(4, 6, dtype=torch.complex64).conj(), torch.randn(4, 6, dtype=torch.complex64)]


def negated() -> list[torch.Tensor]:
    return [conjugated()[0].imag, torch.randn(4, 6)]


#: Tensors of rare kinds: expanded, without elements, without dimensions, …
RARE: dict[str, Inputs] = {
    "inference": inference,
    "conjugated": conjugated,
    "negated": negated,
    "expanded row": lambda: [torch.arange(6.0).expand(4, 6), plain()[1]],
    "expanded column": lambda: [torch.arange(4.0).view(4, 1).expand(4, 6), plain()[1]],
    "nothing": lambda: [torch.zeros(0, 6), torch.zeros(0, 6)],
    "nothing with gradients": lambda: [torch.zeros(0, 6, requires_grad=True) * 1, torch.zeros(0, 6)],
    "number": lambda: [torch.tensor(3.0), torch.tensor(2.0)],
    "number with gradients": lambda: [torch.tensor(3.0, requires_grad=True) * 1, torch.tensor(2.0)],
}
RARE_USES = (
    "x * y", "x.add_(1); x * 2", "x.add_(y); None", "x[...]", "v = x[..., None]; v.mul_(2); (v, x)", "x.copy_(y); x",
    "y.copy_(x); y", "y.add_(x); y", "x.fill_(2); x", "x.zero_(); y * 1", "x.sum()", "x.detach().add_(1); x * 1",
    "x.unsqueeze_(0); x * 2", "z = x * 2; z.add_(1); (z, z.view(-1))", "x.expand(3, *x.shape)", "x.data.add_(1); x * 1",
    "torch.add(x, y, out=y); y", "x.reshape(-1)", "(x, x.clone(), y)",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inputs", RARE)
@pytest.mark.parametrize("text", RARE_USES)
def test_rare_inputs(text: str, inputs: str) -> None:
    check(ends(*text.split("; ")), RARE[inputs])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", RARE_USES)
def test_in_inference_mode(text: str) -> None:
    inner = ends(*text.split("; "))

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        with torch.inference_mode():
            return inner(x, y)

    check(function, inference)
    check(function, plain)
