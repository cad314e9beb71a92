"""What a GPU gives: stator beside eager PyTorch and torch.compile, each file a command of its own or part of one.

`python -m benchmarks.gpu` measures models (`models.py` lists them); docs/gpu.md says how to run it.
"""
