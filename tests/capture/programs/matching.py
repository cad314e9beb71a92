"""The match statement."""

import dataclasses

from tests.capture.programs.table import program, x


@dataclasses.dataclass
class ResumePoint:
    x: int
    y: int


@program()
def literals(x):
    def pick(v):
        match v:
            case 1 | 2:
                return x + v
            case "a":
                return x * 2
            case None:
                return x
        return -x

    return pick(2), pick("a"), pick(None), pick(9)


@program()
def sequences(x):
    def shape(v):
        match v:
            case []:
                return 0
            case [a]:
                return a
            case [a, *rest]:
                return a + len(rest)

    return x * shape([5, 1, 2]) + shape([3]) + shape([])


@program()
def on_a_shape(x):
    match x.shape:
        case (n,):
            return x * n
        case (n, m):
            return x + n * m


@program()
def mappings(x):
    match {"kind": "scale", "by": 3, "more": 1}:
        case {"kind": "shift"}:
            return x
        case {"kind": "scale", "by": by, **rest}:
            return x * by, rest


@program()
def class_patterns(x):
    def pick(p):
        match p:
            case ResumePoint(0, y):
                return x * y
            case ResumePoint(x=a, y=b) if a == b:
                return x + a
            case ResumePoint():
                return x
            case int(n):
                return x - n

    return pick(ResumePoint(0, 3)), pick(ResumePoint(2, 2)), pick(ResumePoint(1, 2)), pick(7)


@program()
def on_a_tensor_class(x):
    import torch

    match x:
        case torch.Tensor():
            return x + 1
        case _:
            return None


@program()
def nested_with_guard(x):
    match (1, [2, {"k": ResumePoint(3, 4)}]):
        case (a, [b, {"k": ResumePoint(x=c)}]) if a < b < c:
            return x * (a + b + c)


@program()
def as_pattern(x):
    match [x, 2]:
        case [first, (1 | 2) as n] as whole:
            return first * n, len(whole)
