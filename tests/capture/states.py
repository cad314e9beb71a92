"""Random programs between whose calls the program's state changes: `python -m tests.capture.states --count 300`.

A program reads a few things that it is not given: parameters and buffers, hooks, submodules and modes of a module,
globals, cells, defaults, attributes of classes and instances, containers, the process's own state. Two worlds run it,
one compiled and one in eager; between two calls the same statement changes something in both, something that the
program reads more often than not. The result or exception of each call, the module's state and its gradients have to
be eager's. Neighbours: `changing.py` has the cases by hand, one change each; here changes meet, and come in any order.
"""

from __future__ import annotations

import argparse
import random
import sys
import textwrap
import traceback
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import stator
from stator.base import faults
from stator.base.errors import StatorWarning
from tests.capture.data_errors import same

#: What both worlds begin with.
WORLD = """
import collections, functools, math, types
import torch
from torch import nn
import torch.nn.functional as F

K, FLAG, NAME = 2.0, True, "b"
TABLE = {"a": 1.5, "b": [1, 2]}
ITEMS = [1.0, 2.0]
SEEN = {1, 2}
T = torch.arange(3.0)
hooks = []

def helper(y, k=1.5, *, s=2):
    return y * k + s

def closure_of(z):
    def inner(y):
        return y + z
    return inner

class Config:
    size, scale = 3, 0.5

    def __init__(self):
        self.shift = 1.0

    @property
    def both(self):
        return self.scale + self.shift

class Act(nn.Module):
    factor = 3.0

    def forward(self, y):
        return y.tanh() * self.factor

class Net(nn.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), Act()])
        self.table = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.act = nn.ReLU()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 3))
        self.parts = nn.ParameterList([torch.ones(3), torch.full((3,), 0.5)])
        self.register_buffer("offset", torch.ones(3))
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.register_buffer("nothing", None)
        self.cfg, self.mode = Config(), "plain"

    def method(self, y):
        return y - 1

    def forward(self, y):
        return run(self, y)

def missing(self, name):
    if name == "extra":
        raise AttributeError(name)
    return nn.Module.__getattr__(self, name)

closure, partial = closure_of(3.0), functools.partial(helper, k=0.5)
m = Net()
"""

