"""`glle settings`: the table of settings, their current values, and docs/reference/settings.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from worker.base.settings import Settings, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"

_HEAD = """# Settings

Each setting is an environment variable, and a flag of `glle up`, `glle serve` and `glle worker`. A flag overrides its
variable. Use the same settings for every process of a deployment. `glle settings` prints this table;
`glle settings --current` prints the values of its environment, with passwords hidden. `glle settings --write` writes
this page.

A size is a number of bytes, or a number with a unit: `512MB` is 512,000,000 bytes, `512MiB` 536,870,912.

| Variable | Flag | Default | |
|---|---|---|---|
"""


def list_settings() -> str:
    """Return one line for each setting: variable, default, help."""
    width = max(len(row.variable) for row in rows())
    return "\n".join(f"{row.variable:<{width}}  {row.format(row.default):<12}  {row.help}" for row in rows())


def current(environ: Mapping[str, str]) -> str:
    """Return one line for each setting: variable, value without secrets, and its origin."""
    settings = Settings.from_env(environ)
    shown = [(row, row.format(getattr(settings, row.name)) or "(empty)") for row in rows()]
    width = max(len(row.variable) for row, _ in shown)
    wide = max(len(value) for _, value in shown)
    return "\n".join(
        f"{row.variable:<{width}}  {value:<{wide}}  {'set' if row.variable in environ else 'default'}"
        for row, value in shown
    )


def page() -> str:
    """Return docs/reference/settings.md."""
    lines = []
    for row in rows():
        choices = f" One of {', '.join(f'`{choice}`' for choice in row.choices)}." if row.choices else ""
        default = f"`{row.format(row.default)}`" if row.default != "" else ""
        lines.append(f"| `{row.variable}` | `{row.flag}` | {default} | {row.help}{choices} |\n")
    return _HEAD + "".join(lines)
