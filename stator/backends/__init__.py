"""Backends: what turns one captured graph into a callable.

`registry` holds the table and knows none of them; `builtin` fills it with stator's own; `adapter` is the way round,
stator as a backend of `torch.compile`. A backend is any `callable(gm, example_inputs) -> callable(*tensors) -> tuple`.
"""
