"""Short names make the same program: every module of the runner is compared with itself."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import inspect
import io
import subprocess
import symtable
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.bundle.name_uses import uses
from tao_sdk.bundle.names import Shortener
from tao_sdk.bundle.preparation import (
    NOT_ONLY_OURS,
    inlined,
    module_names,
    prepare,
    shortened,
    shortener,
    source_of,
)
from tao_sdk.bundle.small_modules import START
from tao_sdk.bundle.tokens import tokens
from tao_sdk.runner.process import Outcome
from tao_sdk.runner.tasks import OutputTask, Selective, StagingTask

MODULES = module_names()
NODES = [node for name in MODULES for node in ast.walk(ast.parse(source_of(name)))]

_NAME_FIELDS = {
    ast.Name: "id",
    ast.arg: "arg",
    ast.Attribute: "attr",
    ast.FunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
    ast.alias: "name",
    ast.keyword: "arg",
}
_VARIABLES = (ast.Name, ast.arg, ast.ExceptHandler)
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)

Pair = tuple[str, str]


class Comparison:
    """Walks through two syntax trees at once; they may differ in names only, which it collects."""

    def __init__(self, one: ast.AST, other: ast.AST) -> None:
        self.variables: list[tuple[str, Pair]] = []
        """In which function of the module, and what is called how."""
        self.others: set[Pair] = set()
        self._compare(one, other, "")

    def _compare(self, one: Any, other: Any, function: str) -> None:
        assert type(one) is type(other)
        if isinstance(one, list):
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                self._compare(a, b, function)
            return
        if not isinstance(one, ast.AST):
            assert one == other, "texts and numbers are what they were"
            return
        own = _NAME_FIELDS.get(type(one), "")
        if own and getattr(one, own) is not None:
            pair = getattr(one, own), getattr(other, own)
            if isinstance(one, _VARIABLES) or (isinstance(one, _DEFINITIONS) and function):
                self.variables.append((function, pair))
            else:
                self.others.add(pair)
        if isinstance(one, (ast.Global, ast.Nonlocal)):
            self.variables += [
                (function, pair) for pair in zip(one.names, other.names, strict=True)
            ]
            return
        for field in one._fields:
            place = function
            if isinstance(one, ast.FunctionDef) and field in ("args", "body"):
                place = function or f"{one.name}:{one.lineno}"
            if field != own or getattr(one, own) is None:
                self._compare(getattr(one, field), getattr(other, field), place)


@pytest.mark.parametrize("name", MODULES)
def test_trees_differ_in_names_only(name: str) -> None:
    """A name is exchanged for one other: within a function, and in all modules alike.

    That no two of them get into each other's way is seen by the next test.
    """
    shared = shortener().names_in(name)
    found = Comparison(ast.parse(inlined(name)), ast.parse(shortened(name)))
    for old, new in found.others:
        assert new == shared.get(old, old)
    by_function: dict[str, set[Pair]] = {}
    for function, pair in found.variables:
        by_function.setdefault(function, set()).add(pair)
    for function, pairs in by_function.items():
        assert len({old for old, _ in pairs}) == len(pairs), function
        if not function:
            assert all(new == shared.get(old, old) for old, new in pairs)


@pytest.mark.parametrize("name", MODULES)
def test_names_mean_what_they_meant(name: str) -> None:
    """Python finds the same parameters, variables, closures and globals in every scope."""
    shared = shortener().names_in(name)
    compare_scopes(
        symtable.symtable(inlined(name), name, "exec"),
        symtable.symtable(shortened(name), name, "exec"),
        shared,
    )


def compare_scopes(
    one: symtable.SymbolTable, other: symtable.SymbolTable, shared: Mapping[str, str]
) -> None:
    # Both list symbols in the order of their first appearance, or by name: so not in any order.
    assert sorted(map(nature, one.get_symbols())) == sorted(map(nature, other.get_symbols()))
    assert {
        shared.get(symbol.get_name(), symbol.get_name())
        for symbol in one.get_symbols()
        if symbol.is_global() or symbol.is_imported() or one.get_type() != "function"
    } == {
        symbol.get_name()
        for symbol in other.get_symbols()
        if symbol.is_global() or symbol.is_imported() or other.get_type() != "function"
    }
    children = one.get_children(), other.get_children()
    assert len(children[0]) == len(children[1])
    for a, b in zip(*children, strict=True):
        compare_scopes(a, b, shared)


def nature(symbol: symtable.Symbol) -> tuple[bool, ...]:
    return (
        symbol.is_parameter(),
        symbol.is_local(),
        symbol.is_global(),
        symbol.is_free(),
        symbol.is_imported(),
        symbol.is_assigned(),
        symbol.is_referenced(),
        symbol.is_namespace(),
    )


def test_names_that_all_modules_know_are_exchanged_one_for_one() -> None:
    everywhere: dict[str, str] = {}
    for name in MODULES:
        shared = shortener().names_in(name)
        assert len(set(shared.values())) == len(shared)
        words = {use.name for use in uses(tokens(inlined(name)))}
        assert words.isdisjoint(shared.values())
        # Everything that Python or a library knows is still called the same.
        assert {"_replace", "_asdict", "_exit", "main", START, "write", "path"}.isdisjoint(shared)
        mentioned = {use.name for use in uses(tokens(inlined(name)))}
        for old, new in shared.items():
            if old in mentioned and sum(old in inlined(other).split() for other in MODULES) > 1:
                assert everywhere.setdefault(old, new) == new
    assert len(everywhere) > 50


def test_no_class_extends_one_of_another_module() -> None:
    """Two members of one object could be called the same: no module mentions both.

    Errors may be extended: they have no members that others could hide.
    """
    for name in MODULES:
        here = ast.parse(inlined(name))
        imported = {
            alias.name
            for node in ast.walk(here)
            if isinstance(node, ast.ImportFrom) and node.level
            for alias in node.names
        }
        bases = {
            ast.unparse(base)
            for node in ast.walk(here)
            if isinstance(node, ast.ClassDef)
            for base in node.bases
        }
        assert bases & imported <= {"RunnerError"}, name


def test_no_call_names_a_parameter_that_has_another_name_now() -> None:
    """It is called the same in all modules, or nobody's call names it."""
    keywords = {node.arg for node in NODES if isinstance(node, ast.keyword)}
    short = 0
    for name in MODULES:
        shared = shortener().names_in(name)
        pairs = zip(_parameters(inlined(name)), _parameters(shortened(name)), strict=True)
        for old, new in pairs:
            assert new == shared.get(old, old) or old not in keywords, name
            short += old != new
    assert short > 100


