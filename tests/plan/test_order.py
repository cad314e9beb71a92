"""Plans whose effects are out of order, or whose streams do not wait, are not taken: each kind of fault is found."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from stator.base.errors import Unsupported
from stator.plan import from_bytes, ir, module_text, to_bytes, verify
from stator.plan.order import written
from stator.runtime import GraphArtifact
from stator.runtime.link import execute, link

FORM = ir.Form("f32", (4,), (1,))
X, Y = (ir.Input(name, FORM) for name in "xy")


def launch(*names: str, effects: tuple[int, ...] = (), stream: int = 0) -> ir.Launch:
    """A kernel that reads all but the last, which it writes."""
    addresses = [ir.Address(ir.Whole(name), written=name is names[-1]) for name in names]
    return ir.Launch("k0", tuple(addresses), (), effects, stream)


def call(*effects: int, stream: int = 0, result: str = "") -> ir.Invoke:
    results = (ir.Result(0, result, (4,), (1,)),) if result else ()
    return ir.Invoke("aten.of.something", (ir.Whole("x"),), (), results, None, effects, stream)


def plan(
    *steps: ir.Step, effects: Iterable[tuple[str, str]] = (), streams: int = 0, pieces: Iterable[ir.Piece] = ()
) -> ir.Plan:
    arena = ir.Arena(64, tuple(pieces))
    said = tuple([ir.Effect(*effect) for effect in effects])
    failure = ir.Failure(spoiled=0)
    return ir.Plan("p", "cpu", ("k0",), (X, Y), steps, (), (), (), arena, failure, (), said, ("cpu",) * streams)


# ---- effects ---------------------------------------------------------------------------------------------------------

RANDOM, CUSTOM, CHECK, WRITE_X, WRITE_Y = (
    ("random", ""), ("custom", ""), ("check", ""), ("write", "x"), ("write", "y"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("effects", "steps"),
    [
        ((RANDOM, CUSTOM), (call(0), call(1))),
        ((RANDOM, CUSTOM), (call(0, 1),)),
        ((RANDOM, CHECK, CUSTOM), (call(1), call(0), call(2))),
        ((RANDOM, WRITE_X, WRITE_Y), (call(0), launch("x", "y", effects=(2,)), launch("y", "x", effects=(1,)))),
        ((WRITE_X, WRITE_X), (launch("x", effects=(0,)), launch("x", effects=(1,)))),
    ],
)
def test_what_may_change_places(effects: tuple[tuple[str, str], ...], steps: tuple[ir.Step, ...]) -> None:
    made = plan(*steps, effects=effects)
    verify(made)
    assert from_bytes(to_bytes(made)) == made


@pytest.mark.parametrize(
    ("effects", "steps", "message"),
    [
        ((RANDOM, CUSTOM), (call(1), call(0)), "step 1: effect 0 comes after effect 1"),
        ((RANDOM, CUSTOM), (call(0), call(0), call(1)), "step 1: effect 0 is done twice"),
        ((RANDOM, CUSTOM), (call(1),), "no step has effect 0"),
        ((RANDOM,), (call(0), call(1)), "step 1: effect 1 is unknown"),
        ((RANDOM, WRITE_X), (launch("x", effects=(1,)), call(0)), "effect 0 comes after effect 1"),
        ((WRITE_X, WRITE_X), (launch("x", effects=(1,)), launch("x", effects=(0,))), "comes after effect 1"),
        ((), (launch("y", "x"),), r"step 0: it writes \['x'\], and says \[\]"),
        ((WRITE_X,), (launch("x", "y", effects=(0,)),), r"it writes \['y'\], and says \['x'\]"),
        ((("write", "z"),), (), "is no effect 0"),
        ((("random", "x"),), (), "is no effect 0"),
        ((("luck", ""),), (), "is no effect 0"),
    ],
)
def test_effects_out_of_place_are_told(
    effects: tuple[tuple[str, str], ...], steps: tuple[ir.Step, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        from_bytes(to_bytes(plan(*steps, effects=effects)))


def test_random_orders_of_effects() -> None:
    """Any two that keep their order may not be exchanged; checks may stand anywhere."""
    for seed in range(200):
        rng = random.Random(seed)
        effects = [rng.choice((RANDOM, CUSTOM, CHECK, ("collective", ""))) for _ in range(rng.randint(2, 8))]
        order = list(range(len(effects)))
        verify(plan(*[call(i) for i in order], effects=effects))
        i, k = sorted(rng.sample(order, 2))
        order[i], order[k] = order[k], order[i]
        kept = [number for number in order if effects[number] != CHECK]
        changed = plan(*[call(number) for number in order], effects=effects)
        if kept == sorted(kept):
            verify(changed)
            continue
        with pytest.raises(ValueError, match="comes after"):
            verify(changed)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ir.Failure(), "step 1: it may fail behind effects for good"),
        (ir.Failure(spoiled=2), "step 1: it may fail behind"),
        (ir.Failure(0, ("y",), 1, 1), "step 0: it writes .'x'., which is not kept"),
        (ir.Failure(0, ("x",), 2), ""),
        (ir.Failure(spoiled=1), ""),
    ],
)
@pytest.mark.parametrize("first", [launch("x", effects=(0,)), call(0)])
def test_what_fails_behind_an_effect_is_told_or_undone(failure: ir.Failure, message: str, first: ir.Step) -> None:
    effect = WRITE_X if isinstance(first, ir.Launch) else CUSTOM
    made = replace(plan(first, call(), effects=[effect]), failure=failure)
    if effect is CUSTOM and failure.kept:
        return  # only memory can be kept
    if not message:
        verify(made)
        return
    with pytest.raises(ValueError, match=message):
        verify(made)


def test_effects_are_printed() -> None:
    made = plan(call(0), launch("y", "x", effects=(1,)), effects=(RANDOM, WRITE_X))
    text = module_text(made)
    assert "# effect 0: random\n" in text and "k0(y, x)  # effect 1: write x\n" in text


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_streams_that_wait() -> None:
    made = plan(
        ir.Wait(1, 0), ir.Allocate("a", FORM, stream=1), launch("x", "a", stream=1),
        ir.Allocate("b", FORM), launch("x", "b"),
        ir.Wait(0, 1), launch("a", "b"), ir.Wait(1, 0), ir.Release(("a",)), ir.Wait(0, 1),
        streams=1,
    )  # fmt: skip
    verify(made)
    assert from_bytes(to_bytes(made)) == made
    text = module_text(made)
    assert "...  # stream 1 waits for stream 0" in text and "k0(x, a)  # stream 1" in text
    execute(text, "p", {"k0": None})  # is Python
    with pytest.raises(Unsupported, match="it has 2 streams, and one is run so far"):
        link(GraphArtifact(made, ()))


PIECES = [ir.Piece("a", FORM, 0), ir.Piece("b", FORM, 8), ir.Piece("c", FORM, 32)]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((launch("x", "a", stream=1), ir.Wait(0, 1)), "step 0: stream 1 has not waited for stream 0, which uses"),
        ((ir.Wait(1, 0), launch("x", "a"), launch("a", "c", stream=1), ir.Wait(0, 1)), "step 2: .* which uses a"),
        ((ir.Wait(1, 0), launch("a", "c"), launch("x", "a", stream=1), ir.Wait(0, 1)), "step 2: .* which uses a"),
        ((ir.Wait(1, 0), launch("x", "a"), launch("x", "b", stream=1), ir.Wait(0, 1)), "step 2: .* which uses b"),
        ((ir.Wait(1, 0), launch("x", "a", stream=1)), "the end: stream 0 has not waited for stream 1"),
        ((ir.Wait(1, 0), launch("x", "a", stream=1), ir.Release(("x",)), ir.Wait(0, 1)), "which uses x"),
        ((ir.Wait(1, 0), call(stream=1, result="r"), launch("r", "a")), "step 2: .* which uses r"),
        ((ir.Wait(1, 2),), "step 0: there is no stream 2"),
        ((launch("x", "a", stream=-1),), "there is no stream -1"),
    ],
)
def test_streams_that_do_not_wait_are_told(steps: tuple[ir.Step, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify(plan(*steps, streams=1, pieces=PIECES))


def test_a_plan_has_the_streams_that_it_says() -> None:
    with pytest.raises(ValueError, match="there is no stream 1"):
        verify(plan(launch("x", "a", stream=1), pieces=PIECES))


def test_blocks_that_are_not_in_use_at_once_may_lie_in_one_place() -> None:
    steps = (ir.Wait(1, 0), launch("x", "a"), launch("x", "b", stream=1), ir.Wait(0, 1))
    made = plan(*steps, streams=1)
    for life, same in (((0, 2), False), ((1, 2), True)):
        blocks = ir.Block(16, 0, 0, ("a",)), ir.Block(16, *life, ("b",))
        pieces = ir.Piece("a", FORM, 0, 0), ir.Piece("b", FORM, 0, 1)
        found = replace(made, arena=ir.Arena(0, pieces, blocks))
        if not same:
            verify(found)
            continue
        with pytest.raises(ValueError, match="which uses b"):
            verify(found)


def happens_before(steps: list[ir.Step]) -> list[set[int]]:
    """For each step, those that are done when it begins, told by the edges: on one stream, and by waits."""
    last: dict[int, set[int]] = {}
    found = []
    for number, step in enumerate(steps):
        if isinstance(step, ir.Wait):
            last[step.stream] = last.get(step.stream, set()) | last.get(step.other, set())
            found.append(set[int]())
            continue
        assert isinstance(step, ir.Launch)
        found.append(set(last.get(step.stream, ())))
        last.setdefault(step.stream, set()).add(number)
    return found


def races(steps: list[ir.Step]) -> bool:
    """Whether two launches use one memory, one of them writes it, and neither is known to come first."""
    before = happens_before(steps)
    launches = [(i, step) for i, step in enumerate(steps) if isinstance(step, ir.Launch)]
    for k, later in launches:
        for i, sooner in launches:
            if i < k and i not in before[k]:
                ours, theirs = (ir.names_in(step.addresses) for step in (later, sooner))
                if ours & written(sooner) or theirs & written(later):
                    return True
    return False


def test_random_streams_race_where_their_order_is_not_told() -> None:
    """Waits are taken out of plans that wait for everything; what is refused is what has a race."""
    counts = {True: 0, False: 0}
    pieces = [ir.Piece(name, FORM, 16 * i) for i, name in enumerate("abc")]
    for seed in range(600):
        rng = random.Random(seed)
        steps: list[ir.Step] = [ir.Wait(1, 0), ir.Wait(2, 0)]
        for _ in range(rng.randint(2, 7)):
            stream = rng.randrange(3)
            names = rng.choices(["x", "y", "a", "b", "c"], k=rng.randint(0, 2))
            steps += [ir.Wait(stream, other) for other in range(3) if other != stream and rng.random() < 0.35]
            steps.append(launch(*names, rng.choice("abc"), stream=stream))
        steps += [ir.Wait(0, 1), ir.Wait(0, 2)]
        made = plan(*steps, streams=2, pieces=pieces)
        race = races(steps)
        counts[race] += 1
        if race:
            with pytest.raises(ValueError, match="has not waited"):
                verify(made)
        else:
            verify(made)
    assert min(counts.values()) > 100


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_what_a_kernel_takes_lies_on_its_device() -> None:
    first, second = replace(X, device="cuda:0"), replace(Y, device="cuda:1")
    steps = (
        ir.Wait(1, 0),
        ir.Allocate("a", FORM, "cuda:1", stream=1),
        launch("y", "a", stream=1),
        ir.Wait(0, 1),
    )
    both = replace(plan(*steps), device="cuda:0", inputs=(first, second), streams=("cuda:1",))
    verify(both)
    assert from_bytes(to_bytes(both)) == both
    wrong = launch("x", "a", stream=1)
    for broken in ((*steps[:2], wrong, *steps[3:]), (*steps[:2], replace(steps[2], stream=0), *steps[3:])):
        with pytest.raises(ValueError, match=r"is on cuda:., the kernel on cuda:"):
            verify(replace(both, steps=broken))