#: What a program may do with `y`, of `m` and of the world, by what it reads.
READS: dict[str, Sequence[str]] = {
    "linear": (
        "y = m.linear(y)", "y = y + m.linear.weight.sum()", "y = y * m.linear.in_features",
        "y = y + m.linear.weight.dtype.itemsize", "y = y + (0 if m.linear.bias is None else m.linear.bias)",
        "y = y * (2 if m.linear.weight.requires_grad else 3)", "y = F.linear(y, m.linear.weight)",
        "y = y if m.linear.weight.grad is None else y + m.linear.weight.grad.sum()",
        "y = y + len(m.linear._forward_hooks)",
    ),
    "weight": (
        "y = y * m.weight", "y = y + sum(p.sum() for p in m.parameters())", "y = y + len(m._parameters)",
        "y = y + m.state_dict()['weight']", "y = y * (2 if isinstance(m.weight, nn.Parameter) else 3)",
        "y = y + m.weight.data", "y = y + (m.weight is m.linear.bias)", "y = y + m.get_parameter('weight').detach()",
    ),
    "buffers": (
        "y = y + m.offset", "for n, b in m.named_buffers(): y = y + b.sum() * len(n)", "y = y + len(m._buffers)",
        "y = y if m.nothing is None else y + m.nothing", "m.hidden.add_(1); y = y + m.hidden",
        "y = y + ('late' in m._buffers)", "y = y + (m.late if hasattr(m, 'late') else 0)", "m.offset = m.offset + 1",
        "y = y + len(m._non_persistent_buffers_set)",
    ),
    "modules": (
        "for layer in m.layers: y = layer(y)", "y = m.layers[-1](y)", "y = m.seq(y)", "y = m.act(y)",
        "y = m.table[NAME](y)", "y = y + len(m.layers)", "y = y + len(list(m.modules()))",
        "y = y + isinstance(m.act, nn.ReLU)", "y = y + len(m.table)", "y = y * len(m.seq)",
        "for n, c in m.named_children(): y = y + len(n)", "y = m.get_submodule('seq.0')(y)",
        "y = y + (m.layers[0] is m.linear)", "y = y + m.parts[0] * len(m.parts)",
    ),
    "mode": (
        "y = m.norm(y)", "y = y + 1 if m.training else y - 1", "y = y * (2 if m.act.training else 3)",
        "y = F.dropout(y, 0.0, m.training)",
    ),
    "class": (
        "y = y * m.factor", "y = y * type(m).factor", "y = m.method(y)", "y = Net.method(m, y)",
        "y = y * getattr(m, 'extra', 7)", "y = y + hasattr(m, 'extra')", "y = y + (m.mode == 'plain')",
        "y = y + len(m.__dict__)", "y = y + ('extra' in vars(m))", "y = Act()(y)", "y = y * Act.factor",
        "y = y + (type(m) is Net)", "y = m.layers[1](y)",
    ),
    "globals": (
        "y = y * K", "y = y + T", "y = y + 1 if FLAG else y - 1", "y = helper(y)", "y = closure(y)",
        "y = partial(y)", "y = y * m.cfg.scale + m.cfg.shift", "y = y + m.cfg.both", "y = y + Config.scale",
        "y = helper(y, s=K)", "y = y + T.sum().detach()", "y = torch.add(y, T, alpha=K)", "y = y + len(NAME)",
        "y = y + ('K' in globals())",
    ),
    "containers": (
        "y = y * ITEMS[-1]", "y = y + sum(ITEMS)", "y = y + len(ITEMS)", "y = y * TABLE['a']",
        "y = y + TABLE.get('c', 5)", "y = y + len(TABLE['b'])", "for k in TABLE: y = y + len(k)",
        "y = y + len(SEEN)", "y = y + (3 in SEEN)", "y = y + max(ITEMS)", "y = y * (2 if 1.0 in ITEMS else 3)",
        "a, *rest = ITEMS; y = y + a * len(rest)", "y = y + sum(v for v in ITEMS if v > 1.5)",
        "ITEMS.append(len(ITEMS))", "TABLE['a'] += 1", "y = y + torch.tensor(ITEMS).sum()",
    ),
    "process": (
        "y = y + torch.ones(3)", "y = y.to(torch.get_default_dtype())", "y = y + torch.tensor(1.5)",
        "y = y * (2 if torch.is_grad_enabled() else 3)", "y = y + torch.arange(3) / 2",
        "y = y + torch.is_autocast_enabled('cpu')", "y = y @ torch.eye(3)", "y = y + torch.full((3,), 1.5).sum()",
        "y = y * (2 if torch.are_deterministic_algorithms_enabled() else 3)", "y = y + torch.get_num_threads()",
        "y = y + len(torch.get_float32_matmul_precision())", "y = y + torch.linspace(0, 1, 3)",
        "y = y + torch.is_inference_mode_enabled()", "y = torch.where(y > 0, y, 0.5)",
        "with torch.no_grad(): y = y * m.weight",
    ),
}  # fmt: skip

