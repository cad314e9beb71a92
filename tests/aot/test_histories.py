"""What tensors say of their history, where views, writes and `requires_grad_()` meet: as in eager."""

from __future__ import annotations

import random
import warnings

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning
from tests.aot.histories import Program, difference, generate

#: Statements; results; how x and y take part. A view has the history of its base, which takes gradients later.
PROGRAMS = (
    ("v = 2 ** x; w = v[-1]; v.requires_grad_()", "w", ("", "")),
    ("v = torch.ones(3, 3)\nwith torch.no_grad(): w = v[0]\nv.requires_grad_()", "w", ("leaf", "")),
    ("v = x * 1; w = v[1:]; u = w.view_as(w); v.requires_grad_()", "u", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad_()", "v, w", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad_()", "w * 2", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad_()", "w * 2 + y[1:]", ("", "leaf")),
    ("v = x * 1; w = v[1:]; v.requires_grad_(); v.requires_grad_(False)", "w, w.requires_grad", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad_(); w.requires_grad_(False)", "w, w.requires_grad", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad_(); w.requires_grad_()", "w", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad = True", "w, w.requires_grad, w.is_leaf, w.grad_fn is None", ("", "")),
    ("v = x * 1; w = v[1:]; v.requires_grad_(); w.sum().backward()", "v, w", ("", "")),
    ("v = x * 1; a, b, c = v.unbind(); v.requires_grad_()", "a", ("", "")),
    ("v = x[1:]; x.requires_grad_()", "v", ("", "")),
    # A view that is older than a write, and one that is not.
    ("v = x[1:]\nwith torch.no_grad(): x.mul_(2)\nx.requires_grad_()", "v", ("", "")),
    ("v = x * 2; w = v[1:]; w.detach().mul_(2); v.requires_grad_()", "w", ("", "")),
    ("v = x * 2; w = v[1:]; w.detach().mul_(2); u = v[:1]; v.requires_grad_()", "u, w, v", ("", "leaf")),
    ("v = x * 1; w = v[1:]; u = w.view_as(w)\nwith torch.no_grad(): v.mul_(2)\nv.requires_grad_()", "w, u", ("", "")),
    ("v = x * 1\nwith torch.no_grad(): w = v[1:]; v.mul_(2)\nv.requires_grad_()", "w", ("", "")),
    # A view that autograd has not recorded takes gradients by itself.
    ("v = x * 2\nwith torch.no_grad(): w = v.view(-1)\nw.requires_grad_()", "w", ("inner", "leaf")),
    ("v = x * 2\nwith torch.no_grad(): w = v[1:]\nw.detach().mul_(2); w.requires_grad_()", "w", ("inner", "leaf")),
    # One that autograd will say nothing about any more.
    ("v = x + y\nwith torch.no_grad(): w = v.t(); v.mul_(2)\nv.sum().backward()", "w", ("", "leaf")),
    (
        "v = x * 2\nwith torch.no_grad(): w = v.t()\nv.requires_grad_(); u = w.data; w.detach().mul_(2)",
        "u, w",
        ("", ""),
    ),
    ("v = torch.ones(3, 3); w = v.t(); v.mul_(2); w.requires_grad_(); v.requires_grad_()", "w", ("", "")),
    # The others: a view of the one that autograd relates it to, a leaf that takes no gradients any more.
    ("v = x + y; w = v.t(); u = v.data; v.requires_grad_()", "u, w", ("", "")),
    (
        "v = torch.ones(3, 3).requires_grad_(); v.sum().backward(); w = v + y; v.requires_grad_(False)",
        "w",
        ("", "leaf"),
    ),
)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_is_as_in_eager(number: int, fullgraph: bool) -> None:
    statements, results, gradients = PROGRAMS[number]
    program = Program(tuple(statements.split("\n")), (results,), gradients)
    assert not difference(program, fullgraph)


#: Statements on a leaf x that is a view itself, and results. After a write PyTorch makes the history of an older view
#: anew, as that of a view of the base, which takes no gradients; what was computed from the view before keeps its own.
OF_A_VIEW = (
    ("v = x.t(); w = v.expand(1, 3, 3); v.detach().mul_(2)", "w"),
    ("v = x.t(); w = v * 2; v.detach().mul_(2)", "w"),
    ("v = x.t(); v.detach().mul_(2); w = v * 2", "w"),
    ("v = x.t()\nwith torch.no_grad(): x.mul_(2)", "v + y"),
    ("v = x.t(); v.data.mul_(2)", "v"),
    ("x.detach().mul_(2); v = x.t()", "v, v * 2"),
)


@pytest.mark.parametrize("of_a_view", [True, False])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("number", range(len(OF_A_VIEW)))
def test_views_of_a_leaf_that_is_written_to(number: int, fullgraph: bool, of_a_view: bool) -> None:
    statements, results = OF_A_VIEW[number]
    program = Program(tuple(statements.split("\n")), (results,), ("leaf", "leaf"), of_a_view)
    why = difference(program, fullgraph)
    assert not why
    assert why is not None or (fullgraph and of_a_view)


@pytest.mark.parametrize("first", ["view", "other"])
def test_a_leaf_that_is_a_view_is_told_from_others(first: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        v = x.t()
        v.detach().mul_(2)
        return v

    compiled = stator.compile(f, backend="aot_eager")
    for kind in ("view", "other") if first == "view" else ("other", "view"):
        leaf = (torch.ones(3, 5)[:, 1:4] if kind == "view" else torch.ones(3, 3)).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            compiled(leaf).sum().backward()
        assert (leaf.grad is None) is (kind == "view")


@pytest.mark.parametrize("number", range(40))
def test_random_programs(number: int) -> None:
    program = generate(random.Random(number))
    for fullgraph in (True, False):
        assert not difference(program, fullgraph), f"{program.source}{program}"


@pytest.mark.parametrize("made", ["before", "after"])
def test_a_base_that_takes_gradients_has_no_views_among_the_inputs(made: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, bool]:
        x.requires_grad_()
        return w * 2, w.requires_grad

    compiled = stator.compile(f, backend="aot_eager")
    if made == "after":  # a version for inputs that share nothing is there already
        assert not compiled(torch.ones(3), torch.ones(2))[1]
    for function in (f, compiled):
        x = torch.ones(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            result, requires_grad = function(x, x[1:])
        assert result.requires_grad
        assert requires_grad


def test_a_leaf_that_gets_no_gradient() -> None:
    """Its base begins to take gradients, so that it says that it does."""

    def f(x: torch.Tensor) -> None:
        (x * x).sum().backward()

    compiled = stator.compile(f, backend="aot_eager")
    plain = torch.ones(3, requires_grad=True)
    compiled(plain)
    assert plain.grad is not None
    base = torch.ones(4)
    view = base[1:]
    base.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        compiled(view)
    assert view.grad is None
