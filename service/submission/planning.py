"""What a request asks of a method: its parameters checked, and whether the data allow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glle_engine.base.errors import InvalidParameterError
from glle_engine.methods import method
from service.schemas.resources import MAX_COUNTER
from worker.storage.array_cache import entry_bytes

if TYPE_CHECKING:
    from glle_engine.methods import Method, MethodSpec
    from service.schemas.embeddings import MethodIn
    from worker.storage.datasets import Dataset
    from worker.stores import Stores


@dataclass(frozen=True)
class Plan:
    """A method with its specification."""

    method: Method[Any]
    spec: MethodSpec

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter with its value, JSON-able."""
        return self.spec.to_dict()

    def require_possible(self, here: Stores, dataset: Dataset, *, labels: bool) -> None:
        """Raise the problem of what cannot be done on a data set, or not be kept; the sizes tell."""
        n, p = dataset.n, self.spec.n_components
        self.method.require_possible(n, dataset.d, self.spec, labels=labels and self.method.labels)
        here.cache.check_size(entry_bytes((n, p)), f"The embedding of {n:,} points")


def planned(asked: MethodIn) -> Plan:
    """Return what is asked of a method.

    Raises
    ------
    InvalidParameterError
        For a method that is not known, and for a parameter outside its domain, by its name.

    """
    for name, value in asked.parameters.items():
        if isinstance(value, int) and abs(value) > MAX_COUNTER:
            raise InvalidParameterError(
                f"{name[:50]} is beyond 2^64 - 1.", remedy=f"Give {name[:50]} of at most {MAX_COUNTER}."
            )
    one = method(asked.method)
    return Plan(one, one.spec.from_dict(asked.parameters))
