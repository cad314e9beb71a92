"""What `make demo` runs: GPT-2, inference and training step, eager, stator and torch.compile side by side."""

from __future__ import annotations

from benchmarks import harness

if __name__ == "__main__":
    harness.main(["--models", "gpt2", "--modes", "inference", "training", "--out", "demo.json"])
