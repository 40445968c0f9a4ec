"""The check of the client alone: it finds packages of the server, and the page has the blocks that it runs."""

import sys
from pathlib import Path

import pytest

from qa.audit import unlocked
from tests.docs.pages import blocks


def test_an_environment_with_the_server_is_refused(tmp_path: Path) -> None:
    """The one of the tests has it, and the error names its packages."""
    with pytest.raises(RuntimeError, match=r"has glle, fastapi, redis, rq, uvicorn.*glle alone is right"):
        unlocked.require_client_only(Path(sys.executable), tmp_path)


def test_the_page_has_code_for_both() -> None:
    """Python from the first line, and every command."""
    assert [block.split()[0] for block in blocks(unlocked.PAGE, "python")] == ["import", "import"]
    assert [line.split()[1] for line in unlocked.commands()] == ["fit", "draw", "summary", "datasets", "jobs"]
