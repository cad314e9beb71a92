"""Rewrites of functional ATen graphs: `run` applies the list in `pipeline.py`. Front door of the package."""

from stator.passes.pipeline import PIPELINE, run

__all__ = ["PIPELINE", "run"]
