"""The result of an analysis: its arrays and its facts, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Result:
    """What an analysis found; arrays and facts are attributes, too: ``summary.spread``, ``advice.n_neighbors``.

    Attributes
    ----------
    arrays
        Its arrays by name.
    told
        All else.

    """

    arrays: dict[str, Array] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """Return an array or a fact."""
        if not name.startswith("_"):
            for found in (self.arrays, self.told):
                if name in found:
                    return found[name]
        raise AttributeError(f"There is no {name!r} here, but {', '.join(self.__dir__()) or 'nothing'}.")

    def __dir__(self) -> list[str]:
        """Return the names."""
        return [*self.arrays, *self.told]

    def __repr__(self) -> str:
        shapes = [f"{name}: {array.dtype} {array.shape}" for name, array in self.arrays.items()]
        return f"Result({', '.join([*shapes, *self.told])})"

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Result:
        """Return the result that the service told as JSON."""
        facts = {name: value for name, value in told.items() if name != "arrays"}
        given = told.get("arrays", {}).items()
        arrays = {name: np.array(one["data"], one["dtype"]).reshape(one["shape"]) for name, one in given}
        return cls(arrays, facts)
