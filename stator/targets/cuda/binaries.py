"""Kernels to binaries: each has its key, and is compiled once, by whichever process needs it first.

A unit's text holds many kernels. Each becomes a text of its own, with the functions that it calls and nothing else, so
a worker reads no more than it compiles. Kernels that differ in their number in the graph or in how many programs run
them are one, of all graphs: the key is that text without the number, what compilers read of its launch, the target, and
which compiler it is, told without importing it. A binary lies in the store with what a launch needs to know, and there
is one for each alternative: pointers that may lie anywhere, positions of 64 bits, sizes that are multiples of 16.
Neighbours: `workers.py` compiles, `toolchain.py` says which are needed when, `driver.py` loads.
"""

from __future__ import annotations

import ast
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stator.base import announce, log
from stator.base.errors import BuildWarning, CompilerMissing, InternalError, KernelRefused
from stator.base.store import Store, key_of
from stator.targets.cuda import libdevice, worker
from stator.targets.cuda.workers import Answer, Target, WorkerDied, workers

#: What compiles kernels: the installed Triton, or the tile language's own compiler.
COMPILER, OWN = "triton", "stator"
ANYWHERE, WIDE, ROUND = 1, 2, 4
#: Names of variables that may change the code that Triton makes, and are of none that only say where files are.
VARIABLES = re.compile(r"(TRITON|PTXAS|DISABLE|LLVM|MLIR|NVPTX|AMDGCN|USE_IR)_(?!(CACHE_DIR|HOME|DUMP_DIR|INTERPRET)$)")
_HEAD, _LAUNCHES = "@triton.jit\ndef ", "\nLAUNCHES = "
#: What of a launch no compiler reads; which alternative is the first one is in the place of the binary.
_OF_CALLS = frozenset(["grid", "limits", "round"])
#: The end of a kernel's name, by which it is told from others of its graph (`loop.kernel.kernel_name`).
_NUMBER = re.compile(r"(^|_)k\d+$")
#: How much of its key is in the name of a binary.
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Binary:
    """What a driver loads, and what is known of it.

    `shared` bytes are asked for at a launch, of `threads` a block; `registers` of a thread and bytes that do not fit
    into them (`spills`) are -1 where nobody has told. Compiling it took `seconds`.
    """

    image: bytes
    name: str
    shared: int
    threads: int
    clusters: int = 1
    scratch: int = 0
    registers: int = -1
    spills: int = -1
    seconds: float = 0.0

    def to_bytes(self) -> bytes:
        """What is known, in a line, and the binary behind it."""
        known = asdict(self)
        del known["image"]
        return json.dumps(known).encode() + b"\n" + self.image

    @staticmethod
    def from_bytes(data: bytes) -> Binary:
        """The inverse; ValueError or TypeError where the bytes are of another format."""
        known, _, image = data.partition(b"\n")
        return Binary(image=image, **json.loads(known))


@dataclass(frozen=True, slots=True)
class Source:
    """One kernel of a unit: its text with what it calls, what launches need to know of it, and for what it is."""

    name: str
    text: str
    launch: Mapping[str, Any]
    target: Target
    compiler: str = COMPILER

    def key(self) -> str:
        """Under what its alternatives are filed."""
        read = sorted([(name, value) for name, value in self.launch.items() if name not in _OF_CALLS])
        told = read, sorted(worker.OPTIONS[self.target[0]].items()), sorted(worker.INDIFFERENT)
        return "kernel-" + key_of(self._called(self._computed), told, self.target, compiler(self.compiler))

    def job(self, alternative: int) -> dict[str, Any]:
        """What a worker is told. The name, which profilers show, is the same in all graphs that have the kernel."""
        asked = {"anywhere": ANYWHERE, "wide": WIDE, "round": ROUND}
        flags = {name: bool(alternative & flag) for name, flag in asked.items()}
        name = f"{self._computed}_{self.key().removeprefix('kernel-')[:_DIGITS]}"
        told = {"name": name, "text": self._called(name), "launch": dict(self.launch), "target": self.target}
        return {**told, "compiler": self.compiler, **flags}

    @property
    def _computed(self) -> str:
        """Its name without the number: what it computes."""
        return _NUMBER.sub("", self.name) or "kernel"

    def _called(self, name: str) -> str:
        """The text with another name."""
        return self.text.replace(f"{_HEAD}{self.name}(", f"{_HEAD}{name}(")


def launches(text: str) -> dict[str, Mapping[str, Any]]:
    """What a unit says of the launches of its kernels."""
    found: dict[str, Mapping[str, Any]] = ast.literal_eval(text.rpartition(_LAUNCHES)[2])
    return found


