"""Shorter names for the same program.

What only the program's own code can mention gets a short name. Variables and parameters have one
within their function. In all modules alike are renamed: whatever begins with an underscore; what
modules define and nobody mentions behind a dot; and fields, methods and the keywords of calls, as
far as nobody else's objects and functions have one of that name. Texts, other people's names and
the names of data stay as they are.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import string
import symtable
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from tao_sdk.bundle.name_uses import Use, uses
from tao_sdk.bundle.tokens import Token, join, offsets, tokens

_DATA_MAKERS = ("dict", "update", "format")
"""Functions whose keywords are data."""


class Shortener:
    """Shortens the modules of one program, which know each other's names."""

    def __init__(self, sources: Mapping[str, str], kept: Collection[str] = ()) -> None:
        """Names that are `kept` are called from outside, or members of others' objects, too."""
        self._sources = sources
        trees = [ast.parse(source) for source in sources.values()]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        # A parameter that some call names has the same name everywhere.
        self._keywords = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
        ours = _ours(trees, nodes, self._keywords).difference(kept)
        words = {name: set(re.findall(r"\w+", text)) for name, text in sources.items()}
        mentioning = {
            name: [module for module, found in words.items() if name in found] for name in ours
        }
        self._names: dict[str, dict[str, str]] = {module: {} for module in sources}
        taken = {module: set(found) for module, found in words.items()}
        # Two things may be called the same where no module mentions both: the fewer names there
        # are, the better they compress.
        for name in sorted(ours):
            short = next(
                short
                for short in _names(string.ascii_uppercase)
                if not any(short in taken[module] for module in mentioning[name])
            )
            for module in mentioning[name]:
                self._names[module][name] = short
                taken[module].add(short)

    def names_in(self, module: str) -> Mapping[str, str]:
        """What things are called instead, wherever this module mentions them.

        Things that several modules mention are called the same in all of them.
        """
        return self._names[module]

    def shorten(self, module: str) -> str:
        """The module with short names, and without comments and unneeded blanks."""
        source, shared = self._sources[module], self._names[module]
        tree, place, row = ast.parse(source), offsets(source), list(tokens(source))
        parameters = [node for node in ast.walk(tree) if isinstance(node, ast.arg)]
        found = list(uses(row, {place(node.lineno, node.col_offset) for node in parameters}))
        short = {use.start: shared[use.name] for use in found if use.name in shared}
        tables = dict(_function_tables(symtable.symtable(source, "module", "exec")))
        for function in _outermost_functions(tree):
            start = place(function.lineno, function.col_offset)
            end = place(function.end_lineno or 0, function.end_col_offset or 0)
            # Without the first one, which is the function's own name, even if it has a variable
            # of that name.
            inside = [use for use in found if start <= use.start < end][1:]
            own = self._own_names(function, tables[function.name, function.lineno])
            variables = [use for use in inside if use.role == "variable" and use.name in own]
            taken = {short.get(use.start, use.name) for use in inside if use.name not in own}
            in_order = dict.fromkeys(use.name for use in variables)
            names = _assign(in_order, taken, _in_expressions(function))
            short.update((use.start, names[use.name]) for use in variables)
        return join(_renamed(row, found, short))

    def _own_names(self, function: ast.FunctionDef, table: symtable.SymbolTable) -> set[str]:
        """Names that mean variables of the function, or of those within it, wherever they stand."""
        own: set[str] = set()
        others: set[str] = set()
        for scope in _with_descendants(table):
            for symbol in scope.get_symbols():
                name = symbol.get_name()
                bound = symbol.is_local() or symbol.is_free()
                if (
                    bound
                    and scope.get_type() == "function"
                    and not symbol.is_imported()
                    and not name.startswith(("__", "."))
                    and not (symbol.is_parameter() and name in self._keywords)
                ):
                    own.add(name)
                else:
                    others.add(name)
        # These are looked up outside of the function that they are written in.
        defaults = (*function.args.defaults, *filter(None, function.args.kw_defaults))
        for outside in (*function.decorator_list, *defaults):
            others.update(node.id for node in ast.walk(outside) if isinstance(node, ast.Name))
        return own - others


