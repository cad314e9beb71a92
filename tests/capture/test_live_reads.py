"""Each place of capture that looks at an object of the program asks for a guard, or says here why it needs none.

The places are found in the syntax trees of the values, the opcodes and the machine: reads of what Python keeps about
objects, classes, functions and modules. A function that reads and asks for no guard (through `watch`, `look_up`, `wrap`
with a source, `ask`, or the machine) is listed with its reason; one that is not listed, and one that is listed and no
longer reads, fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.meta.source_tree import ROOT

CAPTURE = ROOT / "stator" / "capture"

#: What Python keeps about objects.
ATTRIBUTES = frozenset(
    f"__{name}__"
    for name in (
        "dict", "mro", "bases", "base", "code", "defaults", "kwdefaults", "closure", "globals", "name", "qualname",
        "module", "doc", "flags", "self", "func", "wrapped", "annotations", "hash", "class", "slots", "dictoffset",
        "match_args", "objclass", "abstractmethods", "args",
    )
) | {"cell_contents"}  # fmt: skip

#: Functions that look into objects.
LOOKS = frozenset({"getattr", "hasattr", "vars", "dir", "static_attribute", "callable", "issubclass"})

#: What gives a guard with what it reads.
GUARDS = frozenset({"guard", "look_up", "wrap", "ask", "build_attribute", "load_global", "load_builtin"})

REASONS: dict[str, tuple[str, ...]] = {
    "a name in a message, or for people": (
        "opcodes/containers.py:_function_text", "values/autograd/function.py:Applied.__init__",
        "values/autograd/function.py:refusal", "values/base.py:PinnedValue.__repr__",
        "values/python/library/builtin.py:BuiltinValue.call",
        "values/python/objects/class_statement.py:descriptors_of.call_descriptor",
        "values/python/library/functional.py:written_in_python",
        "values/torch/graph_context.py:GraphContext.enter", "values/torch/graph_context.py:GraphContext.leave",
        "values/python/library/sharing.py:Steps.reconstruct", "values/torch/tensor.py:failed",
        "values/torch/tensor.py:result_value", "values/torch/tensor_inputs.py:check_class",
        "values/torch/functions.py:name_in",
        "values/torch/functions.py:name_of",
        "values/python/objects/user_object.py:UserObjectValue.described",
        "values/python/objects/user_object.py:UserObjectValue._required",
        "values/python/objects/user_object.py:UserObjectValue.unary",
        "values/methods.py:type_name",
        "values/methods.py:attribute_name",
        "values/python/iterators.py:ItemsIterator.reconstruct",
        "values/python/real.py:_rounded.call",
        "values/torch/random_generator.py:draw",
        "values/torch/random_generator.py:filled",
        "values/python/library/pure.py:_json.call",
        "values/python/objects/object_methods.py:_get",
    ),
    "the class of an exception of Python's own that the program has just raised": (
        "opcodes/exceptions.py:before_with", "opcodes/generators.py:cleanup_throw",
        "opcodes/generators.py:stopiteration_error", "opcodes/match.py:_match_args",
        "values/python/library/builtin.py:is_attribute_error", "values/python/iterators.py:IndexIterator.next_item",
        "values/python/objects/klass.py:ClassValue.get_attr",
        "values/python/objects/user_object.py:UserObjectValue.generic_get_attr",
        "values/python/objects/user_object.py:UserObjectValue.next_item",
    ),
    "one of our own values, not an object of the program": (
        "values/python/library/builtin_types.py:call_proxy", "values/python/objects/function.py:set_up",
        "values/python/operators.py:hash_of", "values/python/containers/proxy.py:ProxyValue.compare",
        "values/python/library/warning.py:_method.call",
        "values/methods.py:_operation",
        "values/methods.py:find_method",
        "values/methods.py:fits",
        "values/python/objects/descriptors.py:apply_to",
        "values/mirror.py:StandIn.__getattr__",
        "values/mirror.py:_refuse_init",
        "values/mirror.py:apply",
        "values/mirror.py:image",
        "values/mirror.py:Mirror.value",
        "values/mirror.py:_hash",
        "values/mirror.py:method.call",
        "values/python/containers/mapping.py:returned_dict",
        "values/python/containers/dict_views.py:returned_view.make",
        "values/base.py:returned_method",
        "values/torch/indexing.py:dims_of", "values/torch/indexing.py:looked_up",
    ),
    "fixed when a class or function written in C is made": (
        "values/python/library/builtin.py:call_hasattr", "values/python/symbolic.py:check_attribute",
        "values/python/real.py:_asks.call",
        "values/python/library/builtin.py:is_pure", "values/python/library/builtin_types.py:call_chain_from",
        "values/python/objects/function.py:FunctionValue._made_attribute", "values/python/objects/klass.py:call_class",
        "values/python/objects/descriptors.py:is_tensor_method",
        "values/python/objects/descriptors.py:build_builtin_descriptor",
        "values/python/objects/descriptors.py:is_value_type", "values/python/objects/klass.py:is_subscripted_in_c",
        "values/python/library/numpy_scalars.py:is_ufunc",
        "values/python/library/numpy_scalars.py:is_scalar", "values/python/library/pure.py:_functions",
        "values/python/containers/sequence.py:is_return_type",
        "values/torch/tensor.py:TensorMethod.get_attr", "values/torch/tensor.py:TensorMethod.unbound",
        "values/torch/functions.py:is_about_state", "values/torch/functions.py:is_leaf",
        "values/torch/state.py:check_tensor",
        "values/base.py:Builtin.del_attr",
        "values/base.py:Builtin.get_attr",
        "values/base.py:Builtin.set_attr",
        "values/base.py:MethodValue.is_wrapper",
        "values/python/containers/dict_views.py:DictIterator.python_type",
        "values/python/containers/dict_views.py:DictViewValue.mirrored",
        "values/python/containers/dict_views.py:DictViewValue.python_type",
        "values/python/containers/dict_views.py:DictViewValue.reconstruct",
        "values/python/objects/descriptors.py:call_class_method",
        "values/python/objects/new.py:call_tuple_new",
        "values/mirror.py:is_index",
        "values/python/library/text.py:text_of_constant",
        "values/python/objects/descriptors.py:ExtensionMethod.call",
        "values/base.py:MethodValue.unbound",
        "values/python/containers/dict_views.py:DictIterator.get_attr",
    ),
    "the layout of a guarded class: which builtin its instances are made of cannot change": (
        "opcodes/match.py:_has_flag", "opcodes/match.py:_class_attributes", "values/base.py:Object.set_attr",
        "values/python/constant.py:ConstantValue.reconstruct",
        "values/instances.py:new_object", "values/python/objects/new.py:has_operators",
        "values/python/containers/mapping.py:DictValue.set_attr",
        "values/python/containers/mapping.py:DictValue.write_back",
        "values/python/operators.py:is_reflexive", "values/registry.py:build", "values/registry.py:fresh",
        "values/python/containers/sequence.py:SequenceValue.get_item",
        "values/python/containers/sets.py:IdentityKey.__init__",
        "values/python/containers/storages.py:storage_base", "values/torch/tensor.py:is_operand",
        "values/torch/tensor.py:tensor_flag",
        "values/python/objects/user_object.py:is_plain_class",
        "opcodes/exceptions.py:exception_classes", "values/torch/nn_module.py:ModuleValue.module_set_attr",
        "values/python/library/copying.py:Copier.object",
        "values/python/library/builtin.py:call_sum",
        "values/mirror.py:Mirror.real",
        "values/mirror.py:Mirror.stand_in",
        "values/mirror.py:contains",
        "values/python/containers/mapping.py:DictValue.binary",
        "values/python/containers/sets.py:SetValue._operate",
        "values/python/containers/sets.py:SetValue.m_update",
        "values/python/objects/user_object.py:UserObjectValue.is_stored",
    ),
    "guarded by who calls it": (
        "values/autograd/function.py:defaults_of", "values/fold.py:_told_apart",
        "values/python/objects/exception.py:is_member", "values/python/objects/function.py:is_empty",
        "values/python/objects/klass.py:SuperValue.get_attr", "values/torch/leaves.py:globals_of",
        "values/torch/leaves.py:is_whole",
        "values/torch/leaves.py:reads_of", "values/registry.py:handler_of",
        "values/python/containers/sequence.py:fields_of",
        "values/torch/tensor_class.py:is_torchs", "values/torch/tensor_class.py:own_method",
        "values/python/objects/module.py:PythonModuleValue.set_attr",
        "values/python/objects/user_object.py:UserObjectValue.__post_init__",
        "values/python/objects/function.py:FunctionValue.closure_cell",
        "values/python/objects/function.py:made_function",
        "values/python/objects/function.py:made_method",
        "values/lookup.py:static_attribute",
        "values/python/constant.py:is_quiet",
        "values/python/objects/klass.py:ClassValue.mirrored",
        "values/python/library/builtin.py:call_vars",
    ),
    "a mark that says how a function is run, not what it gives": (
        "values/stator/markers.py:DisabledFunction.call", "values/stator/markers.py:_is_allowed",
        "values/stator/markers.py:_is_constant",
        "values/stator/markers.py:_is_disabled",
    ),
    "an object that the frame itself makes, or compiled code": (
        "values/python/objects/class_statement.py:MadeClassValue.reconstruct",
        "values/python/objects/class_statement.py:model_function",
        "values/python/objects/function.py:make_function", "values/python/objects/partial.py:make_partial",
        "values/python/iterators.py:advanced",
        "values/python/containers/dict_views.py:_advanced_view",
    ),
}  # fmt: skip


def files() -> Iterator[Path]:
    yield from sorted((CAPTURE / "values").rglob("*.py"))
    yield from sorted((CAPTURE / "opcodes").glob("*.py"))
    yield CAPTURE / "machine.py"


def looks(node: ast.AST) -> bool:
    """Whether an expression looks at an object."""
    if isinstance(node, ast.Attribute):
        return node.attr in ATTRIBUTES
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKS


def guards(function: ast.AST) -> bool:
    """Whether a function asks for a guard."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "watch":
            return True
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in GUARDS:
            return True
    return False


