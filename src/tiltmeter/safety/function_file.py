"""A function as the text of a Python file that defines it again in another process, with what it uses.

A function of a script, of a notebook's cell or inside another function has no name by which another process could
import it. So its source text is written, with the helpers, classes, imports and plain values that it uses. Nothing is
pickled: a person can read what is called, and reading it runs nothing. What cannot be written down, such as a model or
an open file, is refused with the fix. A text that is the value of an environment variable with a secret is written as
the lookup of that variable; any other that looks like a secret is refused by its name.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import functools
import hashlib
import inspect
import linecache
import logging
import os
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NoReturn

from tiltmeter.errors import AttachError
from tiltmeter.safety.secret_scan import describe_secret, scan_environment, split_at_lookups, telling_variables

MOST_CHARACTERS = 1 << 20  # of a file
DEEPEST = 40  # of lists in lists

_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_GLOBAL", "STORE_NAME"})
_READ_INSIDE = 'read it inside the function with os.environ["..."]'
_IN_FILE = 'put {name} into a file of its own and pass "checks.py:{name}"'


@dataclass(frozen=True, slots=True)
class FunctionFile:
    """A function's name, the name of the file that it comes from, and the text that defines it again."""

    function: str
    file: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def names(self) -> tuple[str, str]:
        """A folder and the file in it. The folder's name is the text's hash: what is loaded is what was written."""
        return self.sha256, self.file


def write_function(function: Callable[..., Any], use: str = "gold") -> FunctionFile | str:
    """The file for a function, or, if a module without a package defines it, its name there: `path/checks.py:score`.

    `use`: the parameter that it was given as, for the error. Raises `AttachError` with the cause and the fix.

    >>> write_function(ast.literal_eval)  # doctest: +ELLIPSIS
    '...ast.py:literal_eval'
    """
    home = _import_of(function)
    name = getattr(function, "__name__", "")
    if home is not None and isinstance(function, types.FunctionType) and name.isidentifier():
        file = sys.modules[home[0]].__file__ or ""
        if "." not in home[0] and file.endswith(".py") and home[1] == name:
            return f"{file}:{name}"
    writer = _FileWriter(use)
    bound = writer.write(function)
    text = writer.text(f"{use} function {bound} of {writer.file}")
    if len(text) > MOST_CHARACTERS:
        raise AttachError(
            f"{use}={bound} uses values of {len(text) >> 10} KB: keep them in a file that it reads at its first call"
        )
    if secrets := scan_environment().find(text):  # whatever way it took into the file
        writer.refuse(f"uses something that looks like a secret ({secrets[0]})", _READ_INSIDE)
    return FunctionFile(bound, writer.file, text)


