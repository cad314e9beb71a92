"""The value classes, by what they model: one file a concept.

- `python/`: the language and its library: constants and numbers, containers, objects, builtin functions
- `torch/`: tensors and torch's functions, modules, optimizers, devices, contexts and other state
- `autograd/`: gradients inside of a program, `autograd.Function`, checkpoints, `vmap`, inference mode
- `stator/`: what a program does with stator itself
- the files here: what all of them share. `registry.py` holds the empty tables (builders by type, replaced
  functions), which the other files fill; `build.py`, the front door, imports them all and is imported by none.

Each imports only those above it and the files here; `tests/meta` holds it.
"""
