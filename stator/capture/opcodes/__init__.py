"""One function for each neutral instruction, by theme; importing this package fills the machine's tables."""

from stator.capture.opcodes import (
    calls,
    classes,
    containers,
    control,
    exceptions,
    functions,
    generators,
    match,
    names,
    operators,
    refused,
    stack,
    text,
)

__all__ = [
    "calls", "classes", "containers", "control", "exceptions", "functions", "generators", "match", "names",
    "operators", "refused", "stack", "text",
]  # fmt: skip
