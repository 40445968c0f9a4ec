"""Hook of the documentation site: tables in details."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose `<details>` contain Markdown, as on GitHub."""
    return markdown.replace("<details>", '<details markdown="1">')
