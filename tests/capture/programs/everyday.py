"""What programs do around their mathematics: settings, logs, warnings, registries, checks, reports."""

import abc
import contextlib
import copy
import dataclasses
import functools
import importlib.metadata
import inspect
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import random
import re
import string
import threading
import time
import typing
import uuid
import warnings
import weakref
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.capture.programs.table import leaf, program, x

LOGGER = logging.getLogger("everyday")


@dataclasses.dataclass
class Settings:
    width: int = 3
    scale: float = 0.5
    names: list = dataclasses.field(default_factory=lambda: ["a", "b"])

    @property
    def area(self):
        return self.width**2

    @classmethod
    def of(cls, **changes):
        return cls(**changes)


@program(lambda: (x(), Settings()))
def settings_replaced(x, settings):
    other = dataclasses.replace(settings, scale=2.0)
    return x * other.scale + settings.area, dataclasses.asdict(other), Settings.of(width=4) == settings


@program(lambda: (x(), {"width": 3, "unknown": 1}))
def settings_from_a_dict(x, given):
    known = {field.name for field in dataclasses.fields(Settings)}
    settings = Settings(**{name: value for name, value in given.items() if name in known})
    return x * settings.width, sorted(set(given) - known)


@program()
def logged_below_the_level(x):
    LOGGER.debug("shape %s", x.shape)
    LOGGER.info("mean %f", 1.0)
    return x * 2


