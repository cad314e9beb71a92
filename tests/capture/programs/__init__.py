"""Small programs, one feature each, that run compiled as in eager; a file a topic."""

from tests.capture.programs import (
    autograd,
    breaking,
    builtin_functions,
    calculating,
    class_statements,
    classes,
    closures,
    comprehensions,
    containers,
    contexts,
    custom,
    drawing,
    everyday,
    exceptions,
    functions,
    generators,
    gradients,
    iterating,
    library,
    matching,
    modules,
    names,
    operator_methods,
    operators,
    optimizers,
    protocols,
    records,
    states,
    subclasses,
    tensors,
    text,
    training,
)
from tests.capture.programs.table import PROGRAMS

__all__ = [
    "PROGRAMS", "autograd", "breaking", "builtin_functions", "calculating", "class_statements", "classes", "closures",
    "comprehensions", "containers", "contexts", "custom", "drawing", "everyday", "exceptions", "functions", "generators", "gradients", "iterating", "library",
    "matching", "modules", "names", "operator_methods", "operators", "optimizers", "protocols", "records", "states",
    "subclasses", "tensors", "text", "training",
]  # fmt: skip
