"""Possible changes of logic in a source file: turned comparisons, signs, and/or, negations and conditional values."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True)
class Change:
    """A change of one expression in a source file.

    Attributes
    ----------
    start, end : int
        Range of the expression in bytes.
    line : int
    function : str
        Name of the function with the expression.
    before, after : str
        The expression, and what replaces it.

    """

    start: int
    end: int
    line: int
    function: str
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """Return the source code with the expression replaced."""
        return source[: self.start] + f"({self.after})".encode() + source[self.end :]


def find_changes(source: bytes) -> list[Change]:
    """Return every possible change in the bodies of a file's functions."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    changes = {}
    for function in functions:
        for node in (each for statement in function.body for each in _walk(statement)):
            for after in _variants(node):
                assert isinstance(node, ast.expr)
                assert node.end_lineno is not None
                assert node.end_col_offset is not None
                start = starts[node.lineno - 1] + node.col_offset
                end = starts[node.end_lineno - 1] + node.end_col_offset
                before = source[start:end].decode()
                changes[start, end, after] = Change(start, end, node.lineno, function.name, before, after)
    return list(changes.values())


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes in it, except those within f-strings, whose positions Python 3.11 does not know."""
    if not isinstance(node, ast.JoinedStr):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def _variants(node: ast.AST) -> Iterator[str]:
    """Yield the source code of each changed form of an expression; most expressions have none."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in _COMPARISONS:
            yield ast.unparse(ast.Compare(left, [_COMPARISONS[type(operator)]()], right))
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield ast.unparse(ast.BoolOp(other, values))
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand)
        case ast.BinOp(left, operator, right) if type(operator) in _SIGNS and not _has_text(node):
            yield ast.unparse(ast.BinOp(left, _SIGNS[type(operator)](), right))
        case ast.IfExp(test, body, orelse):
            yield ast.unparse(ast.IfExp(test, orelse, body))


def _has_text(node: ast.AST) -> bool:
    texts = (ast.JoinedStr, ast.List, ast.Tuple)
    return any(
        isinstance(each, texts) or (isinstance(each, ast.Constant) and isinstance(each.value, (str, bytes)))
        for each in ast.walk(node)
    )
