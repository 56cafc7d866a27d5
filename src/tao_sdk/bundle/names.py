"""Shorter names for the same program.

What only the program's own code can mention gets a short name: variables and parameters within
their function; in all modules alike whatever begins with an underscore, and what modules define
and nobody mentions behind a dot. Texts, other people's names, fields, methods and the keywords of
calls stay as they are.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import string
import symtable
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from tao_sdk.bundle.name_uses import Use, uses
from tao_sdk.bundle.tokens import Token, join, offsets, tokens


class Shortener:
    """Shortens the modules of one program, which know each other's names."""

    def __init__(self, sources: Iterable[str], kept: Collection[str] = ()) -> None:
        """Names that are `kept` are called from outside of the program."""
        sources = list(sources)
        trees = [ast.parse(source) for source in sources]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        # A parameter that some call names must keep its name.
        self._keywords = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
        private = {name for node in nodes for name in _defined(node) if _is_private(name)}
        public = {
            name
            for tree in trees
            for node in tree.body
            if not isinstance(node, ast.ClassDef)  # messages name the classes of errors
            for name in _defined(node)
        }
        ours = (private | public.difference(_mentioned_as_others(nodes))) - self._keywords
        ours -= {node.value for node in nodes if isinstance(node, ast.Constant)}
        words = Counter(word for source in sources for word in re.findall(r"\w+", source))
        ranked = sorted(ours.difference(kept), key=lambda name: (-words[name], name))
        self.shared: Mapping[str, str] = _assign(ranked, words, prefix="_")
        """Names that mean the same in all modules, and what they are called instead."""

    def shorten(self, source: str) -> str:
        """The module with short names, and without comments and unneeded blanks."""
        tree, place, row = ast.parse(source), offsets(source), list(tokens(source))
        parameters = [node for node in ast.walk(tree) if isinstance(node, ast.arg)]
        found = list(uses(row, {place(node.lineno, node.col_offset) for node in parameters}))
        short = {use.start: self.shared[use.name] for use in found if use.name in self.shared}
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
            names = _assign(dict.fromkeys(use.name for use in variables), taken)
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


def _mentioned_as_others(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names behind a dot, which anybody's object may have, and names from other libraries."""
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names if not node.level)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _assign(names: Iterable[str], taken: Collection[str], prefix: str = "") -> dict[str, str]:
    """A short name for each, the first ones getting the shortest; none that is taken."""
    free = (
        name
        for length in itertools.count(1)
        for letters in itertools.product(string.ascii_letters, repeat=length)
        if (name := prefix + "".join(letters)) not in taken and not keyword.iskeyword(name)
    )
    return dict(zip(names, free, strict=False))


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
