"""Optimizer steps: the state is made by the first one and read by the others."""

import torch

from tests.capture.programs.table import program


def made(cls, **options):
    weights = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(2))]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return (cls(weights, **options),)


@program(lambda: made(torch.optim.SGD, lr=0.1))
def sgd(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
def sgd_with_momentum(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True))
def sgd_foreach(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.Adam, lr=0.1))
def adam(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.Adam, lr=0.1, foreach=True))
def adam_foreach(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.Adam, lr=0.1, amsgrad=True, maximize=True))
def adam_amsgrad(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.AdamW, lr=0.1))
def adamw(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.AdamW, lr=0.1, foreach=True, weight_decay=0.1))
def adamw_foreach(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.AdamW, lr=0.1, fused=True))
def adamw_fused(optimizer):
    optimizer.step()


@program(lambda: made(torch.optim.SGD, lr=0.1))
def zero_grad(optimizer):
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