@program()
def warned_once(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("deprecated", DeprecationWarning, stacklevel=2)
    return x * 2


class Progress:
    """As tqdm iterates: counts, and reports now and then."""

    def __init__(self, items, every=100):
        self.items, self.every, self.count = items, every, 0

    def __iter__(self):
        for item in self.items:
            yield item
            self.count += 1
            if self.count % self.every == 0:
                print(self.count)

    def __len__(self):
        return len(self.items)


@program()
def progress_reported(x):
    bar = Progress(range(3))
    for i in bar:
        x = x * (i + 1)
    return x, bar.count, len(bar)


@contextlib.contextmanager
def scaled_by(settings, scale):
    before = settings.scale
    settings.scale = scale
    try:
        yield settings
    finally:
        settings.scale = before


@program(lambda: (x(), Settings()))
def settings_changed_for_a_while(x, settings):
    with scaled_by(settings, 3.0) as inner, contextlib.suppress(KeyError), contextlib.nullcontext():
        x = x * inner.scale
    with contextlib.ExitStack() as stack:
        stack.enter_context(scaled_by(settings, 5.0))
        x = x * settings.scale
    return x * settings.scale


@functools.singledispatch
def describe(item):
    return "other"


@describe.register
def _(item: int):
    return "int"


@describe.register(list)
def _(item):
    return f"list of {len(item)}"


@program()
def dispatched_by_type(x):
    return x * len(describe(3) + describe([1, 2]) + describe("s")), describe([x, x])


class Shape(abc.ABC):
    registry: typing.ClassVar[dict] = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Shape.registry[cls.__name__] = cls

    @abc.abstractmethod
    def area(self, x): ...

    def doubled(self, x):
        return self.area(x) * 2


class Square(Shape):
    def area(self, x):
        return x * x


@program()
def made_from_a_registry(x):
    return Shape.registry["Square"]().doubled(x), isinstance(Square(), Shape), issubclass(Square, Shape)


class Node:
    def __init__(self, value, parent=None):
        self.value = value
        self.parent = None if parent is None else weakref.ref(parent)


@program(lambda: (lambda root: (x(), root, Node(2.0, root)))(Node(3.0)))
def weak_reference_followed(x, root, node):
    parent = node.parent()
    return x * node.value + (parent.value if parent is not None else 0)


@program(breaks="what a thread has for itself is looked up for real")
def local_of_a_thread(x):
    local = threading.local()
    local.depth = 2
    return x * local.depth


LOCK = threading.Lock()


@program(breaks="locks are taken for real")
def under_a_lock(x):
    with LOCK:
        return x * 2


@program()
def iterators_combined(x):
    total = x
    for a, b in itertools.product(range(2), repeat=2):
        total = total + a * b
    for a, b in itertools.pairwise([1, 2, 3]):
        total = total * (a + b)
    for group, items in itertools.groupby([1, 1, 2], key=lambda n: n % 2):
        total = total + group + sum(items)
    for n in itertools.islice(itertools.count(1, 2), 3):
        total = total + n
    for a, b in itertools.zip_longest([1, 2], [3], fillvalue=0):
        total = total + a - b
    chunks = [*itertools.chain.from_iterable([[1], [2, 3]]), *itertools.accumulate([1, 2, 3], operator.mul)]
    return total * sum(itertools.starmap(pow, [(2, 3)])), chunks, list(itertools.permutations("ab"))


@program()
def written_as_json(x):
    text = json.dumps({"shape": list(x.shape), "dtype": str(x.dtype)}, sort_keys=True)
    return x * json.loads(text)["shape"][0], text


@program()
def matched_by_patterns(x):
    found = re.match(r"layers\.(\d+)\.(\w+)", "layers.12.weight")
    name = re.sub(r"\d+", "N", found.group(0))
    return x * int(found.group(1)), name, re.findall(r"[a-z]+", name), found.groupdict(), found.start(2)


@program(breaks="paths keep their parts in C")
def paths_joined(x):
    path = pathlib.PurePosixPath("runs") / "today" / "model.pt"
    return x * len(path.parts), str(path.with_suffix(".json")), path.stem, os.path.splitext("a/b.txt")[1]


@program()
def versions_compared(x):
    version = tuple(int(part) for part in importlib.metadata.version("numpy").split(".")[:2])
    return x * 2 if version >= (1, 0) else x


def adds(a, b, *, c=3):
    return a + b * c


@program()
def signature_bound(x):
    bound = inspect.signature(adds).bind(x, 2)
    bound.apply_defaults()
    return adds(*bound.args, **bound.kwargs) + len(bound.arguments)


@program()
def parameters_filtered(x):
    given = {"b": 2, "c": 4, "d": 5}
    accepted = inspect.signature(adds).parameters
    return adds(x, **{name: value for name, value in given.items() if name in accepted})


@program()
def types_written_out(x):
    kind = typing.Union[int, str]  # noqa: UP007
    return typing.cast("torch.Tensor", x) * len(typing.get_args(kind)), typing.Optional[kind] is kind  # noqa: UP045


@program()
def counted_and_grouped(x):
    counts = Counter("abca")
    groups = defaultdict(list)
    for i, letter in enumerate("abca"):
        groups[letter].append(i)
    return x * counts["a"], dict(groups), counts.most_common(1), ChainMap({"a": 1}, {"b": 2})["b"]


@program(lambda: (x(), deque(maxlen=3)))
def recent_results_kept(x, recent):
    recent.append(x.sum())
    return torch.stack(list(recent)).mean() + x


@program(breaks="a template is matched by a class of its own")
def formatted_texts(x):
    template = string.Template("$name: $value")
    text = f"{x.dim():>3d}|{math.pi:.3f}|{'a':^5}|" + "{:,}".format(10**6) + "%05.1f" % 2.5
    return x * len(text), text, template.substitute(name="a", value=1), ", ".join(map(str, x.shape))


@program(breaks="the clock is read")
def timed(x):
    start = time.perf_counter()
    y = x.sin() * 2
    elapsed = time.perf_counter() - start
    return y, elapsed >= 0


@program(breaks="Python's random numbers are drawn for real")
def drawn_by_python(x):
    random.seed(3)
    y = x * random.random() + random.randint(0, 5)
    return y if random.random() < 2 else y * 2


@program(breaks="NumPy's random numbers are drawn for real")
def drawn_by_numpy(x):
    np.random.seed(3)
    return x * float(np.random.uniform(0.5, 1.5))


@program(breaks="an identifier is drawn for real")
def named_anew(x):
    return x * len(str(uuid.uuid4()))


@program(breaks="NumPy computes")
def through_numpy(x):
    return x + torch.from_numpy(np.sin(x.numpy()))


class Ema:
    """Weights that follow those of a model."""

    def __init__(self, model, decay=0.9):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay

    def update(self, model):
        with torch.no_grad():
            for ours, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 1 - self.decay)
        return self


