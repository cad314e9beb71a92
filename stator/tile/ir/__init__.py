"""Tile IR: kernels in SSA form with structured control flow, over scalars and tiles of them."""
