"""PyTorch's operator database through stator: `python -m tests.differential.operators`.

Every sample of every operator is traced, compiled and run, forward and backward, and compared with eager. A sample is
"right", "refused" (a clear error that says what is not supported: then the user gets eager's result, loudly), "wrong",
or "crashed" (any other error, or the death of the process). The graph is made by hand, so capture is not in question.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from stator import driver
from stator.base.errors import DataDependent, StatorError, Unsupported
from stator.base.options import Options
from tests.differential.observe import differences, observe_on, spread_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}
OPTIONS = Options(cache=False, strict=True, verify=True, eager_random=True)
#: Operators whose results are whatever lies in memory.
EMPTY = re.compile(r"^(new_)?empty(_like|_strided|_permuted)?$")


def names(dtype: torch.dtype, match: str = "") -> list[str]:
    """The operators of the database that take the dtype, as `name.variant`."""
    return [_name(op) for op in _database() if dtype in op.dtypes and re.search(match, _name(op))]


def _database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def samples(name: str, dtype: torch.dtype, limit: int) -> Iterator[tuple[Any, Any, list[Tensor], Any]]:
    """(function, how to rebuild its arguments, tensors among them, the operator's entry); `limit`, spread evenly."""
    op = next(op for op in _database() if _name(op) == name)
    torch.manual_seed(42)
    found = list(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point))
    step = max(1, len(found) / limit)
    for i in range(min(limit, len(found))):
        sample = found[int(i * step)]
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        yield op, spec, leaves, op.op


def graph_of(function: Any, spec: Any, leaves: list[Any]) -> fx.GraphModule:
    """The graph of one call: tensors come in, everything else is written into it."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{i}") if isinstance(leaf, Tensor) else leaf for i, leaf in enumerate(leaves)]

    def call(*flat: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(flat), spec)
        return tuple(t for t in pytree.tree_leaves(function(*args, **kwargs)))

    call.__module__, call.__name__ = __name__, "call"
    graph.output(graph.call_function(call, tuple(nodes)))
    return fx.GraphModule(torch.nn.Module(), graph)


def judge(function: Any, spec: Any, leaves: list[Any], values: bool = True) -> tuple[str, str]:
    """What becomes of one sample: the verdict, and why."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if any(t.layout is not torch.strided for t in tensors):
        return "unusable", "not a strided tensor"
    graph = graph_of(function, spec, leaves)

    def eager(noise: float = 0.0, wide: bool = False) -> Any:
        torch.manual_seed(42)
        return observe_on(graph.forward, *_fresh(tensors, noise, wide))

    want = eager()
    if want.failed is not None:
        return "unusable", "eager raises"
    inputs, wanted = _fresh(tensors)
    try:
        with torch.enable_grad():
            compiled = driver.compile_graph(graph, inputs, options=OPTIONS)
    except (Unsupported, DataDependent) as error:
        return "refused", str(error).split("\n")[0]
    except StatorError as error:
        return "crashed", str(error).split("\n")[0]
    torch.manual_seed(42)
    got = observe_on(compiled, inputs, wanted)
    if not values:
        found = [f"is {got.geometry}, eager's {want.geometry}"] if got.geometry != want.geometry else []
    else:
        found = differences(got, spread_of(eager, want))
    return ("wrong", "; ".join(found)) if found else ("right", "")


def _fresh(tensors: list[Tensor], noise: float = 0.0, wide: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """New leaves like these tensors; the function gets results of an operator, so that it may write to them."""
    leaves = []
    for t in tensors:
        copy = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) if 0 not in t.stride() else torch.empty_like(t)
        copy.copy_(t.detach())
        if noise and t.dtype.is_floating_point:
            generator = torch.Generator().manual_seed(3)
            shake = torch.randn(t.shape, generator=generator, dtype=torch.float64)
            copy = (copy.double() * (1 + noise * torch.finfo(t.dtype).eps * shake)).to(t.dtype)
        if wide and t.dtype.is_floating_point:
            copy = copy.double()
        leaves.append(copy.requires_grad_(t.requires_grad))
    return [leaf.clone() if leaf.requires_grad else leaf for leaf in leaves], leaves


# ---- running many ----------------------------------------------------------------------------------------------------


def _serve(pipe: Any) -> None:
    """A worker: (operator, dtype, limit, skip) in, one (number, verdict, why) per sample out, then None."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        name, dtype, limit, skip = task
        try:
            for i, (_, spec, leaves, function) in enumerate(samples(name, DTYPES[dtype], limit)):
                if i < skip:
                    continue
                pipe.send((i, "starts", ""))
                try:
                    verdict = judge(function, spec, leaves, values=not EMPTY.match(name))
                except Exception as error:
                    verdict = ("crashed", f"{type(error).__name__}: {error}".replace("\n", " ")[:300])
                pipe.send((i, *verdict))
        except Exception as error:
            pipe.send((0, "unusable", f"{type(error).__name__}: {error}"[:200]))
        pipe.send(None)


class Worker:
    """A process that may die; what it died of is then a crash, and another takes over."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def run(self, name: str, dtype: str, limit: int, timeout: float = 240) -> list[tuple[int, str, str]]:
        """The verdicts of one operator's samples."""
        found: list[tuple[int, str, str]] = []
        skip = 0
        while True:
            self.pipe.send((name, dtype, limit, skip))
            current = skip
            try:
                while True:
                    if not self.pipe.poll(timeout):
                        self.process.kill()
                        raise EOFError("it took too long")
                    message = self.pipe.recv()
                    if message is None:
                        return found
                    current = message[0]
                    if message[1] != "starts":
                        found.append(message)
            except (EOFError, ConnectionResetError) as error:
                found.append((current, "crashed", f"the process died: {error}"))
                skip = current + 1
                self._start()

    def stop(self) -> None:
        self.pipe.send(None)
        self.process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--samples", type=int, default=4, help="samples of each operator")
    parser.add_argument("--only", default="", help="a regular expression over operator names")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th operator from the i-th")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    worker = Worker()
    counts: collections.Counter[str] = collections.Counter()
    for name in names(DTYPES[arguments.dtype], arguments.only)[part::parts]:
        for i, verdict, why in worker.run(name, arguments.dtype, arguments.samples):
            counts[verdict] += 1
            if verdict not in ("right", "unusable"):
                print(f"{verdict:8} {arguments.dtype} {name}[{i}]: {why}", flush=True)
    worker.stop()
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


if __name__ == "__main__":
    main()
