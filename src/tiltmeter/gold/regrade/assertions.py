"""What a test file asserts: its assertions, the values that they expect, and which of them can be rewritten."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tiltmeter.sandbox.values import NotPlain, encode


class Expected(NamedTuple):
    """A value that was taken out of a test. `rel`, `absolute`: it was approximate."""

    value: Any
    strict: bool = False
    rel: float | None = None
    absolute: float | None = None


OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BLOCKS = ("body", "orelse", "finalbody")


def is_left(node: ast.stmt) -> bool:
    """Whether what a statement holds stays as it is: what is called there is not always a test, or an assertion that
    fails is caught."""
    if isinstance(node, OWN_SCOPE) or getattr(node, "handlers", None):
        return True
    return isinstance(node, (ast.With, ast.AsyncWith)) and any(
        last_name(item.context_expr) in ("raises", "assertRaises", "assertRaisesRegex", "suppress")
        for item in node.items
    )


def rewritten_assertions(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The assertions that are rewritten, of all that a test holds."""
    for node in body:
        if any(assertions_of(node)):
            yield node
        elif not is_left(node):
            for name in BLOCKS:
                yield from rewritten_assertions(getattr(node, name, None) or ())


def has_tests(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) or (isinstance(node, NAMED) and node.name.startswith("test"))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def assertions_of(node: ast.stmt) -> Iterator[ast.expr]:
    """What a statement asserts, one by one; nothing for any other statement."""
    if isinstance(node, ast.Assert):
        yield from _parts(node.test)
    elif isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
        is_own = isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "self"
        if is_own and not any(isinstance(one, ast.Starred) for one in call.args):
            name = last_name(call.func)
            if name in ("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual") and len(call.args) >= 2:
                yield ast.Compare(call.args[0], [ast.Eq()], [call.args[1]])
            elif name in ("assertTrue", "assertFalse") and call.args:
                yield call.args[0] if name == "assertTrue" else ast.UnaryOp(ast.Not(), call.args[0])


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for one in test.values:
            yield from _parts(one)
    else:
        yield test


def compared_names(node: ast.stmt) -> Iterator[str]:
    """Names that stand as one whole side of an assertion of equality."""
    for test in assertions_of(node):
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            sides = [side.id if isinstance(side, ast.Name) else "" for side in (test.left, test.comparators[0])]
            if sides.count("") == 1:
                yield next(filter(None, sides))


def literal_of(node: ast.expr) -> Expected | None:
    """The plain value of an expression, or what `approx` is to come near; None where it is neither."""
    more: dict[str, Any] = {}
    if isinstance(node, ast.Call) and last_name(node.func) == "approx" and len(node.args) == 1:
        if any(keyword.arg not in ("rel", "abs") for keyword in node.keywords):
            return None
        try:
            more = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        except (ValueError, TypeError):
            return None
        more = {"rel": more.get("rel", 0.0 if "abs" in more else 1e-6), "absolute": more.get("abs", 1e-12)}
        node = node.args[0]
    try:
        value = ast.literal_eval(node)
        encode(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, NotPlain):
        return None
    return Expected(value, **more)


def argument_names(node: ast.expr) -> list[str]:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return []
    names = value.split(",") if isinstance(value, str) else list(value)
    return [str(name).strip() for name in names]


def nodes_inside(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but not in functions within it; their names count."""
    waiting: list[ast.AST] = list(getattr(function, "body", []))
    while waiting:
        node = waiting.pop()
        yield node
        for one in ast.iter_child_nodes(node):
            if isinstance(one, (ast.Return, ast.Yield)) and isinstance(node, OWN_SCOPE):
                continue
            waiting.append(one)


def mark_names(nodes: Sequence[ast.expr]) -> list[str]:
    return [last_name(one) for node in nodes for one in ast.walk(node) if isinstance(one, (ast.Attribute, ast.Name))]


def assigns(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(last_name(target) == name for target in node.targets)


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
