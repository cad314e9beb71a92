"""The state of the process: random numbers, default dtype and device, flags."""

import torch
from torch.utils import _device

from tests.capture.programs.table import program, x


@program()
def random_numbers(x):
    return x + torch.rand(2, 3), torch.randn_like(x), torch.randint(0, 5, (2,)), torch.randperm(4)


@program()
def random_in_place(x):
    y = x.clone()
    return y.uniform_(), y.normal_(), torch.empty(3).bernoulli_(0.5), torch.bernoulli(x.sigmoid())


@program()
def multinomial(x):
    return torch.multinomial(x.softmax(-1), 2)


@program(breaks="it changes the random state")
def manual_seed(x):
    torch.manual_seed(3)
    return x + torch.rand(3)


@program(breaks="it reads the random state")
def random_state(x):
    state = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(state)
    return x + torch.rand(3), a


@program(lambda: (x(), torch.Generator().manual_seed(3)), breaks="a generator of numbers has a state of its own")
def generator(x, g):
    return x + torch.rand(3, generator=g)


@program()
def default_dtype_read(x):
    return x.to(torch.get_default_dtype()), torch.zeros(2).dtype


@program(breaks="it changes the state of the process")
def default_dtype_set(x):
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(3) + x
    torch.set_default_dtype(torch.float32)
    return y


@program()
def default_device_read(x):
    return x + 1, torch.get_default_device()


@program()
def device_context(x):
    with torch.device("cpu"):
        return torch.zeros(3) + x


@program()
def device_contexts_nested(x):
    with torch.device("meta"):
        on_meta = torch.ones(3)
        with torch.device("cpu"):
            y = torch.arange(3) + torch.zeros_like(x) + torch.full((3,), 2.0, device=None)
            inner = torch.get_default_device()
        outer = torch.get_default_device()
        z = torch.empty(2, device="cpu").fill_(1.0)
    return y + torch.ones(3), on_meta.device, inner, outer, z, torch.get_default_device()


@_device.set_device("meta")
def made_on_meta(x):
    return torch.ones(3).device, x * 2


@program()
def device_context_as_decorator(x):
    return made_on_meta(x), torch.ones(3) + x


@program(graphs=3, breaks="prints")
def break_inside_of_a_device_context(x):
    with torch.device("meta"):
        before = torch.ones(3).device
        print("inside")
        after = torch.ones(3).device
    return before, after, torch.ones(3) + x


@program(graphs=2, breaks="the default device is set")
def default_device_set(x):
    torch.set_default_device("meta")
    made = torch.ones(3).device
    torch.set_default_device("cpu")
    y = x * 2 + torch.ones(3)
    torch.set_default_device(None)
    return y, made


@program()
def devices(x):
    d = torch.device("cuda", 1)
    return x.to(torch.device("cpu")), d.type, d.index, torch.device("cpu") == x.device, torch.device("meta").type


@program()
def availability(x):
    return x + torch.cuda.is_available() + torch.backends.mps.is_available(), torch.cuda.device_count()


@program()
def flags(x):
    return (
        x + torch.are_deterministic_algorithms_enabled(),
        torch.is_inference_mode_enabled(),
        torch.backends.cudnn.enabled,
    )


@program()
def compiling(x):
    import stator

    return x + 1, stator.is_compiling() in (True, False)


@program()
def python_random(x):
    return x * 2


@program(breaks="numbers of Python's own generator")
def python_random_used(x):
    import random

    r = random.Random(3)
    return x * r.random()


@program()
def thread_number(x):
    return x + (torch.get_num_threads() > 0)


@program()
def versions(x):
    return x + 1, torch.__version__ >= "2.0", torch.version.cuda
