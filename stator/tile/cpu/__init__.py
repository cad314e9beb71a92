"""Code for the CPU: tile IR → prepared tile IR → loop nests (a `Plan`) → text of LLVM → machine code.

`prepare` simplifies a copy of the function, `schedule` decides which operations share a loop nest and which values lie
in memory, `kernel` writes LLVM for that by the tables of `elementwise`, `formulas` and `casts`; `build` makes machine
code, which the store keeps, and `launch` runs it for the programs of a grid on as many threads as torch has.
Operators that cannot be written are refused by `Refused`, whose text says which and why.
"""
