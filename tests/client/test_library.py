"""The functions of `glle` in this process: fits, embeddings, comparisons, pictures and frames."""

from __future__ import annotations

import sys
from functools import partial
from html import escape as html_of
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import matplotlib as mpl
import numpy as np
import pytest
from sklearn.decomposition import PCA

import glle
import glle_engine
from glle.resources.results import Result
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.pictures.plotting import LEVELS
from glle_engine.methods import method
from glle_engine.metrics.registry import score
from glle_engine.posterior.npz import save
from glle_engine.reliability.calibration import calibrate
from tests.client.answers import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


mpl.use("Agg")
N = 150
THREE: Any = 3  # an argument of no known type
SHEET = glle.datasets.make("swiss_roll", N, seed=0)
X = SHEET.X
CLASSES = np.array(["low", "high"])[(SHEET.coordinates[:, 1] > 10).astype(int)]


@pytest.fixture(scope="module")
def posterior() -> Any:
    """Return a posterior of `glle.fit`."""
    return glle.fit(X, n_neighbors=8)


@pytest.fixture(scope="module")
def audit() -> Any:
    """Return an audit of a method, with labels."""
    return glle.audit(X, method="pca", labels=CLASSES)


@pytest.fixture
def axes() -> Iterator[Any]:
    """Return axes, and close their figure."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    yield plt.figure().gca()
    plt.close("all")


def test_fit_has_the_bits_of_the_engine(posterior: Any, tmp_path: Path) -> None:
    """`glle.fit` draws the engine's bits, also after `save` and `load`; a damaged file is refused."""
    expected = glle_engine.fit(X, n_neighbors=8)
    posterior.save(tmp_path / "post.npz")
    for same in (posterior, glle.load(tmp_path / "post.npz")):
        assert same.draw(3).embedding.tobytes() == expected.draw(3).embedding.tobytes()
    assert repr(posterior) == repr(expected)
    for table in ({"names": 3}, {"options": None}, {"other": 3}, 3):
        save(tmp_path / "post.npz", posterior.head() | {"table": table}, posterior.arrays())
        with pytest.raises(glle_engine.GlleError, match="damaged"):
            glle.load(tmp_path / "post.npz")


def test_posterior_has_the_analyses_of_its_data(posterior: Any) -> None:
    """`calibrate` gives the engine's scale, and refuses data that the posterior was not fitted to."""
    few: Any = {"n_draws": 8, "n_resamples": 8}
    assert posterior.calibrate(X, **few).scale == calibrate(posterior, X, **few).scale
    with pytest.raises(glle_engine.GlleError):
        posterior.calibrate(X + 1)


def test_embed_takes_any_method_by_name() -> None:
    """`embed` passes parameters, labels and scores to the method; `init` is a word or coordinates."""
    isomap = method("isomap")
    expected = isomap.embed(X, isomap.spec(n_neighbors=8)).Y
    np.testing.assert_array_equal(glle.embed(X, "Isomap", n_neighbors=8).Y, expected)
    supervised = glle.embed(X, "supervised-lle", labels=CLASSES).Y
    np.testing.assert_array_equal(supervised, glle.embed(X, "slle", labels=CLASSES == "low").Y)
    scored = glle.embed(X, "pca", labels=CLASSES, truth=SHEET.coordinates, scores=None)
    assert scored.scores == glle.compare(X, "pca", labels=CLASSES, truth=SHEET.coordinates, audit=False).scores["pca"]
    np.testing.assert_array_equal(scored.labels, CLASSES)
    assert glle.embed(X, "pca").scores == {}
    started = glle.embed(X, "symmetric-sne", init="random", max_iter=5).Y
    assert glle.embed(X, "symmetric-sne", init=started, max_iter=5).Y.shape == (N, 2)
    np.testing.assert_array_equal(glle.embed(X, method="isomap", n_neighbors=8).Y, expected)
    assert repr(glle.compare(X, "pca", audit=False)) == repr(glle.compare(X, ["pca"], audit=False))


