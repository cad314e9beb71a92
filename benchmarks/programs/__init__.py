"""Programs as people write them, beside the models of `transformers`: `python -m benchmarks.programs`.

Twenty small programs after what public benchmark suites describe: recurrent nets, graph nets, reinforcement learning,
detection, speech, diffusion, meta-learning, stencils. Each file has the programs of one field; `program.py` says what a
program is, `__main__.py` measures them against eager. `tests/models/test_benchmark_programs.py` holds their results.
"""
