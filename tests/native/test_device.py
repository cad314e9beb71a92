"""Kernels that a device runs: what is launched, which binary of four, in which context. The driver is Python here."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from stator._native import Kernel, device_kernel


class Configuration(ctypes.Structure):
    """The driver's own record of a launch."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    )  # fmt: skip


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Configuration), ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
)
GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
STREAM = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
CONTEXT, OTHER = 0x50, 0x60
#: A status of which nothing is raised.
SILENT = 77
#: (2 * n0 + 1)
SIZED = (("const", 2), ("operand", 0), ("*",), ("const", 1), ("+",))


@dataclass
class Driver:
    """Keeps what it is told; `status` is what a launch gives."""

    count: int
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    built: list[tuple[bool, bool]] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    attributes: list[tuple[int, ...]] = field(default_factory=list)
    current: int = CONTEXT
    status: int = 0
    wide: int = 0

    def __post_init__(self) -> None:
        self.held = LAUNCH(self.launch), GET(self.get), SET(self.put), STREAM(self.stream)
        self.addresses: Any = tuple([ctypes.cast(function, ctypes.c_void_p).value for function in self.held])

    def launch(self, configuration: Any, function: int, parameters: Any, packed: Any) -> int:
        told = configuration[0]
        self.wide = function & 2
        assert not parameters and (packed[0], packed[2], packed[4]) == (1, 2, None)
        assert (*told.block,)[1:] == (1, 1) and bool(told.attributes) == bool(told.count)
        words = (ctypes.c_int32 * (18 * told.count)).from_address(told.attributes) if told.count else ()
        self.attributes.append(tuple(words))
        data = ctypes.string_at(packed[1], ctypes.c_size_t.from_address(packed[3]).value)
        given = list(struct.unpack(self.layout, data))
        self.launches.append((function, tuple(told.grid), told.block[0], told.shared, told.stream, given[:-2]))
        assert given[-2:] == [0, 0]  # no memory of the compiler's own
        return self.status

    @property
    def layout(self) -> str:
        """How C packs what the last binary takes: two addresses, sizes of 32 bits or 64, two addresses."""
        return f"@PP{(self.count - 2) * ('q' if self.wide else 'i')}0PPP"

    def get(self, found: Any) -> int:
        found[0] = self.current
        return 0

    def put(self, context: int | None) -> int:
        self.current = context or 0
        self.contexts.append(self.current)
        return 0

    def stream(self, device: int, found: Any) -> int:
        found[0] = 0x700 + device
        return 0

    def build(self, anywhere: bool, wide: bool, round: bool) -> tuple[int, ...]:
        self.built.append((anywhere, wide, round))
        return 0x1000 + anywhere + 2 * wide + 4 * round, 64, 128, CONTEXT

    def refused(self, name: str, status: int) -> None:
        if status != SILENT:
            raise RuntimeError(f"{name} gave {status}")

    def kernel(
        self,
        sizes: int = 0,
        grid: Any = 5,
        limits: Any = (),
        aligned: tuple[bool, ...] = (True, True),
        rounds: tuple[int, ...] = (),
        device: int = 3,
        overlaps: bool = False,
    ) -> Kernel:
        given = "mine", aligned, sizes, grid, limits, rounds, overlaps
        return device_kernel(*given, device, self.addresses, self.build, self.refused)


@pytest.fixture
def driver() -> Iterator[Driver]:
    yield Driver(2)


def test_a_launch_takes_addresses_on_the_stream_of_its_device(driver: Driver) -> None:
    kernel = driver.kernel()
    kernel(0x100, 0x200)
    kernel.at(16, 32)(0x100, 0x200)
    first, second = driver.launches
    assert first == (0x1000, (5, 1, 1), 128, 64, 0x703, [0x100, 0x200])
    assert second[-1] == [0x110, 0x220]
    assert driver.built == [(False, False, False)]  # once


def test_a_kernel_that_waits_itself_may_begin_before_the_one_in_front_has_ended(driver: Driver) -> None:
    """The driver is told by an attribute: its number, and whether it holds."""
    for overlaps in (False, True):
        driver.kernel(overlaps=overlaps)(0x100, 0x200)
    assert driver.attributes == [(), (6, 0, 1, *[0] * 15)]


def test_sizes_that_are_multiples_of_16_have_a_binary() -> None:
    """Where those that are named are: others may be anything."""
    driver = Driver(4)
    kernel = driver.kernel(2, 5, (), rounds=(1,))
    for size in (32, 33, 0):
        kernel(0x100, 0x200, 7, size)
    assert [launch[0] for launch in driver.launches] == [0x1004, 0x1000, 0x1004]
    assert driver.built == [(False, False, True), (False, False, False)]
    with pytest.raises(ValueError, match="no size 2"):
        driver.kernel(2, 5, (), rounds=(2,))


