"""Code objects as data.

`decode.decode(code)` gives the instructions of a code object in one vocabulary for every supported Python; what
differs between versions is data in `v311.py`, `v312.py` and `v313.py`. Assembling goes through the library `bytecode`
(see `capture/rewrite.py`).
"""
