"""A kernel's text as Python runs it: with a debugger's breakpoints, and prints that show numbers.

The text is Python's but for a few rewrites that keep lines and columns, where Python decides before the language could:

    a and b, not a    -->  the language's logic, which takes tensors
    a is b            -->  the same of what constexprs hold
    before a loop     -->  numbers that its body assigns become tensors, as what a compiled loop carries
    behind an if      -->  the same of what its branches assign or return, unless its condition is known
    a if c else b     -->  the same
    assert c, m       -->  the language's assertion

and builtins stand for what they are in kernels. Neighbours: `calls.py` has the builtins; `stator.tile.interpret.eager`
computes what is emitted.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import Any

from stator.tile.errors import InterpreterError, InvalidUse, Place, PlacedError, UnsupportedLanguageConstruct
from stator.tile.frontend.calls import PLAIN
from stator.tile.frontend.generator import REFUSED, is_known, plain
from stator.tile.frontend.loops import assigned
from stator.tile.frontend.names import BUILTINS
from stator.tile.frontend.source import Source
from stator.tile.language.arithmetic import logical_and, logical_not, logical_or
from stator.tile.language.effects import device_assert, static_assert
from stator.tile.language.promotion import is_number, to_tensor
from stator.tile.language.static import constexpr
from stator.tile.language.values import tuple

_PREFIX = "__stator_tile_"
_UNROLLED = {"static_range"}
#: The variable that says whether a tensor has decided which return it is.
DECIDED = f"{_PREFIX}decided"


def _both(value: Any, other: Callable[[], Any]) -> Any:
    if is_known(value):
        return other() if plain(value) else value
    right = other()
    if is_known(right):
        return logical_and(value, True) if plain(right) else right
    return logical_and(value, right)


def _either(value: Any, other: Callable[[], Any]) -> Any:
    if is_known(value):
        return value if plain(value) else other()
    right = other()
    if is_known(right):
        return right if plain(right) else logical_or(value, False)
    return logical_or(value, right)


def _not(value: Any) -> Any:
    return not plain(value) if is_known(value) else logical_not(value)


def _same(left: Any, right: Any) -> bool:
    unwrapped = [value.value if isinstance(value, constexpr) else value for value in (left, right)]
    return unwrapped[0] is unwrapped[1]


def _carried(value: Any) -> Any:
    return to_tensor(value) if is_number(value) else value


def _merged(value: Any, condition: Any) -> Any:
    return value if is_known(condition) else _carried(value)


def _chosen(condition: Any, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    return _merged(first() if condition else second(), condition)


def _returned(value: Any, decided: bool) -> Any:
    """What a function returns; `decided` says whether a tensor has decided which return it is."""
    if not decided:
        return value
    match value:
        case builtins.tuple() if not hasattr(value, "_fields"):
            return builtins.tuple([_carried(item) for item in value])
        case tuple():
            return tuple([_carried(item) for item in value], value.type if value.type.fields else None)
    return _carried(value)


def _decides(condition: Any) -> bool:
    return not is_known(condition)


def _assert(holds: Any, message: Any = "") -> None:
    if is_known(holds):
        static_assert(plain(holds), message)
    else:
        device_assert(holds, message)


#: What rewritten text calls, by the name behind the prefix.
_RUNTIME: dict[str, Callable[..., Any]] = {
    "and": _both, "or": _either, "not": _not, "is": _same, "carried": _carried, "merged": _merged, "chosen": _chosen,
    "returned": _returned, "decides": _decides, "assert": _assert,
}  # fmt: skip


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function's text; what kernels cannot use is refused as the compiler refuses it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tests = 0

    def visit(self, node: ast.AST) -> Any:
        if type(node) in REFUSED and node is not self.source.tree and not isinstance(node, ast.FunctionDef):
            raise self.refused(node, f"kernels cannot use {REFUSED[type(node)]}")
        return super().visit(node)

    def refused(self, node: ast.AST, why: str, hint: str = "") -> UnsupportedLanguageConstruct:
        return UnsupportedLanguageConstruct(why, self.source.place(node), hint)

    def call(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        function = ast.copy_location(ast.Name(_PREFIX + name, ast.Load()), node)
        return ast.copy_location(ast.Call(function, list(args), []), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        raise self.refused(node, f"kernels cannot use {REFUSED[ast.FunctionDef]}")

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "and" if isinstance(node.op, ast.And) else "or"
        result, *others = [self.visit(value) for value in node.values]
        for other in others:
            result = self.call(node, name, result, self.later(other))
        return result

    def later(self, node: ast.expr) -> ast.expr:
        """A function of an expression, for what may not be computed."""
        return ast.copy_location(ast.Lambda(ast.arguments([], [], None, [], [], None, []), node), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        ways = [self.later(self.visit(part)) for part in (node.body, node.orelse)]
        return self.call(node, "chosen", self.visit(node.test), *ways)

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = assigned([*node.body, *node.orelse])
        returns = any(isinstance(item, ast.Return) for item in ast.walk(node))
        self.tests += 1
        test = f"{_PREFIX}test{self.tests}"
        made = [self.assign(node.test, test, self.visit(node.test))]
        if returns:
            both = [self.name(node, DECIDED), self.call(node, "decides", self.name(node, test))]
            made.append(self.assign(node.test, DECIDED, ast.copy_location(ast.BoolOp(ast.Or(), both), node)))
        node.test = ast.copy_location(self.name(node, test), node.test)
        after = [self.rewrite(node, name, "merged", test) for name in names]
        return [*made, self.generic_visit(node), *after]  # type: ignore[list-item]

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None:
            node.value = self.call(node, "returned", self.visit(node.value), self.name(node, DECIDED))
        return node

    def name(self, node: ast.AST, name: str) -> ast.expr:
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def assign(self, node: ast.AST, name: str, value: ast.expr) -> ast.stmt:
        return ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), node)], value), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.visit(node.operand)
        return self.call(node, "not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) != 1:
            raise self.refused(node, "several comparisons in one", "write `a < b and b < c`")
        left, right = self.visit(node.left), self.visit(node.comparators[0])
        match node.ops[0]:
            case ast.Is():
                return self.call(node, "is", left, right)
            case ast.IsNot():
                return self.call(node, "not", self.call(node, "is", left, right))
        node.left, node.comparators = left, [right]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        parts = [self.visit(part) for part in (node.test, node.msg) if part is not None]
        return ast.copy_location(ast.Expr(self.call(node, "assert", *parts)), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            raise self.refused(node, "an annotation that assigns no name")
        return ast.copy_location(ast.Assign([node.target], self.visit(node.value)), node)

    def visit_For(self, node: ast.For) -> Any:
        over = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
        name = over.attr if isinstance(over, ast.Attribute) else getattr(over, "id", "")
        names = [] if name in _UNROLLED or not isinstance(node.iter, ast.Call) else assigned(node.body)
        return [*[self.rewrite(node, name, "carried") for name in names], self.generic_visit(node)]

    def visit_While(self, node: ast.While) -> Any:
        if isinstance(node.test, ast.Constant) and node.test.value:
            why = "the condition of this loop is always true, and nothing else ends it"
            raise self.refused(node, why, "let it depend on a tensor")
        names = assigned(node.body)
        return [*[self.rewrite(node, name, "carried") for name in names], self.generic_visit(node)]

    def rewrite(self, node: ast.AST, name: str, function: str, *args: str) -> ast.stmt:
        """`name = function(name, args)`, if it has a value here."""
        value = self.call(node, function, ast.Name(name, ast.Load()), *[self.name(node, arg) for arg in args])
        handler = ast.ExceptHandler(ast.Name("NameError", ast.Load()), None, [ast.Pass()])
        made = ast.Try([ast.Assign([ast.Name(name, ast.Store())], value)], [handler], [], [])
        for item in ast.walk(made):
            ast.copy_location(item, node)
        return made


def _code(source: Source) -> CodeType:
    """The code of a function's text, rewritten, with the lines and columns of its file."""
    tree = copy.deepcopy(source.tree)
    tree.decorator_list, tree.returns = [], None
    for parameter in ast.walk(tree.args):
        if isinstance(parameter, ast.arg):
            parameter.annotation = None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    rewriter = _Rewriter(source)
    body: list[ast.stmt] = [rewriter.assign(tree, DECIDED, ast.copy_location(ast.Constant(False), tree))]
    for item in tree.body:
        made = rewriter.visit(item)
        body += made if isinstance(made, list) else [made]
    tree.body = body
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg):
            node.lineno += source.first_line - 1
            node.end_lineno = (node.end_lineno or 1) + source.first_line - 1
            node.col_offset += source.indent
            node.end_col_offset = (node.end_col_offset or 0) + source.indent
    module = compile(ast.fix_missing_locations(ast.Module([tree], [])), source.file, "exec")
    (code,) = [item for item in module.co_consts if isinstance(item, CodeType)]
    return code


