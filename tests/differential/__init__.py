"""stator against eager on random programs, which nobody wrote.

`inputs.py` makes awkward tensors, `observe.py` runs a function on them and writes down what a caller could see,
`programs.py` writes random programs out of `operations.py`, `__main__.py` runs many of them. PyTorch's own operator
database is run by `stator.coverage`, which also has what compares two runs.
"""
