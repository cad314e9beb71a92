"""One measurement in one fresh process; prints a JSON object on its last line.

`first`: seconds of the first call of one compiler (the import of the compiler is counted, that of
torch and transformers is not), its peak memory, graphs and kernels. `steady`: every compiler in one
process, called in turn, so that drift of the machine hits all alike. `accuracy`: errors against
eager in the model's dtype and against float64. Run by `benchmarks/harness.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
import transformers

from benchmarks import registry

COMPILERS = ("eager", "stator", "torch.compile")
Step = Callable[[], Any]


def compiled(compiler: str, model: torch.nn.Module) -> torch.nn.Module:
    """`model` under `compiler`; imports the compiler, so that its cost is in the first call."""
    match compiler:
        case "eager":
            return model
        case "stator":
            import stator  # its import is part of what is measured

            return stator.compile(model, fullgraph=True)
        case "torch.compile":
            return torch.compile(model, fullgraph=True)  # type: ignore[return-value]
    raise ValueError(compiler)


def make_step(compiler: str, name: str, size: str, mode: str, dtype: torch.dtype, device: str) -> tuple[Step, Step]:
    """Two callables: the first call (compiling included) and the repeated step."""
    model = registry.build(name, size, dtype).to(device)
    given = registry.inputs(name, model, 1, labels=mode == "training", device=device)
    holder: dict[str, Any] = {}

    def inference() -> Any:
        with torch.no_grad():
            return holder["model"](**given)

    def training() -> Any:
        loss = holder["model"](**given).loss
        loss.backward()
        holder["optimizer"].step()
        holder["optimizer"].zero_grad(set_to_none=True)
        return loss

    if mode == "training":
        model.train()
        holder["optimizer"] = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = training if mode == "training" else inference

    def first() -> Any:
        holder["model"] = compiled(compiler, model)
        return step()

    return first, step


def disable_dropout(model: torch.nn.Module) -> None:
    """Set every dropout probability to zero, so that numbers can be compared; the operators stay."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):  # probabilities that attention layers keep themselves
            module.dropout = 0.0
        elif isinstance(getattr(module, "drop_prob", None), float):  # blocks that are left out at random
            module.drop_prob = 0.0


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def measure_first(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the first call, then what the compiler says it made."""
    torch.ones(4, device=args.device).mul(2).sum().item()
    first, step = make_step(args.compiler, args.model, args.size, args.mode, DTYPES[args.dtype], args.device)
    start = time.perf_counter()
    first()
    synchronise(args.device)
    seconds = time.perf_counter() - start
    for _ in range(3):
        step()
    synchronise(args.device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak_mib": peak, **counts(args.compiler)}


def counts(compiler: str) -> dict[str, Any]:
    """Graphs and kernels of the first call, as each compiler counts them."""
    if compiler == "stator":
        from stator.inspect import statistics as facts  # only where it is loaded anyway

        return facts.summary()
    if compiler == "torch.compile":
        from torch._dynamo.utils import counters  # the peer's own counters
        from torch._inductor import metrics

        return {"graphs": counters["stats"]["unique_graphs"], "kernels": metrics.generated_kernel_count}
    return {}


def measure_steady(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a call of each compiler, called in turn; all samples, and the medians."""
    steps = {}
    slower: list[str] = []
    for compiler in args.compilers.split(","):
        first, step = make_step(compiler, args.model, args.size, args.mode, DTYPES[args.dtype], args.device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first()
        slower += [str(item.message) for item in caught if item.category.__name__ == "SlowWarning"]
        step()
        steps[compiler] = step
    samples: dict[str, list[float]] = {compiler: [] for compiler in steps}
    for _ in range(args.calls):
        for compiler, step in steps.items():
            synchronise(args.device)
            start = time.perf_counter()
            step()
            synchronise(args.device)
            samples[compiler].append((time.perf_counter() - start) * 1e3)
    return {"ms": {c: statistics.median(v) for c, v in samples.items()}, "samples": samples, "slower": slower}


def flat_outputs(value: Any) -> Iterable[torch.Tensor]:
    """Tensors in a model's output, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from flat_outputs(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat_outputs(item)


def results(compiler: str, args: argparse.Namespace, dtype: torch.dtype) -> list[torch.Tensor]:
    """Outputs, and in training the gradients of all parameters, of one step."""
    model = registry.build(args.model, args.size, dtype).to(args.device)
    given = registry.inputs(args.model, model, 1, labels=args.mode == "training", device=args.device)
    if args.mode == "training":
        model.train()
        disable_dropout(model)
    fast = compiled(compiler, model)
    with torch.set_grad_enabled(args.mode == "training"):
        out = fast(**given)
    values = [v.detach().clone() for v in flat_outputs(out) if v.is_floating_point()]
    if args.mode == "training":
        out.loss.backward()
        values += [p.grad for p in model.parameters() if p.grad is not None]
    return values


def error(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """Largest over the tensors of max|got - want| / max|want|; infinity where one is not finite.

    A tensor counts as at least a thousandth of the largest one: some gradients (the bias of attention keys) are zero
    but for rounding, and a ratio of two roundings says nothing.
    """
    if len(got) != len(want):
        return float("inf")
    scales = [b.double().abs().max().item() if b.numel() else 0.0 for b in want]
    least = max(scales, default=0.0) * 1e-3
    worst = 0.0
    for a, b, scale in zip(got, want, scales, strict=True):
        difference = (a.double() - b.double()).abs().max().item() if b.numel() else 0.0
        ratio = difference / max(scale, least) if scale else difference
        worst = max(worst, ratio if ratio == ratio else float("inf"))
    return worst


def measure_accuracy(args: argparse.Namespace) -> dict[str, Any]:
    """Errors of each compiler, and of eager, against eager and float64."""
    dtype = DTYPES[args.dtype]
    eager = results("eager", args, dtype)
    exact = results("eager", args, torch.float64)
    found = {"eager": {"eager": 0.0, "float64": error(eager, exact)}}
    for compiler in args.compilers.split(","):
        if compiler != "eager":
            got = results(compiler, args, dtype)
            found[compiler] = {"eager": error(got, eager), "float64": error(got, exact)}
    return {"error": found}


DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
TASKS = {"first": measure_first, "steady": measure_steady, "accuracy": measure_accuracy}


def main() -> None:
    """Parse, bind to the cores asked for, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--size", default="base")
    parser.add_argument("--mode", default="inference", choices=["inference", "training"])
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compiler", default="eager", choices=COMPILERS)
    parser.add_argument("--compilers", default=",".join(COMPILERS))
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    torch.set_num_threads(args.cores)
    transformers.utils.logging.set_verbosity_error()
    print(json.dumps(TASKS[args.task](args)))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
