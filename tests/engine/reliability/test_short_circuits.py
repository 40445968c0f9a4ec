"""Short circuits of Isomap's graph in the whole data, in half-samples, and nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import method
from glle_engine.metrics.residual_variance import residual_variance
from glle_engine.reliability import short_circuits
from glle_engine.reliability.movement import movement
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import resample

ISOMAP = method("isomap")


def warned(X: np.ndarray, k: int, **options: str) -> str | None:
    """Return the warning on Isomap's movement."""
    spec = ISOMAP.spec(n_neighbors=k, **options)
    embed = MethodEmbedder(X, ISOMAP, spec)
    found = movement(embed, ISOMAP.embed(X, spec).Y, resample(embed, 4))
    messages = [note.message for note in found.notes if note.code == "movement-unreliable"]
    assert len(messages) <= 1
    return messages[0] if messages else None


def jumps(sheet: manifolds.Manifold, k: int) -> int:
    """Return the number of edges between turns: half a turn is 20 long at least."""
    arc = sheet.coordinates[:, 0]
    return int((np.abs(arc[kneighbors(sheet.X, k)[0]] - arc[:, None]) > 20).sum())


def test_a_graph_without_short_circuits_has_no_warning() -> None:
    """Neither the S-curve nor its halves have edges between turns."""
    assert warned(manifolds.make("s_curve", 500, seed=0).X, 8) is None


def test_short_circuits_of_the_whole_are_found() -> None:
    """Edges between turns raise the residual variance; the remedy is a smaller n_neighbors."""
    sheet = manifolds.make("swiss_roll", 500, seed=0)
    assert jumps(sheet, 12) > 0
    message = warned(sheet.X, 12)
    assert message is not None
    assert "for the embedding" in message
    assert message.endswith("a smaller n_neighbors.")


def test_short_circuits_of_halves_alone_are_found() -> None:
    """The graph of all points has none, but half-samples do; fewer neighbors are no remedy."""
    sheet = manifolds.make("swiss_roll", 500, seed=0)
    assert jumps(sheet, 6) == 0
    message = warned(sheet.X, 6)
    assert message is not None
    assert message.endswith("the graph of all points has none.")


def test_data_of_more_dimensions_have_the_general_warning() -> None:
    """Residual variance is then that of the missing dimensions."""
    assert warned(np.random.default_rng(0).standard_normal((200, 6)), 8) == short_circuits.UNKNOWN


def test_data_that_a_graph_does_not_connect_have_the_general_warning() -> None:
    """No residual variance is defined."""
    X = manifolds.make("s_curve", 100, seed=0).X
    apart = np.concatenate([X, X + 100.0])
    Y = apart[:, :2].copy()
    assert short_circuits.warning(apart, 5, Y, Y[None]) == short_circuits.UNKNOWN


def test_residuals_are_those_of_the_score() -> None:
    """Over all pairs, for as many points as are looked at."""
    X = manifolds.make("s_curve", 150, seed=0).X
    Y = np.ascontiguousarray(X[:, :2])
    assert short_circuits.residuals(X, 8, [Y])[0] == pytest.approx(residual_variance(X, Y, 8), rel=1e-9)


def test_distances_have_the_general_warning() -> None:
    """Distances have no coordinates to search in."""
    X = manifolds.make("s_curve", 120, seed=0).X
    D = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    assert warned(D, 8, metric="precomputed") == short_circuits.UNKNOWN
