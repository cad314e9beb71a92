"""Code for NVIDIA GPUs: tile IR with layouts → LLVM → PTX → what the driver loads.

`places` says which thread holds which elements, `kernel` goes through a function, `elementwise` and `formulas` have
what happens to single numbers, `access` memory, `exchange` what threads tell each other, `along` what combines along an
axis, `products` matrices; `ptx` assembles, `launch` runs. What there is no code for is `Refused`, before anything runs.
"""
