"""Autograd inside of a program: gradients asked for, `autograd.Function`, checkpoints, `vmap`, inference mode."""