_CODES: dict[Source, CodeType] = {}


def function_of(source: Source) -> Callable[..., Any]:
    """A function's text as a Python function, which sees what the names of its file stand for now."""
    if source not in _CODES:
        _CODES[source] = _code(source)
    names = dict(source.function.__globals__)
    for name in source.function.__code__.co_freevars:
        if source.is_enclosed(name):
            names[name] = source.enclosed(name)
    for builtin, meaning in _BUILTINS.items():
        names.setdefault(builtin, meaning)
    names |= {_PREFIX + name: function for name, function in _RUNTIME.items()}
    return FunctionType(_CODES[source], names, source.name)


#: Builtins that mean something else in kernels, but for `print`, which shows numbers here.
_BUILTINS: dict[str, Any] = {
    name: {**PLAIN, **BUILTINS}[function]
    for name, function in vars(builtins).items()
    if callable(function) and function is not print and function in {**PLAIN, **BUILTINS}
}


# ---- errors


def located(source: Source, error: Exception, where: str) -> InterpreterError:
    """An error with the kernel's line that it came from, and the program."""
    if isinstance(error, PlacedError):
        return InterpreterError(f"{error.why}{where}", error.place, error.hint)
    message = error.message if isinstance(error, InvalidUse) else f"{_kind(error)}{error}"
    hint = error.hint if isinstance(error, InvalidUse) else ""
    places = _places(error.__traceback__)
    return InterpreterError(message + where, places[0] if places else source.place(source.tree), hint, places[1:])


def _kind(error: Exception) -> str:
    return "" if type(error).__module__.startswith("stator.") else f"{type(error).__name__}: "


def _places(traceback: TracebackType | None) -> list[Place]:
    """Where the text of kernels was left, the innermost first."""
    codes = {code: source for source, code in _CODES.items()}
    found: list[Place] = []
    while traceback is not None:
        source = codes.get(traceback.tb_frame.f_code)
        if source is not None:
            positions = list(traceback.tb_frame.f_code.co_positions())[traceback.tb_lasti // 2]
            line, column = traceback.tb_lineno, positions[2] or 0
            offset = line - source.first_line
            text = source.lines[offset].rstrip("\n") if 0 <= offset < len(source.lines) else ""
            found.append(Place(source.file, line, column, text, source.name))
        traceback = traceback.tb_next
    return found[::-1]
