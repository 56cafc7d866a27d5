"""Sources without what a machine does not read are the same programs."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator

import pytest

from tao_sdk.bundle.preparation import (
    import_targets,
    is_package,
    module_names,
    source_of,
    stripped,
)
from tao_sdk.bundle.stripping import strip
from tao_sdk.bundle.tokens import join, tokens

MODULES = module_names()


UTF8 = "encoding='utf-8'"


class Essence(ast.NodeTransformer):
    """What counts of a syntax tree: nothing that is only for readers or type checkers."""

    def _visit_body(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        body = [statement for statement in node.body if not _is_only_for_readers(statement)]  # type: ignore[attr-defined]  # every node that is visited so has one
        if not body and not isinstance(node, ast.Module):
            body = [ast.Expr(ast.Constant(0))]
        node.body = body  # type: ignore[attr-defined]  # every node that is visited so has one
        return node

    visit_Module = visit_ClassDef = visit_If = visit_For = visit_With = visit_Try = _visit_body  # noqa: N815 - as the library calls them
    visit_ExceptHandler = visit_While = _visit_body  # noqa: N815 - as the library calls them

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._visit_body(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.cause, ast.Name):  # which it would remember by itself
            node.cause = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "open":  # where UTF-8 is what Python was started with
            node.keywords = [word for word in node.keywords if ast.unparse(word) != UTF8]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return node
        return ast.Assign([node.target], node.value)


def _is_only_for_readers(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "TYPE_CHECKING"
    if isinstance(statement, ast.ClassDef):
        return any(ast.unparse(base) == "Protocol" for base in statement.bases)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, (str, int))
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]) == "__all__"
    # Declared, but not set; and what is imported is checked on its own below.
    return isinstance(statement, (ast.AnnAssign, ast.Assert, ast.Import, ast.ImportFrom))


def essence(source: str) -> str:
    return ast.dump(Essence().visit(ast.parse(source)), indent=1)


def fields(source: str) -> list[tuple[str, str]]:
    """Classes and the names of their annotated fields."""
    return [
        (node.name, statement.target.id)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and not _is_only_for_readers(node)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


@pytest.mark.parametrize("name", MODULES)
def test_the_program_is_the_same(name: str) -> None:
    assert essence(stripped(name)) == essence(source_of(name))
    assert fields(stripped(name)) == fields(source_of(name))


@pytest.mark.parametrize("name", MODULES)
def test_putting_tokens_together_changes_nothing(name: str) -> None:
    source = stripped(name)
    assert ast.dump(ast.parse(join(tokens(source)))) == ast.dump(ast.parse(source))


@pytest.mark.parametrize("name", MODULES)
def test_nothing_for_readers_is_left(name: str) -> None:
    for node in ast.walk(ast.parse(stripped(name))):
        assert not isinstance(node, ast.arg) or node.annotation is None
        assert not isinstance(node, ast.FunctionDef) or node.returns is None
        if isinstance(node, ast.AnnAssign):
            assert ast.unparse(node.annotation) == "int"
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            assert ast.get_docstring(node) is None


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_still_defined(name: str) -> None:
    """Only imports that nothing uses are gone."""
    table = symtable.symtable(stripped(name), name, "exec")
    known = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    known |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_imported()}
    known |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_namespace()}
    known |= {*dir(builtins), "__name__", "__file__", "__package__"}
    wanted = {
        symbol.get_name()
        for scope in _scopes(table)
        for symbol in scope.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or scope is table)
    }
    assert wanted <= known


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


@pytest.mark.parametrize("name", MODULES)
def test_whatever_is_imported_is_there(name: str) -> None:
    """Also what a module has of another one, and what functions import."""
    package = name if is_package(name) else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(stripped(name))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        targets = import_targets(node, package)
        assert targets, ast.unparse(node)
        for alias in node.names:
            is_module = any(target.rpartition(".")[2] == alias.name for target in targets)
            assert is_module or alias.name in _defined_in(targets[0]), ast.unparse(node)


def _defined_in(name: str) -> set[str]:
    table = symtable.symtable(stripped(name), name, "exec")
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Doc."""\nx = 1  # why\n', "x=1\n"),
        ('x = "# no comment"\n', 'x="# no comment"\n'),
        ('def f():\n    """Doc."""\n', "def f():\n 0\n"),
        ('class A(E):\n    """Doc."""\n    """More."""\n', "class A(E):\n 0\n"),
        ("def f(a: int, *b: str, c: bool = True, **d: int) -> str:\n    return 1\n",
         "def f(a,*b,c=True,**d):\n return 1\n"),
        ("def f(\n    a: dict[str, int],\n) -> Callable[[], None]:\n    return a\n",
         "def f(a,):\n return a\n"),
        ("x = f(\n    a,\n    (b,),\n)\n", "x=f(a,(b,))\n"),
        ("x = [a, (b,), c[d, :,], {e, f,},]\n", "x=[a,(b,),c[d,:],{e,f}]\n"),
        ('def f(a: str = "->") -> str:\n    return a\n', 'def f(a="->"):\n return a\n'),
        ("x: int = 1\ny: str\n", "x=1\n0\n"),
        ('class A(NamedTuple):\n    a: str\n    """About a."""\n    b: tuple[int, ...] = ()\n',
         "class A(NamedTuple):\n a:int\n b:int=()\n"),
        ("from typing import Any, NamedTuple\nclass A(NamedTuple):\n    a: Any\n",
         "from typing import NamedTuple\nclass A(NamedTuple):\n a:int\n"),
        ("from __future__ import annotations\nfrom .a import A\ndef f(a: A): return f(a)\n",
         "def f(a):return f(a)\n"),
        ("from .a import A as B, C\nB()\n", "from.a import A as B\nB()\n"),
        ("if TYPE_CHECKING:\n    from .a import A\nx = 1\n", "x=1\n"),
        ("class P(Protocol):\n    def f(self): ...\ndef g(p: P): p.f()\n", "def g(p):p.f()\n"),
        ("class P(Protocol):\n    pass\nclass Q(P):\n    x = 1\n",
         "class P(Protocol):\n pass\nclass Q(P):\n x=1\n"),
        ("import os, re\nimport json\nre.sub()\n", "import os,re\nre.sub()\n"),
        ('__all__ = ["x"]\nx = 1\n', "x=1\n"),
        ("x = f'{a }  {b:>{c}}  # kept'\n", "x=f'{a }  {b:>{c}}  # kept'\n"),
        ("é = 'ü'; x: int = é  # ö\n", "é='ü';x=é\n"),
        ("x = (1 if a else - b) is not c\n", "x=(1 if a else-b)is not c\n"),
        ("x = [\n    1,  # one\n\n    2,\n]\n", "x=[1,2]\n"),
        ("with a as b, \\\n        c:\n    pass\n", "with a as b,c:\n pass\n"),
        ("raise A('b') from c\n", "raise A('b')\n"),
        ("raise A('b') from None\n", "raise A('b')from None\n"),
        ('open(a, "x", encoding="utf-8")\n', 'open(a,"x")\n'),
        ('open(a, encoding="utf-8", errors=b)\n', "open(a,errors=b)\n"),
        ('open(a, encoding="ascii")\n', 'open(a,encoding="ascii")\n'),
        ("def f(a):\n    assert a\n    return a\n", "def f(a):\n return a\n"),
        ('x = ("a"\n    "b")\n', 'x=("ab")\n'),
        ('x = f"{a}: " "b" f"{c}"\n', 'x=f"{a}: b{c}"\n'),
        ('x = f"{a}" "{b}"\n', 'x=f"{a}""{b}"\n'),
        ('x = "\\1" "2"\n', 'x="\\1""2"\n'),
        ("x = \"a\" 'b' r\"c\"\n", "x=\"a\"'b'r\"c\"\n"),
    ],
)  # fmt: skip
def test_examples(source: str, expected: str) -> None:
    assert join(tokens(strip(source))) == expected


def test_what_a_package_imports_is_what_others_import_from_it() -> None:
    assert strip("from .a import A\n", is_package=True) == "from .a import A\n"
    assert strip("from .a import A\n") == "\n"


@pytest.mark.parametrize("text", ['"""two\n  lines"""', "f'''{\n  a}'''"])
def test_a_text_on_several_lines_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot travel"):
        join(tokens(f"x = {text}\n"))
