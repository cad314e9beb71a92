"""Layouts: which thread holds which element of a tile, and where an element lies in shared memory, as maps over
bits."""