def texts(text: str, names: Sequence[str]) -> dict[str, str]:
    """Each kernel of a unit with the functions that it calls."""
    head, *functions = text.rpartition(_LAUNCHES)[0].split(_HEAD)
    bodies = {body.partition("(")[0]: body for body in functions}
    words = {name: set(re.findall(r"\w+", body)) & bodies.keys() for name, body in bodies.items()}
    found = {}
    for name in names:
        needed, waiting = {name}, [name]
        while waiting:
            new = words[waiting.pop()] - needed
            needed |= new
            waiting += new
        found[name] = head + "".join([_HEAD + bodies[each] for each in bodies if each in needed])
    return found


@cache
def compiler(name: str = COMPILER) -> str:
    """Which compiler it is and what it is told by the environment; CompilerMissing where there is none."""
    return _own() if name == OWN else _installed()


def _installed() -> str:
    """The installed Triton."""
    found = find_spec(COMPILER)
    if found is None or found.origin is None:
        raise CompilerMissing(COMPILER, f"it comes with PyTorch for this device: pip install {COMPILER}")
    version = re.search(r"__version__ = (.*)", Path(found.origin).read_text(encoding="utf-8"))
    told = {name: value for name, value in sorted(os.environ.items()) if VARIABLES.match(name)}
    return f"{COMPILER} {version.group(1) if version else found.origin} {told}"


def _own() -> str:
    """stator's own, by its files, LLVM and libdevice."""
    found = find_spec("llvmlite")
    if found is None or found.origin is None:
        raise CompilerMissing("llvmlite", "stator's own compiler for GPUs needs it: pip install stator[tile]")
    version = (Path(found.origin).parent / "_version.py").read_text(encoding="utf-8")
    files = sorted(Path(__file__).parents[2].joinpath("tile").rglob("*.py"))
    return f"{OWN} {key_of(version, libdevice.digest(), *[file.read_bytes() for file in files])}"


#: Binaries on their way to the store, and errors that nobody has asked for yet.
_pending: dict[tuple[str, str], Future[Answer]] = {}
#: Of kernels that this process has begun, by key: lines of the program, which no store has.
_remarks: dict[str, str] = {}
_lock = threading.Lock()


def begin(source: Source, key: str, store: Store, alternative: int = 0, remark: str = "") -> None:
    """Have a kernel compiled by a worker, unless it is there or on its way; what it computes is told in errors."""
    entry = f"{key}-{alternative}"
    place = str(store.root), entry
    with _lock:
        if remark:
            _remarks[key] = remark
        if place in _pending or store.path(entry) is not None:
            return
        compiler(source.compiler)
        take = partial(_file, place, store)
        _pending[place] = workers(source.target).submit(source.job(alternative), take)


def _file(place: tuple[str, str], store: Store, answer: Answer) -> None:
    """A binary that is made goes to the store; what failed waits for whoever needs it."""
    if "error" not in answer:
        store.put(place[1], Binary(**answer).to_bytes())
        with _lock:
            _pending.pop(place, None)


def binary(source: Source, key: str, store: Store, alternative: int = 0) -> Binary:
    """The binary of a kernel, which is waited for; KernelRefused where the compiler does not take it."""
    entry = f"{key}-{alternative}"
    found = _stored(store, entry)
    if found is None:
        with log.span("build", kernel=source.name):
            begin(source, key, store, alternative)
            with _lock:
                future = _pending.get((str(store.root), entry))
            found = _stored(store, entry) if future is None else None
            if found is None:
                found = _made(source, key, store, alternative, future)
    if found.scratch or found.clusters > 1:
        raise InternalError("build", f"{source.name} asks for memory of its own, or for clusters of blocks")
    return found


def _stored(store: Store, entry: str) -> Binary | None:
    """What the store has; what another version has written is nothing."""
    data = store.get(entry)
    try:
        return Binary.from_bytes(data) if data is not None else None
    except (ValueError, TypeError):
        return None


def _made(source: Source, key: str, store: Store, alternative: int, future: Future[Answer] | None) -> Binary:
    """What a worker gives; where it has died, what is compiled here."""
    place = str(store.root), f"{key}-{alternative}"
    answer: Answer | None = None
    if future is not None:
        try:
            answer = future.result()
        except WorkerDied as error:
            announce.announce(f"{source.name} is compiled by the program itself: {error}", BuildWarning, "worker")
    if answer is None:
        answer = worker.answer(source.job(alternative), listen=False)  # the program prints, too
        _file(place, store, answer)
    with _lock:
        _pending.pop(place, None)
    if "error" in answer:
        raise KernelRefused(source.name, answer["error"], source.text, _remarks.get(key, ""))
    return Binary(**answer)


def _forget() -> None:
    """In a forked child: what the parent waits for never comes."""
    global _lock
    _lock = threading.Lock()
    _pending.clear()


os.register_at_fork(after_in_child=_forget)
