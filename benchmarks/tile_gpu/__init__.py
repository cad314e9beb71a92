"""The tile language on a GPU beside the installed Triton: the same kernels' text, compiled by both."""
