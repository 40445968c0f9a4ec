"""Pictures of draws, summaries, embeddings and comparisons as PNG or SVG, for clients without a plotting library.

Workers make them (extra `pictures`); `glle_engine.base.pictures.plotting` draws.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.errors import MissingLibraryError
from glle_engine.base.pictures.plotting import Format, Panel, PointColors, render
from worker.analyses.base import AnalysisSpec
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.posterior_analyses import SummarySpec
from worker.base.problems import refuse
from worker.records.cache_entry import Entry
from worker.records.draws import DrawAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle_engine.base.pictures.plotting import Theme
    from worker.analyses.base import AnalysisContext
    from worker.records.cache_entry import Array

    Layout = tuple[list[Panel], int, str]  # panels, columns, title

_EXTRAS = {"labels": "labels", "colors": "colors", "sheet": "coordinates"}  # choices of colors, and their extra arrays
MAX_COLUMNS = 6
Subject = Literal["draws", "summary", "embedding", "comparison"]
MEDIA: dict[Format, str] = {"png": "image/png", "svg": "image/svg+xml"}


@dataclass(frozen=True, kw_only=True)
class DrawGrid:
    """Draws first, first + 1, ... in columns, with one row per scale."""

    n_draws: int = 1
    first: int = 0
    seed: int = 0
    scales: tuple[float, ...] = (1.0,)
    source: str = "posterior"
    align: str = "procrustes"

    def keys(self) -> list[DrawAddress]:
        """Return the draws, scale by scale."""
        return [
            DrawAddress(self.seed, self.first + i, float(scale), self.source, self.align)
            for scale in self.scales
            for i in range(self.n_draws)
        ]


def _draws(context: AnalysisContext, request: dict[str, Any], choice: str) -> Layout:
    """Show draws; a single one fills the figure."""
    grid = DrawGrid(**{**request, "scales": tuple(request["scales"])})
    posterior, keys = context.posterior(), grid.keys()
    colors = point_colors(context, context.dataset, choice, posterior.embedding)
    has_scales = set(grid.scales) != {1.0}
    panels = [
        Panel(f"draw {key.index}" + (f" · scale {key.scale:g}" if has_scales else ""), draw.embedding, colors)
        for key, draw in zip(keys, context.draws(posterior, keys), strict=True)
    ]
    if len(panels) == 1:
        return panels, 1, ""
    columns = grid.n_draws if len(grid.scales) > 1 else min(MAX_COLUMNS, max(2, round(len(panels) ** 0.5 * 1.4)))
    return panels, columns, f"{len(panels)} draws, colored by {colors.title}"


def _summary(context: AnalysisContext, request: dict[str, Any], choice: str) -> Layout:
    """Show the consensus with its certainty, by spread, by stability and by local trust."""
    spec = SummarySpec.from_dict(request)
    result = _result(context, spec)
    arrays, stated = result.arrays, result.meta.get("reliability")
    consensus = arrays["consensus"]
    colors = point_colors(context, context.dataset, choice, context.posterior().embedding)

    def scale(title: str, below: str, values: Array) -> Panel:
        values = np.asarray(values, np.float64)
        return Panel(title, consensus, PointColors(title, values), below, has_colorbar=True)

    panels = [
        replace(Panel.of(SimpleNamespace(**arrays, **result.meta), colors), title="consensus"),
        scale("spread", f"how far a point moves between {'draws' if stated is None else 'samples'}", arrays["spread"]),
        scale("stability", "share of its neighbors that stay", arrays["stability"]),
        scale("local trust", "how true its neighborhood is to the data", arrays["local_trust"]),
    ]
    if stated is None:
        return panels, 2, f"{spec.n_draws} draws together"
    together = f"{spec.n_draws} draws and 3 x {spec.n_resamples} resamples"
    return panels, 2, f"{together}; reliability of the spread: {stated['level']}"


def _embedding(context: AnalysisContext, request: dict[str, Any], choice: str) -> Layout:
    """Show the embedding of a method with its scores."""
    spec = EmbeddingSpec.from_dict(request)
    result = _result(context, spec)
    Y = result.arrays["embedding"]
    below = _score_lines(result.meta.get("scores"))
    return [Panel(spec.method, Y, point_colors(context, spec.dataset, choice, Y), below)], 1, ""


def _comparison(context: AnalysisContext, request: dict[str, Any], choice: str) -> Layout:
    """Show the embeddings of a comparison with their scores; the title names failed methods."""
    spec = ComparisonSpec.from_dict(request)
    rows = _result(context, spec).meta["rows"]
    embeddings = {
        row["label"]: entry.arrays["embedding"]
        for method, row in zip(spec.methods, rows, strict=True)
        if row["problem"] is None and (entry := context.find_embedding(spec.embedding(method).recipe.id))
    }
    failed = [row["label"] for row in rows if row["label"] not in embeddings]
    if not embeddings:
        raise refuse(
            "nothing-to-show", 422, f"None of {', '.join(failed)} made an embedding.", "See the comparison's problems."
        )
    colors = point_colors(context, spec.dataset, choice, next(iter(embeddings.values())))
    scores = {row["label"]: row["scores"] for row in rows}
    panels = [Panel(label, Y, colors, _score_lines(scores[label])) for label, Y in embeddings.items()]
    title = f"colored by {colors.title}" + (f"; without {', '.join(failed)}" if failed else "")
    return panels, min(4, len(panels)), title


LAYOUTS: dict[str, Callable[[AnalysisContext, dict[str, Any], str], Layout]] = {
    "draws": _draws,
    "summary": _summary,
    "embedding": _embedding,
    "comparison": _comparison,
}


def resolve_colors(dataset: str, extras: set[str], choice: str) -> str:
    """Return the choice of colors, for ``auto`` the first available one; raises ``no-such-color``."""
    available = [name for name, extra in _EXTRAS.items() if extra in extras]
    if choice == "auto":
        return available[0] if available else "reference"
    if choice != "reference" and choice not in available:
        choices = ", ".join(["auto", *available, "reference"])
        detail = f"Data set {dataset} has no {choice} to color by."
        raise refuse("no-such-color", 422, detail, f"Take one of {choices}.", colors=choice)
    return choice


def point_colors(context: AnalysisContext, dataset: str, choice: str, reference: Array) -> PointColors:
    """Return the colors of the points by a choice; raises as `resolve_colors`."""
    extras = context.extras(dataset)
    choice = resolve_colors(dataset, set(extras), choice)
    if choice == "reference":
        return PointColors("first component", np.asarray(reference[:, 0], np.float64))
    raw = np.asarray(extras[_EXTRAS[choice]])
    title = {"labels": "class", "colors": "color", "sheet": "place"}[choice]
    return PointColors.of(title, raw[:, 0] if raw.ndim > 1 else raw)


def _result(context: AnalysisContext, spec: AnalysisSpec) -> Entry:
    """Return the result of an analysis, which is stored or made."""
    return context.find_result(spec) or spec.run(context)


def _score_lines(scores: dict[str, float] | None) -> str:
    """Return scores as text, two per line."""
    items = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in (scores or {}).items()]
    return "\n".join(", ".join(items[i : i + 2]) for i in range(0, len(items), 2))


@dataclass(frozen=True, kw_only=True)
class PictureSpec(AnalysisSpec):
    """A picture."""

    kind = "picture"

    of: Subject
    asked: dict[str, Any]  # `DrawGrid`, or an analysis
    dataset: str | None = None  # of an embedding or a comparison
    colors: str = "auto"  # the first available one of labels, colors, sheet, and reference
    format: Format = "png"
    theme: Theme = "light"
    width: int = 1200  # pixels

    def owners(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the records with which the result is deleted."""
        if self.of == EmbeddingSpec.kind:
            return EmbeddingSpec.from_dict(self.asked).recipe.owners
        return super().owners(subject)

    def run(self, context: AnalysisContext) -> Entry:
        """Return the bytes as the array `picture`."""
        panels, columns, title = LAYOUTS[self.of](context, self.asked, self.colors)
        context.on_progress(0, 1, "picture")
        picture = render(panels, columns=columns, title=title, format_=self.format, theme=self.theme, width=self.width)
        return Entry({**asdict(self), "media": MEDIA[self.format]}, {"picture": np.frombuffer(picture, np.uint8)})


def require_matplotlib() -> None:
    """Raise `MissingLibraryError` unless matplotlib is installed."""
    if find_spec("matplotlib") is None:
        raise MissingLibraryError(
            "Pictures need matplotlib, which is not installed.",
            remedy='Install it: pip install "glle-server[pictures]". Or request the arrays and plot them yourself.',
            details={"library": "matplotlib", "extra": "pictures"},
        )
