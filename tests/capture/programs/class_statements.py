"""Classes that the function makes."""

import torch

from tests.capture.programs.table import leaf, program


class Meta(type):
    pass


@program()
def class_made_inside(x):
    class Local:
        bias = 3

        def __init__(self, y):
            self.y = y

        def run(self):
            return self.y + self.bias

    return Local(x).run()


@program()
def class_made_inside_leaves(x):
    class Local:
        def __init__(self, y):
            self.y = y

    return type(Local(x * 2)).__name__, x + 1


@program()
def class_with_methods_of_all_kinds(x):
    factor = 3

    class Local:
        kept = factor
        unwanted = 1
        del unwanted

        def __init__(self, y):
            self.y = y

        @classmethod
        def twice(cls, y):
            return cls(y * 2)

        @staticmethod
        def scaled(y, by=factor):
            return y * by * factor

        @property
        def total(self):
            return self.y.sum() * self.kept

    made = Local.twice(x)
    factor = 5
    return made.total + Local.scaled(x), hasattr(Local, "unwanted"), Local.__qualname__, isinstance(made, Local)


@program()
def instances_of_a_class_made_inside(x):
    class Local:
        def __init__(self, y):
            self.y = y

        def __add__(self, other):
            return Local(self.y + other.y)

    one, two = Local(x), Local(x * 2)
    both = one + two
    return [item.y for item in (one, two, both)], type(one) is type(both), type(both).__name__


@program(breaks="prints")
def class_made_inside_lives_on(x):
    class Local:
        def run(self, y):
            return y * 2

    y = Local().run(x)
    print("between")
    return Local().run(y)


@program(lambda: (leaf(),))
def autograd_function_made_inside(x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            ctx.save_for_backward(y)
            return y * y

        @staticmethod
        def backward(ctx, gradient):
            (y,) = ctx.saved_tensors
            return gradient * y * 3

    return Square.apply(x + 1)


@program(breaks="with a metaclass or keywords")
def class_made_inside_of_a_metaclass(x):
    class Local(metaclass=Meta):
        pass

    return x + 1, Local.__name__


@program(breaks="a value that it has made")
def class_made_inside_holds_a_list(x):
    class Local:
        seen = []

    Local.seen.append(1)
    return x + len(Local.seen)
