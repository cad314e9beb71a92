"""Random numbers from generators that are passed, kept or made: eager's numbers, and the state that eager leaves."""

import torch
from torch import nn

from tests.capture.programs.table import program, x


class Sampler:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(7)

    def __call__(self, x):
        return x + torch.randn(x.shape, generator=self.generator)


@program(lambda: (x(), torch.Generator().manual_seed(3)))
def generator_given(x, generator):
    y = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    y = y + torch.rand(3, generator=generator) * torch.randint(0, 5, (3,), generator=generator)
    return x + y, torch.randperm(3, generator=generator), generator.device


@program(lambda: (Sampler(), x()))
def generator_of_an_object(sampler, x):
    return sampler(x) - sampler(x.sin())


@program()
def generator_made(x):
    generator = torch.Generator(device=x.device)
    generator.manual_seed(5)
    y = x + torch.randn(3, generator=generator)
    return y * torch.rand(3, generator=generator.manual_seed(5)), generator.get_state().sum()


@program(lambda: (x(), torch.Generator().manual_seed(3)))
def generator_seeded_again(x, generator):
    first = torch.randn(3, generator=generator)
    state = generator.get_state()
    second = torch.randn(3, generator=generator)
    generator.set_state(state)
    return x + first - second, torch.randn(3, generator=generator) - second


@program(lambda: (x(), torch.Generator().manual_seed(3)))
def tensors_filled_from_a_generator(x, generator):
    y = x * 2
    y.normal_(1.0, 2.0, generator=generator)
    z = torch.empty(4, 5).t().uniform_(generator=generator)
    z.bernoulli_(0.5, generator=generator)
    return y.exponential_(generator=generator), z, x.random_(0, 9, generator=generator) + 1


@program(lambda: (nn.Linear(3, 3), x(), torch.Generator().manual_seed(3)))
def weights_initialised_from_a_generator(layer, x, generator):
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.uniform_(layer.bias, generator=generator)
    return layer(x)


@program(lambda: (torch.rand(2, 4), torch.Generator().manual_seed(3)))
def drawn_by_what_is_given(chances, generator):
    y = torch.bernoulli(chances, generator=generator)
    return y + torch.normal(chances, 2.0, generator=generator), torch.multinomial(chances, 2, generator=generator)


@program(lambda: (torch.rand(2, 4), torch.Generator().manual_seed(3)), graphs=2, breaks="it is changed before")
def drawn_by_what_is_given_and_changed(chances, generator):
    chances.mul_(0.5)
    return torch.bernoulli(chances, generator=generator) + 1


@program(lambda: (x(), torch.Generator().manual_seed(3)), graphs=2, breaks="drawn by what the graph computes")
def drawn_by_what_is_computed(x, generator):
    return torch.bernoulli((x * 2).sigmoid(), generator=generator) + x


@program()
def default_generator_by_name(x):
    return x + torch.randn(3, generator=torch.default_generator)


@program(lambda: (x(), torch.Generator().manual_seed(3)), graphs=2, breaks="prints")
def drawn_on_both_sides_of_a_break(x, generator):
    y = x + torch.randn(3, generator=generator)
    print("between")
    return y * torch.randn(3, generator=generator)


@program(lambda: (x(), torch.Generator().manual_seed(3)))
def drawn_and_not_used(x, generator):
    torch.randn(3, generator=generator)
    return x * 2


@program(lambda: (x(), None))
def no_generator_given(x, generator):
    return x * 2 + torch.zeros(3).normal_(generator=generator) * 0


@program(lambda: (x(), torch.Generator().manual_seed(3)))
def seeds_of_generators(x, generator):
    made = torch.Generator()
    first = made.initial_seed(), generator.initial_seed()
    y = x + torch.rand(3, generator=made.manual_seed(9)) + torch.rand(3, generator=generator)
    return y, first, made.initial_seed(), generator.initial_seed()