def test_keywords_have_the_names_of_the_parameters() -> None:
    keywords: dict[str, set[str]] = {}
    for name in MODULES:
        pairs = zip(_keywords(inlined(name)), _keywords(shortened(name)), strict=True)
        for old, new in pairs:
            keywords.setdefault(old, set()).add(new)
            assert new == shortener().names_in(name).get(old, old)
    assert all(len(names) == 1 for old, names in keywords.items() if _modules_with(old) > 1)


def _modules_with(word: str) -> int:
    return sum(word in {use.name for use in uses(tokens(inlined(name)))} for name in MODULES)


def _keywords(source: str) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    return [node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg]


def _parameters(source: str) -> list[str]:
    return [node.arg for node in ast.walk(ast.parse(source)) if isinstance(node, ast.arg)]


def test_nothing_looks_names_up_by_their_text() -> None:
    """What could not be seen: a mapping as keywords of a function of ours, and the like."""
    called = [ast.unparse(node.func) for node in NODES if isinstance(node, ast.Call)]
    assert {"eval", "locals", "vars", "globals", "setattr"}.isdisjoint(called)
    tuples = {
        node.name
        for node in NODES
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)
    }
    for node in NODES:
        if isinstance(node, ast.Call) and any(word.arg is None for word in node.keywords):
            callee = ast.unparse(node.func)
            assert callee in tuples or callee == "tarfile.open", ast.unparse(node)


