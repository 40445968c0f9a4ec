"""Base classes of results: notes for users, one-line representations, tables and pictures in notebooks."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.arrays import PointArray
from glle_engine.base.pictures.plotting import picture, plot
from glle_engine.base.pictures.points import PointTable, frame
from glle_engine.base.texts import Note, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

MAX_VALUE_CHARACTERS = 40  # a longer value of a field is cut in a one-line representation


def brief(self: Any) -> str:
    """Return the class and the fields of a dataclass in one line, without fields that are None or empty.

    Arrays are shown by dtype and shape, long collections by length, nested dataclasses by class. For use as `__repr__`.
    """
    shown = ((field.name, _value(getattr(self, field.name))) for field in fields(self) if field.repr)
    return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown if text)})"


def _value(value: Any) -> str:
    """Return a field's value as a short text: empty for None and for empty strings and collections."""
    if value is None or (isinstance(value, (str, Mapping, Sequence)) and not value):
        return ""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if is_dataclass(value):
        return type(value).__name__
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    if len(text) <= MAX_VALUE_CHARACTERS and "\n" not in text:
        return text
    return (
        f"<{len(value)} items>" if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str) else _cut(text)
    )


def _cut(text: str) -> str:
    return f"{' '.join(text.split())[: MAX_VALUE_CHARACTERS - 3]}..."


class PointResult(PointArray):
    """Base of results with one row for each point: converts them to a pandas frame, a plot, HTML or AnnData entries."""

    def frame(self, labels: ArrayLike | None = None, ids: ArrayLike | None = None) -> Any:
        """Return a pandas DataFrame with a row for each point; parameters and errors as for `glle.frame`."""
        return frame(self, labels, ids)

    def plot(self, labels: ArrayLike | None = None, *, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the points, and return the axes; parameters and errors as for `glle.plot`."""
        return plot(self, labels, ax=ax, **options)

    def to_anndata(self, adata: Any, key: str = "glle") -> None:
        """Write the points to an AnnData object, as the tools of scanpy do.

        The coordinates go to `adata.obsm["X_glle"]`, so that ``sc.pl.embedding(adata, "glle")`` draws them. Spread,
        stability and other columns go to `adata.obs["glle_spread"]` and so on, and the verdict to `adata.uns["glle"]`.
        `key` replaces "glle" in these names.

        Raises
        ------
        ValueError
            If `adata` has another number of observations.

        """
        points = PointTable.from_result(self)
        if adata.n_obs != len(points.places):
            raise ValueError(
                f"`adata` has {adata.n_obs} observations, but the result has {len(points.places)} points. Give the "
                "AnnData object whose observations were embedded."
            )
        adata.obsm[f"X_{key}"] = points.places
        for name, values in points.columns.items():
            adata.obs[f"{key}_{name}"] = values
        adata.uns[key] = {"result": repr(self), "verdict": points.verdict}

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: verdict, notes, a table of the columns' ranges, and a picture if possible.

        The table has the minimum, median and maximum of each column. The picture needs matplotlib.
        """
        points = PointTable.from_result(self)
        notes: Any = getattr(self, "notes", ())
        rows = {f"y{axis}": column for axis, column in enumerate(points.places.T, start=1)} | points.columns
        cells = "".join(
            f"<tr><th>{name}</th>{''.join(f'<td>{q:.3g}</td>' for q in np.quantile(values.astype(float), (0, 0.5, 1)))}"
            for name, values in rows.items()
        )
        parts = [
            f"<p><code>{escape(repr(self))}</code></p><p><b>{escape(points.verdict)}</b></p>",
            *(f"<p>{escape(note.message)}</p>" for note in notes),
            f"<table><tr><th></th><th>least</th><th>median</th><th>most</th></tr>{cells}</table>",
        ]
        if find_spec("matplotlib") is not None:
            parts.append(f'<img src="data:image/png;base64,{base64.b64encode(picture(points)).decode()}" width="520">')
        return "".join(parts)

    def _repr_png_(self) -> bytes | None:
        """Return the picture as a PNG, or None if matplotlib is not installed."""
        return None if find_spec("matplotlib") is None else picture(PointTable.from_result(self))


def dimension_notes(d: int, p: int, metric: str) -> Iterator[Note]:
    """Yield a note if an embedding has more components (p) than the data have features (d).

    The metrics "hamming" and "precomputed" get no such note, because their points may span more dimensions than the
    data have columns.
    """
    if p > d and metric not in {"hamming", "precomputed"}:
        yield Note(
            "more-components-than-features",
            f"{Way('n_components', p)} is more than the number of features, {d}: the embedding has more "
            "coordinates than the data have dimensions. The further ones are functions of the others and "
            f"show nothing new. Use {Way('n_components')} of at most {d}.",
        )


@dataclass(frozen=True)
class Diagnostics:
    """Numbers and notes about a fit; JSON-able through `to_dict`.

    Attributes
    ----------
    figures : dict
        Numbers by name, such as "components" (connected components of the graph), "closed_classes" (sets of points that
        no edge leaves), "spectral_gap" and "variance"; other names depend on the method. "elimination" has the "order"
        in which the sparse factorization of a draw eliminates the points, the predicted "flops" of the factorization
        and the predicted "bytes" of its factors. For few points, which are solved densely, "elimination" is empty.
    notes : tuple of Note
        Warnings and findings.

    """

    figures: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary with `figures`, and with `notes` as a list of dictionaries."""
        return {"figures": dict(self.figures), "notes": [note.to_dict() for note in self.notes]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the diagnostics that `to_dict` converted to this dictionary."""
        return cls(dict(values["figures"]), tuple(map(Note.from_dict, values["notes"])))
