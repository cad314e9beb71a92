"""Parts of training: steps, clipped gradients, averaged weights, schedules."""

import torch
from torch import nn

from tests.capture.programs.table import program, x

# PyTorch loads the shape function of norms, and more of itself, when it first needs it: a capture would begin anew.
torch.linalg.vector_norm(torch.ones(2, device="meta"))


def with_gradients():
    layer = nn.Linear(3, 3)
    layer(torch.randn(2, 3)).sum().backward()
    return layer, x()


def two_layers():
    return nn.Linear(3, 3), nn.Linear(3, 3), x()


@program(with_gradients)
def norm_of_gradients_clipped(layer, x):
    return x * nn.utils.clip_grad_norm_(layer.parameters(), 1.0)


@program(with_gradients)
def values_of_gradients_clipped(layer, x):
    nn.utils.clip_grad_value_(layer.parameters(), 0.1)
    return x * 2


@program(two_layers)
def weights_averaged(mean, layer, x):
    with torch.no_grad():
        for ours, theirs in zip(mean.parameters(), layer.parameters(), strict=True):
            ours.mul_(0.9).add_(theirs, alpha=0.1)
    return mean(x)


@program(two_layers)
def weights_averaged_by_name(mean, layer, x):
    found = dict(layer.named_parameters())
    with torch.no_grad():
        for name, weight in mean.named_parameters():
            weight.lerp_(found[name], 0.1)
            weight.data.add_(found[name].data)
    return mean(x)


@program(two_layers)
def weights_copied_into_buffers(mean, layer, x):
    for (_, ours), theirs in zip(mean.named_parameters(), layer.parameters(), strict=True):
        ours.data.copy_(theirs.data)
    return x * 2


def scheduled():
    layer = nn.Linear(3, 3)
    return torch.optim.lr_scheduler.StepLR(torch.optim.SGD(layer.parameters(), lr=0.1), 2), x()


@program(scheduled)
def schedule_read(schedule, x):
    return x * schedule.get_last_lr()[0] + schedule.last_epoch


def trained(optimizer, **options):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    return model, optimizer(model.parameters(), lr=0.1, **options), torch.randn(5, 3), torch.randn(5, 1)


@program(lambda: trained(torch.optim.SGD, momentum=0.9))
def step_of_training(model, optimizer, x, target):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


@program(lambda: trained(torch.optim.AdamW), breaks="the loss is read")
def step_of_training_with_clipping(model, optimizer, x, target):
    loss = nn.functional.mse_loss(model(x), target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@program(lambda: (*trained(torch.optim.SGD), 3))
def gradients_accumulated(model, optimizer, x, target, steps):
    for _ in range(steps):
        (nn.functional.mse_loss(model(x), target) / steps).backward()
    optimizer.step()
    optimizer.zero_grad()
    return model(x).detach()