@dataclass
class _FileWriter:
    """Collects what a function uses. `bindings`: the file's own names and what each stands for."""

    use: str
    file: str = "function.py"
    function_name: str = "score"  # the name of the function that was passed
    bindings: dict[str, object] = field(default_factory=dict)
    names_by_id: dict[int, str] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)  # that local modules are imported from
    imports: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    unfinished: set[int] = field(default_factory=set)

    def write(self, function: object) -> str:
        inner: Any = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        name = getattr(inner, "__name__", "")
        self.function_name = name if name.isidentifier() else "score"
        code = getattr(inspect.unwrap(inner) if callable(inner) else inner, "__code__", None)
        self.file = _short_name("" if code is None else code.co_filename)
        self._check_kind(inner)
        self.bind(self.function_name, function, "")
        return self.function_name

    def text(self, title: str) -> str:
        lines = [f'"""The {title}, as it was when the run began."""', "", "from __future__ import annotations", ""]
        if self.folders:
            lines += ["import sys", "", f"sys.path += [one for one in {list(self.folders)} if one not in sys.path]", ""]
        return "\n".join([*lines, *self.imports, "", *self.body, ""])

    def bind(self, name: str, value: object, trail: str, namespace: Mapping[str, Any] | None = None) -> None:
        """Have the file's global `name` stand for this value. `trail`: who uses it, for the error."""
        if name in self.bindings:
            if self.bindings[name] is not value:
                self.refuse(f"uses two things that are called {name!r}", "rename one of them")
            return
        self.bindings[name] = value
        self.names_by_id.setdefault(id(value), name)
        if isinstance(value, types.ModuleType):
            self._import(value.__name__, "", name)
        elif (home := _import_of(value)) is not None:
            module, _, rest = home[1].partition(".")
            self._import(home[0], module, name if not rest else f"_{module}")
            if rest:
                self.body.append(f"{name} = _{module}.{rest}")
        elif isinstance(value, types.FunctionType):
            self._add_function(name, value)
        elif isinstance(value, type):
            self._add_class(name, value, namespace or {})
        else:
            self.body.append(f"{name} = {self.expression(value, name, trail)}")

    def expression(self, value: Any, hint: str, trail: str, depth: int = 0) -> str:
        """What stands for a value on the right of an equals sign."""
        if depth > DEEPEST:
            self.refuse(f"uses {hint!r}, which contains itself or is nested too deeply", "make it inside the function")
        inner = functools.partial(self.expression, hint=hint, trail=trail, depth=depth + 1)
        kind = type(value)
        if isinstance(value, (str, bytes)) and kind in (str, bytes):
            return self._text_expression(value, hint, trail)
        if value is None or value is Ellipsis or kind in (bool, range):
            return repr(value)
        if kind is int:
            return repr(value) if abs(value) < 10**1000 else hex(value)
        if kind is float:
            return repr(value) if value - value == 0.0 else f"float({str(value)!r})"
        if kind is complex:
            return f"complex({inner(value.real)}, {inner(value.imag)})"
        if isinstance(value, (list, tuple, set, frozenset)) and kind in (list, tuple, set, frozenset):
            items = ", ".join(map(inner, sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value))
            if kind is tuple:
                return f"({items}{',' if len(value) == 1 else ''})"
            if kind is list or (kind is set and value):
                return f"[{items}]" if kind is list else f"{{{items}}}"
            return f"{kind.__name__}([{items}])"
        if isinstance(value, dict) and kind is dict:
            items = ", ".join(
                f"{inner(key)}: {self._named_expression(key, item, hint, trail, inner)}" for key, item in value.items()
            )
            return "{" + items + "}"
        return self._object_expression(value, hint, trail, inner)

    def _named_expression(self, key: object, value: Any, hint: str, trail: str, inner: Callable[[object], str]) -> str:
        """What stands for a value in a mapping, whose key may tell that it is a secret."""
        if type(value) in (str, bytes) and isinstance(key, str):
            return self._text_expression(value, hint, trail, key)
        return inner(value)

    def _text_expression(self, value: str | bytes, hint: str, trail: str, key: str = "") -> str:
        """A text as it is; where the environment has it as a secret, the lookup. `key`: by which a mapping has it."""
        text = value if isinstance(value, str) else value.decode("latin-1")
        pieces = split_at_lookups(text, telling_variables())
        for piece, variable in pieces:
            if not variable and (why := describe_secret(hint, piece) or describe_secret(key, piece)):
                self.refuse(f"uses {hint!r}{trail}, which looks like a secret ({why})", _READ_INSIDE)
        if not any(variable for _, variable in pieces):
            return repr(value)
        end = "" if isinstance(value, str) else ".encode()"
        parts = [self._lookup(variable) if variable else repr(piece) for piece, variable in pieces]
        return parts[0] if len(parts) == 1 and not end else f"({' + '.join(parts)}){end}"

    def _lookup(self, variable: str) -> str:
        value = os.environ[variable]
        return f"{self._module(os)}.environ[{variable!r}]{'' if value == value.strip() else '.strip()'}"

    def _object_expression(self, value: Any, hint: str, trail: str, inner: Callable[[object], str]) -> str:
        if isinstance(value, re.Pattern):
            return f"{self._module(re)}.compile({inner(value.pattern)}, {value.flags})"
        if isinstance(value, PurePath) and type(value).__module__.startswith("pathlib"):
            return f"{self._module(sys.modules['pathlib'])}.{type(value).__name__}({inner(str(value))})"
        if value is os.environ:
            return f"{self._module(os)}.environ"
        if isinstance(value, logging.Logger):
            return f"{self._module(logging)}.getLogger({value.name!r})"
        if isinstance(value, functools.partial):
            parts = [inner(value.func), *map(inner, value.args)]
            parts += [
                f"{key}={self._named_expression(key, item, hint, trail, inner)}" for key, item in value.keywords.items()
            ]
            return f"{self._module(functools)}.partial({', '.join(parts)})"
        if type(value) is _CACHED:
            settings = ", ".join(f"{key}={item!r}" for key, item in value.cache_parameters().items())
            return f"{self._module(functools)}.lru_cache({settings})({inner(value.__wrapped__)})"
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) and value.dtype.kind in "biufU":
            array = f"{self._module(numpy)}.array({inner(value.tolist())}, {value.dtype.str!r})"
            return array if value.ndim else f"{array}[()]"
        if isinstance(value, (types.FunctionType, type, types.ModuleType)) or _import_of(value) is not None:
            if id(value) in self.unfinished:
                self.refuse(f"uses {hint!r}, and both refer to each other", "define them at the top level")
            if id(value) not in self.names_by_id:
                number = sum(one.startswith(f"_{hint}") for one in self.bindings)
                self.bind(f"_{hint}{number or ''}", value, trail)
            return self.names_by_id[id(value)]
        why, fix = _describe_object(value)
        return self.refuse(f"uses {hint!r}{trail}, {why}, which cannot be handed to another process", fix)

    def _module(self, module: types.ModuleType) -> str:
        name = f"_{module.__name__}"
        self.bind(name, module, "")
        return name

    def _import(self, module: str, attribute: str, name: str) -> None:
        top = sys.modules.get(module.partition(".")[0])
        if module == "__main__" or top is None or getattr(sys.modules[module], "__spec__", None) is None:
            self.refuse(
                f"uses {name!r}, of the module {module}, which cannot be imported elsewhere", "import it from a file"
            )
        if (folder := _local_folder(top)) is not None:
            self.folders[folder] = None
        line = f"from {module} import {attribute}" if attribute else f"import {module}"
        line += "" if name == (attribute or module) else f" as {name}"
        if line not in self.imports:
            self.imports.append(line)

    def _add_function(self, name: str, function: types.FunctionType) -> None:
        node = self._find_definition(function)
        self.unfinished.add(id(function))
        for used in _used_names(function.__code__):
            if used in function.__globals__:
                trail = "" if name == self.function_name else f" in {function.__name__}"
                self.bind(used, function.__globals__[used], trail, function.__globals__)
            elif not hasattr(builtins, used):
                self.refuse(f"uses {used!r}, which is not defined", "define it before this call")
        with_default = [*node.args.posonlyargs, *node.args.args][-len(function.__defaults__ or ()) :]
        node.args.defaults = [
            ast.parse(self.expression(value, one.arg, ""), mode="eval").body
            for one, value in zip(with_default, function.__defaults__ or (), strict=False)
        ]
        keyword_defaults = function.__kwdefaults__ or {}
        node.args.kw_defaults = [
            ast.parse(self.expression(keyword_defaults[one.arg], one.arg, ""), mode="eval").body
            if one.arg in keyword_defaults
            else None
            for one in node.args.kwonlyargs
        ]
        self._check_source(node, function.__name__)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if isinstance(node, ast.Lambda):
            definition = f"{name} = {ast.unparse(node)}"
        else:
            node.decorator_list = []  # what they made of it is another object, which uses this one
            # Under another name where it does not call itself inside: a global of its own name is what it means.
            node.name = node.name if node.name in cells else name
            definition = ast.unparse(node)
        if cells:
            definition = self._inside_function(name, getattr(node, "name", name), definition, cells, function)
        self.unfinished.discard(id(function))
        self.body += [definition, ""]
        for key, value in vars(function).items():
            self.body.append(f"{name}.{key} = {self.expression(value, key, '')}")

    def _inside_function(
        self, name: str, own: str, definition: str, cells: Mapping[str, Any], function: types.FunctionType
    ) -> str:
        """The definition inside a function that is called with its values: two may have different ones of one name."""
        values, aliases = {}, []
        for variable, cell in cells.items():
            try:
                value = cell.cell_contents
            except ValueError:
                self.refuse(f"uses {variable!r}, which is not defined yet", "define it before this call")
            if value is function:
                aliases += [f"{variable} = {own}"] if variable != own else []
            else:
                values[variable] = self.expression(value, variable, "")
        maker = ast.parse(f"def _make_{name}({', '.join(values)}): ...")
        lines = [definition, *aliases, f"return {own}"]
        maker.body[0].body = ast.parse("\n".join(lines)).body  # type: ignore[attr-defined]
        return f"{ast.unparse(maker)}\n\n{name} = _make_{name}({', '.join(values.values())})"

    def _add_class(self, name: str, value: type, namespace: Mapping[str, Any]) -> None:
        if "<locals>" in value.__qualname__ or "." in value.__qualname__:
            self.refuse(f"uses {name!r}, a class that is defined inside something else", "define it at the top level")
        files = [one.__code__.co_filename for one in vars(value).values() if isinstance(one, types.FunctionType)]
        main = getattr(sys.modules.get(value.__module__), "__file__", None)
        cells = [file for file in reversed(list(linecache.cache)) if _is_cell(file)]
        places = [*files, *([main] if main else []), *cells]  # what made a dataclass has written methods of no file
        node = next((one for file in places for one in _classes(file) if one.name == value.__name__), None)
        if node is None:
            self.refuse(f"uses the class {name!r}, whose source cannot be found", "")
        self._check_source(node, name)
        code = compile(ast.Module([node], []), name, "exec", dont_inherit=True)
        for used in _used_names(code):
            if used in namespace and used != value.__name__ and not used.startswith("__"):
                self.bind(used, namespace[used], f" in {name}", namespace)
        self.body += [ast.unparse(node), *([f"{name} = {node.name}"] if node.name != name else []), ""]

    def _check_source(self, node: ast.AST, name: str) -> None:
        """Refuse a secret that is typed into the source of a function or class."""
        scan = scan_environment()
        for variable, text in _source_texts(node):
            why = describe_secret(variable, text)
            if not why and (own := scan.find(text, forms=False)):
                why = f"the value of {own[0]}"
            if why:
                what = f"{variable!r} in the source of {name}" if variable else f"a text in the source of {name}"
                self.refuse(f"uses {what}, which looks like a secret ({why})", _READ_INSIDE)

    def _find_definition(self, function: types.FunctionType) -> Any:
        code = function.__code__
        text = _source(code.co_filename)
        if not text:
            self.refuse(
                f"has no source text: {function.__name__} was typed at a prompt, or made by exec or by a library",
                "define it in a script, a notebook's cell or a file",
            )
        flags = code.co_flags & __future__.annotations.compiler_flag | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            codes = list(_codes(compile(text, code.co_filename, "exec", flags, dont_inherit=True)))
        except SyntaxError:
            codes = []
        if code not in codes:
            file = _short_name(code.co_filename)
            self.refuse(
                f"is not what {file} says now: {function.__name__} was changed there since then",
                "run the file or the cell again",
            )
        return [node for node in ast.walk(ast.parse(text)) if _is_definition(node, code)][-1]  # of lambdas, the inner

    def _check_kind(self, function: Any) -> None:
        if isinstance(function, types.FunctionType) or type(function) is _CACHED:
            return
        if isinstance(function, type):
            self.refuse(
                "is a class",
                f"write a function that uses it: `def score(completion): return {self.function_name}(...)`",
            )
        if _import_of(function) is not None and not hasattr(function, "__self__"):
            return  # its signature decides
        if isinstance(function, types.MethodType):
            self.refuse(
                f"is a method of an object of class {type(function.__self__).__name__}, which stays in this process",
                "write a function that makes the object and calls it",
            )
        if isinstance(function, types.BuiltinFunctionType):
            self.refuse("is a function in C without a signature", "write `def score(completion): ...` that calls it")
        why, _ = _describe_object(function)
        kind = type(function).__name__
        self.refuse(
            f"is {why}, which stays in this process",
            f"write a function that makes the {kind} at its first call and calls it",
        )

    def refuse(self, why: str, fix: str) -> NoReturn:
        fixes = ", or ".join(filter(None, (fix, _IN_FILE.format(name=self.function_name))))
        raise AttachError(f"{self.use}={self.function_name} {why}: {fixes}")


