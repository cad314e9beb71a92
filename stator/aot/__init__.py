"""Ahead-of-time autograd: one trace, two graphs, one runtime wrapper.

`trace.trace` and `partition.partition` make graphs and `metadata.Metadata`; `runtime.bind` is all that a stored result
needs, and imports nothing of the tracer; `reference.reference` runs everything by Python.
"""
