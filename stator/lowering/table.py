"""The table of lowerings, empty here; the family files fill it.

A lowering is a function of (context, out, *args, **kwargs) for one overload: `out` is the `Spec` of
the result (a tuple of them for several results), tensors among the arguments are `LazyTensor`. It
gives a `LazyTensor`, or a tuple of them. An overload without a lowering becomes an extern call. The overloads are
primitives, and what passes make of them for a library.
"""

from __future__ import annotations

from stator.fake.overloads import Table

#: Overload → lowering. Filled by importing the families.
LOWERINGS = Table("lowering")
#: Registers a function as the lowering of some overloads.
lowers = LOWERINGS.register
#: Overload of a library → what a kernel of ours computes instead, or None where it is left to the library.
REPLACEMENTS = Table("replacement")
#: Registers a function as such a choice.
replaces = REPLACEMENTS.register
