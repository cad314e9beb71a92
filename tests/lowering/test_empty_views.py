"""Views without elements lie somewhere all the same: `as_strided` of one counts from the start of the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.coverage.compare import differences, observe_on, spread_of

EMPTY: dict[str, Callable[[Any], Any]] = {
    "no rows": lambda x: x[1:1],
    "from behind the last row on": lambda x: x[9:],
    "a part of no rows": lambda x: x[2:2, 1:],
    "behind the end of the memory": lambda x: x[9:, 5:],
    "every second of no rows": lambda x: x[3:1:2, ::3],
    "a column of no rows": lambda x: x[1:1, 2],
    "a row of no columns": lambda x: x[:, 2:2][2],
    "no rows, flattened": lambda x: x[1:1, 1:].flatten(),
    "no rows, turned": lambda x: x[2:1].t(),
    "no rows of another size": lambda x: x[1:1, 1:].view(0, 2, 2),
    "the last of three parts": lambda x: x.tensor_split(9)[-1],
    "a diagonal beside the matrix": lambda x: x.diagonal(8),
    "a diagonal of no rows": lambda x: x[2:2].diagonal(1),
    "diagonals of no matrices": lambda x: x[:, None][2:2].diagonal(1, 1, 2),
    "windows of no rows": lambda x: x[2:2].unfold(1, 2, 1),
    "repeated": lambda x: x[2:2, 1:2].expand(0, 7),
}
USES: dict[str, Callable[[Any], Any]] = {
    "of an input": lambda view: lambda x: view(x).as_strided((2, 2), (1, 3), 1) * 3,
    "of a value": lambda view: lambda x: view(x * 2).as_strided((2, 2), (1, 3), 1) * 3,
    "sorted before": lambda view: lambda x: (view(y := x * 2).sort(0)[0], y.as_strided((2, 2), (1, 3), 1) * 3),
    "returned": lambda view: lambda x: view(x * 2).as_strided((2, 2), (1, 3), 1),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", EMPTY)
def test_memory_is_read_from_views_without_elements(name: str, use: str, backend: str) -> None:
    function = USES[use](EMPTY[name])

    def seen(called: Any, **how: Any) -> Any:
        x = torch.arange(32.0).view(4, 8)
        return observe_on(called, [x], [], **{key: value for key, value in how.items() if key != "wide"})

    compiled = stator.compile(function, backend=backend, fullgraph=True, options={"strict": True})
    want = seen(function)
    assert want.failed is None
    assert not differences(seen(compiled), spread_of(lambda **how: seen(function, **how), want))


@pytest.mark.parametrize("name", ["no rows", "from behind the last row on", "no rows, flattened"])
def test_so_it_is_for_sizes_that_change(name: str) -> None:
    ends = {"no rows": lambda x, n: x[n:n], "from behind the last row on": lambda x, n: x[n:]}
    view = ends.get(name, lambda x, n: x[n:n, 1:].flatten())

    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return view(x * 2, n).as_strided((2,), (1,), 1) * 3

    compiled = stator.compile(function, dynamic=True, fullgraph=True, options={"strict": True})
    for rows, n in ((4, 9), (6, 11), (7, 20), (4, 4), (5, 5)):
        x = torch.randn(rows, 5)
        assert torch.equal(compiled(x, n), function(x, n))