#: What changes between two calls, by what it changes. Statements of a world.
CHANGES: dict[str, Sequence[str]] = {
    "linear": (
        "m.linear.weight = nn.Parameter(m.linear.weight.detach() * 2)", "m.linear.bias = None",
        "m.linear = nn.Linear(3, 3)", "m.linear.weight.requires_grad_(False)",
        "m.linear.weight.data = m.linear.weight.data * 3", "m.linear.weight.data.mul_(0.5)",
        "m.linear.weight.grad = torch.ones(3, 3, dtype=m.linear.weight.dtype)", "m.linear.weight.grad = None",
        "m.linear.in_features = 9", "m.linear = nn.Linear(3, 3, bias=False)", "m.linear = nn.Identity()",
        "m.linear.double()", "m.linear.forward = lambda y: y * 5", "vars(m.linear).pop('forward', None)",
        "hooks.append(m.linear.register_forward_hook(lambda mod, args, out: out * 2))",
        "hooks.append(m.linear.register_forward_pre_hook(lambda mod, args: (args[0] + 1,)))",
        "hooks and hooks.pop().remove()", "hooks and hooks.pop(0).remove()",
        "m.linear.weight.register_hook(lambda g: g * 2)", "m.linear.weight.data = m.linear.weight.data.t()",
        "torch.nn.utils.parametrizations.weight_norm(m.linear)", "m.linear.bias = m.weight",
        "m.linear.weight.data = torch.ones(2, 3)", "m.linear.weight = nn.Parameter(torch.ones(3, 3).mT * 0.5)",
    ),
    "weight": (
        "m.weight = nn.Parameter(torch.full((3,), 0.25))", "m.weight.data.add_(1)", "m.weight.requires_grad_(False)",
        "m.weight = m.linear.bias", "m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()})",
        "m.register_parameter('late_weight', nn.Parameter(torch.ones(3)))", "m.weight.data = torch.ones(1)",
        "m.weight.requires_grad_(True)", "del m.weight; m.weight = torch.ones(3)",
        "m.weight.data = m.weight.data.half()", "m.requires_grad_(False)",
        "m.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))", "m.zero_grad()", "m.weight._is_param = False",
    ),
    "buffers": (
        "m.offset = torch.full((3,), 4.0)", "m.offset.add_(1)", "m.register_buffer('late', torch.ones(3))",
        "m.nothing = torch.ones(3)", "m.nothing = None", "m.offset = m.offset.double()", "m.offset = m.hidden",
        "m._buffers['offset'] = torch.zeros(3)", "m._buffers.pop('late', None)", "m.offset.requires_grad_(True)",
        "m.offset = torch.ones(2, 3)[0]", "m.offset = nn.Buffer(torch.full((3,), -1.0))", "m.hidden.zero_()",
        "m._non_persistent_buffers_set.discard('hidden')", "m.offset.resize_(1)", "m.hidden = torch.ones(1)",
    ),
    "modules": (
        "m.layers.append(nn.Tanh())", "m.layers[0], m.layers[1] = m.layers[1], m.layers[0]", "del m.layers[-1]",
        "m.table['b'] = nn.Tanh()", "m.table['c'] = nn.Tanh()", "m.table.pop('c') if 'c' in m.table else 0",
        "m.seq[1] = nn.Sigmoid()", "m.act = Act()", "m.act = m.layers[0]", "m.add_module('more', nn.Tanh())",
        "m.seq.append(nn.Tanh())", "m.layers = m.layers[:1]", "m.seq[0] = m.linear", "m.layers[0] = m.linear",
        "del m.act; m.act = lambda y: y * 4", "m.parts.append(torch.ones(3))",
        "m.parts[0] = nn.Parameter(torch.full((3,), 7.0))", "m.layers.insert(0, nn.Tanh())", "m.table.clear()",
        "m._modules['act'] = nn.Tanh()", "m._modules['seq'] = m._modules.pop('seq')",
        "m.seq = nn.Sequential(*list(m.seq)[::-1])",
        "hooks.append(nn.modules.module.register_module_forward_hook(lambda mod, a, out: out + 1))",
        "hooks and hooks.pop().remove()",
    ),
    "mode": (
        "m.train(not m.training)", "m.eval()", "m.norm.eval()", "m.norm.train()", "m.training = not m.training",
        "m.norm.momentum = 0.5", "m.norm.momentum = None", "m.norm.eps = 0.1", "m.norm.running_mean = torch.ones(3)",
        "m.norm.track_running_stats = False", "m.norm.affine = False", "m.norm.reset_running_stats()",
        "m.norm.running_mean = m.norm.running_var = None", "m.norm.weight = None",
    ),
    "class": (
        "Net.factor = 5.0", "m.factor = 7.0", "vars(m).pop('factor', None)", "m.extra = 2.0", "m.mode = 'other'",
        "vars(m).pop('extra', None)", "m.extra = torch.ones(3)", "Net.method = lambda self, y: y * 3",
        "m.method = lambda y: y / 2", "Act.forward = lambda self, y: y - self.factor", "Act.factor = -1.0",
        "Net.extra = 9", "m.layers[1].factor = 4.0", "Net.factor = property(lambda self: 6.0)",
        "Act.__call__ = lambda self, y: y * 8",
        "Net.__getattr__ = missing",
        "m.__class__ = type('Other', (Net,), {'factor': 8.0})", "m.extra = None", "Act.factor = torch.tensor(2.0)",
        "setattr(Act, 'extra', 3)",
    ),
    "globals": (
        "K = 3.0", "K = 5", "K = True", "T = T * 2", "T.mul_(2)", "T = T.double()", "FLAG = not FLAG", "NAME = 'a'",
        "helper.__defaults__ = (4.0,)", "helper.__kwdefaults__ = {'s': 7}", "helper.__kwdefaults__['s'] = 8",
        "helper.__code__ = (lambda y, k=1, *, s=2: y - k - s).__code__", "closure = closure_of(8.0)",
        "closure.__closure__[0].cell_contents = -2.0", "partial = functools.partial(helper, k=2.5, s=1)",
        "partial.keywords['k'] = 9.0", "m.cfg.scale = 3.0", "Config.scale = 4.0", "m.cfg = Config()",
        "vars(m.cfg).pop('scale', None)", "Config.both = 1.0", "Config.both = property(lambda self: self.shift * 9)",
        "def helper(y, k=0.0, *, s=0): return y + 100", "T = [1.0, 2.0, 3.0]", "T = torch.arange(3)", "K = T.sum()",
        "T.requires_grad_(True)", "NAME = 'missing'", "T = T[:1]", "T = T.expand(2, 3)",
        "m.cfg.shift = float('nan')", "K = 1e30", "K = float('inf')", "K = -0.0", "K = 2**40", "closure = helper",
    ),
    "containers": (
        "ITEMS.append(4.0)", "ITEMS[0] = 9.0", "ITEMS = (5.0, 6.0)", "ITEMS.clear()", "TABLE['c'] = 2.0",
        "TABLE.pop('c', None)", "TABLE['a'] = torch.ones(3)", "TABLE['b'].append(3)", "SEEN.add(3)",
        "SEEN.discard(1)", "TABLE = dict(reversed(TABLE.items()))", "ITEMS.reverse()", "ITEMS[-1] = 1",
        "ITEMS[0] = True", "TABLE = collections.OrderedDict(TABLE)", "TABLE = collections.defaultdict(int, TABLE)",
        "ITEMS.insert(0, 0.5)", "ITEMS[0] = float('nan')", "TABLE[1] = 0", "SEEN = frozenset([3])",
        "ITEMS = range(3)", "ITEMS[0] = T[0]",
    ),
}  # fmt: skip

