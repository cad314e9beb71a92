"""Many architectures of `transformers`, tiny and with random weights: what is captured whole, and is it right?"""