def test_sizes_follow_and_say_the_grid_and_how_wide_positions_are() -> None:
    driver = Driver(3)
    kernel = driver.kernel(1, SIZED, ((SIZED, 101),))
    for size in (3, 50):
        kernel(0x100, 0x200, size)
    assert [(x[0], x[1][0], x[-1]) for x in driver.launches] == [
        (0x1000, 7, [0x100, 0x200, 3]), (0x1002, 101, [0x100, 0x200, 50]),
    ]  # fmt: skip


def test_bits_of_a_float_are_no_size() -> None:
    """A number that a kernel takes may be any 64 bits: then it is one that 32 do not hold."""
    driver = Driver(3)
    magnitude = (("operand", 0), ("const", 0), ("operand", 0), ("-",), ("max",))
    kernel = driver.kernel(1, 5, ((magnitude, 1 << 31),))
    for bits in (2**62 + 1, -(2**62), -(2**63), 7):
        kernel(0x100, 0x200, bits)
    found = [(x[0], x[-1][2]) for x in driver.launches]
    assert found == [(0x1002, 2**62 + 1), (0x1002, -(2**62)), (0x1002, -(2**63)), (0x1000, 7)]


def test_sizes_are_packed_as_c_packs_them() -> None:
    for count in (1, 2, 3):
        driver = Driver(2 + count)
        driver.kernel(count)(0x100, 0x200, *range(5, 5 + count))
        assert driver.launches[0][-1] == [0x100, 0x200, *range(5, 5 + count)]


def test_addresses_that_are_not_aligned_have_another_binary(driver: Driver) -> None:
    driver.kernel()(0x100, 0x204)
    driver.kernel(aligned=(True, False))(0x100, 0x204)
    assert [x[0] for x in driver.launches] == [0x1001, 0x1000]


def test_no_blocks_are_no_launch() -> None:
    driver = Driver(3)
    kernel = driver.kernel(1, (("operand", 0),))
    kernel(0x100, 0x200, 0)
    assert not driver.launches


@pytest.mark.parametrize("before", [OTHER, 0])
def test_another_context_is_put_back(driver: Driver, before: int) -> None:
    driver.current = before
    driver.kernel()(0x100, 0x200)
    assert driver.contexts == [CONTEXT, before] and len(driver.launches) == 1


def test_a_thread_in_no_context_stays_in_that_of_the_first_device(driver: Driver) -> None:
    driver.current = 0
    driver.kernel(device=0)(0x100, 0x200)
    assert driver.contexts == [CONTEXT] and len(driver.launches) == 1


def test_what_the_driver_refuses_is_told(driver: Driver) -> None:
    driver.status = 700
    with pytest.raises(RuntimeError, match="mine gave 700"):
        driver.kernel()(0x100, 0x200)
    driver.status = SILENT
    with pytest.raises(SystemError, match="which raised nothing"):
        driver.kernel()(0x100, 0x200)


def test_more_blocks_than_there_are_numbers_for_are_refused() -> None:
    driver = Driver(3)
    for size in (2**31, 2**62):
        with pytest.raises(OverflowError, match="mine"):
            driver.kernel(1, SIZED, ())(0x100, 0x200, size)
    assert not driver.launches


def test_a_grid_may_have_three_dimensions() -> None:
    driver = Driver(3)
    driver.kernel(1, [SIZED, 7, (("operand", 0),)])(0x100, 0x200, 4)
    driver.kernel(1, [SIZED, (("operand", 0),)])(0x100, 0x200, 0)
    assert [x[1] for x in driver.launches] == [(9, 7, 4)]
    with pytest.raises(OverflowError, match="mine"):
        driver.kernel(1, [1, (("operand", 0),)])(0x100, 0x200, 1 << 16)


def test_what_is_raised_while_it_is_built_is_raised(driver: Driver) -> None:
    def refused(anywhere: bool, wide: bool, round: bool) -> tuple[int, ...]:
        raise KeyError("no compiler")

    kernel = device_kernel("mine", (True,), 0, 1, (), (), False, 0, driver.addresses, refused, driver.refused)
    with pytest.raises(KeyError, match="no compiler"):
        kernel(0x100)


GRIDS: list[Any] = [(("+",),), "5", [], [1, 1, 1, 1]]
LIMITS: list[Any] = [((SIZED, "x"),), (1,)]


@pytest.mark.parametrize("change", [*[{"grid": grid} for grid in GRIDS], *[{"limits": limits} for limits in LIMITS]])
def test_what_does_not_fit_is_not_taken(driver: Driver, change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        driver.kernel(**{"sizes": 1, **change})
