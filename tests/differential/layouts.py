"""Every template on inputs that lie in memory in every way: `python -m tests.differential.layouts --rounds 2`.

Programs of one statement, with results of several dims, at two sizes each, so that strides follow from sizes that are
symbols. They are traced with the decompositions and run by eager kernels: how results lie is settled by then, and
nothing has to be compiled. Neighbours: `programs.py` fills the templates, `__main__.py` judges, `layouts.py` of
`stator.coverage` has the operator database.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from stator.aot.partition import partition
from stator.aot.reference import Sized
from stator.aot.runtime import bind
from stator.aot.symbols import origins, read
from stator.aot.trace import trace
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from tests.differential.__main__ import judge
from tests.differential.inputs import LAYOUTS, Input
from tests.differential.operations import FAMILIES, IN_PLACE
from tests.differential.programs import Program, _Writer

#: Sizes of the inputs of a program: different extents, equal ones (for products), and one of one.
SIZES = ((4, 6), (3, 4, 6), (2, 3, 4, 6), (5, 5), (3, 4, 4), (2, 3, 4, 4), (3, 1, 5), (2, 1, 4, 3), (2, 2, 3, 4, 3))
DTYPES = (torch.float32, torch.float32, torch.int64, torch.bool, torch.complex64)
TEMPLATES = [(family is IN_PLACE, template) for _, family in FAMILIES for template in family]


class _AsPromised(Sized):
    """Runs a graph by eager kernels; every value lies as the graph says, and as generated code would have it."""

    def run_node(self, n: fx.Node) -> Any:
        out, promised = super().run_node(n), n.meta.get("val")
        if n.op != "call_function" or not isinstance(out, Tensor) or not isinstance(promised, Tensor):
            return out
        stride = tuple(self._filled(step, n) for step in promised.stride())
        return out if out.stride() == stride else torch.empty_strided(out.shape, stride, dtype=out.dtype).copy_(out)


def _runner(module: fx.GraphModule) -> Callable[[list[Any]], tuple[Any, ...]]:
    places = origins([node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"])

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        inputs = [value.data if isinstance(value, Tensor) else value for value in inputs]
        symbols = dict(zip([place.symbol for place in places], read(places, inputs), strict=True))
        return tuple(_AsPromised(module, symbols).run(*inputs))

    return call


def traced(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend: traces with the decompositions, runs by eager kernels."""
    joint = trace(gm, example_inputs, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    parts = partition(joint)
    backward = _runner(parts.backward) if parts.backward is not None else None
    return bind(parts.metadata, _runner(parts.forward), backward, joint.attributes, gm)


traced.dynamic = True  # type: ignore[attr-defined]


def program_of(template: str, in_place: bool, layout: str, rng: random.Random) -> Program | None:
    """One statement on inputs of one layout, if eager runs it and gives tensors."""
    for size in rng.sample(SIZES, len(SIZES)):
        recipes = [Input(size, dtype, layout, "positive", seed=i) for i, dtype in enumerate(DTYPES)]
        if not in_place:  # some kernels are others where nothing is recorded
            recipes = [replace(i, grad=rng.choice(("", "leaf"))) if i.dtype.is_floating_point else i for i in recipes]
        writer = _Writer(rng, recipes)
        for i, recipe in enumerate(recipes):
            writer.values[f"x{i}"] = recipe.build()[0]
        text = writer._fill(template)
        value = None if text is None else writer._evaluate(text)
        if in_place and text is not None:
            names = tuple(f"x{i}" for i in range(len(recipes)))
            copies = ", ".join(f"{name} * 1" for name in names).replace("x3 * 1", "x3 & True")
            made = Program(tuple(recipes), (f"{', '.join(names)} = {copies}", text), names)
        elif isinstance(value, Tensor):
            made = _with_gradient(Program(tuple(recipes), (f"v0 = {text}",), ("v0",)))
        elif isinstance(value, (tuple, list)) and value and all(isinstance(v, Tensor) for v in value):
            names = tuple(f"v{i}" for i in range(len(value)))
            made = _with_gradient(Program(tuple(recipes), (f"{', '.join(names)}, = {text}",), names))
        else:
            continue
        return made
    return None


def _with_gradient(program: Program) -> Program:
    """The program that also gives a gradient, where there is one: made inside the graph, it lies as eager's."""
    for given in ("x0", "x1"):
        line = f"g, = torch.autograd.grad((v0 * v0.detach()).sum(), {given}, retain_graph=True)"
        longer = replace(program, lines=(*program.lines, line), outputs=(*program.outputs, "g"))
        try:
            longer.function()(*[recipe.build()[0] for recipe in longer.inputs])
        except RuntimeError:
            continue
        return longer
    return program


def found(program: Program) -> str:
    """What is wrong with it, or ""."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            verdict, why = judge(program, traced, (2,))
        except Exception:
            return traceback.format_exc()[-600:]
    return why if verdict == "wrong" else ""


def programs(rounds: int, seed: int, parts: int = 1) -> Iterator[Program]:
    """A program of every template and layout, where there is one, so many times; or of a part of them."""
    for number in range(rounds):
        for in_place, template in TEMPLATES:
            for layout in LAYOUTS:
                rng = random.Random(f"{seed} {number} {template} {layout}")
                if rng.randrange(parts):
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    program = program_of(template, in_place, layout, rng)
                if program is not None:
                    yield program


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="a part of a statement")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    count = wrong = 0
    for program in programs(given.rounds, given.seed):
        if not any(given.match in line for line in program.lines):
            continue
        why = found(program)
        count += 1
        if why:
            wrong += 1
            recipe = program.inputs[0]
            print(f"{recipe.size} {recipe.layout}: {'; '.join(program.lines)}: {why}", flush=True)
    print(f"{count} programs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
