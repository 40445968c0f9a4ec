"""Mistakes that users make first with the functions of `glle`: each call works, or its error names the remedy."""

from __future__ import annotations

import inspect
import pydoc
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

import glle
import glle_engine
from glle.arguments import looks_like_distances
from glle_engine.base.spec import FitSpec

N = 90
rng = np.random.default_rng(0)
GROUPS = rng.integers(0, 3, N)
X = (rng.normal(size=(3, 6)) * 6)[GROUPS] + rng.normal(size=(N, 6))
DISTANCES = np.linalg.norm(X[:, None] - X[None], axis=2)

UMAP: Any = "umap"


def first_two(points: Any) -> Any:
    """Return the first two columns of any points: a map by a function."""
    return points[:, :2]


ANY: Any = first_two


@pytest.mark.parametrize("method", ["pca", PCA(2), first_two, glle.Embedding("pca")])
def test_a_method_may_come_first_in_an_audit(method: Any) -> None:
    """`audit(X, method)` gives the verdict of `audit(X, method=method)`; `embed` takes the method there, too."""
    assert glle.audit(X, method).verdict == glle.audit(X, method=method).verdict


def test_an_audit_takes_the_parameters_of_its_method() -> None:
    """`n_neighbors` is the method's parameter in `audit` as in `embed`; the scores have `score_neighbors`."""
    first, again = (
        glle.audit(X, "isomap", n_neighbors=40, disconnected="bridge"),
        glle.audit(X, "isomap", parameters={"n_neighbors": 40, "disconnected": "bridge"}),
    )
    assert np.array_equal(first.embedding, again.embedding)
    assert np.array_equal(first.embedding, glle.embed(X, "isomap", n_neighbors=40, disconnected="bridge").Y)
    few, usual = glle.audit(X, "pca", score_neighbors=3), glle.audit(X, "pca")
    assert few.neighbors is not None
    assert usual.neighbors is not None
    assert few.neighbors.nnz < usual.neighbors.nnz


def test_an_audit_prints_its_verdict_and_its_notes() -> None:
    """The printed text begins with the verdict and ends with the notes."""
    audit = glle.audit(X * [100, 1, 1, 1, 1, 1], "pca")
    assert audit.notes
    assert str(audit).startswith(audit.verdict)
    assert str(audit).endswith("\n".join(note.message for note in audit.notes))
    assert audit.level == "unknown"  # one column has nearly all of the variance
    assert "Standardize the features" in audit.verdict


@pytest.mark.filterwarnings("ignore:The descent did not converge")
def test_random_state_is_another_name_of_the_seed() -> None:
    """Each random function takes either name and refuses both; functions without randomness refuse each."""
    posterior = glle.fit(X)
    calls: list[Any] = [
        lambda **seed: glle.embed(X, "sne", max_iter=20, perplexity=9, **seed).Y,
        lambda **seed: glle.Embedding("sne", max_iter=20, perplexity=9, **seed).fit_transform(X),
        lambda **seed: posterior.draw(0, **seed).embedding,
        lambda **seed: np.stack([draw.embedding for draw in posterior.draws(2, **seed)]),
        lambda **seed: posterior.summary(4, scale=1.0, **seed).spread,
        lambda **seed: glle.audit(X, "pca", **seed).spread,
        lambda **seed: glle.datasets.make("swiss_roll", 20, **seed).X,
        lambda **seed: posterior.calibrate(X, n_resamples=4, n_draws=4, **seed).draw_spread,
        lambda **seed: glle.GLLE(n_neighbors=60).fit(X).sample(1, **seed),
    ]
    for call in calls:
        assert np.array_equal(call(random_state=5), call(seed=5))
        assert not np.array_equal(call(random_state=5), call(seed=6))
        assert np.array_equal(call(random_state=None), call())
        assert np.array_equal(call(random_state=np.random.RandomState(1)), call(random_state=np.random.RandomState(1)))
        with pytest.raises(glle_engine.GlleError, match="both set the same seed"):
            call(random_state=5, seed=5)
        with pytest.raises(glle_engine.GlleError, match="is not an integer"):
            call(random_state="zero")
    for refused in (
        lambda: glle.embed(X, "pca", random_state=0),
        lambda: glle.audit(X, "pca", parameters={"seed": 0}),
        lambda: glle.Embedding("pca", random_state=0).fit(X),
        lambda: glle.fit(X, random_state=0),  # type: ignore[call-arg]
    ):
        with pytest.raises(glle_engine.GlleError, match="not random"):
            refused()


