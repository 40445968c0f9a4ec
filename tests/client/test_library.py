"""The engine under the names of `glle`: fits, embeddings, comparisons and pictures in this process."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import httpx
import matplotlib as mpl
import numpy as np
import pytest

import glle
import glle_engine
from glle.resources.results import Result
from glle_engine.methods import method
from glle_engine.metrics.registry import score
from glle_engine.reliability.calibration import calibrate
from tests.client.answers import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


mpl.use("Agg")
SHEET = glle.datasets.make("swiss_roll", 300, seed=0)
X = SHEET.X
CLASSES = np.array(["low", "high"])[(SHEET.coordinates[:, 1] > 10).astype(int)]


@pytest.fixture(scope="module")
def posterior() -> Any:
    """Return a posterior of `glle.fit`."""
    return glle.fit(X, n_neighbors=8)


@pytest.fixture
def axes() -> Iterator[Any]:
    """Return axes, and close their figure."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    yield plt.figure().gca()
    plt.close("all")


def test_fit_has_the_bits_of_the_engine(posterior: Any, tmp_path: Path) -> None:
    """Also after `save` and `load`; the representation is that of the engine."""
    expected = glle_engine.fit(X, n_neighbors=8)
    posterior.save(tmp_path / "post.npz")
    for same in (posterior, glle.load(tmp_path / "post.npz")):
        assert same.draw(3).embedding.tobytes() == expected.draw(3).embedding.tobytes()
    assert repr(posterior) == repr(expected)


def test_posterior_has_the_analyses_of_its_data(posterior: Any) -> None:
    """They are those of the engine, and refuse other data."""
    assert (
        posterior.calibrate(X, n_draws=8, n_half_samples=8).scale
        == calibrate(posterior, X, n_draws=8, n_half_samples=8).scale
    )
    assert posterior.ensemble(X, n_draws=8, n_resamples=4).spread.shape == (300,)
    with pytest.raises(glle_engine.GlleError):
        posterior.calibrate(X + 1)


def test_embed_takes_any_method_by_name() -> None:
    """With its parameters; words are classes of supervised methods, and `init` is a word or coordinates."""
    isomap = method("isomap")
    expected = isomap.embed(X, isomap.spec(n_neighbors=8)).Y
    np.testing.assert_array_equal(glle.embed(X, "Isomap", n_neighbors=8).Y, expected)
    supervised = glle.embed(X, "supervised-lle", labels=CLASSES).Y
    np.testing.assert_array_equal(supervised, glle.embed(X, "slle", labels=CLASSES == "low").Y)
    started = glle.embed(X, "symmetric-sne", init="random", max_iter=5).Y
    assert glle.embed(X, "symmetric-sne", init=started, max_iter=5).Y.shape == (300, 2)
    with pytest.raises(glle_engine.GlleError, match="Did you mean n_neighbors"):
        glle.embed(X, "isomap", n_neighbours=8)


def test_compare_has_scores_of_names_and_of_finished_embeddings(posterior: Any) -> None:
    """The scores are those of the engine; a method that fails is a problem beside the others."""
    compared = glle.compare(
        X, {"draw": posterior.draw(0), "PCA": "pca", "bad": "nonsense"}, truth=SHEET.coordinates, labels=CLASSES
    )
    names = ["trustworthiness", "continuity", "neighborhood_hit", "procrustes", "affine_r2", "residual_variance"]
    options: Any = {"truth": SHEET.coordinates, "labels": CLASSES}
    assert compared.scores["draw"] == score(X, posterior.draw(0).embedding, names, **options)
    np.testing.assert_array_equal(compared.embeddings["PCA"], glle.embed(X, "pca").Y)
    assert [str(error)[:17] for error in compared.problems["bad"]] == ["method='nonsense'"]
    first, *rows = repr(compared).splitlines()
    assert first.split() == names
    assert [row.split()[0] for row in rows] == ["draw", "PCA", "bad:"]


def test_compare_takes_methods_as_the_client_does() -> None:
    """A list of names and of dictionaries; equal labels are refused, and a failing score is a problem."""
    few = {"method": "isomap", "parameters": {"n_neighbors": 2}, "label": "few"}
    compared = glle.compare(X, ["isomap", few], scores=["trustworthiness", "neighborhood_hit"])
    assert list(compared.scores) == ["isomap", *(["few"] if "few" in compared.scores else [])]
    assert list(compared.scores["isomap"]) == ["trustworthiness"]
    assert "needs the class" in str(compared.problems["isomap"][0])
    with pytest.raises(ValueError, match="label"):
        glle.compare(X, ["pca", {"method": "pca"}])


