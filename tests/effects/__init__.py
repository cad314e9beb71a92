"""Random programs of calls with effects, which write down that they were made: stator against eager.

`operations.py` has operators that log, `programs.py` writes programs of them, `__main__.py` runs many.
"""
