"""What users call their things: a name and tags on a record. They are no content, so no digest knows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class Labeled(Protocol):
    """A record with a name and tags."""

    @property
    def name(self) -> str | None:
        """The name, if it was given one."""

    @property
    def tags(self) -> list[str]:
        """The tags, in the order given."""


R = TypeVar("R", bound=Labeled)


def with_labels(record: R, changes: dict[str, Any]) -> R:
    """Return a record with a JSON merge patch (RFC 7396) of `name` and `tags`: null takes away, the absent stays."""
    unset: dict[str, Any] = {"name": None, "tags": []}
    known = {member: unset[member] if value is None else value for member, value in changes.items()}
    return replace(record, **known)  # type: ignore[type-var] # every record is a dataclass


def matches_labels(record: Labeled, name: str | None, tags: Sequence[str]) -> bool:
    """Say whether a record has this name, where one is given, and all these tags."""
    return (name is None or record.name == name) and set(tags) <= set(record.tags)
