"""Constants in the places where they are used: a name and a line less for each."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tao_sdk.bundle.edits import Edit, Places, apply

_SHORT = 3
"""Characters of a number that may stand in several places."""


def inline(source: str) -> str:
    """The module with its private constants where it mentions them, if that makes it smaller."""
    tree, places = ast.parse(source), Places(source)
    uses: dict[str, list[ast.Name]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            uses.setdefault(node.id, []).append(node)
    in_texts = {
        node.id
        for text in ast.walk(tree)
        if isinstance(text, ast.JoinedStr)
        for node in ast.walk(text)
        if isinstance(node, ast.Name)
    }
    edits: list[Edit] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        # Where older Pythons say that a name within a text stands is not where it does.
        if not isinstance(target, ast.Name) or not _is_constant(target.id, uses, in_texts):
            continue
        literal = _literal(source, statement.value)
        mentions = [use for use in uses[target.id] if use is not target]
        if literal and (len(mentions) == 1 or len(literal) <= _SHORT):
            edits.append(places.without(statement))
            edits += (places.without(use, literal) for use in mentions)
    return apply(source, edits)


def _is_constant(name: str, uses: Mapping[str, list[ast.Name]], in_texts: set[str]) -> bool:
    is_private = name.startswith("_") and not name.startswith("__") and name != "_"
    set_once = sum(isinstance(use.ctx, ast.Store) for use in uses[name]) == 1
    return is_private and set_once and name not in in_texts


def _literal(source: str, value: ast.expr) -> str:
    """The shortest text of a value that cannot change; "" where it is none, or takes many lines."""
    if isinstance(value, ast.BinOp):
        operands = [node for node in ast.walk(value) if isinstance(node, ast.expr)]
        if all(isinstance(node, ast.BinOp) or _is_number(node) for node in operands):
            return repr(eval(compile(ast.Expression(value), "", "eval"), {}))  # noqa: S307 - numbers
        return ""
    text = ast.get_source_segment(source, value) or ""
    is_fixed = isinstance(value, ast.Constant) or (
        isinstance(value, ast.Tuple) and all(isinstance(part, ast.Constant) for part in value.elts)
    )
    if not is_fixed or "\n" in text:
        return ""
    return f"({text})" if isinstance(value, ast.Tuple) and not text.startswith("(") else text


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
