"""One core, one element at a time; the type of device is the one that it is registered for."""

from __future__ import annotations

from stator.base.device import Device, kind_of


def read(device: str, threads: int = 0) -> Device:
    return Device(
        kind_of(device), "toy", cores=1, vector_bytes=4, cache_bytes=0, launch_cost=1e-6, bandwidth=1e6, row_elements=0,
        min_split=64, waves=3, product_work=1000,
    )  # fmt: skip


def typical(cores: int = 0) -> Device:
    return read("cpu")


def describe(store: object) -> dict[str, str]:
    return {"": "a toy"}