def test_names_of_data_stay() -> None:
    """Fields that are filled from the payload, written to the record, or named in texts."""
    written = [ast.unparse(node) for node in NODES if isinstance(node, ast.Attribute)]
    assert [name for name in written if name.endswith("._asdict")] == ["outcome._asdict"]
    fields = {*StagingTask._fields, *Selective._fields, *OutputTask._fields, *Outcome._fields}
    for name in MODULES:
        shared = shortener().names_in(name)
        assert (fields | {"resumed_from", "warnings", "error"}).isdisjoint(shared), name
        assert not [old for old in shared if old.endswith("Error") and not old.startswith("_")]


def test_no_object_of_the_library_has_a_member_that_is_called_otherwise_now() -> None:
    """Whoever gives a member of the runner such a name adds it to NOT_ONLY_OURS.

    Names with an underscore in front are the runner's own business, whoever else has them.
    """
    shared = {old for name in MODULES for old in shortener().names_in(name)}
    functions = {
        statement.name
        for name in MODULES
        for statement in ast.parse(inlined(name)).body
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef))
    }
    behind_dots = {node.attr for node in NODES if isinstance(node, ast.Attribute)}
    keywords = {node.arg for node in NODES if isinstance(node, ast.keyword)}
    exposed = {name for name in shared if not name.startswith("_")}
    exposed -= functions - behind_dots - keywords
    assert exposed.isdisjoint(_names_of_the_library())
    assert exposed.isdisjoint(NOT_ONLY_OURS)


def _names_of_the_library() -> set[str]:
    """What objects and functions of the modules that the runner imports have for names."""
    modules = {"builtins"}
    for node in NODES:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module or "")
    names: set[str] = set()
    for name in modules - {"__future__", "collections.abc", "typing"}:
        module = importlib.import_module(name)
        for found in (module, *list(vars(module).values())):
            if isinstance(found, (type, types.ModuleType)):
                names |= set(dir(found))
        if getattr(module, "__file__", "").endswith(".py"):
            for node in ast.walk(ast.parse(inspect.getsource(module))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
                elif isinstance(node, ast.arg):
                    names.add(node.arg)
    return names


# ------------------------------------------------------------------ programs that could go wrong

PROGRAMS = {
    "f-strings": """
def show(value, width, names):
    inner = {"a": value}
    text = f"{value!r:>{width}} {{value}} {inner['a']}"
    return text + f"{value if value != 1 else width} {names[0]:%}"
print(show(3, 9, [0.5]))
""",
    "f-string with lambda, keyword and comprehension": """
def show(items, sep):
    total = 0
    return f"{sorted(items, key=lambda item: -item)}{sep.join(str(item) for item in items)}{total}"
print(show([1, 2], sep="-"))
""",
    "keywords that are names, too": """
def outer(sep, end):
    file = None
    print(1, 2, sep=sep, end=end, file=file)
outer("+", ".")
""",
    "defaults, decorators and classes look outside": """
limit = 3
def twice(function):
    return lambda value: function(function(value))
class Box:
    limit = 5
    @twice
    def add(limit, other=limit):
        return limit + other
    def read(self, limit=limit):
        class Inner:
            limit = 7
            total = limit
        return self.limit, limit, Inner.total
print(Box.add(1), Box().read())
""",
    "closures": """
def counter(start):
    count = start
    def add(step=1, *, count_twice=False):
        nonlocal count
        count += step * (2 if count_twice else 1)
        return count
    return add
add = counter(5)
print(add(), add(2), add(1, count_twice=True))
""",
    "comprehensions with names of their own": """
def squares(numbers, number):
    seen = [number for number in numbers]
    pairs = {number: other for number in numbers for other in [number * number]}
    return number, seen, pairs, (last := seen[-1]), last
print(squares([1, 2], 9))
""",
    "globals and builtins": """
_total = 0
def add(list, amount):
    global _total
    import json as text
    _total += amount
    for a in list:
        _total += len(text.dumps(a))
    return max(list), sum(list)
print(add([1, 22], 5), _total)
""",
    "exceptions and with": """
import contextlib
def attempt(work):
    try:
        with contextlib.suppress(KeyError) as nothing:
            work()
    except ValueError as error:
        return str(error), nothing
def _fail():
    raise ValueError("no")
print(attempt(_fail))
""",
    "a short name that is taken": """
import math as a
def area(radius):
    return a.floor(a.pi * radius)
print(area(2))
""",
    "members and keywords": """
class Parcel:
    def __init__(self, weight, label):
        self.weight, self.label = weight, label
    def heavier_than(self, other_parcel):
        return self.weight > other_parcel.weight
def _make(weight=1, label="weight"):
    return Parcel(weight=weight, label=label)
print(_make(weight=2).heavier_than(other_parcel=_make()), _make(label="x").label)
""",
    "data is not renamed": """
from typing import NamedTuple
class Row(NamedTuple):
    first_name: str
    born_in: int
_read = {"first_name": "Ada", "born_in": 1815}
row = Row(**_read)
record = dict(long_key=row.born_in)
record.update(another_key=2)
print(row.first_name, row._asdict(), record)
""",
    "single letters": """
def f(b, a):
    c = b - a
    return [d for d in (a, b, c)], (lambda a: a)(c)
print(f(5, 3))
""",
}


def ran(source: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "program", "exec"), {"__name__": "program"})  # noqa: S102 - ours
    return output.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_what_they_did(name: str) -> None:
    source = PROGRAMS[name]
    short = Shortener({"program": source}, kept=["sep", "end", "file"]).shorten("program")
    assert ran(short) == ran(source) != ""
    assert len(short) < len(source)


