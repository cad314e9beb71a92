"""Lazy properties of `torch.distributions`: asked for on the class, they give an object that only says what it is.

`Distribution.__init__` asks so for each argument it may leave unchecked (`Categorical(logits=…).probs`). The object
is made for real from the function that the property wraps, which is known; it acts on nothing.
Neighbours: `python/objects/new.py` (the table), `capture/assertions.py` (the checks of arguments themselves).
"""

from __future__ import annotations

import torch

from stator.capture.values.python.objects.new import CONSTANT_CLASSES

CONSTANT_CLASSES.add(torch.distributions.utils._lazy_property_and_property)
