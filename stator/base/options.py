"""Every switch of stator, in one typed record.

A field of `Options` is declared by `option(default, sentence, …)`, which also says whether the value can change what is
compiled (`in_key`: then it is part of every cache key). The environment name follows from the field: STATOR_<NAME>.
What wins, weakest first: default, environment, mode, `options=`. Values are checked here, once, when `compile` is
called; everything after reads a frozen record that is passed along, never the environment.
Nothing is accepted in silence: what has no effect, yet or with the backend that was named, is announced once, and an
error under `strict`; so is a STATOR_ name that sets nothing. Neighbour: `announce.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from stator.base import log
from stator.base.announce import announce
from stator.base.errors import (
    InvalidOption,
    StatorError,
    UnknownMode,
    UnknownOption,
    UnknownVariable,
    WithoutEffect,
    nearest,
)

#: Which part of the compiler reads an option; a backend says which parts it runs.
CAPTURE: Final = "capture"
TRACE: Final = "trace"
CODE: Final = "code"
RECORD: Final = "record"
PARTS: Final = (CAPTURE, TRACE, CODE, RECORD)


@dataclass(frozen=True, slots=True)
class Option:
    """What is known about one switch.

    `part` reads it.
    """

    name: str
    default: bool | int | float | str
    sentence: str
    in_key: bool
    part: str = CODE
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return f"STATOR_{self.name.upper()}"

    def check(self, value: object) -> bool | int | float | str:
        """The value in the option's own type, or `InvalidOption`."""
        kind = type(self.default)
        if kind is float and type(value) is int:
            value = float(value)
        if kind is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if type(value) is not kind:
            raise InvalidOption(self.name, value, f"it takes a value of type {kind.__name__}")
        known = value
        if self.choices and known not in self.choices:
            raise InvalidOption(self.name, value, "it is a closed list", nearest(value, self.choices))
        if not isinstance(known, str) and (
            (self.low is not None and known < self.low) or (self.high is not None and known > self.high)
        ):
            raise InvalidOption(
                self.name, value, f"the range is from {self.low}{'' if self.high is None else f' to {self.high}'}"
            )
        return known

    def parse(self, text: str) -> bool | int | float | str:
        """The value of a string from the environment."""
        kind = type(self.default)
        if kind is bool:
            word = text.strip().lower()
            if word not in _WORDS:
                raise InvalidOption(self.name, text, f"{self.environment} is on or off: 1 or 0")
            return _WORDS[word]
        if kind is str:
            return self.check(text)
        try:
            return self.check(kind(text))
        except ValueError:
            raise InvalidOption(self.name, text, f"{self.environment} takes a {kind.__name__}") from None


_WORDS: Final = dict.fromkeys(("1", "true", "on", "yes"), True) | dict.fromkeys(("0", "false", "off", "no", ""), False)


