"""The language and its library.

- `containers/`: lists, tuples, dicts and their views, sets, deques
- `objects/`: functions, classes and their instances, exceptions, modules
- `library/`: what the builtin functions and types and the standard library do with any value
- the files here, which all of them use: constants, symbolic numbers, iterators, and operators between two values
"""