def _ours(
    trees: Iterable[ast.Module], nodes: Collection[ast.AST], keywords: Collection[str]
) -> set[str]:
    """Names that can be exchanged wherever they stand in the program."""
    private = {name for node in nodes for name in _defined(node) if _is_private(name)}
    public = {name for tree in trees for node in tree.body for name in _defined(node)}
    behind_dots = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    members = {name for node in nodes for name in _members(node)} | parameters.intersection(
        keywords
    )
    ours = (private | public - behind_dots).difference(keywords)
    ours |= {name for name in members if not name.startswith("__")}
    return ours.difference(_imported(nodes), _data_names(nodes), _error_classes(nodes))


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a statement, or a part of one, gives to something."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _members(node: ast.AST) -> Iterator[str]:
    """What objects of the program's own classes have."""
    if isinstance(node, ast.ClassDef):
        yield from _fields(node)
        yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef))
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def _fields(node: ast.ClassDef) -> list[str]:
    annotated = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    return [target.id for target in annotated if isinstance(target, ast.Name)]


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Modules, and what comes from other libraries."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names if not node.level)


def _data_names(nodes: Collection[ast.AST]) -> Iterator[str]:
    """Names that are (keys of) data: in texts, as keywords that make data or are made of it."""
    fields = {node.name: _fields(node) for node in nodes if isinstance(node, ast.ClassDef)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            given = [word.arg for word in node.keywords]
            if called in _DATA_MAKERS:
                yield from filter(None, given)
            if None in given:  # two asterisks
                yield from fields.get(called, ())


def _error_classes(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Messages name them."""
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
            yield node.name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _names(first: str, shortest: int = 1) -> Iterator[str]:
    """Names whose first letter is one of these, the shortest ones first."""
    others = string.ascii_letters + string.digits
    for length in itertools.count(shortest):
        for letters in itertools.product(first, *itertools.repeat(others, length - 1)):
            yield "".join(letters)


def _assign(
    names: Iterable[str], taken: Collection[str], beside: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """A short name for each, the first ones getting the shortest; none that is taken.

    What is in `beside` need only differ from the names that it stands beside.
    """
    short: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name in beside):
        others = beside.get(name, short)
        used = {*taken, *(short[other] for other in others if other in short)}
        short[name] = next(
            free
            for free in _names(string.ascii_letters)
            if free not in used and not keyword.iskeyword(free)
        )
    return short


def _in_expressions(function: ast.FunctionDef) -> dict[str, set[str]]:
    """Names that mean variables of comprehensions and lambdas only, and what stands beside them."""
    beside: dict[str, set[str]] = {}
    within: set[ast.AST] = set()
    for scope in ast.walk(function):
        if isinstance(scope, ast.Lambda):
            bound: list[ast.AST] = [scope.args]
        elif isinstance(scope, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            bound = [generator.target for generator in scope.generators]
        else:
            continue
        nodes = set(ast.walk(scope))
        within |= nodes
        mentioned = set(map(_variable, nodes))
        for name in (_variable(node) for part in bound for node in ast.walk(part)):
            beside.setdefault(name, set()).update(mentioned - {name})
    elsewhere = {_variable(node) for node in ast.walk(function) if node not in within}
    # These are variables of the function, or may be, wherever they stand.
    for node in ast.walk(function):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            elsewhere.add(node.name)
        elif isinstance(node, ast.NamedExpr):
            elsewhere.add(node.target.id)
    return {name: others for name, others in beside.items() if name not in elsewhere}


def _variable(node: ast.AST) -> str:
    """The variable or parameter that is mentioned here; "" where there is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    return node.name or "" if isinstance(node, ast.ExceptHandler) else ""


def _renamed(
    row: Iterable[Token], found: Iterable[Use], short: Mapping[int, str]
) -> Iterator[Token]:
    """The tokens with the short names that stand at some places of the source."""
    waiting = deque(use for use in found if use.start in short)
    for token in row:
        text, shift = token.text, -token.start
        while waiting and waiting[0].start < token.end:
            use = waiting.popleft()
            at, name = use.start + shift, short[use.start]
            text = text[:at] + name + text[at + len(use.name) :]
            shift += len(name) - len(use.name)
        yield token._replace(text=text)


def _outermost_functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Functions of the module and methods of its classes, in their order."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        elif isinstance(statement, ast.ClassDef):
            yield from _outermost_functions(statement)


def _function_tables(
    table: symtable.SymbolTable,
) -> Iterator[tuple[tuple[str, int], symtable.SymbolTable]]:
    for child in table.get_children():
        if child.get_type() == "function":
            yield (child.get_name(), child.get_lineno()), child
        else:
            yield from _function_tables(child)


def _with_descendants(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _with_descendants(child)
