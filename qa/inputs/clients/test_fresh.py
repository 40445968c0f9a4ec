"""The check of the client alone: it finds packages of the server, and the page has the blocks that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qa.inputs.clients import fresh
from qa.inputs.clients.npm import UnavailableError


def test_an_environment_with_the_server_is_refused(tmp_path: Path) -> None:
    """The one of the tests has it, and the error names its packages."""
    with pytest.raises(RuntimeError, match=r"has glle, fastapi, redis, rq, uvicorn.*glle alone is right"):
        fresh.require_client_only(Path(sys.executable), tmp_path)


def test_the_page_has_code_for_both() -> None:
    """Python from the first line, and every command."""
    assert [block.split()[0] for block in fresh.blocks("python")] == ["import", "import"]
    assert [line.split()[1] for line in fresh.commands()] == ["fit", "draw", "summary", "datasets", "jobs"]


@pytest.mark.parametrize(
    ("message", "kind"), [("NewConnectionError(...)", UnavailableError), ("a conflict", RuntimeError)]
)
def test_only_a_missing_index_skips_the_check(
    message: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Any other error of pip fails it."""

    def failing(*_: object, **__: object) -> str:
        raise RuntimeError(message)

    monkeypatch.setattr(fresh, "run", failing)
    with pytest.raises(kind):
        fresh.install(Path(sys.executable), "glle", cwd=tmp_path)
