"""Generators: send, throw, close, yield from, laziness."""

import torch

from tests.capture.programs.table import program, x


def counting(n):
    for i in range(n):
        yield i


@program(operators=3)
def loop_over(x):
    for i in counting(3):
        x = x + i
    return x


@program()
def yields_tensors(x):
    def parts():
        for row in x.unbind(0):
            yield row * 2

    return torch.stack(list(parts()))


@program()
def expression(x):
    return sum(x * i for i in range(3))


@program()
def next_and_default(x):
    items = counting(1)
    return x + next(items), next(items, None)


@program()
def send(x):
    def running():
        total = x
        while True:
            got = yield total
            if got is None:
                return
            total = total + got

    g = running()
    next(g)
    return g.send(1), g.send(2)


@program()
def throw(x):
    def guarded():
        try:
            yield x + 1
        except ValueError as error:
            yield x * len(str(error))

    g = guarded()
    return next(g), g.throw(ValueError("four"))


@program()
def close(x):
    log = []

    def guarded():
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append("closed")

    g = guarded()
    first = next(g)
    g.close()
    return first, log, list(g)


@program()
def yield_from(x):
    def inner():
        yield x + 1
        return 5

    def outer():
        n = yield from inner()
        yield x * n

    return list(outer())


@program()
def return_value(x):
    def once():
        yield x
        return x * 3

    g = once()
    next(g)
    try:
        next(g)
    except StopIteration as stop:
        return stop.value


@program()
def lazy_effects(x):
    log = []

    def noisy():
        for i in range(3):
            log.append(i)
            yield i

    g = noisy()
    before = list(log)
    first = next(g)
    return x + first, before, log


@program()
def infinite(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    total = x
    for n in naturals():
        if n > 3:
            break
        total = total * n + 1
    return total


@program()
def recursive(x):
    def flatten(tree):
        for node in tree:
            if isinstance(node, list):
                yield from flatten(node)
            else:
                yield node

    return sum(flatten([x, [x * 2, [x * 3]], x]))


@program()
def pipeline(x):
    source = (x * i for i in range(4))
    shifted = (y + 1 for y in source)
    return [y for y in shifted]


@program()
def unpacked(x):
    a, b, *c = (x + i for i in range(4))
    return a, b, c


class Batches:
    def __init__(self, data, size):
        self.data, self.size = data, size

    def __iter__(self):
        for start in range(0, self.data.shape[0], self.size):
            yield self.data[start : start + self.size]


@program(lambda: (torch.randn(6, 2),))
def iter_method_generator(x):
    return [batch.sum(0) for batch in Batches(x, 2)]


@program()
def closes_over_changes(x):
    scale = 1
    scaled = (x * scale for _ in range(2))
    scale = 5
    return list(scaled)


@program(breaks="a suspended generator leaves the function")
def leaves(x):
    y = x * 2
    return (y + i for i in range(2))


@program(lambda: (x(), iter([1, 2, 3, 4, 5, 6, 7, 8])), breaks="an iterator of C is used up from outside")
def iterator_argument(x, items):
    return x * next(items)
