"""Comprehensions: list, set, dict, nested, with conditions, with tensors."""

import torch

from tests.capture.programs.table import program, x


@program(operators=3)
def list_of_tensors(x):
    return [x * i for i in range(3)]


@program()
def dict_of_tensors(x):
    return {f"k{i}": x + i for i in range(3)}


@program()
def set_of_numbers(x):
    return x + len({i % 3 for i in range(10)})


@program()
def condition(x):
    return [x * i for i in range(6) if i % 2 if i > 1]


@program()
def nested(x):
    return torch.stack([torch.stack([x * i + j for j in range(2)]) for i in range(3)])


@program()
def two_loops(x):
    return [x * i * j for i in range(2) for j in range(i + 1)]


@program()
def scope(x):
    i = 7
    ys = [i for i in range(3)]
    return x * i, ys


@program()
def walrus_inside(x):
    ys = [y := x * i for i in range(3)]
    return y, ys


@program()
def conditional_value(x):
    return [x if i % 2 else -x for i in range(3)]


@program()
def over_tensor(x):
    return [row * 2 for row in x]


@program()
def over_dict_items(x):
    weights = {"a": 1.0, "b": 2.0}
    return {name.upper(): x * w for name, w in weights.items()}


@program()
def unpacked_target(x):
    return [a * b + c for a, (b, c) in [(x, (1, 2)), (x, (3, 4))]]


@program()
def as_arguments(x):
    return max(i * 2 for i in range(4)) * x, sum(x * i for i in range(3)), tuple(x + i for i in range(2))


@program()
def closure_inside(x):
    return [f(x) for f in [lambda a, n=n: a + n for n in range(3)]]


@program()
def raises_inside(x):
    try:
        return [x / (1 // i) for i in (1, 0)]
    except ZeroDivisionError:
        return x + 1
