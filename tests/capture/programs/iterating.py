"""Iterators of the builtins and of itertools."""

import itertools
import operator

import torch

from tests.capture.programs.table import program, x


@program()
def range_loop(x):
    for i in range(5, 0, -2):
        x = x + i
    return x


@program()
def zip_tensors(x):
    return [a * b for a, b in zip(x, x * 2)]


@program()
def zip_strict(x):
    try:
        list(zip([1, 2], [1], strict=True))
    except ValueError as error:
        return x + 1, str(error)


@program()
def zip_shares_an_iterator(x):
    it = iter([1, 2, 3, 4])
    return [x * a + b for a, b in zip(it, it)]


@program()
def enumerate_start(x):
    return [row * i for i, row in enumerate(x, 1)]


@program()
def map_function(x):
    return list(map(torch.add, [x, x], [1, 2]))


@program()
def filter_function(x):
    return [x * i for i in filter(lambda n: n % 2, range(5))], list(filter(None, [0, 1]))


@program()
def reversed_items(x):
    return [x + i for i in reversed([1, 2, 3])], list(reversed(range(3))), list(reversed({"a": 1, "b": 2}))


@program()
def sorted_by_key(x):
    pairs = [("b", 2), ("a", 3)]
    return [x * n for _, n in sorted(pairs, key=lambda p: p[0], reverse=True)]


@program()
def min_max_of_numbers(x):
    return x * max([1, 3, 2]) + min(4, 5), max("ab", "c", key=len), min([], default=7)


@program()
def any_and_all(x):
    return x + any(i > 2 for i in range(4)) + all(isinstance(i, int) for i in [1, 2])


@program()
def sum_with_start(x):
    return sum([x, x * 2], x), sum([[1], [2]], [])


@program()
def iter_with_sentinel(x):
    items = [3, 2, 1, 0]
    return [x * n for n in iter(items.pop, 3)], items


@program()
def chain(x):
    return [x + i for i in itertools.chain([1], (2, 3))], list(itertools.chain.from_iterable([[1], [2]]))


@program()
def islice(x):
    return [x * i for i in itertools.islice(itertools.count(2, 3), 1, 4)]


@program()
def repeat_and_cycle(x):
    return [x * a * b for a, b in zip(itertools.repeat(2, 3), itertools.cycle([1, 5]))]


@program()
def product(x):
    return [x * a + b for a, b in itertools.product([1, 2], repeat=2)]


@program()
def combinations(x):
    rows = list(x.unbind(1))
    return [a * b for a, b in itertools.combinations(rows, 2)], list(itertools.permutations([1, 2]))


@program()
def accumulate(x):
    return list(itertools.accumulate([x, x, x])), list(itertools.accumulate([1, 2, 3], operator.mul, initial=1))


@program()
def pairwise(x):
    return [b - a for a, b in itertools.pairwise([x, x * 2, x * 4])]


@program()
def zip_longest(x):
    return [x * a + b for a, b in itertools.zip_longest([1, 2], [3], fillvalue=9)]


@program()
def takewhile_and_dropwhile(x):
    small = itertools.takewhile(lambda n: n < 3, [1, 2, 3, 1])
    rest = itertools.dropwhile(lambda n: n < 3, [1, 2, 3, 1])
    return [x * n for n in small], list(rest)


@program()
def starmap(x):
    return list(itertools.starmap(torch.mul, [(x, 2), (x, 3)]))


@program()
def groupby(x):
    groups = {key: list(items) for key, items in itertools.groupby([1, 1, 2, 3, 3], lambda n: n % 2)}
    return x + len(groups), groups


@program()
def groupby_without_key(x):
    return [(x * key, len(list(items))) for key, items in itertools.groupby("aab") for key in [len(key)]]


@program()
def tee(x):
    first, second = itertools.tee(x + i for i in range(3))
    return list(first), next(second), list(second)


@program()
def compress(x):
    return list(itertools.compress([x, x * 2, x * 3], [1, 0, 1])), list(itertools.filterfalse(None, [0, 1]))


@program(lambda: (x(), zip([1, 2, 3, 4, 5], [5, 4, 3, 2, 1])), breaks="an iterator of C is used up from outside")
def zip_argument(x, pairs):
    a, b = next(pairs)
    return x * a + b


@program()
def iterator_as_value(x):
    it = iter([x, x * 2, x * 3])
    first = next(it)
    return first, [y for y in it], next(it, None)


@program()
def iterator_over_dict_while_reading(x):
    d = {"a": x, "b": x * 2}
    total = 0
    for name in d:
        total = total + d[name]
    for value in d.values():
        total = total + value
    return total


@program()
def loop_else(x):
    for i in range(3):
        if i == 5:
            break
    else:
        x = x + 1
    while i:
        i -= 1
    else:
        x = x * 2
    return x, i
