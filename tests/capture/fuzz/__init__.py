"""Random small functions over ints, lists, dicts and tensors: captured and run, they do what Python does."""
