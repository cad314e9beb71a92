"""The state of the process: random numbers, default dtype and device, flags."""

import torch

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


@program(breaks="a function mode")
def device_context(x):
    with torch.device("cpu"):
        return torch.zeros(3) + x


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
