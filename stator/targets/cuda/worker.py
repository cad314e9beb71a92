"""Compiles kernels of Triton's language, in a process that has nothing else to do.

Run as a program, by its path, it imports Triton and compiles something small, so that all is in memory, and then
forks a worker for each connection that it is sent; a worker compiles what comes from its connection, one kernel after
the other. Both end when the other end is closed. Nothing of stator is imported, nor torch, so a worker is there within
half a second (only a worker that compiles by stator's own compiler imports that); the server has one thread whenever
it forks.
A job is a dict of plain data: `text` and `name` of a kernel, its launch (see `toolchain.py`), the target and which
alternative of it is asked for. The answer is a dict as well: the binary and what is known of it, or `error`.
Neighbours: `workers.py` is the other end, and calls `compile_kernel` itself where no process can.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import linecache
import os
import re
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

#: What is known of a pointer whose address is a multiple of 16.
ALIGNED = [["tt.divisibility", 16]]
#: A compiler that is not Triton → the module that has it.
COMPILERS = {"stator": "stator.tile.nvidia.generated"}
#: The stage that gives what a driver loads, by the kind of device.
BINARIES = {"cuda": "cubin", "hip": "hsaco"}
#: What the compiler is told of every kernel whose launch says nothing else: functions of libdevice take and give
#: numbers below the normal ones as eager's kernels do, for as many instructions, or three more.
OPTIONS: dict[str, dict[str, Any]] = {"cuda": {"enable_reflect_ftz": False}, "hip": {}}
#: Bytes of shared memory that a program may have on NVIDIA's architectures.
SHARED_BYTES = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448, 103: 232448, 120: 101376}
#: Functions of libdevice, as kernels call them, of which most kernels need no others → how many floats they take.
FREQUENT = {
    "rsqrt": 1, "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log1p": 1, "erf": 1, "tanh": 1, "copysign": 2, "floor": 1,
    "ceil": 1, "trunc": 1, "nearbyint": 1,
}  # fmt: skip
#: Functions of libdevice that give the same where numbers below the normal ones may be taken for zero on the way, as
#: there are none, or that do not ask; `tanh` and `erf` are only called for float64 (`codegen/triton/instructions.py`).
INDIFFERENT = frozenset(("erfinv", "copysign", "floor", "ceil", "trunc", "nearbyint", "tanh", "erf"))
_CALLS = re.compile(r"libdevice\.(\w+)\(")
#: A function of libdevice that nothing was linked for.
_MISSING = re.compile(r"^declare .*@__nv_", re.MULTILINE)
#: What a server compiles before anybody asks for something.
SMALL = {
    "text": "import triton\n\n@triton.jit\ndef small(p):\n    triton.language.store(p, 1)\n",
    "name": "small",
    "launch": {"types": ("*fp32",), "aligned": (True,), "sizes": (), "options": {}},
    "anywhere": False,
    "round": False,
    "wide": False,
}


def compile_kernel(job: Mapping[str, Any]) -> dict[str, Any]:
    """The binary of a job, in this process; raises what the compiler raises.

    A launch that asks for more shared memory than there is would be refused. How much a kernel takes only its compiler
    knows, so one that takes too much is compiled with fewer stages.
    """
    launch, made = job["launch"], _compiled(job)
    for stages in reversed(range(1, launch["options"].get("num_stages", 1))):
        if made["shared"] <= _shared_bytes(job["target"]):
            break
        made = _compiled({**job, "launch": {**launch, "options": {**launch["options"], "num_stages": stages}}})
    return made


def _shared_bytes(target: Sequence[Any]) -> float:
    """What a program may have; no limit where it is not known."""
    kind, architecture, _ = target
    return SHARED_BYTES.get(architecture, float("inf")) if kind == "cuda" else float("inf")


def _compiled(job: Mapping[str, Any]) -> dict[str, Any]:
    if job.get("compiler") in COMPILERS:
        made_by = importlib.import_module(COMPILERS[job["compiler"]])  # which takes no Triton, and no torch
        own: dict[str, Any] = made_by.compile_job(job)
        return own
    called = set(_CALLS.findall(job["text"]))
    library = frequent(tuple(job["target"])) if called and called <= FREQUENT.keys() else ""
    flushes = job["target"][0] == "cuda" and "erfinv" in called and called <= INDIFFERENT
    told: dict[str, Any] = {"enable_reflect_ftz": True} if flushes else {}
    found = _lowered(job, {"extern_libs": {"libdevice": library}}) if library else {}
    return found or _lowered(job, told)


def _lowered(job: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """By Triton, which is told some options more; nothing where the library that it is told of lacks a function."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    function = executed(job["text"], job["name"])[job["name"]]
    source = source_of(function, job["launch"], anywhere=job["anywhere"], wide=job["wide"], round=job["round"])
    target = GPUTarget(*job["target"])
    backend = make_backend(target)
    options = backend.parse_options(OPTIONS[target.backend] | job["launch"]["options"] | told)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    made: Any = source.make_ir(target, options, codegen, modules, context)
    facts: dict[str, Any] = {"target": target, **vars(options)}
    for stage, lower in stages.items():
        made = lower(made, facts)
        if "extern_libs" in told and stage == "llir" and _MISSING.search(made):
            return {}
        if stage == BINARIES[target.backend]:
            break
    return {
        "image": made,
        "name": facts["name"],
        "shared": facts["shared"],
        "threads": facts["num_warps"] * facts["warp_size"],
        "clusters": facts.get("num_ctas", 1),
        "scratch": facts.get("global_scratch_size", 0),
    }


