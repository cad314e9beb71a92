"""A target that is nowhere in the product: kernels in the kernel IR, which Python evaluates on the tensors' memory."""