def test_advise_is_that_of_the_engine() -> None:
    """It returns the suggestion."""
    assert glle.advise(X, n_neighbors=[6, 8]).n_neighbors in {6, 8, None}


@pytest.mark.parametrize("kind", ["posterior", "draw", "embedding", "array", "client", "estimator", "line"])
def test_plot_draws_the_coordinates(posterior: Any, axes: Any, kind: str) -> None:
    """Of every object that has an embedding; a line has zeros as its second coordinate."""
    Y = posterior.embedding
    shown: Any = {
        "posterior": posterior,
        "draw": posterior.draw(0, scale=0.0, align="procrustes"),
        "embedding": glle.embed(X, "pca"),
        "array": Y.tolist(),
        "line": Y[:, :1],
    }.get(kind)
    if kind == "client":
        answer = httpx.Response(200, content=_npz(embedding=Y))
        shown = Service(answer).client()._session.build("posterior", {"id": "post_1", "n": 300})
    if kind == "estimator":
        shown = glle.GLLE(n_neighbors=8).fit(X)
    assert glle.plot(shown, ax=axes) is axes
    (points,) = axes.collections
    expected: Any = {"embedding": glle.embed(X, "pca").Y, "line": np.c_[Y[:, 0], np.zeros(300)]}.get(kind, Y)
    np.testing.assert_allclose(np.asarray(points.get_offsets()), expected, atol=1e-6)


def test_plot_colors_labels(posterior: Any, axes: Any) -> None:
    """Words have a legend, numbers a color map."""
    glle.plot(posterior, CLASSES, ax=axes)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["high", "low"]
    assert [len(part.get_offsets()) for part in axes.collections] == [
        np.count_nonzero(name == CLASSES) for name in ("high", "low")
    ]
    axes.clear()
    glle.plot(posterior, SHEET.coordinates[:, 0], ax=axes, s=3)
    np.testing.assert_array_equal(axes.collections[0].get_array(), SHEET.coordinates[:, 0])


@pytest.mark.parametrize("by", ["opacity", "size"])
def test_plot_shows_the_spread(posterior: Any, axes: Any, by: Any) -> None:
    """Of a summary, or of `spread`: the point of the largest one is the faintest, or the largest."""
    summary = posterior.summary(8)
    for shown, spread in ((summary, None), (posterior, summary), (posterior, summary.spread)):
        axes.clear()
        glle.plot(shown, spread=spread, by=by, ax=axes)
        values = axes.collections[0].get_alpha() if by == "opacity" else axes.collections[0].get_sizes()
        extreme = np.argmin(values) if by == "opacity" else np.argmax(values)
        assert extreme == np.argmax(summary.spread)


def test_plot_refuses_what_it_cannot_draw(posterior: Any, axes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shapes, or the package to install."""
    for wrong, message in (
        ({"labels": [1, 2]}, r"labels has shape \(2,\); there are 300"),
        ({"spread": [1.0]}, "spread"),
    ):
        with pytest.raises(ValueError, match=message):
            glle.plot(posterior, ax=axes, **wrong)
    with pytest.raises(ValueError, match="str has no coordinates"):
        glle.plot("post_1", ax=axes)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        glle.plot(posterior)


def _npz(**arrays: Any) -> bytes:
    """Return an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_an_audit_is_drawn_with_its_verdict(axes: Any) -> None:
    """The title is the verdict; points are opaque by stability; a result of the client has the same picture."""
    found = glle.audit(X, method="pca", labels=CLASSES)
    found.plot(ax=axes)
    assert axes.get_title().replace("\n", " ") == found.verdict
    assert found.stability is not None
    np.testing.assert_allclose(axes.collections[0].get_alpha(), 0.15 + 0.85 * found.stability)
    assert len(axes.patches) == 20
    sizes = [patch.get_width() for patch in axes.patches]
    of_client = Result(found.arrays(), {**found.to_dict()})
    axes.clear()
    glle.plot(of_client, CLASSES, ax=axes)
    assert [patch.get_width() for patch in axes.patches] == sizes


def test_coordinates_alone_are_drawn_by_chance(axes: Any) -> None:
    """Points that are not beyond chance are faint, and there are no regions."""
    found = glle.audit(X, SHEET.coordinates)
    glle.plot(found, ax=axes)
    assert set(np.round(axes.collections[0].get_alpha(), 2)) <= {0.15, 1.0}
    assert not axes.patches