def test_names_in_f_strings_become_short_too() -> None:
    source = 'def f(value, width):\n    return f"{value:>{width}} value {value!r}"\n'
    expected = 'def f(a,b):return f"{a:>{b}} value {a!r}"\n'
    short = Shortener({"program": source}, kept=["f"]).shorten("program")
    assert short.replace("\n ", "") == expected


def test_an_f_string_that_shows_its_names_is_refused() -> None:
    source = 'def f(value):\n    return f"{value = }"\n'
    with pytest.raises(ValueError, match="cannot be shortened"):
        Shortener({"program": source}).shorten("program")


# ------------------------------------------------------------------ the same everywhere


def _clients() -> list[Path]:
    found = Path.home().glob(".pyenv/versions/3.1[0-9].*/bin/python")
    return [*sorted(found), Path(sys.executable)]


@pytest.mark.parametrize("python", _clients(), ids=lambda path: path.parts[-3])
def test_every_python_packs_the_same(python: Path) -> None:
    """Newer Pythons take f-strings apart into tokens, and number symbols differently."""
    program = (
        "from tao_sdk.bundle.preparation import prepare; import hashlib; "
        "print(hashlib.sha256(repr(prepare()).encode()).hexdigest())"
    )
    done = subprocess.run(
        [python, "-B", "-c", program],
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().strip() == hashlib.sha256(repr(prepare()).encode()).hexdigest()


@pytest.mark.parametrize(
    "body",
    [
        "def helper():\n  return 7\n other = 2\n call = lambda given=helper: given()\n"
        " return call() + other",
        "class Inner:\n  value = 3\n other = 2\n make = lambda kind=Inner: kind().value\n"
        " return make() + other",
        "last = 0\n found = [last := item for item in range(5)]\n return [last, found]",
        "total = [(found := item) for item in range(3)]\n"
        " return [total, found, [found for found in (8, 9)]]",
        "rows = [[cell * len(row) for cell in row] for row in ([1, 2], [3])]\n"
        " return [rows, [row for row in rows if row]]",
        "index = 5\n calls = [lambda index=index: index for index in range(3)]\n"
        " return [index, [call() for call in calls]]",
        "names = 'ab'\n pairs = {name: [other for other in names if other != name]"
        " for name in names}\n return sorted(pairs.items())",
    ],
)
def test_scopes_within_a_function_keep_apart(body: str) -> None:
    source = f"def function():\n {body}\n"
    values = []
    for text in (source, Shortener({"m": source}, kept={"function"}).shorten("m")):
        namespace: dict[str, Any] = {}
        exec(compile(text, "m", "exec"), namespace)  # noqa: S102 - it is above
        values.append(namespace["function"]())
    assert values[0] == values[1]
