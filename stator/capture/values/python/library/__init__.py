"""What the builtin functions and types, and modules of the standard library and NumPy, do with any value."""
