"""`@triton.jit`: functions that are kernels, or that kernels call; and what happens to one at a launch.

A launch binds its arguments, finds of each what its type is and what is known of it, and runs the module of tile IR for
that, which is made once. Under `STATOR_TILE_INTERPRET=1` (or `TRITON_INTERPRET=1`) the kernel's text itself is run.
Neighbours: `arguments.py` looks at arguments, `launch.py` runs programs, `frontend/kernel.py` makes modules.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stator.base.store import key_of
from stator.tile import launch
from stator.tile.arguments import Argument, Parameter, Signature, describe, device_of, parameters_of
from stator.tile.cpu.again import Launches, launcher_of, places_of
from stator.tile.cpu.entry import MachineCode, OnDevice, code_of, gpu_code_of
from stator.tile.errors import LaunchError
from stator.tile.frontend.direct import function_of
from stator.tile.frontend.kernel import Compiled, compile_kernel
from stator.tile.frontend.source import Source, read
from stator.tile.ir.text import module_text
from stator.tile.language.aggregates import jit_callable
from stator.tile.language.context import Checks, active, is_active
from stator.tile.language.static import base_value, unwrap
from stator.tile.language.values import type_of
from stator.tile.options import Options, split_options

_SWITCHES = ("STATOR_TILE_INTERPRET", "TRITON_INTERPRET")


def interprets() -> bool:
    """Whether kernels' text is run directly."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in _SWITCHES)


