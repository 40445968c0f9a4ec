"""The one list of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glle_engine.errors import InvalidParameterError
from glle_engine.methods import alle, drill, lle, meu, mvu, pca

if TYPE_CHECKING:
    from glle_engine.methods.method import Method

METHODS: dict[str, Method[Any]] = {
    module.METHOD.name: module.METHOD
    for module in (
        pca,
        lle,
        meu,
        alle,
        drill,
        mvu,
    )
}
"""By name, in the order in which they are told."""


def method(name: str) -> Method[Any]:
    """Return a method by its name.

    Raises
    ------
    InvalidParameterError
        With the names there are.

    """
    if name not in METHODS:
        raise InvalidParameterError(f"method={name!r} is not known.", remedy=f"Choose one of {', '.join(METHODS)}.")
    return METHODS[name]