@program(lambda: (lambda m: (Ema(m), m, x()))(nn.Linear(3, 3)))
def weights_followed(ema, model, x):
    return ema.update(model).model(x) - model(x)


@program(lambda: (nn.Linear(3, 3), x()), breaks="modules are copied for real")
def model_copied(model, x):
    return copy.deepcopy(model)(x) + model(x)


@program(lambda: (nn.Linear(3, 3), x()))
def weights_saved_and_loaded(model, x):
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.weight.zero_()
    y = model(x)
    model.load_state_dict(saved)
    return y, model(x), OrderedDict(saved).keys() == saved.keys()


@program(lambda: (nn.Linear(3, 3), x()), breaks="hooks are numbered on a class")
def hook_registered_and_removed(model, x):
    seen = []
    handle = model.register_forward_hook(lambda module, args, result: seen.append(result.sum()) or result * 2)
    y = model(x)
    handle.remove()
    return y, model(x), len(seen)


@program(lambda: (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.0)), x()))
def modes_switched(model, x):
    model.train()
    y = model(x)
    model.eval()
    return y, model(x), [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


@program(lambda: (nn.Linear(3, 3), x()))
def parameters_counted(model, x):
    total = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return x * total, {name: tuple(p.shape) for name, p in model.named_parameters()}


@program(lambda: ([{"x": torch.ones(2), "y": 1}, {"x": torch.zeros(2), "y": 2}],))
def batch_collated(items):
    return torch.utils.data.default_collate(items)


@program()
def distributions_used(x):
    normal = torch.distributions.Normal(x, 1.0, validate_args=False)
    other = torch.distributions.Normal(torch.zeros(3), torch.ones(3), validate_args=False)
    return normal.log_prob(x * 2) + normal.entropy(), torch.distributions.kl_divergence(normal, other)


@program()
def categories_used(x):
    categories = torch.distributions.Categorical(logits=x, validate_args=False)
    return categories.entropy(), categories.log_prob(torch.tensor([0, 1])), categories.probs


@program(lambda: (leaf(),))
def distributions_checked(x):
    return torch.distributions.Normal(x, x.exp()).log_prob(x)


@program()
def spectra(x):
    spectrum = torch.fft.rfft(x, norm="ortho")
    return torch.fft.irfft(spectrum * torch.fft.rfftfreq(3), n=3), spectrum.abs(), torch.special.expit(x).logit()


@program(
    lambda: (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), torch.randn(2, 3, 4)),
    breaks="in some versions its fast path has no shape function",
)
def attention_in_evaluation(layer, x):
    with torch.no_grad():
        return layer(x)


@program(lambda: (nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)))
def attention_with_masks(layer, x):
    mask = torch.triu(torch.ones(3, 3, dtype=torch.bool), diagonal=1)
    out, weights = layer(x, x, x, attn_mask=mask, need_weights=True, average_attn_weights=False)
    return out, weights, functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@program(lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), x()))
def weights_normed(layer, x):
    return layer(x)


@program(lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), x()))
def weights_of_unit_norm(layer, x):
    return layer(x)


@program(lambda: (nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), x()))
def weights_orthogonal(layer, x):
    return layer(x)


@program(lambda: (nn.Linear(3, 3), x()), breaks="memory of parameters is exchanged")
def vector_of_parameters(model, x):
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 0.5, model.parameters())
    return model(x), vector.norm()