_CACHED = type(functools.lru_cache(lambda: None))


def _import_of(value: object) -> tuple[str, str] | None:
    """The module and the name by which another process can import this; None if there are none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or module not in sys.modules:
        return None
    target: object = sys.modules[module]
    for part in name.split("."):
        target = getattr(target, part, None)
    return (module, name) if target is value else None


def _local_folder(module: types.ModuleType) -> str | None:
    """The folder that a module or package is imported from; None if it is installed."""
    places = [*getattr(module, "__path__", ()), *filter(None, [getattr(module, "__file__", None)])]
    if not places:
        return None
    folder = Path(places[0]).resolve().parent
    installed = {Path(sysconfig.get_path(one)).resolve() for one in ("stdlib", "platstdlib", "purelib", "platlib")}
    return None if any(folder == one or one in folder.parents for one in installed) else str(folder)


def _used_names(code: types.CodeType) -> dict[str, None]:
    """Global names that code and what is defined in it reads, and does not itself define."""
    instructions = list(dis.get_instructions(code))
    own = {one.argval for one in instructions if one.opname in _STORES}
    names = {one.argval: None for one in instructions if one.opname in _LOADS and one.argval not in own}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= {name: None for name in _used_names(inner) if name not in own}
    return names


def _source_texts(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Every text that is typed into a piece of source, with the name that it is given; empty if it has none."""
    names: dict[int, str] = {}
    for one in ast.walk(node):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(one, ast.Assign):
            pairs = [(target, one.value) for target in one.targets]
        elif isinstance(one, (ast.AnnAssign, ast.NamedExpr)):
            pairs = [(one.target, one.value)]
        elif isinstance(one, ast.keyword):
            pairs = [(ast.Name(one.arg or ""), one.value)]
        elif isinstance(one, ast.Dict):
            pairs = list(zip(one.keys, one.values, strict=True))
        names |= {id(value): _name_of(target) for target, value in pairs}
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, (str, bytes)):
            text = one.value if isinstance(one.value, str) else one.value.decode("latin-1")
            yield names.get(id(one), ""), text