def test_compare_has_scores_of_names_and_of_finished_embeddings(posterior: Any) -> None:
    """Methods and given embeddings have the engine's scores; a failing method has its problem beside them."""
    compared = glle.compare(
        X,
        {"draw": posterior.draw(0), "PCA": "pca", "bad": "nonsense"},
        truth=SHEET.coordinates,
        labels=CLASSES,
        audit=False,
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
    """Methods may be names and dictionaries; equal labels are refused, and a failing score is a problem."""
    few = {"method": "isomap", "parameters": {"n_neighbors": 2}, "label": "few"}
    compared = glle.compare(X, ["isomap", few], scores=["trustworthiness", "neighborhood_hit"], audit=False)
    assert list(compared.scores) == ["isomap", *(["few"] if "few" in compared.scores else [])]
    assert list(compared.scores["isomap"]) == ["trustworthiness"]
    assert "needs the class" in str(compared.problems["isomap"][0])
    scaled = glle.compare(X * [1, 1, 1e3], ["isomap", "t-sne"], scores=["trustworthiness"], audit=False)
    assert [note.code for note in scaled.notes] == ["unequal-feature-scales"]
    with pytest.raises(ValueError, match="label"):
        glle.compare(X, [{"method": "pca", "label": "a"}, {"method": "lle", "label": "a"}])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: glle.compare(X, [THREE]), "3 is not a method"),
        (lambda: glle.compare(X, THREE), "3 is not a method"),
        (lambda: glle.compare(X, [{"name": "pca"}]), "is not a method"),
        (lambda: glle.compare(X, "pca", scores="trustworthiness"), "not a list of names"),
        (lambda: glle.audit(X, method=THREE), "method=3 is not a method"),
        (
            lambda: glle.audit(X, X[:, :2], parameters={"n_neighbors": 3}),
            "`parameters` \\(n_neighbors\\) was given without the name",
        ),
        (lambda: glle.audit(X, glle.fit(X), method="pca"), "Both a posterior and method="),
        (lambda: glle.fit(X, THREE), "such as n_neighbors=10"),
        (lambda: glle.fit(X, neighbors=()), "neighbors have shape"),
        (lambda: glle.embed(X, "slle", labels=np.full(N, np.inf)), f"Give {N} integers"),
        (lambda: glle.embed(X, "pca", labels=["a"]), f"array of {N} labels, one for each"),
        (lambda: glle.embed(X, THREE), "3 is not the name of a method"),
        (lambda: glle.datasets.make(THREE, 9), "is not the name of a synthetic data set"),
        (lambda: glle.compare(X, ["pca"], n_neighbors=3), "Did you mean score_neighbors"),  # type: ignore[call-arg]
        (lambda: glle.audit(X, method="isomap", n_neighbours=3), "Did you mean n_neighbors"),
        (lambda: glle.embed(X, "isomap", n_neighbours=8), "Did you mean n_neighbors"),
        (lambda: glle.fit([[1, 2], [3]]), "different lengths"),
        (lambda: glle.fit(X).transform(X, X * 1j), "new points are of type complex"),
        (lambda: glle.fit(X).reconstruct(X, np.ones((N, 3))), r"weights of shape \(150, 10\)"),
        (lambda: glle.fit(X).extend(X, X[:3]).spread(glle.fit(X).draws(4), X[:9, :2]), "they have the shapes"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    """Each wrong argument raises an error with a remedy, before compiled code runs."""
    with pytest.raises(glle_engine.GlleError, match=message):
        call()


def test_arguments_are_not_read_as_others() -> None:
    """`score_neighbors=0` is not the default, and masked coordinates are not the values below the mask."""
    assert "score_neighbors=0" in str(glle.compare(X, "pca", score_neighbors=0, audit=False).problems["pca"][0])
    assert "masked" in str(glle.compare(X, {"map": np.ma.masked_greater(X[:, :2], 3)}, audit=False).problems["map"][0])


def test_auto_is_the_calibrated_scale(posterior: Any, tmp_path: Path) -> None:
    """`scale="auto"` is the calibrated number in draws, weights and the summary.

    It is the summary's default unless halves of the data are too small to calibrate; a loaded posterior lacks the data.
    """
    number = posterior.calibrate(X).scale
    np.testing.assert_array_equal(posterior.draw(3, scale="auto").embedding, posterior.draw(3, scale=number).embedding)
    np.testing.assert_array_equal(posterior.weights(3, scale="auto"), posterior.weights(3, scale=number))
    many = [draw.embedding for draw in posterior.draws(2, first=2, scale="auto")]
    np.testing.assert_array_equal(many[1], posterior.draw(3, scale=number).embedding)
    for summary in (posterior.summary(8, first=2), posterior.summary(8, first=2, scale="auto")):
        np.testing.assert_array_equal(summary.spread, posterior.summary(8, first=2, scale=number).spread)
    alone = glle_engine.fit(X, n_neighbors=8).summary(8)
    np.testing.assert_array_equal(posterior.summary(8, scale=1).spread, alone.spread)
    small = glle.fit(X, n_neighbors=80)
    np.testing.assert_array_equal(small.summary(8).spread, small.summary(8, scale=1).spread)  # halves are too small
    assert posterior.summary(8, source="prior").spread.shape == (N,)
    with pytest.raises(InvalidParameterError, match="for the posterior, not for the prior"):
        posterior.draw(0, scale="auto", source="prior")
    posterior.save(tmp_path / "posterior.npz")
    loaded = glle.load(tmp_path / "posterior.npz")
    assert loaded.data is None
    np.testing.assert_array_equal(loaded.summary(8).spread, alone.spread)
    for call in (partial(loaded.draw, 0, scale="auto"), partial(loaded.summary, scale="auto")):
        with pytest.raises(InvalidParameterError, match=r"posterior\.calibrate\(X\)"):
            call()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_coordinates_that_are_not_finite_are_no_data(value: float) -> None:
    """Coordinates with NaN or infinity are refused; the error names the argument and the first such point."""
    Y = np.where(np.arange(N)[:, None] == 7, value, X[:, :2])
    (error,) = glle.compare(X, {"mine": Y}, audit=False).problems["mine"]
    assert "1 of 150 points have coordinates that are not finite; the first is row 7" in str(error)
    with pytest.raises(glle_engine.GlleError, match="coordinates that are not finite; the first is row 7"):
        glle.audit(X, Y)
    with pytest.raises(glle_engine.GlleError, match=r"^Y\[7, 0\] is"):
        score(X, Y, ["trustworthiness"])
    with pytest.raises(glle_engine.GlleError, match=r"^truth\[7, 0\] is"):
        score(X, X[:, :2], ["affine_r2"], truth=Y)
    with pytest.raises(glle_engine.GlleError, match=r"^points\[7, 0\] is"):
        glle.embed(X, "pca").transform(np.where(np.arange(N)[:, None] == 7, value, X))


def test_plot_draws_the_coordinates(posterior: Any, axes: Any) -> None:
    """`plot` draws each kind of result: a posterior by its mean of draws, one dimension against the ranks."""
    Y, mean, pca = posterior.embedding, posterior.summary(40, scale=1).consensus, glle.embed(X, "pca")
    array = {"dtype": "float64", "shape": [N, 2], "data": mean.tolist()}
    answer = httpx.Response(200, json={"arrays": {"consensus": array}})
    for shown, expected in (
        (posterior, mean),
        (Service(answer).client()._session.build("posterior", {"id": "post_1", "n": N}), mean),
        (glle.GLLE(n_neighbors=8).fit(X), mean),
        (posterior.draw(0, scale=0.0, align="procrustes"), Y),
        (pca, pca.Y),
        (Y.tolist(), Y),
        (Y[:, :1], np.c_[Y[:, 0], np.argsort(np.argsort(Y[:, 0]))]),
    ):
        axes.clear()
        assert glle.plot(shown, ax=axes) is axes
        np.testing.assert_allclose(np.asarray(axes.collections[0].get_offsets()), expected, atol=1e-6)


def test_plot_takes_a_summary_as_the_spread(posterior: Any, axes: Any) -> None:
    """`spread` may be an object with a spread, and other options are those of `scatter`."""
    summary = posterior.summary(8, scale=1)
    glle.plot(posterior, spread=summary, by="size", ax=axes, linewidths=2)
    points = axes.collections[0]
    assert np.argmax(points.get_sizes()) == np.argmax(summary.spread)
    assert points.get_linewidths() == [2]


def test_plot_refuses_what_it_cannot_draw(posterior: Any, axes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the shape or the choices, or names the package to install."""
    for wrong, message in (
        ({"labels": [1, 2]}, r"labels has shape \(2,\); there are 150"),
        ({"spread": [1.0]}, "spread"),
        ({"spread": np.full(N, np.nan)}, "`spread` has values that are not finite numbers"),
        ({"by": "opaque"}, "by='opaque' is not one of opacity, size"),
    ):
        with pytest.raises(ValueError, match=message):
            glle.plot(posterior, ax=axes, **wrong)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        glle.plot(posterior)


def test_an_audit_is_drawn_with_its_verdict(audit: Any, axes: Any) -> None:
    """The title is the verdict, opacity is stability, and a client's result has the same picture.

    Each group has its name, and from how many others it stays apart.
    """
    audit.plot(ax=axes)
    level, _, verdict = axes.get_title().partition("\n")
    assert level == LEVELS[audit.level]
    marked = [line for line in audit.verdict.splitlines() if line[0] in "✓✗"]
    assert verdict.split() == " ".join(marked or [audit.verdict]).split()
    np.testing.assert_allclose(axes.collections[0].get_alpha(), 0.12 + 0.88 * audit.neighborhood)
    assert len(axes.patches) == audit.islands.count
    groups = [text.get_text() for text in axes.texts]
    assert groups == [f"{name}: {int(audit.groups.apart[0, 1] >= 0.9)}/1" for name in audit.groups.names]
    of_client = Result(audit.arrays(), {**audit.to_dict()})
    axes.clear()
    glle.plot(of_client, CLASSES, ax=axes)
    assert [text.get_text() for text in axes.texts] == groups
    assert len(axes.patches) == audit.islands.count


def test_given_axes_make_room_for_texts_and_legend(audit: Any, posterior: Any, axes: Any) -> None:
    """Titles, the lines below and a legend beside the points are within the figure of given axes."""
    figure = axes.figure
    figure.clear()
    left, right = figure.subplots(1, 2)
    audit.plot(ax=left)
    glle.plot(posterior, CLASSES, ax=right)
    figure.canvas.draw()
    for text in (left.title, left.xaxis.label, right.title, right.xaxis.label):
        box = text.get_window_extent()
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    legend = right.get_legend().get_window_extent()
    assert right.get_window_extent().x1 <= legend.x0 < legend.x1 <= figure.bbox.x1


def test_certain_points_are_opaque_without_a_request(posterior: Any, axes: Any) -> None:
    """A plotted posterior has the stability of its summary as opacity and in its title."""
    summary = posterior.summary(40, scale=1)
    glle.plot(posterior, ax=axes)
    np.testing.assert_allclose(axes.collections[0].get_alpha(), 0.12 + 0.88 * summary.stability)
    assert f"{summary.stability.mean():.0%} of a point's neighbors stay" in axes.get_title()


def test_frames_have_a_row_for_each_point(posterior: Any, audit: Any) -> None:
    """Frames begin with ids and labels; an audit from a service has the frame of `glle.audit`."""
    frame = posterior.frame(CLASSES, ids=range(N))
    assert list(frame.columns) == ["id", "label", "y1", "y2", "spread", "stability"]
    np.testing.assert_array_equal(frame[["y1", "y2"]], posterior.summary(40, scale=1).consensus)
    assert list(glle.embed(X, "pca").frame().columns) == ["y1", "y2"]
    of_client = Result(audit.arrays(), audit.to_dict())
    assert glle.frame(of_client, CLASSES).equals(audit.frame())
    with pytest.raises(ValueError, match="labels has shape"):
        audit.frame(CLASSES[:5])


def test_results_are_arrays_where_an_array_is_expected(posterior: Any, audit: Any) -> None:
    """`np.asarray(result)` is its coordinates, one row for each point, of this process and of a service."""
    embedding, summary = glle.embed(X, "pca"), posterior.summary(4, scale=1.0)
    of_client = Result({"consensus": summary.consensus, "spread": summary.spread}, {"scale": 1.0})
    for result in (embedding, posterior, posterior.draw(0), summary, audit, of_client):
        array = np.asarray(result)
        assert array is result.embedding is result.Y
        assert (array.shape, array.dtype.name, len(result)) == ((N, 2), "float64", N)
        np.testing.assert_array_equal(result[3:5, 1], array[3:5, 1])
        assert np.asarray(result, np.float32).dtype == np.float32
        assert not np.shares_memory(np.array(result), array)
        with pytest.raises(ValueError, match="copy"):
            np.array(result, np.float32, copy=False)
    np.testing.assert_array_equal(np.array([posterior.draw(0), posterior.draw(1)])[1], posterior.draw(1).Y)
    assert PCA(1).fit_transform(embedding).shape == (N, 1)
    scale = Result({}, {"scale": 1.0})
    assert scale
    with pytest.raises(AttributeError, match="It has scale"):
        np.asarray(scale)


def test_notebooks_show_verdict_notes_and_picture(posterior: Any, audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results have HTML with the picture, and a PNG; without matplotlib they have the table alone."""
    for shown, text in ((posterior, "<table>"), (glle.embed(X, "pca"), "<table>"), (audit, html_of(audit.verdict))):
        html = shown._repr_html_()
        assert text in html
        assert "data:image/png;base64," in html
    assert (audit._repr_png_() or b"").startswith(b"\x89PNG")
    monkeypatch.setattr("glle_engine.base.results.find_spec", lambda _: None)
    assert "<img" not in posterior._repr_html_()
    assert posterior._repr_png_() is None


def test_anndata_gets_coordinates_and_certainty(posterior: Any) -> None:
    """`to_anndata` writes where scanpy's tools do, and refuses another number of observations."""
    adata = SimpleNamespace(n_obs=N, obsm={}, obs={}, uns={})
    posterior.to_anndata(adata)
    assert adata.obsm["X_glle"].shape == (N, 2)
    assert list(adata.obs) == ["glle_spread", "glle_stability"]
    assert "neighbors stay" in adata.uns["glle"]["verdict"]
    with pytest.raises(ValueError, match="has 149 observations"):
        posterior.to_anndata(SimpleNamespace(n_obs=N - 1))


def test_draws_have_named_dimensions(posterior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`to_xarray` names draw, point and axis; without xarray it says what to install."""
    made = SimpleNamespace(DataArray=lambda values, **options: (values, options))
    monkeypatch.setitem(sys.modules, "xarray", made)
    values, options = glle.to_xarray(posterior.draws(3, first=2))
    assert options["dims"] == ("draw", "point", "axis")
    assert options["coords"] == {"draw": [2, 3, 4], "axis": ["y1", "y2"]}
    np.testing.assert_array_equal(glle.to_xarray(values)[0], values)
    with pytest.raises(ValueError, match="count, n, p"):
        glle.to_xarray(posterior.embedding)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match="pip install xarray"):
        glle.to_xarray(values)


@pytest.mark.parametrize("groups", [np.arange(1, 4) * 1_111_111, np.arange(1, 4) * 1e6, np.arange(25) + 7])
def test_a_plotted_audit_names_its_groups(groups: Any) -> None:
    """Groups that are numbers are written in full, also above a million and with more groups than colors."""
    labels = np.sort(groups[np.arange(N) % len(groups)])
    axes = glle.audit(X, method="pca", labels=labels).plot()
    names = [text.get_text().partition(":")[0] for text in axes.texts]
    assert [name for name in names if not name.endswith("outside")] == [f"{group:.0f}" for group in groups]
