"""Simulation: stencils over an ocean, an equation of state, turbulence, particles. Neighbours: `program.py`.

The ocean is a box [x, y, z] with two cells of border on each side of x and y; a field is written slice by slice, in
place, as such codes do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.programs.program import plain, program

SLOPE, SHARPNESS = 1e-3, 1e-4


def density_slopes(temperature: Tensor, salinity: Tensor) -> tuple[Tensor, Tensor]:
    """How density changes with temperature and with salinity."""
    return -2e-4 * (1 + 0.02 * temperature) + 1e-6 * salinity, 7.8e-4 * (1 - 2e-3 * temperature)


def tapered(slope: Tensor) -> Tensor:
    return 0.5 * (1 + torch.tanh((-slope.abs() + SLOPE) / SHARPNESS))


def triad(
    by_t: Tensor, by_s: Tensor, up: Tensor, up_s: Tensor, side: Tensor, side_s: Tensor, layers: slice, faces: slice
) -> Tensor:
    """The slope of a surface of equal density between two faces of a cell."""
    steep = by_t[:, :, layers] * up[:, :, faces] + by_s[:, :, layers] * up_s[:, :, faces]
    flat = by_t[:, :, layers] * side[:, :, layers] + by_s[:, :, layers] * side_s[:, :, layers]
    return -flat / (torch.minimum(steep, steep.new_zeros(())) - 1e-12)


def isoneutral_mixing(
    mask: Tensor, temperature: Tensor, salinity: Tensor, dx: Tensor, dy: Tensor, dz: Tensor
) -> tuple[Tensor, ...]:
    """Diffusion along surfaces of equal density: slopes of all triads around a face, tapered where they are steep."""
    by_t, by_s = density_slopes(temperature, salinity)
    east, north, up = (torch.zeros_like(temperature) for _ in range(3))
    east_s, north_s, up_s = (torch.zeros_like(temperature) for _ in range(3))
    up[:, :, :-1] = mask[:, :, 1:] * (temperature[:, :, 1:] - temperature[:, :, :-1]) / dz[:-1]
    up_s[:, :, :-1] = mask[:, :, 1:] * (salinity[:, :, 1:] - salinity[:, :, :-1]) / dz[:-1]
    east[:-1] = mask[1:] * (temperature[1:] - temperature[:-1]) / dx[:-1, None, None]
    east_s[:-1] = mask[1:] * (salinity[1:] - salinity[:-1]) / dx[:-1, None, None]
    north[:, :-1] = mask[:, 1:] * (temperature[:, 1:] - temperature[:, :-1]) / dy[None, :-1, None]
    north_s[:, :-1] = mask[:, 1:] * (salinity[:, 1:] - salinity[:, :-1]) / dy[None, :-1, None]

    shape = *temperature.shape, 2, 2
    along_x, along_y = temperature.new_zeros(shape), temperature.new_zeros(shape)
    diffusion = [torch.zeros_like(temperature) for _ in range(3)]
    inside = slice(2, -2)
    for kr in range(2):
        layers, faces = (slice(1, None), slice(0, -1)) if kr == 0 else (slice(0, None), slice(0, None))
        for ip in range(2):
            moved = slice(2 + ip, -2 + ip or None)
            slope = triad(by_t[moved, inside], by_s[moved, inside], up[moved, inside], up_s[moved, inside],
                          east[inside, inside], east_s[inside, inside], layers, faces)  # fmt: skip
            taper = tapered(slope)
            along_x[inside, inside, layers, ip, kr] = taper * slope * mask[inside, inside, layers]
            diffusion[0][inside, inside, layers] += dz[layers] * taper * 0.25
            slope = triad(by_t[inside, moved], by_s[inside, moved], up[inside, moved], up_s[inside, moved],
                          north[inside, inside], north_s[inside, inside], layers, faces)  # fmt: skip
            taper = tapered(slope)
            along_y[inside, inside, layers, ip, kr] = taper * slope * mask[inside, inside, layers]
            diffusion[1][inside, inside, layers] += dz[layers] * taper * 0.25
    total = torch.zeros_like(temperature)
    for kr in range(2):
        for ip in range(2):
            total[inside, inside] += dx[inside, None, None] * along_x[inside, inside, :, ip, kr] ** 2
            total[inside, inside] += dy[None, inside, None] * along_y[inside, inside, :, ip, kr] ** 2
    diffusion[2][inside, inside, :-1] = total[inside, inside, 1:] / (4 * dx[inside, None, None])
    flux_east, flux_north, flux_up = (torch.zeros_like(temperature) for _ in range(3))
    flux_east[1:-2, inside] = diffusion[0][1:-2, inside] * east[1:-2, inside]
    flux_north[inside, 1:-2] = diffusion[1][inside, 1:-2] * north[inside, 1:-2]
    for kr in range(2):
        for ip in range(2):
            flux_east[inside, inside] -= along_x[inside, inside, :, ip, kr] * up[inside, inside] * 0.25
            flux_north[inside, inside] -= along_y[inside, inside, :, ip, kr] * up[inside, inside] * 0.25
            flux_up[inside, inside] -= along_x[inside, inside, :, ip, kr] * east[inside, inside] * 0.25
            flux_up[inside, inside] -= along_y[inside, inside, :, ip, kr] * north[inside, inside] * 0.25
    flux_up[inside, inside] += diffusion[2][inside, inside] * up[inside, inside]
    change = torch.zeros_like(temperature)
    change[inside, inside] = mask[inside, inside] * (
        (flux_east[inside, inside] - flux_east[1:-3, inside]) / dx[inside, None, None]
        + (flux_north[inside, inside] - flux_north[inside, 1:-3]) / dy[None, inside, None]
    )
    change[:, :, 0] += mask[:, :, 0] * flux_up[:, :, 0] / dz[0]
    change[:, :, 1:] += mask[:, :, 1:] * (flux_up[:, :, 1:] - flux_up[:, :, :-1]) / dz[1:]
    return change, along_x, along_y, *diffusion


def ocean(k: int) -> tuple[Any, ...]:
    x = 60 + 20 * k
    size = x + 4, x + 4, 16
    mask = (torch.rand(size) > 0.1).float()
    spacing = [torch.rand(n) + 1 for n in size]
    return mask, torch.randn(size) + 10, torch.randn(size) + 35, *spacing


program(lambda: isoneutral_mixing, ocean, plain, "isoneutral_mixing")


def equation_of_state(salinity: Tensor, temperature: Tensor, pressure: Tensor) -> Tensor:
    """Density of sea water: a quotient of long polynomials."""
    root = salinity.clamp(min=0).sqrt()
    t, s, p = temperature, salinity, pressure
    above = 9.998420897506056e2 + t * (2.839940833161907 + t * (-3.147759265588511e-2 + t * 1.181805545074306e-3))
    above = above + t**4 * -6.698001071123802e-6 + s * (-2.986498947203215 + t * 2.327859407479162e-2)
    above = above + s * s * -3.988822378968490e-2 + p * (5.095422573880500e-4 + 1.426984671633621e-5 * t)
    above = above + p * s * 1.645039373682922e-7 + p**2 * (-2.233269627352527e-8 - 3.436090079851880e-12 * t**2)
    below = 1 + t * (2.797616e-3 + t * (-1.0e-5 + t * (1.2e-7 + t * -4.0e-10)))
    below = below + s * (-1.9e-3 + t * (6.2e-6 + t**2 * -1.1e-9)) + s * root * (3.2e-6 + 4.5e-9 * t**2)
    below = below + p * 5.3e-7 + p**2 * t**3 * -1.6e-17 + p**3 * t * -9.1e-18
    return above / below


def water(k: int) -> tuple[Any, ...]:
    size = 48 + 16 * k, 48, 26
    return 35 + torch.randn(size), 10 + torch.randn(size), torch.rand(size) * 1000


program(lambda: equation_of_state, water, plain, "equation_of_state")


def turbulent_energy(
    energy: Tensor, u: Tensor, v: Tensor, buoyancy: Tensor, dz: Tensor, wind: Tensor
) -> tuple[Tensor, ...]:
    """Mixing by turbulence: lengths limited by a sweep down and up, then an implicit step as a tridiagonal system."""
    root = energy.clamp(min=0).sqrt()
    length = (2**0.5 * root / buoyancy.clamp(min=1e-12).sqrt()).clamp(max=1e3)
    for k in range(length.shape[2] - 2, -1, -1):
        length[:, :, k] = torch.minimum(length[:, :, k], length[:, :, k + 1] + dz[k])
    for k in range(1, length.shape[2]):
        length[:, :, k] = torch.minimum(length[:, :, k], length[:, :, k - 1] + dz[k])
    mixing = (0.1 * length * root).clamp(1e-5, 100)
    shear = ((u[:, :, 1:] - u[:, :, :-1]) / dz[1:]) ** 2 + ((v[:, :, 1:] - v[:, :, :-1]) / dz[1:]) ** 2
    forcing = torch.zeros_like(energy)
    forcing[:, :, 1:] = mixing[:, :, 1:] * shear - mixing[:, :, 1:] * buoyancy[:, :, 1:]
    forcing[:, :, -1] += wind / dz[-1]
    step, n = 0.5, energy.shape[2]
    flux = torch.zeros_like(energy)
    flux[:, :, :-1] = step / dz[:-1] * 0.5 * (mixing[:, :, :-1] + mixing[:, :, 1:])
    below, above = torch.zeros_like(energy), torch.zeros_like(energy)
    below[:, :, 1:] = -flux[:, :, :-1] / dz[1:]
    above[:, :, :-1] = -flux[:, :, :-1] / dz[:-1]
    middle = 1 - below - above + step * 0.7 * root / length.clamp(min=1e-6)
    right = energy + step * forcing
    factors, partial = [above[:, :, 0] / middle[:, :, 0]], [right[:, :, 0] / middle[:, :, 0]]
    for k in range(1, n):
        scale = 1 / (middle[:, :, k] - below[:, :, k] * factors[-1])
        factors.append(above[:, :, k] * scale)
        partial.append((right[:, :, k] - below[:, :, k] * partial[-1]) * scale)
    found = [partial[-1]]
    for k in range(n - 2, -1, -1):
        found.append(partial[k] - factors[k] * found[-1])
    return torch.stack(found[::-1], 2).clamp(min=0), mixing, length


def turbulence(k: int) -> tuple[Any, ...]:
    size = 32 + 16 * k, 32, 16
    fields = [torch.rand(size), torch.randn(size), torch.randn(size), torch.rand(size) + 0.1]
    return *fields, torch.rand(16) + 0.5, torch.rand(size[:2])


program(lambda: turbulent_energy, turbulence, plain, "turbulent_energy")


class Particles(nn.Module):
    """A learned correction to the potential between particles; forces are its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def energy(self, positions: Tensor) -> Tensor:
        difference = positions[:, None] - positions[None]
        squared = difference.square().sum(-1) + torch.eye(len(positions), dtype=positions.dtype)
        inverse = squared.reciprocal() ** 3
        pairs = 4 * (inverse**2 - inverse) + self.net(squared.sqrt().unsqueeze(-1)).squeeze(-1) * 0.01
        return pairs.triu(1).sum()

    def forward(self, positions: Tensor, velocities: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(3):
            place = positions.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.energy(place), place)
            velocities = (velocities - 1e-4 * slope).clamp(-1, 1)
            positions = positions + 1e-3 * velocities
        return positions, velocities


def cloud(k: int) -> tuple[Any, ...]:
    n = 5 + k
    grid = torch.cartesian_prod(*[torch.arange(n).float()] * 3) * 1.2
    return grid + 0.05 * torch.randn_like(grid), torch.randn_like(grid) * 0.1


program(Particles, cloud, plain)
