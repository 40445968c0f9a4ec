"""What a picture shows: panels made from draws, summaries, embeddings and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.plots.figures import Bars, Panel
from worker.analyses.plots.palette import Colours
from worker.analyses.posterior_analyses import SummarySpec
from worker.base.problems import refuse
from worker.records.draws import DrawKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.analyses.base import AnalysisSpec, Desk
    from worker.records.cache_entry import Array, Entry

    Sheet = tuple[Sequence[Panel | Bars], int, str]

_BESIDE = {"label": "labels", "color": "color", "sheet": "coordinates"}  # what a colour may show, and where it is
CHOICES = ("auto", *_BESIDE, "reference")
MOST_COLUMNS = 6


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Draws first, first + 1, ... in columns, at each scale a row."""

    count: int = 1
    first: int = 0
    seed: int = 0
    scales: tuple[float, ...] = (1.0,)
    source: str = "posterior"
    align: str = "procrustes"

    def keys(self) -> list[DrawKey]:
        """Return its draws, scale by scale."""
        return [
            DrawKey(self.seed, self.first + i, float(scale), self.source, self.align)
            for scale in self.scales
            for i in range(self.count)
        ]


def _draws(desk: Desk, asked: dict[str, Any], color: str) -> Sheet:
    """Show the LLE embedding and draws; a single one fills the sheet."""
    grid = Grid(**{**asked, "scales": tuple(asked["scales"])})
    posterior = desk.posterior()
    colours = colours_of(desk, desk.dataset, color, posterior.embedding)
    panels = [
        Panel(
            f"draw {key.index}" + (f" · scale {key.scale:g}" if set(grid.scales) != {1.0} else ""),
            draw.embedding,
            colours,
        )
        for key, draw in zip(grid.keys(), desk.draws(posterior, grid.keys()), strict=True)
    ]
    if len(panels) == 1:
        return panels, 1, ""
    columns = grid.count if len(grid.scales) > 1 else min(MOST_COLUMNS, max(2, round(len(panels) ** 0.5 * 1.4)))
    return panels, columns, f"{len(panels)} draws, coloured by {colours.title}"


def _summary(desk: Desk, asked: dict[str, Any], color: str) -> Sheet:
    """Show the consensus: by its own colour, by spread, by stability, by trust; and the relative gaps."""
    spec = SummarySpec.from_dict(asked)
    found = _result(desk, spec)
    arrays = found.arrays
    consensus = arrays["consensus"]
    panels: list[Panel | Bars] = [
        Panel("consensus", consensus, colours_of(desk, desk.dataset, color, desk.posterior().embedding)),
        _along(consensus, "spread", "how far a point moves between draws", arrays["spread"]),
        _along(consensus, "stability", "share of its neighbours that stay", arrays["stability"]),
        _along(consensus, "local trust", "how true its neighbourhood is to the data", arrays["local_trust"]),
    ]
    return panels, 2, f"{spec.count} draws together"


def _embedding(desk: Desk, asked: dict[str, Any], color: str) -> Sheet:
    """Show the embedding of a method, its scores below."""
    spec = EmbeddingSpec.from_dict(asked)
    found = _result(desk, spec)
    Y = found.arrays["embedding"]
    below = _scores(found.meta.get("scores"))
    return [Panel(spec.method, Y, colours_of(desk, spec.dataset, color, Y), below)], 1, ""


def _comparison(desk: Desk, asked: dict[str, Any], color: str) -> Sheet:
    """Show the embeddings that a comparison made, its scores below each; what failed has no panel, but is named."""
    spec = ComparisonSpec.from_dict(asked)
    found = _result(desk, spec)
    places = {
        row["label"]: entry.arrays["embedding"]
        for asked_row, row in zip(spec.methods, found.meta["rows"], strict=True)
        if row["problem"] is None and (entry := desk.kept(spec.embedding(asked_row).recipe.cache_key))
    }
    failed = [row["label"] for row in found.meta["rows"] if row["label"] not in places]
    if not places:
        raise refuse(
            "nothing-to-show", 422, f"None of {', '.join(failed)} made an embedding.", "See the comparison's problems."
        )
    colours = colours_of(desk, spec.dataset, color, next(iter(places.values())))
    told = {row["label"]: row["scores"] for row in found.meta["rows"]}
    panels = [Panel(label, Y, colours, _scores(told[label])) for label, Y in places.items()]
    title = f"coloured by {colours.title}" + (f"; without {', '.join(failed)}" if failed else "")
    return panels, min(4, len(panels)), title


SUBJECTS: dict[str, Callable[[Desk, dict[str, Any], str], Sheet]] = {
    "draws": _draws,
    "summary": _summary,
    "embedding": _embedding,
    "comparison": _comparison,
}


def chosen_color(dataset: str, beside: set[str], color: str) -> str:
    """Return what a colour is to show, of what is kept beside a data set.

    Raises
    ------
    ProblemError
        ``no-such-color``.

    """
    there = [name for name, kept in _BESIDE.items() if kept in beside]
    if color == "auto":
        return there[0] if there else "reference"
    if color != "reference" and color not in there:
        known = ", ".join(["auto", *there, "reference"])
        told = f"Data set {dataset} has no {color} to colour by."
        raise refuse("no-such-color", 422, told, f"Take one of {known}.", color=color)
    return color


def colours_of(desk: Desk, dataset: str, color: str, reference: Array) -> Colours:
    """Return the colour of each point, as it is asked for.

    Raises
    ------
    ProblemError
        ``no-such-color``.

    """
    beside = desk.beside(dataset)
    chosen = chosen_color(dataset, set(beside), color)
    if chosen == "reference":
        return Colours("first component", np.asarray(reference[:, 0], np.float64))
    raw = np.asarray(beside[_BESIDE[chosen]])
    return Colours.of(
        {"label": "class", "color": "colour", "sheet": "place"}[chosen], raw[:, 0] if raw.ndim > 1 else raw
    )


def _along(Y: Array, title: str, below: str, values: Array) -> Panel:
    return Panel(title, Y, Colours(title, np.asarray(values, np.float64)), below, bar=True)


def _result(desk: Desk, spec: AnalysisSpec) -> Entry:
    """Return an analysis from the cache, or made."""
    return desk.kept(spec.cache_key(desk.subject)) or spec.run(desk)


def _scores(scores: dict[str, float] | None) -> str:
    """Return scores in a line or two."""
    told = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in (scores or {}).items()]
    return "\n".join(", ".join(told[i : i + 2]) for i in range(0, len(told), 2))
