"""Calls without a network: what is to be asked, what came back, and methods as generators between the two.

A method of the client is written once, as a generator. It yields a `Call` and is sent the `Reply` or the `Failure`,
or it yields a `Pause`; what it returns is the method's result. `Client` drives such a generator with blocking requests,
`AsyncClient` with awaited ones; neither knows what it is about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/zip"

T = TypeVar("T")


class Sink(Protocol):
    """Takes the body of an answer piece by piece, so that it need not be whole twice."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""

    def end(self) -> Any:
        """Return what the body was, once it is over."""

    def drop(self) -> None:
        """Let go of what was taken: the connection broke."""


@dataclass(frozen=True)
class Body:
    """What is sent.

    Parameters
    ----------
    media
        Its Content-Type.
    pieces
        Begins it anew, for every attempt.
    length
        Its bytes, where they are known beforehand.

    """

    media: str
    pieces: Callable[[], Iterator[bytes]]
    length: int | None = None

    @classmethod
    def of_json(cls, value: Any) -> Body:
        """Return a command's body."""
        text = json.dumps(value, allow_nan=False).encode()
        return cls(JSON, lambda: iter([text]), len(text))

    @classmethod
    def of_file(cls, path: Path, media: str) -> Body:
        """Return a file's bytes, read as they are sent."""

        def pieces() -> Iterator[bytes]:
            with path.open("rb") as file:
                while piece := file.read(2**20):
                    yield piece

        return cls(media, pieces, path.stat().st_size)


@dataclass(frozen=True)
class Call:
    """One request.

    Parameters
    ----------
    key
        The Idempotency-Key: with it a POST may be sent again.
    by_content
        Whether a POST may be sent again because what it makes is named by its content.
    sink
        Makes what takes the body of a 200; other bodies are small, and kept whole.

    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Body | None = None
    accept: str = JSON
    key: str | None = None
    by_content: bool = False
    sink: Callable[[], Sink] | None = None

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no more than sending it once."""
        return self.method != "POST" or self.key is not None or self.by_content


@dataclass(frozen=True)
class Reply:
    """What came back: `body` is bytes, or what the call's sink made of a 200."""

    status: int
    headers: Mapping[str, str]
    body: Any

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Failure:
    """No answer: the connection was not made, or broke (`connected`)."""

    reason: str
    connected: bool = True


@dataclass(frozen=True)
class Pause:
    """Some seconds to wait."""

    seconds: float


Steps: TypeAlias = Generator[Call | Pause, Any, T]