#: What changes for the process, and so once for both worlds; it is put back at the end.
PROCESS = (
    "torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)",
    "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.use_deterministic_algorithms(True)",
    "torch.set_num_threads(1)", "torch.set_float32_matmul_precision('high')",
    "torch.set_autocast_enabled('cpu', True)", "torch.set_autocast_enabled('cpu', False)",
    "torch.use_deterministic_algorithms(False)", "torch.set_num_threads(2)",
    "torch.set_autocast_dtype('cpu', torch.float16)", "torch.set_default_dtype(torch.bfloat16)",
)  # fmt: skip

#: What a call is on.
GIVEN = (
    "torch.linspace(-1, 2, 6).view(2, 3)", "torch.linspace(-1, 2, 6).view(2, 3)",
    "torch.linspace(-1, 2, 12).view(4, 3)", "torch.linspace(-1, 2, 6).view(2, 3).requires_grad_()",
    "torch.linspace(-1, 2, 6).view(2, 3).double()", "torch.linspace(-1, 2, 6).view(3, 2).t()",
    "torch.linspace(-1, 2, 9).view(3, 3)",
)  # fmt: skip
CALLS = 6


@dataclass(frozen=True)
class Program:
    """The body of `run(m, y)`, and statements: each call's input, and what is changed before it."""

    body: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]

    @property
    def source(self) -> str:
        """The function that calls run, of the module and a tensor."""
        return "def run(m, y):\n" + textwrap.indent("\n".join([*self.body, "return y"]), "    ")

    def __str__(self) -> str:
        steps = [
            f"call({given})" + "".join(f"\n    before: {each}" for each in changes) for given, *changes in self.steps
        ]
        return "\n".join([self.source, *steps])


