"""Code objects as data.

`decode.decode(code)` gives the instructions of a code object in one vocabulary for every supported Python, and
`encode.body` is the way back; what differs between versions is data in `v311.py`, `v312.py` and `v313.py`. `flow` and
`liveness` say what the stack and the slots hold at an instruction, `continuation` gives the rest of a function as a
function. Assembling itself is done by the library `bytecode`.
"""