def reads(tree: ast.AST, name: str = "", outer: ast.AST | None = None) -> Iterator[tuple[str, ast.AST]]:
    """(qualified name, outermost function) of each function that looks at something."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}".lstrip(".")
            yield from reads(child, inner, outer or (child if isinstance(child, ast.FunctionDef) else None))
            continue
        if outer is not None and looks(child):
            yield name, outer
        yield from reads(child, name, outer)


def places() -> dict[str, bool]:
    """Where capture looks at objects -> whether the function asks for guards."""
    found: dict[str, bool] = {}
    for path in files():
        for name, outer in reads(ast.parse(path.read_text(encoding="utf-8"))):
            found[f"{path.relative_to(CAPTURE).as_posix()}:{name}"] = guards(outer)
    return found


def test_each_read_is_guarded_or_says_why_not() -> None:
    found = places()
    assert len(found) > 150
    listed = {place for reason in REASONS.values() for place in reason}
    unguarded = {place for place, guarded in found.items() if not guarded}
    assert sorted(unguarded - listed) == [], "ask for a guard, or list the place with its reason"
    assert sorted(listed - unguarded) == [], "listed, but it reads nothing or asks for guards by now"


def test_a_read_without_a_guard_is_found() -> None:
    text = "def build(tx, obj, source):\n    return fresh(obj.__dict__)\n"
    ((name, function),) = reads(ast.parse(text))
    assert name == "build" and not guards(function)
    guarded = "def build(tx, obj, source):\n    watch.keys(tx, source, tuple(vars(obj)))\n"
    ((_, function),) = reads(ast.parse(guarded))
    assert guards(function)
