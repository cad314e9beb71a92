"""torch.compile over the operator database, judged as stator is: `python -m benchmarks.coverage_peer --out FILE`.

The arguments are those of `python -m stator.coverage`, and so is the form of the result. PyTorch's kernels are read
from the code that Inductor writes: calls of `extern_kernels` and of `torch.ops`. Its C++ is compiled without
optimisation: what is asked is whether it works, and every sample compiles a file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import counters
from torch._inductor.graph import GraphLowering

from stator.coverage.__main__ import main
from stator.coverage.judge import Call, Run

#: Inductor's names of what the primitive set calls otherwise.
SAME = {
    "baddbmm": "bmm",
    "_mm_plus_mm": "mm",
    "_linear_pointwise": "addmm",
    "_mkl_linear": "addmm",
    "_convolution_pointwise": "convolution",
    "_convolution_pointwise_": "convolution",
    "_convolution_transpose_pointwise": "convolution",
    "bias_addmm": "addmm",
}
#: How the written code calls a kernel of PyTorch.
CALL = re.compile(r"\bextern_kernels\.(\w+)\(|\btorch\.ops\.(\w+)\.(\w+)(?:\.\w+)?\(|\baten\.(\w+)(?:\.\w+)?\(")
#: How the seeds of its own random numbers are drawn, once a call; ours are drawn by the runtime.
SEEDS = "aten.randint.low_out("


class Inductor:
    """torch.compile with its default backend, parts in eager allowed.

    It is judged by its values: it does not promise eager's strides and aliasing.
    """

    layout = False

    def __init__(self) -> None:
        torch._inductor.config.fx_graph_cache = False  # whatever is found there has no code to read
        torch._functorch.config.enable_autograd_cache = False
        torch._inductor.config.cpp.threads = 1
        torch._inductor.config.aot_inductor.debug_compile = True

    def run(self, program: Callable[..., Any], call: Call, *, exact_random: bool) -> Run:
        """See `stator.coverage.judge.Engine`."""
        torch._dynamo.reset()
        counters.clear()
        torch._inductor.config.fallback_random = exact_random
        written: list[str] = []
        GraphLowering.save_output_code = staticmethod(written.append)
        try:
            seen = call(torch.compile(program))
        finally:
            GraphLowering.save_output_code = None
        breaks = [str(reason).split("\n")[0] for reason in counters["graph_break"]]
        return Run(seen, tuple(breaks), tuple(sorted({k for text in written for k in kernels(text)})))


def kernels(code: str) -> list[str]:
    """The kernels of PyTorch that a file of Inductor's calls, as `namespace.operator`."""
    found = []
    body = code[code.find("async_compile = ") :].split("def benchmark_compiled_module")[0]
    for match in CALL.finditer(body):
        if match.group().endswith(SEEDS):
            continue
        extern, namespace, operator, plain = match.groups()
        name = extern or operator or plain
        found.append(f"{'aten' if not namespace or name in SAME else namespace}.{SAME.get(name, name)}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "benchmarks.coverage_peer:Inductor"))