def test_distances_given_as_features_are_found() -> None:
    """A matrix of distances is refused as features unless `metric` says what it holds; PCA, without it, adds a note."""
    calls: tuple[Any, ...] = (lambda **o: glle.fit(DISTANCES, **o), lambda **o: glle.embed(DISTANCES, "isomap", **o))
    for call in calls:
        with pytest.raises(glle_engine.GlleError, match="give metric='precomputed'"):
            call(n_neighbors=60)
        assert glle.frame(call(n_neighbors=60, metric="precomputed")).shape[0] == N
        assert glle.frame(call(n_neighbors=60, metric="euclidean")).shape[0] == N
    with pytest.raises(glle_engine.GlleError, match="give dissimilarity='precomputed'"):
        glle.embed(DISTANCES, "mds")
    with pytest.raises(glle_engine.GlleError, match="An audit needs features") as error:
        glle.audit(DISTANCES, "pca")
    assert "glle.embed(X, 'mds', dissimilarity='precomputed', n_components=10).Y" in error.value.remedy
    scaled = glle.embed(DISTANCES, "mds", dissimilarity="precomputed", n_components=6).Y
    assert glle.audit(scaled, "pca").level == glle.audit(X, "pca").level
    assert "looks-like-distances" in [note.code for note in glle.embed(DISTANCES, "pca").notes]
    assert not any(looks_like_distances(other) for other in (X, X @ X.T, (DISTANCES < 5) * 1.0, np.zeros((9, 9)), "X"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: glle.audit(X, PCA), r"Give an object of the class: method=PCA\(n_components=2\)"),
        (lambda: glle.audit(X, lambda _: X[:, :2]), r"returned 90 rows .* for 45 points.* second argument"),
        (lambda: glle.audit(X, GROUPS), "labels=y"),
        (lambda: glle.audit(X, "pca", y=GROUPS), "Did you mean labels"),
        (lambda: glle.audit(X, "pca", min_dist=1), "Unknown parameters: min_dist"),
        (lambda: glle.audit(X, "umap", min_dust=1), "Did you mean min_dist"),
        (lambda: glle.audit(X, first_two, min_dist=1), "Unknown parameters: min_dist"),
        (lambda: glle.audit(X, "pca", n_neighbors=5), "Give score_neighbors=5"),
        (lambda: glle.audit(X, X[:, :2], n_neighbors=5), "Give score_neighbors=5"),
        (lambda: glle.audit(X, "pca", labels=X[:, 0]), r"too many to be groups.*quartiles of the numbers"),
        (lambda: glle.audit(X, "pca", labels=[f"p{i}" for i in range(N)]), "too many to be groups"),
        (lambda: glle.embed(X, ANY), "not the name of a method"),
        (lambda: glle.embed(X), "No method was named"),
        (lambda: glle.embed(X, "pca", y=GROUPS), "Did you mean labels"),
        (lambda: glle.fit(X, UMAP), r"glle\.embed\(X, 'umap'\)"),
        (lambda: glle.fit(X, k=5), "Did you mean n_neighbors"),  # type: ignore[call-arg]
    ],
)
def test_a_mistake_names_its_remedy(call: Any, message: str) -> None:
    """Each wrong call is refused with the remedy before anything long is computed."""
    with pytest.raises(glle_engine.GlleError, match=message):
        call()


