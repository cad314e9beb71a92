"""Lists, tuples, dicts and their views, sets and deques; and as the contents of instances of their subclasses."""
