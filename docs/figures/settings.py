"""docs/reference/settings.md, which is generated from the table of settings.

`python -m docs.figures.settings` writes the page.
"""

from __future__ import annotations

from pathlib import Path

from worker.base.settings import rows

PAGE = Path(__file__).resolve().parents[1] / "reference" / "settings.md"

_HEAD = """# Settings

Each setting is an environment variable, and a flag of `glle up`, `glle serve` and `glle worker`: `GLLE_JOB_TTL` is also
`--job-ttl`. A flag overrides its variable. Use the same settings for every process of a deployment. `glle settings
--current` prints the values of its environment, with passwords hidden. `make generate` writes this page.

A size is a number of bytes, or a number with a unit: `512MB` is 512,000,000 bytes, `512MiB` 536,870,912.

| Variable | Default | |
|---|---|---|
"""


def page() -> str:
    """Return the page."""
    lines = []
    for row in rows():
        choices = f" One of {', '.join(f'`{choice}`' for choice in row.choices)}." if row.choices else ""
        default = f"`{row.format(row.default)}`" if row.default != "" else ""
        lines.append(f"| `{row.variable}` | {default} | {row.help}{choices} |\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
