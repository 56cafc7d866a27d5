"""Python source without what a machine does not read.

Docstrings, type annotations and whatever exists for those only go, and words that say what is the
case anyway; everything else stays as it was written, character for character. Rebuilding the text
from its syntax tree would be simpler, but newer Pythons then write f-strings that the oldest ones
in containers cannot read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tao_sdk.bundle.edits import Edit, Located, Places, apply


def strip(source: str, *, is_package: bool = False) -> str:
    """The same program, smaller. What a package imports is what others import from it."""
    source = apply(source, _texts_and_annotations(source))
    return apply(source, _only_for_annotations(source, is_package))


def _texts_and_annotations(source: str) -> Iterator[Edit]:
    places = Places(source)
    tree = ast.parse(source)
    for statement in list(tree.body):
        if _is_for_type_checkers(statement) or _is_list_of_names(statement):
            yield places.without(statement)
            tree.body.remove(statement)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield from _texts(node, body, places)
            yield from _variables(node, body, places)
        if isinstance(node, ast.FunctionDef):
            yield from _signature(node, places)
        elif isinstance(node, ast.Raise) and node.exc and isinstance(node.cause, ast.Name):
            # Python remembers what was being handled anyway.
            yield places.end(node.exc), places.end(node.cause), ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield from _usual_encoding(node, places)


def _is_for_type_checkers(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def _is_list_of_names(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"


def _texts(owner: ast.AST, body: list[ast.stmt], places: Places) -> Iterator[Edit]:
    """Every statement that is for readers only: docstrings, texts below a field, assertions."""
    texts = [statement for statement in body if _is_for_readers(statement)]
    needs_body = len(texts) == len(body) and not isinstance(owner, ast.Module)
    for index, statement in enumerate(texts):
        yield places.without(statement, "0" if needs_body and not index else "")


def _is_for_readers(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assert) or (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _variables(owner: ast.AST, body: list[ast.stmt], places: Places) -> Iterator[Edit]:
    for statement in body:
        if not isinstance(statement, ast.AnnAssign):
            continue
        if isinstance(owner, ast.ClassDef):
            # A named tuple must have types; which ones it does not care.
            yield places.without(statement.annotation, "int")
        elif statement.value is None:
            yield places.without(statement, "0")
        else:
            yield places.end(statement.target), places.end(statement.annotation), ""


def _signature(function: ast.FunctionDef, places: Places) -> Iterator[Edit]:
    arguments = function.args
    for argument in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, (arguments.vararg, arguments.kwarg)),
    ):
        if argument.annotation is not None:
            yield places.start(argument) + len(argument.arg), places.end(argument.annotation), ""
    if function.returns is not None:
        yield places.arrow_before(function.returns), places.end(function.returns), ""


def _usual_encoding(call: ast.Call, places: Places) -> Iterator[Edit]:
    """The command starts Python with `-X utf8`."""
    before: Located = call.args[-1]
    for given in call.keywords:
        if given.arg == "encoding" and ast.unparse(given.value) == "'utf-8'":
            yield places.end(before), places.end(given.value), ""
        else:
            before = given.value


def _only_for_annotations(source: str, is_package: bool) -> Iterator[Edit]:
    """Imports, and shapes of objects, that only annotations named."""
    places = Places(source)
    statements = ast.parse(source).body
    protocols = [
        places.without(statement)
        for statement in statements
        if isinstance(statement, ast.ClassDef)
        and any(ast.unparse(base) == "Protocol" for base in statement.bases)
        and not _is_used(statement.name, source)
    ]
    yield from protocols
    remaining = apply(source, protocols)
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and not (is_package and statement.level):
            kept = [alias for alias in statement.names if _is_used(_bound(alias), remaining)]
            if statement.module == "__future__" or not kept:
                yield places.without(statement)
            elif kept != statement.names:
                origin = "." * statement.level + (statement.module or "")
                listed = ", ".join(ast.unparse(alias) for alias in kept)
                yield places.without(statement, f"from {origin} import {listed}")
        elif isinstance(statement, ast.Import) and not any(
            _is_used(_bound(alias), remaining) for alias in statement.names
        ):
            yield places.without(statement)


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _is_used(name: str, source: str) -> bool:
    """Does the source mention the name beyond its definition?"""
    return len(re.findall(rf"\b{name}\b", source)) > 1
