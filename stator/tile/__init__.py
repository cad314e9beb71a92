"""stator's Triton language: `import stator.tile as triton`."""
