"""The device record: what decisions ask of a device, so that none asks for its name.

A target fills it (`record.py` of its package): `read` for the machine that is there, `typical` for one that is always
the same. `loop`, `lowering` and `kernel` decide by nothing else, so the same program can be compiled for a machine that
is not there, and a key of the store that holds the record says all that the machine decides.
`HOST` is no target: it is where Python itself is, and where the tensors lie that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: torch's type of the host's memory: what a tensor is on where a program says nothing.
HOST: Final = "cpu"


def kind_of(device: str) -> str:
    """The type of a device: `kind` of `kind:1`."""
    return device.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Device:
    """The numbers of one device; what is left out is as on a machine that does one thing after the other."""

    kind: str  # torch's name of its type
    name: str  # what tells it from others of the type
    cores: int  # that run programs side by side: threads, or multiprocessors
    vector_bytes: int  # what one of a core's instructions works on
    cache_bytes: int  # of the cache behind the nearest one
    launch_cost: float  # seconds until a kernel has begun
    bandwidth: float  # bytes of memory that all cores together move in a second
    row_elements: int  # float32 that a program keeps of a row between two loops over it
    registers: int = 16  # vectors that a core names
    near_bytes: int = 0  # of rows: fewer are read again from the nearest cache, faster than two reductions share a loop
    stream_bytes: int = 0  # that each core stores of a result from which its stores go past the caches; 0: never
    warp: int = 1  # vectors that a core works on at once
    waves: int = 1  # programs for each core, so that none is idle
    columns: int = 1  # of a reduction down columns, how many one program takes
    min_columns: int = 0  # and how many at least; 0: as many as lanes
    column_points: int = 1  # and of how many rows by columns at once
    block_bytes: int = 1  # of its widest result, that a program of a pointwise kernel stores
    thread_bytes: int = 1  # and that each of its threads does
    many_loads: int = 0  # of each point: from so many on, a thread takes fewer points; 0: never
    much_work: int = 0  # cost units of a point, from which a thread takes as few; 0: never
    row_points: int = 1  # of short rows, how many points one program takes together
    loop_points: int = 1  # of a row that is too long to be kept, how many points are taken at once
    thread_points: int = 1  # of a block of a reduction, that each thread takes
    max_warps: int = 1  # of a program; of one that walks long rows, twice as many
    line_bytes: int = 128  # of memory that a tile covers along each of its axes, where it has two
    short_axis: int = 0  # points of an axis up to which a tile along it is not worth it
    threads: int = 0  # that a kernel may take at most, where that is not 0
    thread_work: int = 0  # cost units (`kernel/cost.py`) that pay for one more thread
    max_nodes: int = 400  # expression nodes of a kernel, which bounds compile time and registers
    max_params: int = 48
    min_split: int = 1 << 16  # elements read by a reduction that is worth two kernels
    min_row: int = 0  # elements of a row that is worth two kernels: of shorter ones one program is as fast
    row_pieces: int = 0  # times the programs: at most so many pieces has a row that each take at once; 0: none is
    parts_online: bool = (
        False  # whether parts of a variance are about their own mean, and so read what they are of once
    )
    gathers_pools: bool = False  # whether loops gather the gradient of a max pool faster than PyTorch scatters it
    narrows: bool = False  # whether what is widened lies in memory as narrow as it was
    repeats: bool = False  # whether kernels compute what is in memory for them alone, where that moves fewer bytes
    packs: bool = False  # whether small kernels of the same loops run as one, whatever they read
    row_stages: int = 1  # rows that a program which takes several in turn has under way at once
    loop_stages: int = 1  # and turns of a loop over a row that stores as it goes
    row_parts: int = 0  # of sums down columns that a kernel along rows makes too, at most; 0: none does
    min_rows: int = 0  # with fewer rows, long ones are scanned by PyTorch
    product_work: int = 0  # multiplications of float32 up to which a product is a loop, as no library is called
    depthwise_taps: int = 0  # of a window up to which a convolution of each channel alone is a loop
    product_blocks: bool = False  # whether vectors and registers suffice for loops to compute larger ones too
    tile_products: bool = False  # whether it multiplies tiles of matrices
    tile_sums: int = 0  # float32 that a warp has registers for, of the sums of a tile
    core_registers: int = 0  # of 32 bits, that the programs on a core share
    shared_bytes: int = 0  # near a core, for tiles on their way from memory
    product_rate: float = 0.0  # multiplications and additions of half types in a second, on tiles
    onednn_products: bool = False  # whether oneDNN multiplies large float32 matrices faster than PyTorch's BLAS
    blas_packs: bool = False  # whether PyTorch's BLAS keeps float32 matrices in its own order, which saves it copies
    onednn_halves: bool = False  # whether PyTorch multiplies matrices of bfloat16 by oneDNN
    multiplies_pairs: bool = False  # whether it has instructions for tiles of bfloat16, which kernels may use
    widens_halves: bool = False  # whether it multiplies float32 faster than bfloat16
    onednn_convolutions: bool = False  # whether PyTorch convolves float32 by oneDNN, which takes weights in its order
    packed_convolutions: bool = False  # whether PyTorch's convolutions copy their operands into an order of their own
    pads_products: bool = False  # whether PyTorch's products of half types are slow where sizes are no multiples of 8
    wide_products: bool = False  # whether PyTorch gives products of half types in float32, faster than those of float32
    overlaps: bool = False  # whether a kernel may be begun while the one before it ends, and waits for that itself
    assembly: str = ""  # the language of instructions that kernels may have in their text; "" where they have none
    convolves_innermost: bool = False  # whether PyTorch's convolutions of half types want the channel innermost
    double_scans: bool = False  # whether eager scans float32 in float64
    #: Mode of a store → dtypes that iterations which run at once combine in memory. None: those that meet go in order.
    atomics: Mapping[str, tuple[str, ...]] | None = field(default=None, hash=False)

    @property
    def lanes(self) -> int:
        """float32 that a core computes at once."""
        return self.vector_bytes // 4 * self.warp

    @property
    def full_columns(self) -> int:
        """How many columns keep all cores busy, each with as few as it takes."""
        return self.cores * (self.min_columns or self.lanes)

    @property
    def programs(self) -> int:
        """How many programs keep all cores busy."""
        return self.cores * self.waves

    @property
    def host(self) -> bool:
        """Whether its memory is the host's, so that nothing is carried there and back."""
        return self.kind == HOST