class KernelInterface:
    """What is launched as `kernel[grid](…)`."""

    def run(self, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def warmup(self, *args: Any, grid: Any, **named: Any) -> Any:
        """Compiles for arguments, which may be dtypes in place of tensors, and runs nothing."""
        return self.run(*args, grid=grid, warmup=True, **named)


@dataclass(frozen=True)
class CompiledKernel:
    """What a launch has run."""

    name: str
    compiled: Compiled
    metadata: Options
    codes: dict[int | None, MachineCode | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def asm(self) -> dict[str, str]:
        """The kernel's text at each stage; of those for a GPU, once it has been compiled for one."""
        texts = {"tir": module_text(self.compiled.module)}
        for code in self.codes.values():
            texts.update(getattr(code, "texts", {}))
        return texts

    @property
    def code(self) -> MachineCode | None:
        """Its machine code for the CPU, or None where it is interpreted."""
        return self.code_on(None)

    def code_on(self, device: int | None) -> MachineCode | None:
        """Its machine code for the CPU (None) or a GPU of this number, or None where it is interpreted."""
        if device not in self.codes:
            make = code_of if device is None else functools.partial(gpu_code_of, device=device)
            self.codes[device] = make(self.compiled.module, self.compiled.name)
        return self.codes[device]


class JITFunction(jit_callable, KernelInterface):
    """A function that is compiled from its text."""

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Sequence[int | str] | None = None,
        do_not_specialize_on_alignment: Sequence[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[..., str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
    ) -> None:
        self.fn, self.version, self.debug, self.noinline = fn, version, debug, bool(noinline)
        self._repr, self.launch_metadata = repr, launch_metadata
        self.signature = inspect.signature(fn)
        self.params: list[Parameter] = parameters_of(
            self.signature, do_not_specialize or (), do_not_specialize_on_alignment or ()
        )
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self.cache: dict[Any, CompiledKernel] = {}
        defaults = {p.name: p.default for p in self.signature.parameters.values() if p.default is not p.empty}
        self.launches = Launches(self.params, defaults, self.pre_run_hooks)
        functools.update_wrapper(self, fn)

    @property
    def arg_names(self) -> list[str]:
        return [parameter.name for parameter in self.params]

    @functools.cached_property
    def source(self) -> Source:
        return read(self.fn)

    @property
    def src(self) -> str:
        return self.source.text

    @property
    def cache_key(self) -> str:
        """A key of the function's text."""
        return key_of(self.source.file, self.source.first_line, self.source.text)

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """A function that gets the arguments of every launch before it."""
        self.pre_run_hooks.append(hook)

    def __repr__(self) -> str:
        return f"JITFunction({self.fn.__module__}:{self.fn.__qualname__})"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """In a kernel whose text runs directly, the function does so too."""
        if not is_active() or not active().direct:
            raise LaunchError(
                f"{self.fn.__name__} is a jit function, and is called from kernels only",
                f"to launch it as a kernel, say on which grid: {self.fn.__name__}[grid](…)",
            )
        bound = self.signature.bind(*args, **named)
        bound.apply_defaults()
        return function_of(self.source)(*bound.args, **bound.kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launcher = self.launches.launcher
        return super().__getitem__(grid) if launcher is None else launcher.bind(self, grid)

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
        """The arguments of a launch by name, and its options."""
        arguments, options = split_options(self.fn.__name__, named, self.arg_names)
        try:
            bound = self.signature.bind(*args, **arguments)
        except TypeError as error:
            raise LaunchError(f"{self.fn.__name__}: {error}", f"it is {self.fn.__name__}{self.signature}") from error
        bound.apply_defaults()
        return dict(bound.arguments), options

    def run(self, *args: Any, grid: Any, warmup: bool, **named: Any) -> CompiledKernel | None:
        given = None if warmup or self.pre_run_hooks else self.launches.given(args, named)
        if given is not None:
            known = self.launches.known.get(given.key)
            if known is not None and known.compiled.is_current():
                sizes = launch.grid_sizes(grid, self.meta(args, named) if callable(grid) else {})
                known.code_on(given.device).run(given.numbers, sizes)
                return known
        arguments, options = self.bind(args, named)
        for hook in self.pre_run_hooks:
            hook(*args, **named)
        described = {p.name: describe(p, arguments[p.name], warmup) for p in self.params}
        debug = bool(self.debug or options.debug or os.environ.get("TRITON_DEBUG", "0") == "1")
        checks = Checks(debug, debug and options.sanitize_overflow)
        if warmup:
            return self.compile(described, options, checks)
        sizes = launch.grid_sizes(grid, {name: unwrap(value) for name, value in arguments.items()})
        device = device_of(described)
        if interprets():
            launch.on_the_cpu(self.fn.__name__, device)
            launch.run_text(self.source, described, sizes, checks)
            return None
        kernel = self.compile(described, options, checks)
        code = kernel.code_on(device)
        if code is None:
            launch.on_the_cpu(self.fn.__name__, device)
        launch.run_module(kernel.compiled, code, described, sizes)
        passed = [number for argument in described.values() for number in argument.numbers]
        if given is not None and code is not None and given.numbers == passed:
            self.launches.known[given.key] = kernel
            if device is not None:
                self._learn(args, named, kernel, code)
        return kernel

    def _learn(self, args: Sequence[Any], named: Mapping[str, Any], kernel: CompiledKernel, code: MachineCode) -> None:
        """From now on, launches like this one are made in C."""
        launcher, places = launcher_of(self.launches), places_of(kernel.compiled.captured)
        if launcher is not None and places is not None and isinstance(code, OnDevice):
            launcher.learn(tuple(args), dict(named), (weakref.ref(kernel), places, kernel.name, *code.entry))

    def meta(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, as functions that give grids want them."""
        bound = self.signature.bind(*args, **{name: value for name, value in named.items() if name in self.arg_names})
        bound.apply_defaults()
        return dict(bound.arguments)

    def compile(self, described: Mapping[str, Argument], options: Options, checks: Checks) -> CompiledKernel:
        """The kernel for arguments of some types, from the cache if what it saw of the program is as it was."""
        signature = Signature.of(described)
        key = (signature.key, options, checks)
        kernel = self.cache.get(key)
        if kernel is None or not kernel.compiled.is_current():
            compiled = compile_kernel(self.source, signature.types, signature.hints, checks)
            compiled.module.functions[compiled.name].attrs.update(options.given())
            kernel = self.cache[key] = CompiledKernel(compiled.name, compiled, options)
        return kernel


def jit(fn: Any = None, **options: Any) -> Any:
    """Makes a function one that is compiled from its text: a kernel, or what kernels call."""
    if fn is None:
        return functools.partial(jit, **options)
    if isinstance(fn, JITFunction):
        return fn
    if not inspect.isfunction(fn):
        raise LaunchError(f"{fn!r} is no function defined by `def`, and cannot be a kernel")
    return JITFunction(fn, **options)


def constexpr_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a Python function one that kernels call while they are compiled, with what is known then."""

    @functools.wraps(fn)
    def call(*args: Any, **named: Any) -> Any:
        given = [*args, *named.values()]
        known = [unwrap(value) for value in given]
        for value in known:
            if isinstance(value, base_value) and value.handles():
                raise LaunchError(f"{fn.__name__} takes what is known while compiling, not {type_of(value)}")
        return fn(*known[: len(args)], **dict(zip(named, known[len(args) :], strict=True)))

    call.__constexpr_function__ = True  # type: ignore[attr-defined]
    return call
