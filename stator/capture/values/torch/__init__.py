"""Tensors and torch's functions, `nn.Module`, optimizers, generators, devices, and torch's contexts and state."""
