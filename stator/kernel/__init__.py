"""How one fused kernel runs: a small structured program, made by strategies and printed by targets.

`loop.kernel.Kernel` says what is computed; a `Function` of this package says in which loops, in which order and through
which variables, down to single scalar operators, so that a target only spells it. Read `ir.py` first.
"""
