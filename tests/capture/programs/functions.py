"""Functions: every kind of argument, defaults, calls, decorators, recursion, lambdas."""

import functools

import torch

from tests.capture.programs.table import program, x


def every_kind(a, /, b, *rest, c=3, d, **named):
    return a * b + sum(rest) + c * d + named.get("e", 0)


@program(operators=4)
def positional_and_keyword(x):
    return every_kind(x, 2, 3, d=4)


@program(lambda: (x(), (1, 2, 3), {"d": 5, "e": 6}))
def star_arguments(x, args, kwargs):
    return every_kind(x, *args, **kwargs)


@program(lambda: (x(), x(), x()))
def variadic_parameters(*tensors):
    return torch.stack(tensors).sum(0), len(tensors)


@program(operators=1)
def default_values(x, scale=2.0):
    return x * scale


@program(operators=1)
def keyword_only(x, *, scale=3.0):
    return x * scale


@program()
def default_made_inside(x):
    def add(a, b=x, *, c=x * 2):
        return a + b + c

    return add(1), add(1, 2), add(1, c=5)


SHARED = []


@program()
def mutable_default(x):
    def collect(item, into=SHARED):
        into.append(item)
        return len(into)

    return collect(x * 2), collect(x + 1)


@program(operators=2)
def nested_functions(x):
    def outer(a):
        def inner(b):
            return b + 1

        return inner(a) * 2

    return outer(x)


@program(operators=2)
def lambdas(x):
    return (lambda a, b=2: a * b)(x) + (lambda: 1)()


@program(operators=3)
def recursion(x):
    def power(a, n):
        return a if n == 0 else power(a * 2, n - 1)

    return power(x, 3)


def even(x, n):
    return x if n == 0 else odd(x + 1, n - 1)


def odd(x, n):
    return x * 2 if n == 0 else even(x - 1, n - 1)


@program()
def mutual_recursion(x):
    return even(x, 4)


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


@doubled
def decorated(x, y=1):
    return x + y


@program(operators=2)
def decorator(x):
    return decorated(x, y=2)


def repeated(times):
    def decorate(function):
        def wrapper(x):
            for _ in range(times):
                x = function(x)
            return x

        return wrapper

    return decorate


@program(operators=3)
def decorator_with_arguments(x):
    @repeated(3)
    def step(a):
        return a + 1

    return step(x)


class Scaling:
    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return self.function(x) * self.calls


@program()
def class_as_decorator(x):
    @Scaling
    def step(a):
        return a + 1

    return step(x) + step(x), step.calls


@program()
def wraps_keeps_name(x):
    return x + 1, decorated.__name__, decorated.__wrapped__(x, 1)


@program(operators=1)
def partial(x):
    return functools.partial(torch.add, x, alpha=2)(x)


@program()
def partial_of_partial(x):
    first = functools.partial(every_kind, x, d=1)
    second = functools.partial(first, 2, d=4)
    return second(3), second.args[1], second.keywords["d"]


@program()
def partial_as_result(x):
    return functools.partial(torch.add, x * 2)


class Layer:
    def forward(self, x, scale):
        return x * scale

    double = functools.partialmethod(forward, scale=2)


@program()
def partial_method(x):
    return Layer().double(x)


@program(operators=3)
def reduce(x):
    return functools.reduce(lambda a, b: a + b, [x, x, x, x])


@functools.lru_cache
def cached_scale(n):
    return n * 2.5


@program()
def lru_cache(x):
    return x * cached_scale(3) + cached_scale(3)


@functools.singledispatch
def describe(value):
    return 1


@describe.register
def _(value: int):
    return 2


@describe.register(list)
def _(value):
    return 3


@program()
def single_dispatch(x):
    return x * describe(5) + describe([1]), describe("a")


class Table:
    @functools.cached_property
    def scale(self):
        return 4

    @functools.singledispatchmethod
    def add(self, value):
        return 0

    @add.register
    def _(self, value: int):
        return value + 1


@program()
def cached_property(x):
    table = Table()
    return x * table.scale + table.scale, table.__dict__


@program()
def single_dispatch_method(x):
    return x + Table().add(3)


@program()
def functions_as_values(x):
    operations = {"relu": torch.relu, "double": lambda a: a * 2, "own": decorated}
    for name in sorted(operations):
        x = operations[name](x)
    return x


@program()
def function_attributes(x):
    def step(a):
        step.calls += 1
        return a + step.calls

    step.calls = 0
    return step(step(x)), step.calls, step.__name__


@program()
def function_as_result(x):
    y = x * 2

    def add(z, scale=3):
        return z + y * scale

    return add


@program()
def total_ordering(x):
    return x + (Version(1) <= Version(2)) + (Version(1) > Version(0))


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@program()
def cmp_to_key(x):
    order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    return x + order[0], order


@program()
def many_returns(x):
    def pick(n):
        if n == 0:
            return x
        elif n == 1:
            return x + 1
        return None

    return pick(0), pick(1), pick(2)


@program()
def wrong_call_is_caught(x):
    try:
        every_kind(x, 1)
    except TypeError as error:
        return x + 1, str(error)
