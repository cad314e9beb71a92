"""Closures: cells read and written from inside, made by loops, shared, kept."""

import torch

from tests.capture.programs.table import program, x

COUNT = 0
BUFFER = torch.ones(3)


@program(operators=2)
def read(x):
    scale = 3

    def inner():
        return x * scale

    return inner() + 1


@program(operators=2)
def nonlocal_number(x):
    count = 0

    def step():
        nonlocal count
        count += 1
        return x + count

    return step(), step(), count


@program()
def nonlocal_tensor(x):
    total = torch.zeros_like(x)

    def add(y):
        nonlocal total
        total = total + y

    add(x)
    add(x * 2)
    return total


@program()
def late_binding(x):
    functions = [lambda: x * n for n in range(3)]
    return [f() for f in functions]


@program()
def bound_in_loop(x):
    functions = []
    for n in range(3):
        functions.append(lambda n=n: x * n)
    return [f() for f in functions]


def make_counter():
    count = 0

    def counter():
        nonlocal count
        count += 1
        return count

    return counter


@program(lambda: (x(), make_counter()))
def cell_of_an_argument(x, counter):
    counter()
    return x + 1


@program()
def counter_made_inside(x):
    counter = make_counter()
    counter()
    return x * counter()


@program()
def shared_cell(x):
    value = x

    def put(new):
        nonlocal value
        value = new

    def take():
        return value

    put(take() * 2)
    return take(), value


@program()
def returned_closure_shares_its_cell(x):
    value = x * 2

    def put(new):
        nonlocal value
        value = new

    def take():
        return value

    return put, take


@program()
def three_levels(x):
    a = 1

    def first():
        b = 2

        def second():
            nonlocal a
            a += b
            return x + a + b

        return second()

    return first(), a


@program()
def empty_cell(x):
    def read():
        return later

    try:
        read()
    except NameError as error:
        text = str(error)
    later = x + 1
    return read(), text


@program()
def cell_deleted(x):
    value = x

    def read():
        return value

    first = read()
    del value
    try:
        return first + 1, read()
    except NameError:
        return first * 2


@program()
def class_cell(x):
    class Base:
        def forward(self, y):
            return y + 1

    class Derived(Base):
        def forward(self, y):
            return super().forward(y) * 2

    return Derived().forward(x)


@program()
def closure_over_module_global(x):
    def inner():
        return x * BUFFER

    return inner()
