"""Nothing that differs from call to call is computed once: clocks, random numbers, counters, mutable state."""

from __future__ import annotations

import collections
import datetime
import itertools
import os
import random
import secrets
import time
import uuid
from typing import Any

import pytest
import torch

import stator

numbers = random.Random(3)
counted = itertools.count()
waiting = collections.deque(range(100))
calls = [0]


def bump() -> int:
    calls[0] += 1
    return calls[0]


EXPRESSIONS = (
    "time.time() % 1", "time.time_ns() % 100003", "time.perf_counter() % 1", "time.perf_counter_ns() % 100003",
    "time.monotonic() % 1", "time.monotonic_ns() % 100003", "time.process_time_ns() % 100003",
    "time.thread_time_ns() % 100003", "time.clock_gettime(0) % 1", "time.clock_gettime_ns(1) % 100003",
    "os.times().elapsed * 0 + time.time() % 1",
    "datetime.datetime.now().microsecond", "datetime.datetime.utcnow().microsecond",
    "datetime.datetime.now().timestamp() % 1", "datetime.datetime.today().microsecond",
    "datetime.datetime.now(datetime.timezone.utc).microsecond",
    "random.random()", "random.randint(0, 10**6)", "random.getrandbits(20)", "random.uniform(0, 1)",
    "random.choice(range(10**6))", "random.gauss(0, 1)", "random.sample(range(1000), 1)[0]", "random.Random().random()",
    "random.SystemRandom().random()", "random._inst.random()", "getattr(random, 'random')()",
    "vars(random)['random']()",
    "numbers.random()", "numbers.randint(0, 10**6)", "numbers.getrandbits(20)", "type(numbers).random(numbers)",
    "functools.partial(random.random)()", "operator.call(random.random)", "max([random.random()])",
    "list(map(lambda _: random.random(), [1]))[0]", "sum(random.random() for _ in range(2))",
    "os.urandom(4)[0] * 256 + os.urandom(1)[0]", "uuid.uuid4().int % 100003", "uuid.uuid1().int % 100003",
    "secrets.randbelow(10**6)", "secrets.token_bytes(3)[2] * 256 + secrets.token_bytes(1)[0]",
    "next(counted)", "waiting.popleft()", "bump()", "torch.rand(()).item()", "__import__('time').time() % 1",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_asked_at_every_call(text: str) -> None:
    space: dict[str, Any] = {**globals(), "functools": __import__("functools"), "operator": __import__("operator")}
    if "operator.call" in text and not hasattr(space["operator"], "call"):
        pytest.skip("operator.call is new in 3.11")
    compiled = stator.compile(eval(f"lambda y: y * 0 + {text}", space), backend="eager")
    found = [float(compiled(torch.ones((), dtype=torch.float64))) for _ in range(4)]
    assert len(set(found)) > 2, found


USED = (datetime, os, secrets, time, uuid, numbers, counted, waiting, bump)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_the_process_after_a_fork() -> None:
    compiled = stator.compile(lambda y: y * 0 + os.getpid(), backend="eager")
    assert int(compiled(torch.zeros((), dtype=torch.int64))) == os.getpid()
    child = os.fork()
    if child == 0:
        right = int(compiled(torch.zeros((), dtype=torch.int64))) == os.getpid()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
