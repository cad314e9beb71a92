"""Every switch of stator, in one typed record.

A field of `Options` is declared by `option(default, sentence, …)`, which also says whether the value can change what is
compiled (`in_key`: then it is part of every cache key). The environment name follows from the field: STATOR_<NAME>.
What wins, weakest first: default, environment, mode, `options=`. Values are checked here, once, when `compile` is
called; everything after reads a frozen record that is passed along, never the environment.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from stator.base import log
from stator.base.errors import InvalidOption, UnknownMode, UnknownOption, nearest


@dataclass(frozen=True, slots=True)
class Option:
    """What is known about one switch."""

    name: str
    default: bool | int | float | str
    sentence: str
    in_key: bool
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
    *,
    in_key: bool,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Declare one field of `Options`; the result is the dataclass field that carries it."""
    facts = {"sentence": sentence, "in_key": in_key, "choices": choices, "low": low, "high": high}
    return field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True)
class Options:
    """The switches of one compilation."""

    strict: bool = option(False, "Raise where stator would fall back to eager PyTorch.", in_key=False)
    numerics: str = option(
        "eager",
        "'eager' rounds half types where eager does; 'fast' allows float32 there, which nothing makes use of yet.",
        in_key=True,
        choices=("eager", "fast"),
    )
    cache: bool = option(True, "Keep compiled graphs and kernels on disk between processes.", in_key=False)
    cache_dir: str = option("", "Folder of the disk store; empty means the user's cache folder.", in_key=False)
    cache_bytes: int = option(4 << 30, "How large the disk store may grow.", in_key=False, low=0)
    debug: str = option("", "Folder for the numbered artifacts of every stage; empty writes none.", in_key=False)
    logs: str = option("", f"Comma list of what to print: {', '.join(log.LOG_KINDS)}.", in_key=False)
    threads: int = option(0, "Most threads of a CPU kernel; 0 is torch's own number.", in_key=True, low=0)
    verify: bool = option(
        False,
        "Check the graph's dtypes before lowering, and the loop IR's grammar after it and after scheduling.",
        in_key=False,
    )
    eager_random: bool = option(False, "Give random operators eager's exact stream, unfused.", in_key=True)
    activation_memory_budget: float = option(
        1.0,
        "Bound on the peak of activations in training (not gradients), from the lowest found (0) to the default's (1).",
        in_key=True,
        low=0.0,
        high=1.0,
    )
    recompile_limit: int = option(8, "Compiled versions that one function may have.", in_key=False, low=1)
    compiler: str = option("g++", "The C++ compiler of CPU kernels.", in_key=True)
    cudagraphs: bool = option(False, "Asks for CUDA graphs; accepted, and without effect yet.", in_key=True)
    autotune: bool = option(
        False, "Asks for measured kernel configurations; accepted, and without effect yet.", in_key=True
    )
    dynamic: str = option(
        "auto",
        "When sizes and ints are symbolic: with their second value, always, or never.",
        in_key=True,
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
        return cls(**cast(dict[str, Any], values))

    def key(self) -> str:
        """The part of a cache key that the switches are: equal keys compile to the same thing."""
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


def _from_environment() -> dict[str, object]:
    """The options that the environment sets."""
    found: dict[str, object] = {}
    for name, known in OPTIONS.items():
        text = os.environ.get(known.environment)
        if text is not None:
            found[name] = known.parse(text)
    return found
