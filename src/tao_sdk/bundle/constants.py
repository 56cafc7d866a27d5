"""Constants in the places where they are used: a name and a line less for each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tao_sdk.bundle.edits import Edit, Places, apply

_SHORT = 3
"""Characters of a number that may stand in several places."""


def inline(source: str) -> str:
    """The module with its private constants where it mentions them, if that makes it smaller."""
    tree, places = ast.parse(source), Places(source)
    refused = _refused(tree)
    edits: list[Edit] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or not _is_private(target.id) or target.id in refused:
            continue
        literal = _literal(source, statement.value)
        uses = [node for node in _names(tree) if node.id == target.id and node is not target]
        if literal and (len(uses) == 1 or len(literal) <= _SHORT):
            edits.append(places.without(statement))
            edits += (places.without(use, literal) for use in uses)
    return apply(source, edits)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Name))


def _refused(tree: ast.Module) -> set[str]:
    """Names that may mean something else somewhere, or cannot be exchanged everywhere."""
    refused: set[str] = set()
    bound: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            # Where older Pythons say that a name within a text stands is not where it does.
            refused.update(name.id for name in _names(node))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            refused.add(node.value.id)  # 5.real is not Python
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.append(node.id)
        elif isinstance(node, ast.arg):
            refused.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            refused.add(node.name or "")
        elif isinstance(node, ast.alias):
            refused.add(node.asname or node.name)
    return refused | {name for name in bound if bound.count(name) > 1}


def _literal(source: str, value: ast.expr) -> str:
    """The text of a value that cannot change; "" where it is none, or takes lines or a sign."""
    if isinstance(value, ast.BinOp):
        operands = [node for node in ast.walk(value) if isinstance(node, ast.expr)]
        if not all(isinstance(node, ast.BinOp) or _is_number(node) for node in operands):
            return ""
        text = repr(eval(compile(ast.Expression(value), "", "eval"), {}))  # noqa: S307 - numbers
        return text if text[0].isdigit() else ""
    if isinstance(value, ast.Tuple):
        parts = [_literal(source, part) for part in value.elts]
        return f"({', '.join(parts)},)" if all(parts) else ""
    text = ast.get_source_segment(source, value) or ""
    return text if isinstance(value, ast.Constant) and "\n" not in text else ""


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