def write(rng: random.Random) -> Program:
    """A random program with its changes."""
    read = rng.sample(list(READS), rng.randint(1, 3))
    body = [rng.choice(READS[rng.choice(read)]) for _ in range(rng.randint(1, 5))]
    steps: list[tuple[str, ...]] = [(GIVEN[0],)]
    for _ in range(CALLS - 1):
        changes = [_change(rng, read) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        steps.append((rng.choice(GIVEN), *changes))
    return Program(tuple(body), tuple(steps))


def _change(rng: random.Random, read: Sequence[str]) -> str:
    what = rng.choice(read) if rng.random() < 0.8 else rng.choice([*CHANGES, "process"])
    return rng.choice(PROCESS if what == "process" else CHANGES[what])


class World:
    """A module of its own, in which a program runs as it is or compiled."""

    def __init__(self, program: Program, backend: str = "") -> None:
        self.space: dict[str, Any] = vars(types.ModuleType("world"))
        exec(WORLD, self.space)
        exec(compile(program.source, "<program>", "exec"), self.space)
        self.module = self.space["m"]
        options = {"cache": False} if backend == "inductor" else {}
        self.call = stator.compile(self.module, backend=backend, options=options) if backend else self.module

    def change(self, statement: str) -> str:
        """What the statement raises, if it does."""
        torch.manual_seed(1)
        try:
            exec(statement, self.space)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def seen(self, given: str) -> list[Any]:
        """What a call shows: its result or exception, gradients, and the state behind it."""
        y = eval(given, {"torch": torch})
        try:
            found = self.call(y)
            told: list[Any] = [found.detach().clone(), found.requires_grad, found.stride()]
            if found.requires_grad:
                found.sum().backward()
        except Exception as error:
            told = [type(error).__name__, str(error)]
        told.append(y.grad)
        told += [(name, t.detach().clone(), t.requires_grad) for name, t in self.module.named_buffers()]
        told += [(name, t.detach().clone(), _copy(t.grad)) for name, t in self.module.named_parameters()]
        space = self.space
        told += [list(map(str, space["ITEMS"])), {str(k): str(v) for k, v in space["TABLE"].items()}, str(space["T"])]
        return told


def _copy(tensor: Any) -> Any:
    return None if tensor is None else tensor.clone()


@contextmanager
def process_kept() -> Iterator[None]:
    """Puts back what a process has only one of."""
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        stack.callback(torch.set_autocast_enabled, "cpu", torch.is_autocast_enabled("cpu"))
        stack.callback(torch.set_autocast_dtype, "cpu", torch.get_autocast_dtype("cpu"))
        hooks = torch.nn.modules.module._global_forward_hooks
        stack.callback(hooks.clear)
        yield


def wrong(program: Program, backend: str) -> list[str]:
    """How the compiled world differs from the other one, call by call; faults of ours are differences."""
    stator.reset()
    found: list[str] = []
    with process_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        warnings.simplefilter("ignore", UserWarning)
        before = faults.total()
        eager, compiled = World(program), World(program, backend)
        for number, (given, *changes) in enumerate(program.steps):
            for change in changes:
                if change in PROCESS:
                    exec(change, {"torch": torch})
                elif eager.change(change) != compiled.change(change):
                    return [f"before call {number}: {change} does something else"]
            hooks = dict(torch.nn.modules.module._global_forward_hooks)
            _only(hooks, 0)
            want = eager.seen(given)
            _only(hooks, 1)
            got = compiled.seen(given)
            _only(hooks, None)
            if not same(got, want):
                parts = [f"{a} for {b}" for a, b in zip(got, want, strict=False) if not same(a, b)]
                found.append(f"call {number}: {'; '.join(parts)[:500]}")
                break
        found += map(str, faults.recent(before))
    return found


def _only(hooks: dict[int, Any], which: int | None) -> None:
    """Global hooks of one world alone: each statement has registered one for each, the eager one's first."""
    there = torch.nn.modules.module._global_forward_hooks
    there.clear()
    there.update({key: hook for i, (key, hook) in enumerate(hooks.items()) if which is None or i % 2 == which})


def shortened(program: Program, backend: str) -> Program:
    """With as few statements as still differ."""
    tries = True
    while tries:
        tries = False
        for smaller in _smaller(program):
            if wrong(smaller, backend):
                program, tries = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    body, steps = program.body, program.steps
    for i in range(len(steps)):
        if len(steps) > 1:
            yield Program(body, (*steps[:i], *steps[i + 1 :]))
        for j in range(1, len(steps[i])):
            yield Program(body, (*steps[:i], (*steps[i][:j], *steps[i][j + 1 :]), *steps[i + 1 :]))
    for i in range(len(body)):
        yield Program((*body[:i], *body[i + 1 :]), steps)
    for i, (given, *changes) in enumerate(steps):
        if given != GIVEN[0]:
            yield Program(body, (*steps[:i], (GIVEN[0], *changes), *steps[i + 1 :]))


def main() -> int:
    """Prints the programs that differ; how many they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="aot_eager")
    args = parser.parse_args()
    count = 0
    for seed in range(args.seed, args.seed + args.count):
        program = write(random.Random(seed))
        try:
            why = wrong(program, args.backend)
        except Exception:
            why = [traceback.format_exc()[-800:]]
        if why:
            count += 1
            short = shortened(program, args.backend)
            print(f"# seed {seed}\n{short}\n#   {wrong(short, args.backend) or why}\n", flush=True)
    print(f"{args.count} programs, {count} wrong")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
