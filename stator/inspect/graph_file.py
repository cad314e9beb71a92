"""Graphs as Python files that a person can read, run and edit. (placeholder while it is being written)"""

from typing import Any


def captured(gm: Any, example_inputs: Any) -> str:
    return gm.print_readable(print_output=False)


def functional(graph: Any, name: str) -> str:
    return str(graph)
