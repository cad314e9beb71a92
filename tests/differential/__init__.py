"""stator against eager on programs that nobody wrote: random ones, and PyTorch's own operator database.

`inputs.py` makes awkward tensors, `observe.py` runs a function and compares everything that a caller could see,
`programs.py` writes random programs out of `operations.py`, `__main__.py` runs many of them, `operators.py` the
database.
"""