def _name_of(target: ast.AST | None) -> str:
    """The name, attribute or key that a value is given."""
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _is_definition(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        body = node.body
        begin, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
        places = [((a, c), (b, d)) for a, b, c, d in code.co_positions() if None not in (a, b, c, d)]
        inside = all(begin <= one and other <= end for one, other in places if one != other)
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno and inside
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _source(file: str) -> str:
    """The text of a file, or of a notebook's cell, which Jupyter keeps where Python looks for lines."""
    if Path(file).is_file():
        linecache.checkcache(file)
    return "".join(linecache.getlines(file))


def _classes(file: str) -> list[ast.ClassDef]:
    try:
        tree = ast.parse(_source(file))
    except (SyntaxError, ValueError):
        return []
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def _short_name(file: str) -> str:
    """The name of a file, for screens and folders; a notebook's cells have invented ones."""
    name = Path(file).name
    if _is_cell(file):
        return "notebook.py"
    return name if re.fullmatch(r"[\w-][\w.-]*\.py", name) else "function.py"


def _is_cell(file: str) -> bool:
    return "ipykernel" in file or "ipython-input" in file


def _describe_object(value: object) -> tuple[str, str]:
    """What an object is, and what to do instead of handing it over."""
    kinds = {f"{one.__module__}.{one.__name__}" for one in type(value).__mro__}
    name = type(value).__name__
    lazily = "it in a function with @functools.cache, which is called when it is needed"
    if kinds & {"torch.nn.modules.module.Module", "torch.Tensor"} or any("transformers." in one for one in kinds):
        return f"a {name}", f"load {lazily}"
    if kinds & {"_io._IOBase", "_socket.socket", "sqlite3.Connection"} or name in ("lock", "RLock"):
        return f"an open {name}", f"open {lazily}"
    if any(one.startswith("datasets.") for one in kinds):
        return f"a {name}", "take the column that you need as a parameter, `def score(completion, answer)`"
    if isinstance(value, Iterator):
        return f"a {name} that is partly used", "make a list of it"
    return f"an object of class {name}", f"make {lazily}"
