"""Hooks of the documentation site: tables in details, and docstrings as a caller reads them."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:math|class|func|mod):(?=<code>)")
_BLOCK = re.compile(r"<p>\.\. math::\s*(.*?)</p>", re.DOTALL)
# Parameters that a docstring groups get the type and the default of the first one; the signature has the right ones.
_GROUPED = re.compile(
    r'<tr class="doc-section-item">(?:(?!</tr>).)*?<div class="doc-md-description">\s*'
    r"(?:<p>See <code>FitSpec</code>\.</p>\s*)?</div>(?:(?!</tr>).)*?</tr>",
    re.DOTALL,
)
# A generator of the transport; callers get its value.
_STEPS = re.compile(r'<span class="n">Steps</span><span class="p">\[</span>(.*?)\](</span>)(?=\n)')


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose `<details>` contain Markdown, as on GitHub."""
    return markdown.replace("<details>", '<details markdown="1">')


def on_page_content(html: str, **_: Any) -> str:
    """Return a page with math roles and blocks as code, and with the types that a caller sees."""
    html = _BLOCK.sub(r"<pre><code>\1</code></pre>", _ROLE.sub("", html))
    return _STEPS.sub(r"\1\2", _GROUPED.sub("", html))