def test_numbers_are_groups_if_they_repeat() -> None:
    """Numbers with few values are groups; in the engine 45 different numbers are none, and a note says so."""
    doses = np.array([0.5, 1.0, 2.5])[GROUPS]
    groups = glle.audit(X, "pca", labels=doses).groups
    assert groups is not None
    assert groups.names.tolist() == [0.5, 1.0, 2.5]
    audit = glle_engine.audit.audit.audit(X, method="pca", labels=X[:, 0])
    assert audit.groups is None
    assert "labels-are-no-groups" in [note.code for note in audit.notes]
    assert "groups" not in audit.verdict


def test_help_shows_the_parameters() -> None:
    """Signatures and help list the parameters with their defaults, and each function accepts its own defaults."""
    shown = inspect.signature(glle.fit).parameters
    assert {*FitSpec.parameters(), "labels", "missing", "one_hot"} <= shown.keys()
    defaults = {name: shown[name].default for name in FitSpec.parameters()}
    assert FitSpec(**defaults) == FitSpec()
    space = {"n_neighbors", "standardize", "metric", "missing"}
    expected: dict[Any, set[str]] = {
        glle.fit: space,
        glle.embed: {*space, "seed", "random_state", "perplexity"},
        glle.audit: {*space, "seed", "random_state", "perplexity", "score_neighbors"},
        glle.compare: {*space, "seed", "random_state", "score_neighbors"} - {"n_neighbors"},
        glle.Embedding: {*space, "seed", "random_state", "perplexity"} - {"missing"},
        glle.GLLE: {*space, "random_state"} - {"missing"},
        glle.Client().fit: space,
        glle.Client().audit: {*space, "seed", "random_state", "score_neighbors"} - {"n_neighbors"},
        glle.Client().compare: {*space, "seed", "random_state", "score_neighbors"} - {"n_neighbors"},
        glle.Client().embed: {"missing", "score_neighbors"},
        glle.Client().synthetic: {"noise", "seed", "random_state"},
        glle.Posterior.draws: {"scale", "seed", "random_state"},
    }
    for function, names in expected.items():
        shown = inspect.signature(function).parameters
        assert names <= shown.keys(), (function, names - shown.keys())
        assert not any(each.annotation is each.empty for each in shown.values() if each.name != "self"), function
        text = pydoc.plain(pydoc.render_doc(function))
        assert all(f"{name}: " in text for name in names), function
    for text in (pydoc.getdoc(glle.embed), pydoc.getdoc(glle.Embedding)):
        assert "perplexity : float" in text
        assert "Default: 30.0 for sne, symmetric-sne, t-sne, elastic-embedding." in " ".join(text.split())
    for function, arguments in ((glle.fit, ()), (glle.audit, ("pca",)), (glle.embed, ("isomap",))):
        keywords = {
            name: each.default
            for name, each in inspect.signature(function).parameters.items()
            if each.kind is each.KEYWORD_ONLY
        }
        function(X, *arguments, **{**keywords, "disconnected": "bridge"} if function is glle.embed else keywords)
    shown = inspect.signature(glle.Embedding).parameters
    keywords = {name: each.default for name, each in shown.items()}
    assert glle.Embedding(**{**keywords, "n_neighbors": 40}).fit(X).embedding_.shape == (N, 2)


def test_a_name_whose_package_is_absent_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """`glle.Client` without httpx and `glle.GLLE` without scikit-learn name the extra to install."""
    monkeypatch.setattr("glle.find_spec", lambda _: None)
    for name, extra in (("Client", "client"), ("GLLE", "sklearn")):
        monkeypatch.delitem(sys.modules["glle"].__dict__, name, raising=False)
        with pytest.raises(ImportError, match=rf"glle\.{name} needs .*pip install 'glle\[{extra}\]'"):
            getattr(glle, name)
