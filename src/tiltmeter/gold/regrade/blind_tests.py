"""Takes the expected values out of test files, so that no program that is tested can find them or agree with them.

Every assertion of a test says what it saw instead of whether it holds: `assert f(2) == 5` becomes a report of `f(2)`,
and the 5 stays here, where the two are compared. So nothing is gained by an object that equals everything, by reading
the test's frame or file, by a changed pytest, or by ending the process: a value that was not reported was not seen.
Values stay in the test where it does more with them than to compare.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

from tiltmeter.gold.regrade.assertions import (
    BLOCKS,
    NAMED,
    Expected,
    argument_names,
    assertions_of,
    assigns,
    calls_in,
    compared_names,
    has_tests,
    is_left,
    last_name,
    literal_of,
    mark_names,
    nodes_inside,
    rewritten_assertions,
)

CHECK, TRUE, HIDDEN = "_tiltmeter_eq", "_tiltmeter_true", "_tiltmeter_hidden"  # names in the rewritten tests
SKIPS = frozenset({"skip", "skipTest", "importorskip", "xfail", "exit"})
SKIP_MARKS, FAIL_MARKS = ("skip", "skipif", "skipIf", "skipUnless"), ("xfail", "expectedFailure")
_CHANGING = frozenset({*SKIP_MARKS, *FAIL_MARKS})
NEVER_SKIPPED, BEFORE, ANYWHERE = 0, 1, 2  # whether a test may be skipped, and when
MOST_TIMES = 200  # that one assertion must be seen


@dataclass
class BlindFile:
    """One test file without its expected values."""

    text: str = ""
    expected: dict[int, Expected] = field(default_factory=dict)
    needed: dict[int, int] = field(default_factory=dict)  # by assertion: how often it must be reported
    owners: dict[int, str] = field(default_factory=dict)  # the test of each assertion
    tests: dict[str, int] = field(default_factory=dict)  # names that must pass; whether they may be skipped, and when


def blind_file(source: str, start: int = 0, *, hide: bool = True) -> BlindFile:
    """A test file whose assertions are numbered from `start`. Raises `SyntaxError`, `ValueError` or `RecursionError`.

    >>> blind = blind_file("def test_f():\\n    assert f(2) == 5\\n")
    >>> print(blind.text)
    def test_f():
        _tiltmeter_eq(f(2), _tiltmeter_hidden(0), 0)
        _tiltmeter_true(True, 1)
    >>> blind.expected[0].value, blind.needed, blind.tests
    (5, {0: 1, 1: 1}, {'test_f': 0})
    """
    tree = ast.parse(source)
    writer = _Blinder(start, hide, _constants(tree))
    writer.module(tree)
    writer.blind.text = ast.unparse(ast.fix_missing_locations(tree))
    return writer.blind


def _constants(tree: ast.Module) -> dict[str, ast.Assign]:
    """Lists of literals that a module gives a name once and uses once, as `CASES = [(1, "I"), (4, "IV")]`."""
    loads = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    single = (
        node for node in tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, (ast.List, ast.Tuple))
    )  # fmt: skip
    named = {node.targets[0].id: node for node in single if isinstance(node.targets[0], ast.Name)}
    return {name: node for name, node in named.items() if loads[name] == 2}


class _Blinder:
    def __init__(self, start: int, hide: bool, constants: dict[str, ast.Assign]) -> None:
        self.blind, self._next, self._hide, self._constants = BlindFile(), start, hide, constants
        self._hidden_names: set[str] = set()
        self._named_marks: dict[str, set[str]] = {}

    def module(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.Assign) and (words := set(mark_names([node.value])).intersection(_CHANGING)):
                # `slow = pytest.mark.skipif(...)`, and `pytestmark`, which is every test's
                self._named_marks |= {last_name(target): words for target in node.targets}
        marks = self._named_marks.get("pytestmark", set())
        if any(last_name(call.func) in SKIPS for node in tree.body if not has_tests(node) for call in calls_in(node)):
            marks = marks | {"skip"}  # a fixture's
        last = {node.name: node for node in tree.body if isinstance(node, NAMED)}
        for node in last.values():  # of two with one name the first is gone
            if isinstance(node, ast.ClassDef):
                self._class(node, marks)
            else:
                self._function(node, "", marks)

    def _class(self, node: ast.ClassDef, marks: set[str]) -> None:
        is_unit = any(last_name(base).endswith("TestCase") for base in node.bases)
        if not (node.name.startswith("Test") or is_unit) or any(assigns(one, "__test__") for one in node.body):
            return
        methods = {one.name: one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
        if "__init__" in methods:
            return  # pytest does not collect it
        # What unittest skips is skipped when it is called.
        marks = marks.union(mark_names(node.decorator_list), {"unittest"} if is_unit else ())
        for one in methods.values():
            if not one.name.startswith("test") and any(last_name(call.func) in SKIPS for call in calls_in(one)):
                marks = marks | {"skip"}
        for one in methods.values():
            self._function(one, f"{node.name}::", marks)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, of: str, marks: set[str]) -> None:
        own = mark_names(node.decorator_list)
        if not node.name.startswith("test") or "fixture" in own:
            return
        marks = marks.union(own, *(self._named_marks.get(mark, ()) for mark in own))
        has_odd_rows = any(
            keyword.arg == "marks" for one in node.decorator_list for call in calls_in(one) for keyword in call.keywords
        )
        if marks.intersection(FAIL_MARKS) or has_odd_rows:
            return  # assertions of which some are expected not to hold
        inner = list(nodes_inside(node))
        leaves = any(isinstance(one, (ast.Return, ast.Yield)) for one in inner) or any(
            isinstance(one, ast.Call) and last_name(one.func) in SKIPS for one in inner
        )
        name = f"{of}{node.name}"
        may_skip = marks.intersection(SKIP_MARKS)
        is_late = leaves or (may_skip and "unittest" in marks)
        self.blind.tests[name] = ANYWHERE if is_late else BEFORE if may_skip else NEVER_SKIPPED
        compared = Counter(one for check in rewritten_assertions(node.body) for one in compared_names(check))
        loads = Counter(one.id for one in inner if isinstance(one, ast.Name))
        self._hidden_names, first = set(), self._next
        times = self._parametrized(node, {name for name, count in compared.items() if loads[name] == count})
        needed = 0 if leaves else times
        stored = {one.id for one in inner if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        self._hidden_names -= stored
        node.body = self._block(node.body, needed, compared, loads)
        self._add(TRUE, node.body, ast.Constant(True), needed)
        self.blind.owners |= dict.fromkeys(range(first, self._next), name)

    # -- where values stand beside each other in rows ----------------------------------------------------------------

    def _parametrized(self, node: ast.FunctionDef | ast.AsyncFunctionDef, hideable: set[str]) -> int:
        """How often a parametrized test is run, as far as that can be seen; its expected values are taken out."""
        times = 1
        for decorator in node.decorator_list:
            if (
                not isinstance(decorator, ast.Call)
                or last_name(decorator.func) != "parametrize"
                or len(decorator.args) < 2
            ):
                continue
            names, rows = argument_names(decorator.args[0]), self._rows(decorator.args[1])
            if names and rows is not None:
                times *= max(1, len(rows.elts))
                for name in hideable.intersection(names):
                    if any(keyword.arg == "indirect" for keyword in decorator.keywords):
                        continue
                    if self._hide_column(rows, names.index(name) if len(names) > 1 else None):
                        self._hidden_names.add(name)
        return times

    def _rows(self, node: ast.expr) -> ast.List | ast.Tuple | None:
        if isinstance(node, ast.Name) and node.id in self._constants:
            node = self._constants[node.id].value
        is_plain = isinstance(node, (ast.List, ast.Tuple)) and not any(
            isinstance(one, ast.Starred) for one in node.elts
        )
        return node if is_plain else None  # type: ignore[return-value]

    def _hide_column(self, rows: ast.List | ast.Tuple, column: int | None) -> bool:
        """Take the values of one column out of rows; nothing, if one of them is no literal."""
        cells: list[tuple[list[ast.expr], int, Expected]] = []
        for at, row in enumerate(rows.elts):
            if isinstance(row, ast.Call) and last_name(row.func) == "param":
                values, place = row.args, column or 0
            elif column is None:
                values, place = rows.elts, at
            elif isinstance(row, (ast.Tuple, ast.List)):
                values, place = row.elts, column
            else:
                return False
            expected = literal_of(values[place]) if place < len(values) else None
            if expected is None:
                return False
            cells.append((values, place, expected))
        for values, place, expected in cells if self._hide else ():
            values[place] = self._token(expected)
        return self._hide and bool(cells)

    # -- statements --------------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], needed: int, compared: Counter[str], loads: Counter[str]) -> list[ast.stmt]:
        written: list[ast.stmt] = []
        for node in body:
            checks = list(assertions_of(node))
            if checks:
                for check in checks:
                    self._assertion(check, written, needed)
                continue
            if not is_left(node):
                inner = needed
                if isinstance(node, ast.For):
                    inner = self._loop(node, needed, compared, loads)
                elif not isinstance(node, (ast.With, ast.AsyncWith)):
                    inner = 0
                for name in BLOCKS:
                    if below := getattr(node, name, None):
                        setattr(node, name, self._block(below, inner if name == "body" else 0, compared, loads))
            written.append(node)
        return written

    def _loop(self, node: ast.For, needed: int, compared: Counter[str], loads: Counter[str]) -> int:
        """How often what is in a loop must be seen; expected values of its rows are taken out."""
        rows = self._rows(node.iter)
        if rows is None or any(isinstance(one, (ast.Break, ast.Continue)) for one in ast.walk(node)):
            return 0
        names = [one.id if isinstance(one, ast.Name) else "" for one in getattr(node.target, "elts", [node.target])]
        for at, name in enumerate(names):
            # One use is that of the loop, which gives the name its value.
            is_only_compared = name and compared[name] and loads[name] == compared[name] + 1
            if is_only_compared and self._hide_column(rows, at if isinstance(node.target, ast.Tuple) else None):
                self._hidden_names.add(name)
        return needed * len(rows.elts)

    def _assertion(self, test: ast.expr, written: list[ast.stmt], needed: int) -> None:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is)):
            left, right = test.left, test.comparators[0]
            strict = isinstance(test.ops[0], ast.Is)
            if literal_of(left) is not None and literal_of(right) is None:
                left, right = right, left
            expected = literal_of(right)
            is_hidden = isinstance(right, ast.Name) and right.id in self._hidden_names
            if expected is not None and (
                not strict or (isinstance(right, ast.Constant) and right.value in (None, True, False))
            ):
                if self._hide and literal_of(left) is None:
                    right = self._token(expected._replace(strict=strict))
                    is_hidden = True
            elif isinstance(left, ast.Name) and left.id in self._hidden_names:
                left, right, is_hidden = right, left, True
            if is_hidden or not strict:
                self._add(CHECK, written, left, needed, right)
                return
        self._add(TRUE, written, test, needed)

    def _add(self, name: str, written: list[ast.stmt], value: ast.expr, needed: int, *more: ast.expr) -> None:
        arguments = [value, *more, ast.Constant(self._next)]
        if needed:
            self.blind.needed[self._next] = min(needed, MOST_TIMES)
        self._next += 1
        written.append(ast.Expr(ast.Call(ast.Name(name, ast.Load()), arguments, [])))

    def _token(self, expected: Expected) -> ast.expr:
        number = len(self.blind.expected)
        self.blind.expected[number] = expected
        return ast.Call(ast.Name(HIDDEN, ast.Load()), [ast.Constant(number)], [])
