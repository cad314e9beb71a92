"""One architecture, judged: captured whole or not and why, and whether results and gradients are eager's.

`judge` is what the command and the test share. A model is whole when `fullgraph=True` accepts it; one that is not is
run with breaks, so that its graphs are counted and its results compared as well.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import transformers

import stator
from benchmarks.worker import disable_dropout
from stator.base import faults, log
from stator.base.errors import CaptureError, StatorWarning
from tests.architectures.catalogue import TABLE
from tests.architectures.table import Architecture, Inputs
from tests.models.library import floating, norm, numbered, state

Tensors = Mapping[str, torch.Tensor]

#: What our error may be, as a multiple of eager's; what rounding alone may do, relative to the norm.
FACTOR = 3.0
FLOOR = 1e-5

MODES = ("inference", "training")


class Verdict(NamedTuple):
    """What is known about one architecture in one mode."""

    name: str
    family: str
    mode: str
    whole: bool
    graphs: int
    #: Reason and place of every break, the first is what `fullgraph` names.
    breaks: tuple[str, ...]
    #: How it differs from eager; empty if it does not.
    wrong: str


def work(task: tuple[str, str]) -> Verdict:
    """`judge` for a pool of processes."""
    torch.set_num_threads(1)
    return judge(*task)


def judge(name: str, mode: str) -> Verdict:
    """Compiles one architecture and compares it."""
    entry = TABLE[name]
    transformers.utils.logging.set_verbosity_error()
    whole, wrong, graphs, breaks = True, "", 0, []
    for fullgraph in (True, False):
        stator.reset()
        before = faults.total()
        try:
            with log.collect() as found, warnings.catch_warnings():
                warnings.simplefilter("ignore", StatorWarning)
                compare(entry, mode, fullgraph)
        except CaptureError as error:
            assert fullgraph, "only a whole graph can be refused"
            whole = False
            breaks.append(one_line(error))
            continue
        except Exception as error:  # a failing model is a line of the report, not its end
            wrong = f"{type(error).__name__}: {one_line(error)}"
        wrong = wrong or "; ".join(map(str, faults.recent(before)))
        graphs = len(found.of(log.GRAPH))
        breaks += [f"{stop['reason']} ({stop['file']}:{stop['line']})" for stop in found.of(log.BREAK)]
        break
    return Verdict(name, entry.family, mode, whole, graphs, tuple(dict.fromkeys(breaks)), wrong)


def one_line(error: Exception) -> str:
    """The first lines of a message."""
    return " ".join(str(error).split())[:200]


def compare(entry: Architecture, mode: str, fullgraph: bool) -> None:
    """Raises `AssertionError` where the compiled model is further from float64 than eager allows."""
    model = entry.build()
    disable_dropout(model)
    given = entry.inputs(model.config, torch.Generator().manual_seed(1))
    exact = copy.deepcopy(model).double()
    precise = {name: value.double() if value.is_floating_point() else value for name, value in given.items()}
    fast = stator.compile(copy.deepcopy(model), fullgraph=fullgraph, options={"strict": True})
    run: Callable[[Any, Inputs], Tensors] = train if mode == "training" else infer
    got, eager = run(fast, given), run(model, given)
    try:
        right = run(exact, precise)
    except RuntimeError:  # some kernels of PyTorch have no float64
        right = eager
    assert got.keys() == eager.keys()
    differences = list(far(got, eager, right))
    assert not differences, "; ".join(differences)


def far(got: Tensors, eager: Tensors, right: Tensors) -> Iterator[str]:
    """Tensors that are further from `right` than rounding explains.

    The yardstick is eager's error: of the same tensor, or relative to the norm the largest among all tensors, because
    one tensor's error is one draw. What is zero but for rounding is measured against the largest tensor.
    """
    largest = max(norm(tensor) for tensor in right.values())
    noise = max(
        (norm(eager[name] - truth) / (norm(truth) + 1e-3 * largest) for name, truth in right.items()), default=0
    )
    for name, mine in got.items():
        theirs, truth = eager[name], right[name]
        if (mine.shape, mine.dtype, mine.stride()) != (theirs.shape, theirs.dtype, theirs.stride()):
            yield f"{name}: another geometry"
        elif not mine.is_floating_point():
            if not torch.equal(mine, theirs):
                yield f"{name}: other values"
        elif not norm(mine - truth) <= FACTOR * norm(theirs - truth) + (FLOOR + noise) * (norm(truth) + 1e-3 * largest):
            yield f"{name}: error {norm(mine - truth):.2e}, eager's {norm(theirs - truth):.2e}, norm {norm(truth):.2e}"


def infer(model: Any, given: Inputs) -> Tensors:
    """The outputs without autograd."""
    with torch.no_grad():
        return numbered(floating(model(**given)))


def train(model: Any, given: Inputs) -> Tensors:
    """Outputs, gradients and buffers after one backward through everything that is differentiable."""
    model.train()
    output = model(**given)
    losses = [tensor.float().square().mean() for tensor in differentiable(output)]
    torch.stack(losses).sum().backward()
    return {**numbered(floating(output)), **state(model)}


def differentiable(output: Any) -> list[torch.Tensor]:
    """The tensors of an output that require grad."""
    leaves, _ = torch.utils._pytree.tree_flatten(output)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
