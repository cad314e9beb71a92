"""Code generation: the kernels of a schedule to text, one folder a target.

`cpp` writes C++ with vectors and threads, `c` plain C, `triton` kernels for the GPU.
"""
