"""Measure a method on a sheet and on the digits: embedding, time and scores, or the reason of a refusal."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits

from glle_engine import manifolds
from glle_engine.base.errors import GlleError
from glle_engine.metrics.registry import SCORES, score

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from glle_engine.methods import Method, MethodSpec

SIZES = (1000, 500, 250, 120)  # a method takes the largest that it does
STRIPS = 5  # classes of a sheet, by the arc, for the methods that need labels
NEIGHBORS = 10  # of the methods and of the scores
SETS = ("swiss_roll", "digits")


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set on which all methods are compared.

    Attributes
    ----------
    name : str
    X : (n, d) float64
    color : (n,) float64
        Position along the sheet, or the digit.
    truth : (n, q) float64, optional
    labels : (n,) int64, optional
        For the methods that need them, and for the score of the digits.

    """

    name: str
    X: NDArray[np.float64]
    color: NDArray[np.float64]
    truth: NDArray[np.float64] | None = None
    labels: NDArray[np.int64] | None = None


def make(name: str, n: int) -> DataSet:
    """Return n points of a sheet or of the digits."""
    if name == "digits":
        digits = load_digits()
        target = digits.target[:n].astype(np.int64)
        return DataSet(name, digits.data[:n], target.astype(float), labels=target)
    sheet = manifolds.make(name, n, seed=0)
    truth = sheet.coordinates
    arc = truth[:, 0]
    strips = np.digitize(arc, np.quantile(arc, np.linspace(0, 1, STRIPS + 1)[1:-1])).astype(np.int64)
    return DataSet(name, sheet.X, arc, truth, strips)


MAX_POINTS = {"drill": 250, "mvu": 120}  # most points of the slow methods


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured of a method on a data set.

    Attributes
    ----------
    data, method : str
    n : int
        Number of points, smaller for slow methods.
    seconds : float
    scores : dict of str to float
        Scores by name. On sheets they compare with the true coordinates, except the residual variance.
    refused : str
        Reason of a refusal, with the remedy; empty otherwise.
    notes : list of str
        Codes of the notes.
    Y : list
        The embedding, rounded to four digits of its largest coordinate.

    """

    data: str
    method: str
    n: int
    seconds: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    refused: str = ""
    notes: list[str] = field(default_factory=list)
    Y: list[list[float]] = field(default_factory=list)


def spec_of(method: Method[Any], n: int) -> MethodSpec:
    """Return the default parameters of a method, but ten neighbors, and a perplexity that n points allow."""
    parameters = method.spec.parameters()
    options: dict[str, object] = {}
    if "n_neighbors" in parameters and method.name != "drill":  # whose candidates are more than its edges
        options["n_neighbors"] = NEIGHBORS
    if "perplexity" in parameters:
        options["perplexity"] = min(30, n // 5)
    spec: MethodSpec = method.spec(**options)
    return spec


def warm(method: Method[Any]) -> None:
    """Call a method once on a few points, so that no measured time contains imports and compilation."""
    sheet = manifolds.make("s_curve", 60, seed=0)
    labels = (np.arange(60) % 2) if method.labels else None
    try:
        method.embed(sheet.X, spec_of(method, 60), labels=labels)
    except GlleError as error:
        print(f"{method.name} refuses 60 points: {error.message}")


def judge(name: str, method: Method[Any]) -> Row:
    """Embed the data set `name` by a method, and score the embedding.

    If the method refuses a data set as too large, a smaller one is tried.
    """
    refusal: GlleError | None = None
    for n in (size for size in SIZES if size <= MAX_POINTS.get(method.name, size)):
        points = make(name, n)
        size = len(points.X)
        try:
            spec = spec_of(method, size)
            labels = points.labels if method.labels else None
            d = points.X.shape[1]
            method.require_possible(size, d, spec, labels=labels is not None)
            since = time.perf_counter()
            embedding = method.embed(points.X, spec, labels=labels)
            seconds = time.perf_counter() - since
        except GlleError as error:
            refusal = error
            if "most" in error.details:
                continue
            break
        notes, Y = [note.code for note in embedding.notes], round_coordinates(embedding.Y)
        scores = score_embedding(points, embedding.Y)
        return Row(data=name, method=method.name, n=size, seconds=seconds, scores=scores, notes=notes, Y=Y)
    assert refusal is not None
    return Row(data=name, method=method.name, n=size, refused=str(refusal))


def score_embedding(points: DataSet, Y: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return the scores of an embedding; the neighbors of a sheet's points are found in its true coordinates."""
    names = {"trustworthiness", "continuity", "residual_variance"}
    names |= {"neighborhood_hit"} if points.truth is None else {"procrustes", "affine_r2"}
    scores: dict[str, float] = {}
    for name in (name for name in SCORES if name in names):
        near = name in {"trustworthiness", "continuity"}
        X = points.truth if near and points.truth is not None else points.X
        try:
            scores |= score(X, Y, [name], score_neighbors=NEIGHBORS, labels=points.labels, truth=points.truth)
        except GlleError as error:
            print(f"{points.name}, {name}: {error.message}")
    return scores


def round_coordinates(Y: np.ndarray[Any, Any]) -> list[list[float]]:
    """Return the embedding, centered and scaled to [-1, 1], as lists of numbers with four decimals."""
    centered = Y - Y.mean(axis=0)
    shrunk: list[list[float]] = np.round(centered / np.abs(centered).max(), 4).tolist()
    return shrunk


def read_rows(path: Path) -> list[Row]:
    """Return the rows that `keep` wrote to a file, or an empty list if there is no file."""
    if not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def keep(rows: list[Row], path: Path) -> None:
    """Write the rows to a file of JSON lines, which replaces an existing one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")
