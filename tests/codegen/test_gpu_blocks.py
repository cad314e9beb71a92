"""Every way that blocks of a GPU are laid out, on small random shapes: a device record makes small tensors large ones.

Programs are compiled for devices whose programs take a few points each, so that tiles have edges, rows are walked in
loops, reductions are split, and programs take rows in turn. Results are compared with eager's in float64.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator import runtime
from stator.codegen import triton
from stator.kernel.blocks import BlockPlan, choose
from stator.loop.kernel import Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.plan.build import make
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace
from tests.codegen import tiled

GPU = typical("cuda")
#: As if the device were tiny, in one way each.
DEVICES = {
    "as it is": GPU,
    "small blocks": replace(
        GPU, cores=2, waves=1, block_bytes=64, line_bytes=16, short_axis=0, columns=4, column_points=16, row_points=16,
        loop_points=16, row_elements=32, near_bytes=0,
    ),
    "split": replace(GPU, min_split=64, min_row=16, cores=4, waves=2, columns=4, loop_points=32, row_elements=16),
    "rows in turn": replace(GPU, min_split=64, cores=2, row_parts=16, thread_points=1, columns=4),
}  # fmt: skip


def layer_norm_gradients(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    length, wide = x.shape[-1], torch.promote_types(x.dtype, torch.float32)
    mean = x.to(wide).mean(-1, keepdim=True)
    rstd = (x.to(wide).var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()
    return torch.ops.aten.native_layer_norm_backward(dy, x, [length], mean, rstd, w, w, [True, True, True])


def layer_norm_gradients_of_images(x: Tensor, w: Tensor, dy: Tensor, image: Tensor, line: Tensor) -> tuple[Tensor, ...]:
    """Rows are points of images, and a part of the sums down columns is some whole lines of one."""
    dx, *sums = layer_norm_gradients(x, w, dy)
    return dx * image * line, *sums


#: Programs, and the shapes of their inputs by rows and columns.
PROGRAMS: dict[str, tuple[Callable[..., object], Callable[[int, int], tuple[tuple[int, ...], ...]]]] = {
    "transposed": (lambda x: x.t().contiguous(), lambda m, n: ((m, n),)),
    "permuted": (lambda x: (x.permute(2, 0, 1) * 2).contiguous(), lambda m, n: ((3, m, n),)),
    "more channels": (lambda x: x.permute(0, 2, 3, 1).contiguous(), lambda m, n: ((2, 5, m, n),)),
    "channels last": (lambda x: x.permute(0, 2, 3, 1).contiguous(), lambda m, n: ((2, 3, m, n),)),
    "crossing": (lambda x, y: x + y.t() * x.sum(1, keepdim=True), lambda m, n: ((m, n), (n, m))),
    "broadcast": (lambda x, y, z: (x * y + z).relu(), lambda m, n: ((m, n), (n,), (m, 1))),
    "sum": (lambda x: x.sum(), lambda m, n: ((m, n),)),
    "rows": (lambda x: (x.sum(-1), x.amax(-1)), lambda m, n: ((m, n),)),
    "columns": (lambda x: (x.sum(0), (x * x).mean(0)), lambda m, n: ((m, n),)),
    "middle": (lambda x: x.sum(1), lambda m, n: ((3, m, n),)),
    "softmax": (lambda x: x.softmax(-1), lambda m, n: ((m, n),)),
    "softmax of columns": (lambda x: x.softmax(0), lambda m, n: ((m, n),)),
    "variance": (lambda x: (x.var(), x.var(0), x.var(1)), lambda m, n: ((m, n),)),
    "statistics": (lambda x: (x.mean((0, 2)), x.var((0, 2))), lambda m, n: ((3, m, n),)),
    "layer norm": (lambda x, w: F.layer_norm(x, x.shape[-1:], w, w), lambda m, n: ((m, n), (n,))),
    "layer norm, gradients": (layer_norm_gradients, lambda m, n: ((m, n), (n,), (m, n))),
    "layer norm of images, gradients": (
        layer_norm_gradients_of_images,
        lambda m, n: ((4, 8, 14, n), (n,), (4, 8, 14, n), (4, 1, 1, 1), (1, 8, 1, 1)),
    ),
    "running sums": (lambda x: (x.cumsum(0), x.cumsum(1)), lambda m, n: ((m, n),)),
    "stored and summed": (lambda x, y: ((made := x.sigmoid() * y), made.sum(0)), lambda m, n: ((m, n),) * 2),
    "places": (lambda x: (x.argmax(1), x.argmin(0), x.max(1).values), lambda m, n: ((m, n),)),
    "several": (lambda x, y, z: (x * 2, y + 1, z * z), lambda m, n: ((m, n),) * 3),
}
#: Programs whose terms may cancel: an error is one of the terms, not of what is left of them.
SUMS = ("sum", "rows", "columns", "middle", "running sums")
#: Rows and columns: small and odd ones, and some that the record of a real device splits too.
SIZES = ((1, 1), (5, 3), (33, 70), (64, 64), (7, 300), (300, 7), (96, 257), (2048, 384))


def compiled(program: Callable[..., object], inputs: tuple[Tensor, ...], device: str) -> tuple[object, Schedule]:
    """What a program gives, compiled for one of the devices, and the kernels that it ran."""
    record = DEVICES[device]
    gm, given = trace(program, inputs, DECOMPOSITIONS)
    made = schedule(lower(gm, "program", record), record)
    text = triton.emit(made.kernels, record, made.names, check=True)
    units = [runtime.Unit(text, made.names, (), "triton")] if made.names else []
    return runtime.link(runtime.build(make(made), units))(list(given)), made


def flat(results: object) -> list[Tensor]:
    return list(results) if isinstance(results, tuple | list) else [results]  # type: ignore[list-item]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:var:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_float64(name: str, device: str, dtype: torch.dtype) -> None:
    program, shapes = PROGRAMS[name]
    source = random.Random(f"{name} {device}")
    for rows, columns in [*source.sample(SIZES, 2), (source.randint(2, 400), source.randint(2, 400))]:
        torch.manual_seed(rows)
        inputs = tuple([torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes(rows, columns)])
        found, _ = compiled(program, inputs, device)
        exact = flat(program(*[x.double() for x in inputs]))
        eager = flat(program(*inputs))
        terms = flat(program(*[x.double().abs() for x in inputs])) if name in SUMS else exact
        for ours, theirs, right, term in zip(flat(found), eager, exact, terms, strict=True):
            assert ours.shape == right.shape and ours.dtype == theirs.dtype
            assert torch.equal(ours.isnan(), theirs.isnan()), (rows, columns)
            scale = (right.abs() + term.abs() / 16).nan_to_num().max().item() + 1e-3
            wrong, allowed = ((x.double() - right).nan_to_num().abs().max().item() for x in (ours, theirs))
            assert wrong <= 2 * allowed + 8 * torch.finfo(dtype).eps * scale, (rows, columns, wrong, allowed, scale)


@pytest.mark.filterwarnings("ignore:var:UserWarning")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_float64_on_the_cpu(name: str, device: str, tmp_path: Path) -> None:
    """Without a GPU: the text is run as the tile language has it."""
    program, shapes = PROGRAMS[name]
    source = random.Random(f"{name} {device}")
    for rows, columns in ((7, 300), (source.randint(2, 60), source.randint(2, 60))):
        torch.manual_seed(rows)
        inputs = tuple([torch.randn(shape) for shape in shapes(rows, columns)])
        made, given = tiled.scheduled(program, *inputs, device=DEVICES[device])
        found = tiled.run(made, given, tmp_path, record=DEVICES[device])
        exact = flat(program(*[x.double() for x in inputs]))
        for ours, right in zip(found, exact, strict=True):
            assert torch.equal(ours.isnan(), right.isnan()), (rows, columns)
            scale = right.abs().nan_to_num().max().item() + max(rows, columns) ** 0.5
            assert (ours.double() - right).nan_to_num().abs().max().item() <= 16 * torch.finfo(
                torch.float32
            ).eps * scale


@pytest.mark.parametrize(("name", "device", "wanted"), [
    ("transposed", "small blocks", "y = "),
    ("channels last", "small blocks", "z = "),
    ("sum", "split", "in 8 pieces"),
    ("layer norm, gradients", "rows in turn", "rows in turn"),
    ("layer norm of images, gradients", "rows in turn", "28 rows in turn"),
    ("statistics", "split", "nests"),
    ("stored and summed", "small blocks", "num_stages=4"),
])  # fmt: skip
def test_small_shapes_are_laid_out_in_every_way(name: str, device: str, wanted: str) -> None:
    """Without a GPU: each device has the layout that it is there for."""
    program, shapes = PROGRAMS[name]
    record = DEVICES[device]
    inputs = tuple([torch.zeros(shape) for shape in shapes(96, 64)])
    made = schedule(lower(trace(program, inputs, DECOMPOSITIONS)[0], "program", typical("cpu")), record)
    text = triton.emit(made.kernels, record, made.names, check=True)
    reasons = [*made.reasons, *[choose(kernel, record).reason(record) for kernel in made.kernels]]
    assert any(wanted in line for line in (*text.splitlines(), *reasons)), (reasons, text)


def plans(program: Callable[..., object], *inputs: Tensor) -> list[BlockPlan]:
    """How the kernels of a program run on the real device, which needs no memory for it."""
    made, _ = tiled.scheduled(program, *inputs)
    return [choose(kernel, GPU) for kernel in made.kernels]


@pytest.mark.parametrize(("program", "threads", "rows"), [
    (lambda x: x.sum(-1), {64: 128, 768: 128, 4096: 256, 8192: 512}, {64: 32, 768: 2, 4096: 1, 8192: 1}),
    (lambda x: x.var(-1), {512: 32, 4096: 128, 8192: 256}, {512: 2, 4096: 1, 8192: 1}),
    (lambda x: x.argmax(-1), {512: 32, 4096: 32, 8192: 64}, {512: 2, 4096: 1, 8192: 1}),
    (lambda x: x.softmax(-1), {512: 32, 4096: 256, 8192: 512}, {512: 2, 4096: 1, 8192: 1}),
])  # fmt: skip
def test_how_many_threads_have_a_row_follows_from_what_they_do_with_it(
    program: Callable[..., object], threads: dict[int, int], rows: dict[int, int]
) -> None:
    """Many that load and add; few that wait for one another, or compare places; what they store takes as many."""
    found = {length: plans(program, torch.empty(32768, length, dtype=torch.bfloat16)) for length in threads}
    assert {length: plan.threads for length, (plan,) in found.items()} == threads
    assert {length: plan.outer[-1].count for length, (plan,) in found.items()} == rows


@pytest.mark.parametrize(("shape", "pieces"), [
    ((8192, 4096), 4096),  # each of 8192 elements
    ((8192, 3072), 4096),  # a divisor of how many rows there are
    ((8192, 8192), 1024),  # too many to be as short
    ((2048, 1024), 1024),  # as many as there are programs are shorter
    ((8191, 4096), 1024),  # of no row's length: elements that lie in a row
])  # fmt: skip
def test_a_long_row_falls_into_pieces_that_programs_have_at_once(shape: tuple[int, int], pieces: int) -> None:
    first, second = plans(torch.sum, torch.empty(shape, dtype=torch.bfloat16))
    assert first.outer[-1].size == second.kernel.reduce_numel == pieces


@pytest.mark.parametrize(("program", "stages"), [
    (lambda x, y: ((made := x * y), made.sum(0)), 4),
    (lambda x, y: ((made := x.float() * y.float() * x.flip(1).float()), made.sum(0)), 3),  # three loads
    (lambda x, y: ((made := x * y * x.flip(1) * y.flip(1)), made.sum(0)), 1),  # four: shared memory holds too few turns
    (lambda x, y: (x * y).sum(0), 1),  # nothing is stored
    (lambda x, y: x.softmax(0), 1),  # it is read a second time
    (lambda x, y: ((made := x.gather(0, y.long()) * y), made.sum(0)), 1),  # places that are loaded
])  # fmt: skip
def test_a_loop_that_stores_as_it_goes_loads_ahead(program: Callable[..., object], stages: int) -> None:
    inputs = torch.empty(8192, 4096, dtype=torch.bfloat16), torch.zeros(8192, 4096, dtype=torch.bfloat16)
    assert plans(program, *inputs)[0].stages == stages


@pytest.mark.parametrize(("program", "shapes", "kept"), [
    (lambda x, y: x * y, [(64, 1024, 1024), (1024, 1024)], ["p1"]),  # of 2 MiB
    (lambda x, y: x * y, [(1 << 16, 1024), (1024,)], []),  # the nearest cache has it
    (lambda x, y: x * y, [(8, 4096, 4096), (4096, 4096)], []),  # of 32 MiB: too much
    (lambda x, y: x * y, [(4, 1024, 1024), (1024, 1024)], []),  # read by few
    (lambda x, y: x + y, [(8192, 4096), (8192, 4096)], []),  # read once
    (lambda x, y: torch.embedding(x, y.abs().long().view(-1)), [(1000, 4096), (64, 256)], ["p0"]),
    (lambda x, y: torch.embedding(x, y.abs().long().view(-1)), [(1 << 16, 4096), (64, 256)], []),
])  # fmt: skip
def test_the_cache_keeps_what_many_programs_read(
    program: Callable[..., object], shapes: list[tuple[int, ...]], kept: list[str]
) -> None:
    inputs = [torch.ones(shape, dtype=torch.bfloat16) for shape in shapes]
    (plan,) = [plan for plan in plans(program, *inputs) if not plan.kernel.reduce_axes]
    names = {param.numel: param.name for param in plan.kernel.params}
    assert list(plan.kept) == [names[inputs[int(name[1:])].numel()] for name in kept]
    text = triton.emit([plan.kernel], GPU)
    assert text.count("evict_last") == len(kept) and (not kept or "kept in the cache" in plan.reason(GPU))