@functools.cache
def frequent(target: tuple[Any, ...]) -> str:
    """A file with the functions of `FREQUENT` alone, which is read in a tenth of the time that libdevice takes.

    It is what the linker takes of libdevice for a module that calls them, so kernels become the same to the bit. The
    file is in the memory of this process and of those that it forks. Nothing ("") for devices without libdevice, and
    where Triton does not say what it says today.
    """
    from triton._C.libtriton import ir, llvm
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    if target[0] != "cuda":
        return ""
    try:
        from triton.backends.nvidia.compiler import get_features, sm_arch_from_capability

        backend = make_backend(GPUTarget(*target))
        options = backend.parse_options({})
        context, linked = ir.context(), llvm.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(_calling(FREQUENT))
            file.flush()
            calls = ir.parse_mlir_module(file.name, context)
        llvm.init_targets()
        module = llvm.to_module(calls, linked)
        features = get_features(options, target[1])
        llvm.attach_datalayout(module, "nvptx64-nvidia-cuda", sm_arch_from_capability(target[1]), features)
        llvm.link_extern_libs(module, [path for _, path in options.extern_libs])
        text = str(module)
        del module, calls  # before the contexts that they are of
    except (ImportError, AttributeError, TypeError):  # a Triton whose parts are others
        return ""
    number = os.memfd_create("libdevice")
    with open(number, "w", closefd=False) as file:
        file.write(text.replace("define internal ", "define "))  # what is internal is linked for nobody
    return f"/proc/self/fd/{number}"


def _calling(functions: Mapping[str, int]) -> str:
    """A module of MLIR that calls functions of libdevice on floats."""
    lines = []
    for name, count in functions.items():
        taken, given = ", ".join(["f32"] * count), ", ".join(["%x"] * count)
        lines += [
            f"llvm.func @__nv_{name}f({taken}) -> f32",
            f"llvm.func @calls_{name}(%x: f32) -> f32 {{",
            f"  %y = llvm.call @__nv_{name}f({given}) : ({taken}) -> f32",
            "  llvm.return %y : f32",
            "}",
        ]
    return "\n".join(lines)


def executed(text: str, name: str) -> dict[str, Any]:
    """The names of a text that was run. Triton reads a kernel's text where its file is, which is no file here."""
    file = f"<kernel {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"stator_kernel_{name}", "__file__": file}
    exec(compile(text, file, "exec"), namespace)
    return namespace


def source_of(function: Any, launch: Mapping[str, Any], *, anywhere: bool, wide: bool, round: bool = False) -> Any:
    """What Triton compiles: pointers that are aligned, or may lie `anywhere`; sizes and positions of 32 bits, or 64.

    With `round`, sizes that the launch names are multiples of 16.
    """
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = dict(zip(names, launch["types"], strict=False))
    signature |= dict.fromkeys(launch["sizes"], "i64" if wide else "i32")
    constants = dict(launch.get("constants", {})) | ({"WIDE": wide} if launch["sizes"] else {})
    attributes = {} if anywhere else {(i,): ALIGNED for i, aligned in enumerate(launch["aligned"]) if aligned}
    if round:
        attributes |= {(len(launch["types"]) + i,): ALIGNED for i in launch["rounds"]}
    return ASTSource(function, signature | dict.fromkeys(constants, "constexpr"), constants, attributes)


def answer(job: Mapping[str, Any], listen: bool = True) -> dict[str, Any]:
    """The binary, or why there is none; where it may `listen`, with what the assembler says, which Triton prints."""
    told, start = io.StringIO(), time.perf_counter()
    try:
        with contextlib.redirect_stdout(told) if listen else contextlib.nullcontext():
            made = compile_kernel(job)
        return {**made, **_resources(told.getvalue()), "seconds": time.perf_counter() - start}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _resources(told: str) -> dict[str, int]:
    """The registers of a thread and the bytes that do not fit into them, where an assembler has said so."""
    registers, spills = re.search(r"Used (\d+) registers", told), re.search(r"(\d+) bytes spill stores", told)
    found = {"registers": registers, "spills": spills}
    return {name: int(match.group(1)) for name, match in found.items() if match is not None}


def work(connection: Connection) -> None:
    """Answer jobs until the other end is closed."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(answer(connection.recv()))


def prepare(target: Sequence[Any]) -> None:
    """Have all in memory that compiling for a target takes."""
    try:
        from triton import knobs
    except ModuleNotFoundError:  # jobs say which compiler is to take them
        return
    knobs.nvidia.dump_ptxas_log = True
    answer({**SMALL, "target": tuple(target)})
    gc.collect()
    gc.freeze()  # what workers share stays so


def serve(control: socket.socket, target: Sequence[Any]) -> None:
    """Fork a worker for each connection that comes, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a worker ended
    if "triton" in sys.modules and not select.select([control], [], [], 0)[0]:
        frequent(tuple(target))  # while nobody waits; else each worker makes its own when it needs it
    while True:
        sent, files, *_ = socket.recv_fds(control, 1, 1)
        if not sent:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # assemblers are waited for
            control.close()
            work(Connection(files[0]))
            os._exit(0)
        os.close(files[0])


def main() -> None:
    """Arguments: the number of the control socket, the target and where modules are found, as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is for the program
    number, target, path = sys.argv[1:]
    sys.path[:] = json.loads(path)
    os.environ.pop("TRITON_INTERPRET", None)  # which is for kernels of the program's own
    compiled_for = json.loads(target)
    prepare(compiled_for)
    serve(socket.socket(fileno=int(number)), compiled_for)


if __name__ == "__main__":
    main()