def option(
    default: bool | int | float | str,
    sentence: str,
    **facts: Any,
) -> Any:
    """Declare one field of `Options` by the fields of `Option`; the result is the dataclass field that carries it."""
    return field(default=default, metadata={"sentence": sentence, **facts})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one compilation."""

    strict: bool = option(
        False,
        "Raise where stator would fall back to eager PyTorch, and where something asked for has no effect.",
        in_key=False,
        part=CAPTURE,
    )
    numerics: str = option(
        "eager",
        "'eager' rounds half types where eager does; 'fast' keeps float32 between the operators of a kernel.",
        in_key=True,
        choices=("eager", "fast"),
    )
    cache: bool = option(True, "Keep compiled graphs and kernels on disk between processes.", in_key=False)
    cache_dir: str = option("", "Folder of the disk store; empty means the user's cache folder.", in_key=False)
    cache_bytes: int = option(4 << 30, "How many bytes the disk store may hold.", in_key=False, low=0)
    debug: str = option(
        "", "Folder for the numbered artifacts of every stage; empty writes none.", in_key=False, part=CAPTURE
    )
    logs: str = option(
        "",
        f"Comma-separated list of what to print, from now on: {', '.join(log.LOG_KINDS)}.",
        in_key=False,
        part=CAPTURE,
    )
    threads: int = option(0, "Maximum number of threads of a CPU kernel; 0 uses torch's.", in_key=True, low=0)
    cpu_kernels: str = option(
        "c++",
        "What CPU kernels are written in: 'c++', with vectors and threads, or 'c', plain C for any compiler.",
        in_key=True,
        choices=("c++", "c"),
    )
    verify: bool = option(
        False,
        "Check the graph's dtypes before lowering, and the loop IR's grammar after it and after scheduling.",
        in_key=False,
    )
    eager_random: bool = option(False, "Give random operators eager's exact stream, unfused.", in_key=True, part=TRACE)
    activation_memory_budget: float = option(
        1.0,
        "Bound on the peak of activations in training (not gradients), from the lowest found (0) to the default's (1).",
        in_key=True,
        part=TRACE,
        low=0.0,
        high=1.0,
    )
    freezing: bool = option(
        False,
        "Where no gradients are wanted, compute once what depends on parameters alone, and again after writes to them; "
        "fold batch norms into convolutions, and pack weights for convolutions and products.",
        in_key=True,
        part=TRACE,
    )
    reuse_results: bool = option(
        True,
        "Give results of 4 MiB or more on the CPU the memory of earlier ones that the program has released; at most a "
        "quarter of the process's peak memory is kept, and at most 1 GiB.",
        in_key=False,
    )
    recompile_limit: int = option(8, "Compiled versions that one function may have.", in_key=False, part=CAPTURE, low=1)
    triton: str = option(
        "triton",
        "What compiles kernels for a GPU: 'triton', the installed package, or 'stator', its own compiler of Triton.",
        in_key=True,
        choices=("triton", "stator"),
    )
    compiler: str = option("g++", "The C++ compiler of CPU kernels.", in_key=True)
    cudagraphs: bool = option(
        False,
        "On a GPU, record what a call queues, and launch that as one from the third call on (docs/cudagraphs.md). No "
        "effect on the CPU.",
        in_key=False,
        part=RECORD,
    )
    cudagraph_sizes: int = option(
        16,
        "For how many geometries of its inputs a graph is recorded; calls with others run unrecorded.",
        in_key=False,
        part=RECORD,
        low=1,
    )
    autotune: bool = option(
        False,
        "Time each matrix product, together with what is computed from it, and on a GPU attention, as stator's kernel "
        "and as a library's, and use the faster one from then on.",
        in_key=True,
    )
    check_speed: str = option(
        "auto",
        "Time compiled code against eager while compiling: 'off'; 'measure' for logs and explain; 'warn' where it is "
        "slower; 'eager' to run eager there; 'auto' warns only after long compiles, and runs small graphs with "
        "gradients, and those of views and library calls alone, in eager where that is faster.",
        in_key=False,
        choices=("auto", "off", "measure", "warn", "eager"),
    )
    dynamic: str = option(
        "auto",
        "When sizes and ints are symbolic: with their second value, always, or never.",
        in_key=True,
        part=CAPTURE,
        choices=("auto", "always", "never"),
    )

    @classmethod
    def from_user(
        cls, mode: str | None = None, options: Mapping[str, object] | None = None, dynamic: bool | None = None
    ) -> Options:
        """Check and merge what `compile` was given with the environment."""
        values = _from_environment()
        if mode is not None:
            if mode not in MODES:
                raise UnknownMode(mode, MODES)
            values.update(MODES[mode])
        for name, value in (options or {}).items():
            if name not in OPTIONS:
                raise UnknownOption(name, OPTIONS)
            values[name] = OPTIONS[name].check(value)
        if dynamic is not None:
            values["dynamic"] = "always" if dynamic else "never"
        for name in log.split(str(values.get("logs", ""))):
            if name not in log.LOG_KINDS:
                raise InvalidOption("logs", name, "there is no such kind", nearest(name, log.LOG_KINDS))
        made = cls(**cast(dict[str, Any], values))
        log.enable(made.logs)
        for error in _unknown_variables():
            made.announce(error)
        return made

    def announce(self, error: StatorError) -> None:
        """Raise under `strict`, otherwise warn once."""
        if self.strict:
            raise error
        announce(error.render())

    def announce_unread(self, given: Iterable[str], parts: Sequence[str], backend: str) -> None:
        """Announce what was set for a part of the compiler that the backend does not run."""
        for name in given:
            known = OPTIONS[name]
            if known.part not in parts and getattr(self, name) != known.default:
                what = f"option {name!r} has no effect with the backend {backend!r}"
                self.announce(WithoutEffect(f"{what}, which does not run stator's {_WHAT[known.part]}"))

    @property
    def rounds(self) -> bool:
        """Whether half types are rounded wherever eager does."""
        return self.numerics == "eager"

    def key(self) -> str:
        """The options' part of a cache key: equal keys compile to the same thing."""
        return ";".join(f"{name}={getattr(self, name)!r}" for name, known in OPTIONS.items() if known.in_key)

    def cache_root(self) -> Path:
        """Where the disk store lives; a home or cache folder that is no absolute path is none."""
        if self.cache_dir:
            return Path(os.path.expanduser(self.cache_dir)).absolute()
        home = os.path.expanduser("~/.cache") if os.environ.get("HOME") != "" else ""
        for folder in (os.environ.get("XDG_CACHE_HOME", ""), home):
            if os.path.isabs(folder):
                return Path(folder) / "stator"
        # Anybody can make a folder of this name: the store takes none that is not this user's alone.
        return Path(tempfile.gettempdir()) / f"stator-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What one call of `compile` decided: everything that capture needs to know besides the function.

    `backend(gm, example_inputs)` gives the callable of one captured graph; its own options are already bound to it.
    """

    backend: Callable[[Any, list[Any]], Callable[..., Any]]
    backend_name: str
    fullgraph: bool
    options: Options


OPTIONS: Final[dict[str, Option]] = {
    item.name: Option(item.name, cast(bool | int | float | str, item.default), **item.metadata)
    for item in fields(Options)
}

# What each mode changes; "default" changes nothing.
MODES: Final[dict[str, dict[str, bool | int | float | str]]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


_WHAT: Final = {CAPTURE: "capture", TRACE: "trace", CODE: "code generation", RECORD: "recording"}

#: STATOR_ names that are no options.
VARIABLES: Final = {
    "STATOR_PYTHON": "the Python from which `make` sets up the environment",
    "STATOR_TILE_CACHE_AUTOTUNING": "keep what autotuning of kernels finds, as `cache_results` does (stator.tile)",
    "STATOR_TILE_INTERPRET": "run the source of Triton kernels directly (stator.tile)",
    "STATOR_TILE_CODE": "0: interpret Triton kernels instead of compiling them to machine code (stator.tile)",
    "STATOR_TILE_STRICT": "raise, instead of warning, where a Triton kernel is interpreted (stator.tile)",
    "STATOR_TILE_PRINT_AUTOTUNING": "print what the autotuning of kernels finds (stator.tile.autotune)",
    "STATOR_TILE_DUMP": "folder for every stage of a GPU kernel (stator.tile)",
    "STATOR_TILE_OVERRIDE": "folder of stages that replace the generated ones (stator.tile)",
    "STATOR_TILE_PASSES": "the kernel to print after each GPU pass (stator.tile)",
    "STATOR_PTXAS": "the assembler for GPU kernels; empty: the driver assembles (stator.tile)",
    "STATOR_LIBDEVICE": "NVIDIA's bitcode library of functions for GPUs; empty: only stator's own (stator.tile)",
    "STATOR_SLOW_TENSORS": "read tensors through PyTorch's interface, not their memory (csrc/tensor.c)",
}


def _unknown_variables() -> Iterator[StatorError]:
    """The names in the environment that look like ours and set nothing."""
    known = {*VARIABLES, *(known.environment for known in OPTIONS.values())}
    for name in os.environ:
        if name.startswith("STATOR_") and name not in known:
            yield UnknownVariable(name, known)


def _from_environment() -> dict[str, object]:
    """The options that the environment sets."""
    found: dict[str, object] = {}
    for name, known in OPTIONS.items():
        text = os.environ.get(known.environment)
        if text is not None:
            found[name] = known.parse(text)
    return found
