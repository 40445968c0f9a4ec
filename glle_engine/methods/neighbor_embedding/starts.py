"""Starts of the descents: the parameter `initialization`, also written `init`, and given coordinates."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.methods.parameters import DistanceSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOISE = 1e-2  # relative to the start
_USUAL, _NAME = "init", "initialization"


@dataclass(frozen=True, kw_only=True)
class StartSpec(DistanceSpec):
    """Base of the methods with the parameter `initialization`, which umap-learn and openTSNE call `init`.

    Raises
    ------
    InvalidParameterError
        For both names at once, and for initial coordinates, which `Method.embed` takes.

    """

    init: InitVar[str | None] = None

    def __new__(cls, **values: Any) -> Self:
        """Refuse both names."""
        _require_one({name for name, value in values.items() if value is not None})
        return super().__new__(cls)

    def __post_init__(self, init: str | None) -> None:
        """Take `init` as `initialization`."""
        if init is not None:
            if not isinstance(init, str):
                raise InvalidParameterError(
                    f"init of shape {np.shape(init)} is no word: initial coordinates are no parameter.",
                    remedy="Give them to embed: method.embed(X, spec, init=coordinates).",
                )
            object.__setattr__(self, _NAME, init)
        super().__post_init__()

    @property
    def start(self) -> str:
        """The parameter `initialization`, which the subclasses declare."""
        return str(getattr(self, _NAME))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification of a dictionary with either name."""
        _require_one(values)
        return super().from_dict({_NAME if name == _USUAL else name: value for name, value in values.items()})


def _require_one(names: set[str] | dict[str, Any]) -> None:
    if _USUAL in names and _NAME in names:
        raise InvalidParameterError(
            "init and initialization are two names of one parameter.", remedy="Give one of them."
        )


def noisy(start: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return given coordinates with a little noise, which separates equal points and points on a line."""
    return start + NOISE * np.random.default_rng(seed).standard_normal(start.shape)
