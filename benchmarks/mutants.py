"""Programs with one small mistake each, made from right ones: what a verifier must not pay for."""

from __future__ import annotations

import ast
import random
import warnings

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class _Mistake(ast.NodeTransformer):
    """Counts the places where a mistake can be made, and makes the one that is asked for."""

    def __init__(self, target: int = -1) -> None:
        self.target, self.places, self.made = target, 0, ""

    def _here(self, what: str) -> bool:
        self.places += 1
        if self.places - 1 == self.target:
            self.made = what
            return True
        return False

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and self._here("constant off by one"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if type(node.op) in SWAPS and self._here("operator swapped"):
            node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if type(node.ops[0]) in SWAPS and self._here("comparison swapped"):
            node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if self._here("and for or"):
            node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if self._here("condition negated"):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None and self._here("return dropped"):
            return ast.copy_location(ast.Expr(node.value), node)
        return self.generic_visit(node)


def mutants(code: str, count: int, rng: random.Random) -> list[tuple[str, str]]:
    """Up to `count` different programs with one mistake each, and what the mistake is."""
    counter, found = _Mistake(), []
    counter.visit(_parsed(code))
    for target in rng.sample(range(counter.places), min(count, counter.places)):
        mistake = _Mistake(target)
        changed = ast.fix_missing_locations(mistake.visit(_parsed(code)))
        found.append((ast.unparse(changed), mistake.made))
    return found


def _parsed(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of backslashes that newer Pythons mind
        return ast.parse(code)
