"""Code generation: schedules of `loop` to text, one folder a target.

`cpp` writes kernels as C++, `wrapper` writes the Python module that runs a graph's steps.
"""
