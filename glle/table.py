"""Tables of compared maps, as a pandas frame, as aligned text and as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd


# Columns in the table of a comparison: the name of the column, and the key of its values in `MapFacts.numbers`.
_FACTS = {
    "neighbors": "kept",
    "distances": "straight",
    "along": "along",
    "islands": "islands",
    "trusted_islands": "trusted",
    "trusted_points": "grouped",
}


def map_frame(rows: Sequence[Mapping[str, Any]], best: Mapping[str, str | None]) -> pd.DataFrame:
    """Return a pandas frame with a row for each map of a comparison.

    `rows` are the dictionaries in the `rows` of a service's comparison, but with `problem` as a text or None. `best`
    maps each question ("neighbors", "layout", "groups") to the label of the map to show, or to None. Raises
    `ImportError` without pandas.
    """
    import pandas as pd  # noqa: PLC0415 # an optional package

    records = [
        {
            "best_for": ", ".join(question for question, label in best.items() if label == row["label"]),
            **_map_values(row),
            **(row["scores"] or {}),
            "remains": row.get("remains"),
            "seconds": sum(row["seconds"].values()) if row["seconds"] else None,
            "verdict": row.get("verdict"),
            "problem": row["problem"],
        }
        for row in rows
    ]
    return pd.DataFrame(records, index=pd.Index([row["label"] for row in rows], name="map"))


def map_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the cells of a table with a line for each map of a comparison; the first line has the column names.

    Columns in which no map has a value are left out.
    """
    values = [{**_map_values(row), **(row["scores"] or {})} for row in rows]
    known = dict.fromkeys(name for each in values for name in each)
    names = [name for name in known if any(each.get(name) is not None for each in values)]
    cells = [[_cell(each.get(name)) for name in names] for each in values]
    return [["", *names], *([row["label"], *line] for row, line in zip(rows, cells, strict=True))]


def _map_values(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = row.get("facts") or {}
    level = "behind" if row.get("is_preliminary") else row.get("level")
    return {"level": level, **{column: facts.get(name) for column, name in _FACTS.items()}}


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def table_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of cells as one text, with a line for each row and aligned columns."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)


def table_html(rows: Sequence[Sequence[object]], above: Iterable[str] = (), below: Iterable[str] = ()) -> str:
    """Return an HTML table of cells, with the sentences `above` before it and `below` after it.

    The first row and the first column of `rows` are headings.
    """
    head, *others = [[escape(str(cell)) for cell in row] for row in rows]
    lines = [f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, *cells in others]
    top = "".join(f"<p><strong>{escape(sentence)}</strong></p>" for sentence in above)
    notes = "".join(f"<p>{escape(line)}</p>" for line in below)
    names = "".join(f"<th>{cell}</th>" for cell in head)
    return f"<div>{top}<table><tr>{names}</tr>{''.join(lines)}</table>{notes}</div>"
