"""Choosing a kernel's meta-parameters: by timing configurations, or by functions of its arguments.

`@autotune` runs a kernel with each configuration the first time that the arguments named by `key`, and the dtypes of
its tensors, are new, and keeps the fastest; with `cache_results` for later processes too. What runs change is reset or
restored. `@heuristics` computes meta-parameters at each launch.
Neighbours: `jit.py` has what is launched, `testing.py` times, `stator.base.store` keeps results.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stator.base.options import Options
from stator.base.processor import identity
from stator.base.store import key_of
from stator.runtime.toolchain import open_store
from stator.tile.errors import AutotunerError, CompileTimeAssertionFailure, LaunchError, OutOfResources
from stator.tile.jit import JITFunction, KernelInterface, interprets
from stator.tile.testing import do_bench as default_bench

_QUANTILES = (0.5, 0.2, 0.8)
_CACHE_SWITCHES = ("STATOR_TILE_CACHE_AUTOTUNING", "TRITON_CACHE_AUTOTUNING")
_PRINT_SWITCHES = ("STATOR_TILE_PRINT_AUTOTUNING", "TRITON_PRINT_AUTOTUNING")
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")


def _is_on(names: Sequence[str]) -> bool:
    return any(os.environ.get(name, "0") not in ("", "0") for name in names)


class Config:
    """One configuration: meta-parameters, options, and a function that is called before the kernel."""

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        ir_override: str | None = None,
    ) -> None:
        if ir_override is not None:
            raise LaunchError("ir_override is not supported", "change the kernel's text")
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, num_stages, num_ctas, maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """The keywords that a launch with this configuration has."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {**self.kwargs, **{name: value for name, value in options.items() if value is not None}}

    def __str__(self) -> str:
        parts = {**self.kwargs, **{name: getattr(self, name) for name in _OPTIONS}}
        return ", ".join(f"{name}: {value}" for name, value in parts.items())

    __repr__ = __str__

    def _identity(self) -> tuple[Any, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class Autotuner(KernelInterface):
    """A kernel whose meta-parameters are chosen by timing."""

    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: Mapping[str, Any] | None = None,
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        self.fn, self.keys = fn, list(key)
        self.configs = list(configs) or [Config({})]
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.user_pre_hook, self.user_post_hook = pre_hook, post_hook
        self.prune = dict(prune_configs_by or {})
        self.do_bench, self.cache_results = do_bench or default_bench, cache_results
        self.base_fn: JITFunction = fn
        while not isinstance(self.base_fn, JITFunction):
            self.base_fn = self.base_fn.fn
        self.arg_names, self.name = self.base_fn.arg_names, self.base_fn.fn.__name__
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.configs_timings: dict[Config, Sequence[float]] = {}
        self.best_config: Config | None = None
        self._copies: dict[str, Any] = {}
        for name in (*self.keys, *self.reset_to_zero, *self.restore_value):
            if name not in self.arg_names:
                raise LaunchError(f"{self.name} has no parameter {name!r}, which autotune names")

    # ---- what runs change

    def _before(self, named: dict[str, Any], reset_only: bool = False) -> None:
        if self.user_pre_hook is not None:
            takes = inspect.signature(self.user_pre_hook).parameters
            self.user_pre_hook(named, **({"reset_only": reset_only} if "reset_only" in takes else {}))
            return
        for name in self.reset_to_zero:
            named[name].zero_()
        if not reset_only:
            self._copies = {name: named[name].clone() for name in self.restore_value}

    def _after(self, named: dict[str, Any], exception: Exception | None) -> None:
        if self.user_post_hook is not None:
            self.user_post_hook(named, exception)
            return
        for name, copy in self._copies.items():
            named[name].copy_(copy)
        self._copies = {}

    # ---- choosing

    def _time(self, args: Sequence[Any], named: Mapping[str, Any], config: Config) -> Sequence[float]:
        twice = named.keys() & config.kwargs.keys()
        if twice:
            raise LaunchError(f"{', '.join(sorted(twice))} is both passed and tuned", "leave it out of the launch")
        current = {**named, **config.all_kwargs()}
        everything = {**dict(zip(self.arg_names, args, strict=False)), **current}

        def call() -> None:
            if config.pre_hook is not None:
                config.pre_hook(everything)
            self._before(everything)
            try:
                self.fn.run(*args, **current)
            except Exception as error:
                self._after(everything, error)
                raise
            self._after(everything, None)

        try:
            found = self.do_bench(call, quantiles=_QUANTILES)
        except (OutOfResources, CompileTimeAssertionFailure) as error:
            if _is_on(_PRINT_SWITCHES):
                print(f"{self.name}: {config} cannot be used: {error}")
            return [float("inf")] * 3
        return found if isinstance(found, Sequence) else [float(found)]

    def _measure(self, args: Sequence[Any], named: Mapping[str, Any], configs: Sequence[Config]) -> Config:
        timings = {config: self._time(args, named, config) for config in configs}
        self.configs_timings = timings
        best = min(timings, key=lambda config: list(timings[config]))
        if timings[best][0] == float("inf"):
            raise AutotunerError(f"no configuration of {self.name} can be used", "add smaller ones")
        everything = {**dict(zip(self.arg_names, args, strict=False)), **named, **best.all_kwargs()}
        self._before(everything, reset_only=True)
        return best

    def _key(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        given = {**dict(zip(self.arg_names, args, strict=False)), **named}
        given = {name: value for name, value in given.items() if name in self.arg_names}
        dtypes = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
        return (*[given.get(name) for name in self.keys], *dtypes)

    def _choose(self, args: Sequence[Any], named: Mapping[str, Any]) -> Config:
        if len(self.configs) == 1:
            return self.configs[0]
        key = self._key(args, named)
        if key not in self.cache:
            configs = self.prune_configs(args, named)
            keeps = (self.cache_results or _is_on(_CACHE_SWITCHES)) and not interprets()
            measure = functools.partial(self._measure, args, named, configs)
            self.cache[key] = self._kept(key, configs, measure) if keeps else measure()
            if _is_on(_PRINT_SWITCHES):
                print(f"{self.name}: {self.cache[key]} is the fastest for {key}")
        return self.cache[key]

    def _kept(self, key: tuple[Any, ...], configs: Sequence[Config], measure: Callable[[], Config]) -> Config:
        """The fastest configuration, from the store if it is there; hooks cannot be a part of what is stored."""
        if any(config.pre_hook is not None for config in configs):
            return measure()
        store = open_store(Options.from_user())
        name = f"tile-autotune-{key_of(identity(), self.base_fn.cache_key, key, *configs)}"
        data = store.get(name)
        if data is not None:
            timings = [(configs[number], time) for number, time in json.loads(data)]
            self.configs_timings = dict(timings)
            return min(self.configs_timings, key=lambda config: list(self.configs_timings[config]))
        best = measure()
        rows = [(number, list(self.configs_timings[config])) for number, config in enumerate(configs)]
        store.put(name, json.dumps(rows).encode())
        return best

    def prune_configs(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Config]:
        """The configurations that are timed."""
        given = dict(zip(self.arg_names, args, strict=False))
        configs = self.configs
        if "early_config_prune" in self.prune:
            configs = list(self.prune["early_config_prune"](configs, given, **named))
            if not configs:
                raise AutotunerError(f"early_config_prune leaves no configuration of {self.name}")
        model, top_k = self.prune.get("perf_model"), self.prune.get("top_k", 1.0)
        if model is None:
            return configs
        if isinstance(top_k, float) and top_k <= 1.0:
            top_k = int(len(self.configs) * top_k)
        if not isinstance(top_k, int) or top_k < 1:
            raise AutotunerError(f"top_k is a part of all configurations, or how many of them, not {top_k!r}")
        if len(configs) <= top_k:
            return configs
        estimates = {config: model(**given, **named, **config.all_kwargs()) for config in configs}
        return sorted(estimates, key=lambda config: estimates[config])[:top_k]

    def run(self, *args: Any, **named: Any) -> Any:
        if named.get("warmup"):
            return [self.fn.run(*args, **named, **config.all_kwargs()) for config in self.prune_configs(args, named)]
        config = self.best_config = self._choose(args, named)
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **named, **config.all_kwargs()})
        return self.fn.run(*args, **named, **config.all_kwargs())


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Chooses a kernel's meta-parameters among configurations, by timing them."""
    if use_cuda_graph:
        raise LaunchError("use_cuda_graph is not supported", "leave it out")
    if do_bench is None and (warmup is not None or rep is not None):
        times: dict[str, Any] = {"warmup": 25 if warmup is None else warmup, "rep": 100 if rep is None else rep}
        do_bench = functools.partial(default_bench, **times)

    tuned = functools.partial(Autotuner, configs=configs, key=key, prune_configs_by=prune_configs_by)
    kept = functools.partial(tuned, reset_to_zero=reset_to_zero, restore_value=restore_value, pre_hook=pre_hook)
    return functools.partial(kept, post_hook=post_hook, do_bench=do_bench, cache_results=cache_results)


class Heuristics(KernelInterface):
    """A kernel some of whose meta-parameters are functions of its arguments."""

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        self.fn, self.arg_names, self.values = fn, list(arg_names), dict(values)

    def run(self, *args: Any, **named: Any) -> Any:
        for name, compute in self.values.items():
            named[name] = compute({**dict(zip(self.arg_names, args, strict=False)), **named})
        return self.fn.run(*args, **named)


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Computes meta-parameters at each launch: names and functions of all arguments."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
