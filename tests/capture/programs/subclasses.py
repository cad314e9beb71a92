"""Subclasses of builtin containers and numbers; results like those of transformers."""

import collections
import dataclasses

import torch

from tests.capture.programs.table import program, x


class Attr(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


class Stack(list):
    def push(self, item):
        self.append(item)
        return self

    @property
    def top(self):
        return self[-1]


class Logged(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.log = []

    def __setitem__(self, key, value):
        self.log.append(key)
        super().__setitem__(key, value)


class Missing(dict):
    def __missing__(self, key):
        return len(key)


class Output(collections.OrderedDict):
    """As transformers' ModelOutput: fields are keys and attributes at once."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key):
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class Result(Output):
    loss: object = None
    logits: object = None
    hidden: tuple = None


@program(lambda: (x(), Attr(scale=2)))
def attribute_dict(x, a):
    a.last = x * a.scale
    return a.last, a["scale"], hasattr(a, "nothing"), len(a)


@program()
def attribute_dict_made(x):
    a = Attr(k=x)
    a.m = 3
    return a, isinstance(a, dict), a.k + a.m


@program(lambda: (x(), Stack([1])))
def list_subclass(x, s):
    s.push(2).push(3)
    s[0] = 9
    return x * s.top + len(s), s[1:], list(s)


@program()
def list_subclass_made(x):
    return Stack([x]).push(x + 1)


@program(lambda: (x(), Logged(a=1)))
def dict_subclass_with_hook(x, d):
    d["b"] = 2
    d["a"] = d["a"] + 1
    d.update(c=3)
    return x * d["a"], d.log, list(d.items())


@program()
def dict_subclass_missing(x):
    m = Missing(a=1)
    return x * m["a"] + m["four"], m.get("zzz"), "four" in m


@program()
def model_output(x):
    r = Result(logits=x * 2, hidden=(x,))
    return r


@program()
def model_output_read(x):
    r = Result(loss=x.sum(), logits=x * 2)
    r.hidden = (x,)
    r["loss"] = r.loss + 1
    return r.logits + r[0], r["logits"] is r.logits, list(r), len(r), r.to_tuple()


@program(lambda: (Result(logits=x()),))
def model_output_argument(r):
    r["hidden"] = (r.logits * 2,)
    return r[0] + r.hidden[0]


class Ordered(collections.OrderedDict):
    def first(self):
        return next(iter(self.values()))


@program(lambda: (x(), Ordered(a=1, b=2)))
def ordered_subclass(x, d):
    d["c"] = x + d.first()
    d.move_to_end("a")
    return d["c"], list(d)


class Celsius(float):
    def kelvin(self):
        return self + 273.15


class Name(str):
    def shout(self):
        return self.upper() + "!"


@program()
def float_subclass(x):
    return x * Celsius(20.0).kelvin()


@program()
def str_subclass(x):
    return x + len(Name("ab")), Name("ab").shout(), {Name("k"): 1}["k"]


class Size(tuple):
    def area(self):
        return self[0] * self[1]


@program()
def tuple_subclass(x):
    return x + Size((2, 3)).area(), Size(x.shape).area()


class Many(collections.UserDict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2


@program(lambda: (x(), Many(a=3)))
def user_dict(x, m):
    m["b"] = 1
    return x * m["a"] + m["b"], len(m)


class Bag(collections.abc.MutableMapping):
    def __init__(self):
        self.inside = {}

    def __getitem__(self, key):
        return self.inside[key]

    def __setitem__(self, key, value):
        self.inside[key] = value

    def __delitem__(self, key):
        del self.inside[key]

    def __iter__(self):
        return iter(self.inside)

    def __len__(self):
        return len(self.inside)


@program()
def abstract_mapping(x):
    b = Bag()
    b["k"] = x
    b.update(m=2)
    return b["k"] * b.get("m", 0), "k" in b, list(b.items())[1], b.pop("m"), dict(**b)


class Flags(set):
    def has(self, item):
        return item in self


@program(lambda: (x(), Flags({1})))
def set_subclass(x, f):
    f.add(5)
    return x * f.has(5), len(f)


class Default(collections.defaultdict):
    pass


@program(lambda: (x(), Default(int)))
def defaultdict_subclass(x, d):
    d["a"] += 1
    return x + d["a"]


@program()
def torch_size(x):
    s = x.shape
    return x.reshape(s[::-1]), s.numel(), s + (1,), s == (2, 3), isinstance(s, tuple), torch.Size([1, 2])
