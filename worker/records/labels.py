"""Labels of a record: a name and tags. They are not part of its content, so its id does not depend on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class Labeled(Protocol):
    """Record with a name and tags."""

    @property
    def name(self) -> str | None:
        """Name, or None."""

    @property
    def tags(self) -> list[str]:
        """Tags in the user's order."""


R = TypeVar("R", bound=Labeled)


def with_labels(record: R, changes: dict[str, Any]) -> R:
    """Apply a JSON merge patch (RFC 7396) of `name` and `tags` to a record; null resets a member."""
    defaults: dict[str, Any] = {"name": None, "tags": []}
    labels = {member: defaults[member] if value is None else value for member, value in changes.items()}
    return replace(record, **labels)  # type: ignore[type-var] # every record is a dataclass


def matches_labels(record: Labeled, name: str | None, tags: Sequence[str]) -> bool:
    """Return whether a record has this name (None: any name) and all these tags."""
    return (name is None or record.name == name) and set(tags) <= set(record.tags)
