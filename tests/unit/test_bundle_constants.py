"""Constants stand where they are used, and everything is what it was."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tao_sdk.bundle.constants import inline
from tao_sdk.bundle.preparation import inlined, module_names, stripped


class Insert(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._values:
            return node
        return ast.parse(repr(self._values[node.id]), mode="eval").body


@pytest.mark.parametrize("name", module_names())
def test_modules_differ_in_constants_only(name: str) -> None:
    before, after = ast.parse(stripped(name)), ast.parse(inlined(name))
    left = {ast.unparse(node) for node in after.body}
    values = {}
    for statement in list(before.body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement) not in left:
            (target,) = statement.targets
            assert isinstance(target, ast.Name)
            if target.id.startswith("_"):
                values[target.id] = eval(ast.unparse(statement.value), {})  # noqa: S307 - ours
                before.body.remove(statement)
    assert ast.dump(Insert(values).visit(before)) == ast.dump(after)


def test_many_of_the_runners_constants_go() -> None:
    assert sum(len(stripped(name)) - len(inlined(name)) for name in module_names()) > 500


@pytest.mark.parametrize(
    ("source", "small"),
    [
        ("_A = 5\nb = _A + _A", "\nb = 5 + 5"),
        ("_A = 4 * 1024\ndef f(x=_A): return x", "\ndef f(x=4096): return x"),
        ('_A = "text"\nb = f(_A)', '\nb = f("text")'),
        ("_A = 1, 2\nfor b in _A: b", "\nfor b in (1, 2,): b"),
        ('_A = ("a"), "b"\nb = c in _A', '\nb = c in ("a", "b",)'),
    ],
)
def test_what_is_inlined(source: str, small: str) -> None:
    assert inline(source) == small


@pytest.mark.parametrize(
    "source",
    [
        "A = 5\nb = A",  # others may import it
        "_A = 5\n_A = 6\nb = _A",
        "_A = 5\ndef f():\n global _A\n _A = 6",
        '_A = "a long text"\nb = _A + _A',
        "_A = []\nb = _A",
        "_A = f()\nb = _A",
        "_A = B * 2\nb = _A",
        "_A = 5\nb = f'{_A}'",
        "_A = _B = 5\nb = _A",
        "_A = 5\ndef f(_A=3): return _A",
        "_A = 5\nf = lambda _A: _A",
        "_A = 5\ntry: f()\nexcept ValueError as _A: f(_A)",
        "_A = 5\ndef f():\n def _A(): 0\n return _A",
        "_A = 5\nimport os as _A\n_A.path",
        "_A = 5\nb = _A.real",
        "_A = 1 - 3\nb = _A ** 2",
        "_A = 1e308 * 10\nb = _A",
        "_A = 5\nb = _A\ndel _A",
    ],
)
def test_what_stays(source: str) -> None:
    assert inline(source) == source
