"""No device has a name outside of its target: what others decide, they decide by the device record.

Names are looked for in the code itself: in constants, in attributes and in what is imported, not in comments and
docstrings. A file that speaks of the devices of the user's program, as eager does, is listed with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from stator import targets
from tests.meta.source_tree import modules, walk

NAME = re.compile(r"\b(cpu|cuda|cudnn|xpu|mps|hpu|mtia|maia|xla|ipu|hip|rocm|vulkan|nvidia|amd|intel|apple)\b", re.I)
#: Package or file → why it names devices.
SPEAKS: dict[str, str] = {
    "aot": "what autograd and autocast of eager do differs by device",
    "base/device.py": "the name of the host, which everybody else takes from here",
    "base/options.py": "sentences for users",
    "capture": "what a program asks of devices, and autocast, of which torch has one for each of two types",
    "coverage": "its command and its pages are of one device each",
    "fake": "what eager's operators give and refuse differs by device",
    "fingerprint.py": "switches of PyTorch, which it names by device",
    "graphs": "what eager's operators are made of differs by device",
    "prims": "what eager's operators compute differs by device",
    "tile": "kernels say for which devices they are, and launches on which their tensors have to be",
}


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each device that the code of a module names."""
    documents = {
        id(node.body[0].value)
        for node in walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documents:
                pass
            case ast.Attribute(attr=text):
                pass
            case ast.Import(names=imported):
                text = " ".join([alias.name for alias in imported])
            case ast.ImportFrom(module=str(module), names=imported):
                text = " ".join([module, *[alias.name for alias in imported]])
            case _:
                continue
        yield from ((node.lineno, found.group()) for found in NAME.finditer(text))


def test_no_device_is_named_outside_of_targets() -> None:
    wrong, spoken = [], set()
    for module in modules().values():
        where = module.where.removeprefix("stator/")
        if module.package == "targets" and where.count("/") > 1:
            continue
        found = list(names(module.tree))
        if found and (reason := {where, module.package} & set(SPEAKS)):
            spoken |= reason
        else:
            wrong += [f"{module.where}:{line} names {name}" for line, name in found]
    assert not wrong, "\n".join(wrong)
    assert spoken == set(SPEAKS), "an exception is not needed"


@pytest.mark.parametrize("kind", targets.kinds())
def test_a_target_is_called_as_torch_calls_the_type(kind: str) -> None:
    torch = pytest.importorskip("torch")
    assert torch.device(kind).type == kind == targets.typical(kind).kind


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('x = "cuda"', 1),
        ('"""On the cpu."""', 0),
        ('def f():\n    "For cpu."\n    return "cuda:0"', 1),
        ("torch.cuda.synchronize()", 1),
        ("os.cpu_count()", 0),
        ("from stator.targets.cpu import record", 1),
        ('f"{kind} of NVIDIA"', 1),
        ("# cuda", 0),
        ('device.kind == "hip"', 1),
    ],
)
def test_names_are_found(text: str, count: int) -> None:
    assert len(list(names(ast.parse(text)))) == count
