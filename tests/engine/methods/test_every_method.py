"""What holds for every method there is."""

import json
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from glle_engine import manifolds
from glle_engine.base.errors import (
    DegenerateDataError,
    GlleError,
    InvalidParameterError,
    MissingLibraryError,
    TooFewPointsError,
)
from glle_engine.base.progress import silent
from glle_engine.eigen import leading
from glle_engine.methods import METHODS, Embedding, Method, base, method
from glle_engine.methods.registry import ABBREVIATIONS, canonical, plain
from glle_engine.metrics.ranks import continuity, trustworthiness
from tests.engine.methods.reference import codes_of, embed, with_slow_ones

N = 120
PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
EXTRAS = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
# Where the defaults do not suit so few points, or so short a test.
OPTIONS: dict[str, dict[str, object]] = {
    "t-sne": {"early_iter": 50, "max_iter": 100},
    "mvu": {"n_neighbors": 5, "slack": 0.01, "tol": 0.01},
    "drill": {"n_neighbors": 10, "tol": 0.01},  # the default takes seconds
}
# Factors of three features weigh the features by their noise, not by their extent.
MIN_TRUST = {"factor-analysis": 0.55}
# Bottom eigenvalues, smallest first; all others are of the top, largest first.
ASCENDING = {
    *("npe", "lle", "modified-lle", "hessian-lle", "ltsa", "laplacian-eigenmaps", "isolle", "weighted-lle"),
    *("pruned-lle", "robust-lle", "auto-k-lle", "auto-reg-lle", "supervised-lle", "incremental-lle", "glle"),
    *("relative-lle", "smoothed-lle", "virtual-lle"),
}


def embed_or_skip(name: str, X: np.ndarray, on_progress: Any = silent, **options: Any) -> Embedding:
    """Embed with the options of this file, and labels if needed; skip the test if a library is not installed."""
    one = METHODS[name]
    try:
        one.require_available()
    except MissingLibraryError as error:
        pytest.skip(error.message)
    labels = (np.arange(len(X)) * 3 // len(X)) if one.labels else None
    return one.embed(X, one.spec(**{**OPTIONS.get(name, {}), **options}), on_progress, labels=labels)


@pytest.mark.parametrize("name", with_slow_ones(METHODS))
def test_embeds_a_sheet(name: str) -> None:
    """Each method keeps the neighbors of an S-curve, orders its eigenvalues, and gives the same bits again."""
    sheet = manifolds.make("s_curve", N, seed=3)
    stages: list[tuple[int, int, str]] = []
    embedding = embed_or_skip(name, sheet.X, lambda *stage: stages.append(stage))
    assert embedding.Y.shape == (N, 2)
    assert embedding.Y.dtype == np.float64
    for score in (trustworthiness, continuity):  # points placed at random are at 1/2
        assert score(sheet.coordinates, embedding.Y, 10) > MIN_TRUST.get(name, 0.8)
    extent = np.linalg.svd(embedding.Y - embedding.Y.mean(axis=0), compute_uv=False)
    assert extent[1] > 0.05 * extent[0]  # a sheet, not a curve
    assert embedding.eigenvalues is not None or METHODS[name].family != "spectral"
    if embedding.eigenvalues is not None:
        assert embedding.eigenvalues.shape == (2,)
        assert (np.sort(embedding.eigenvalues) == embedding.eigenvalues[:: 1 if name in ASCENDING else -1]).all()
    assert all(0 <= done <= total for done, total, _ in stages)
    assert set(embedding.seconds) >= {stage for *_, stage in stages} > set()
    json.dumps([embedding.figures, [note.message for note in embedding.notes]], allow_nan=False)
    np.testing.assert_array_equal(embedding.Y, embed_or_skip(name, sheet.X).Y)


@pytest.mark.parametrize("name", with_slow_ones(sorted(set(METHODS) - {"supervised-lle"})))
def test_points_at_one_distance(name: str) -> None:
    """The corners of a simplex, whose eigenvalues are multiple, have a finite embedding of rank two.

    Coordinates of a multiple eigenvalue are orthogonal, of equal length, and centered.
    """
    options = {"perplexity": 10} if "perplexity" in METHODS[name].spec.parameters() else {}
    Y = embed_or_skip(name, np.eye(40), **options | ({"n_neighbors": 39} if name == "isomap" else {})).Y
    assert Y.shape == (40, 2)
    assert np.isfinite(Y).all()
    assert np.linalg.matrix_rank(Y - Y.mean(axis=0)) == 2
    if name in {"isomap", "mds", "kernel-pca", "diffusion-maps"}:
        np.testing.assert_allclose(Y.T @ Y / (Y**2).sum() * 2, np.eye(2), atol=1e-9)
        np.testing.assert_allclose(Y.mean(axis=0), 0, atol=1e-9 * np.abs(Y).max())


@pytest.mark.parametrize("m", [12, 100])
def test_all_pairs_of_a_multiple_eigenvalue_are_found(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenpairs of a multiple eigenvalue are found, even if LAPACK's partial solver returns fewer or fails."""
    matrix = (np.eye(m) - 1 / m) / 2
    partial = scipy.linalg.eigh

    def fewer(matrix: Any, **options: Any) -> Any:
        values, vectors = partial(matrix, **options)
        return (values[:0], vectors[:, :0]) if "subset_by_index" in options else (values, vectors)

    def failing(matrix: Any, **options: Any) -> Any:
        if "subset_by_index" in options:
            raise scipy.linalg.LinAlgError("Internal Error.")
        return partial(matrix, **options)

    for solver in (partial, fewer, failing):
        monkeypatch.setattr(leading, "eigh", solver)
        values, vectors = leading.leading_eigenpairs(matrix, 3, silent)
        np.testing.assert_allclose(values, 0.5)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-9)
        np.testing.assert_allclose(matrix @ vectors, vectors / 2, atol=1e-9)
        assert leading.least_eigenvalue(matrix, 1.0, silent) == pytest.approx(0, abs=1e-9)
        embedding = embed_or_skip("mds", np.ones((m, m)) - np.eye(m), dissimilarity="precomputed")
        assert np.isfinite(embedding.Y).all()


@pytest.mark.parametrize("name", with_slow_ones(METHODS))
def test_equal_points_are_embedded(name: str) -> None:
    """Data with duplicates are embedded; methods that join equal points give them one position and a note."""
    X = manifolds.make("s_curve", N, seed=3).X.copy()
    X[40], X[60:85] = X[7], X[100]
    embedding = embed_or_skip(name, X)
    assert np.isfinite(embedding.Y).all()
    if METHODS[name].joins_equal:
        first = np.setdiff1d(np.arange(N), [40, *range(61, 85), 100])
        np.testing.assert_array_equal(embedding.Y[first], embed_or_skip(name, X[first]).Y)
        np.testing.assert_array_equal(embedding.Y[[40, 84, 100]], embedding.Y[[7, 60, 60]])
        assert "26 of 120 points equal another one." in " ".join(note.message for note in embedding.notes)
        with pytest.raises(TooFewPointsError, match="Only 5 of the 120 points are different"):
            embed_or_skip(name, X[np.arange(N) % 5])


@pytest.mark.parametrize(("k", "is_collapsed"), [(8, False), (20, True)])
def test_a_collapsed_embedding_is_noted(k: int, is_collapsed: bool) -> None:  # noqa: FBT001
    """Hessian LLE with too many neighbors puts most of a roll on few points, and has a note; with fewer it has none."""
    embedding = embed("hessian-lle", manifolds.make("swiss_roll", 800, seed=1).X, n_neighbors=k)
    e = ((embedding.Y - embedding.Y.mean(axis=0)) ** 2).sum(axis=1)
    assert (np.sort(e)[-80:].sum() > 0.5 * e.sum()) == is_collapsed  # of a tenth of the points
    assert ("collapsed" in codes_of(embedding)) == is_collapsed


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if one.libraries])
def test_a_missing_library_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its library, a method raises an error that names the extra that installs the library."""
    monkeypatch.setattr(base, "find_spec", lambda _library: None)
    one = METHODS[name]
    with pytest.raises(MissingLibraryError, match=f"needs {one.libraries[0]}, which is not installed") as caught:
        one.embed(manifolds.make("s_curve", N, seed=3).X)
    assert f'pip install "glle[{one.extra}]"' in caught.value.remedy
    assert caught.value.details == {"library": one.libraries[0], "extra": one.extra}
    assert one.extra in EXTRAS


def test_points_of_a_refusal_are_counted_among_the_different_ones() -> None:
    """Equal rows are embedded as one, so the numbers of a message are those of the rows that remain."""
    X = manifolds.make("s_curve", N, seed=3).X
    X[1] = X[0]
    X[N - 1] = X[N - 2] + 1e-9
    with pytest.raises(DegenerateDataError, match=rf"counted among the {N - 1} of {N} points that differ") as caught:
        method("meu").embed(X, method("meu").spec())
    assert caught.value.details["points"] == [N - 3, N - 2]


@pytest.mark.parametrize("name", METHODS)
def test_refuses_what_cannot_be(name: str) -> None:
    """Two points, too many components, and equal points raise an error with a remedy."""
    X = manifolds.make("s_curve", N, seed=3).X
    for data, options in ((X[:2], {}), (X, {"n_components": N + 1}), (np.ones((N, 3)), {})):
        with pytest.raises(GlleError) as caught:
            embed_or_skip(name, data, **options)
        assert caught.value.remedy
        assert isinstance(caught.value, (InvalidParameterError, TooFewPointsError)) or not options


@pytest.mark.parametrize("one", METHODS.values(), ids=METHODS)
def test_methods_and_their_parameters_are_described(one: Method[Any]) -> None:
    """Each method has a source and a growth, and each parameter a description and a valid default."""
    assert METHODS[one.name] is one
    assert all((one.title, one.about.endswith("."), one.source, one.growth, one.spec.__doc__))
    assert bool(one.libraries) == bool(one.extra)
    schema, spec = one.spec.schema(), one.spec()
    assert one.spec.from_dict(spec.to_dict()) == spec
    assert json.loads(json.dumps(schema)) == schema
    for name, parameter in one.spec.parameters().items():
        result = schema["properties"][name]
        assert result["description"].endswith(".")
        assert parameter.check(name, result["default"]) == getattr(spec, name)
        with pytest.raises(InvalidParameterError, match=name):
            one.spec(**{name: object()})
    with pytest.raises(InvalidParameterError, match="Unknown parameters: nope"):
        one.spec.from_dict({"nope": 1})


def test_no_spelling_is_ambiguous() -> None:
    """Names, titles and abbreviations name one method each, in any spelling; unknown names raise an error."""
    spellings = [(plain(text), one.name) for one in METHODS.values() for text in (one.name, one.title)]
    spellings += [(plain(text), name) for text, name in ABBREVIATIONS.items()]
    assert len({spelling for spelling, _ in spellings}) == len(set(spellings))
    assert {name for _, name in spellings} == set(METHODS)
    others = [("t_SNE", "t-sne"), ("KernelPCA", "kernel-pca"), ("spectral_embedding", "laplacian-eigenmaps")]
    for spelling, name in (*spellings, *others):
        assert canonical(spelling) == name
        assert method(spelling) is METHODS[name]
    assert canonical("nope") == "nope"
    for unknown, words in (
        ("zzz", r"known\. Choose one of pca"),
        ("izomap", "Did you mean isomap"),
        ("isomap" * 10_000, "known"),
    ):
        with pytest.raises(InvalidParameterError, match=words) as caught:
            method(unknown)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["lle", "glle", "isomap"])
def test_more_components_than_features_are_noted_once(name: str) -> None:
    """More components than features have exactly one note."""
    X = manifolds.make("s_curve", N, seed=0).X
    counts = [codes_of(embed(name, X, n_components=p)).count("more-components-than-features") for p in (3, 4)]
    assert counts == [0, 1]


DENSE: dict[str, list[dict[str, object]]] = {
    "isomap": [{}, {"landmarks": 100}],
    "diffusion-maps": [{}, {"n_neighbors": 10}],
    "glle": [{"n_neighbors": 30}, {"n_neighbors": 30, "landmarks": 100}],
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, {"n_neighbors": 30} if "n_neighbors" in one.spec.parameters() and name not in DENSE else options)
        for name, one in METHODS.items()
        if name in DENSE or one.least_bytes(10**4, one.spec())
        for options in DENSE.get(name, [{}])
    ],
)
def test_the_least_memory_is_used(name: str, options: dict[str, object]) -> None:
    """At its peak, an embedding holds at least the memory that `least_bytes` returns."""
    one, n = METHODS[name], 300
    spec = one.spec(**options)
    X = manifolds.make("s_curve", n, seed=0).X
    tracemalloc.start()
    try:
        one.embed(X, spec)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert one.least_bytes(n, spec) <= peak


def test_the_least_memory_of_all_pairs_and_of_all_neighborhoods() -> None:
    """`least_bytes` counts the matrices (n, n) or (n, k, k) that each method holds."""

    def least(name: str, n: int, **options: object) -> int:
        return METHODS[name].least_bytes(n, METHODS[name].spec(**options))

    assert least("mds", 1000) == 0
    assert least("mds", 1000, dissimilarity="precomputed") == 8 * 1000**2
    assert least("kernel-pca", 2000) == 4 * least("kernel-pca", 1000) == 4 * 2 * 8 * 1000**2
    assert least("ltsa", 1000, n_neighbors=20) == 4 * least("ltsa", 1000, n_neighbors=10)
    assert least("isomap", 1000, landmarks=100) < least("isomap", 1000) / 9
    assert least("glle", 1000, n_neighbors=20) == 8 * 1000 * 20**2
    assert least("glle", 1000, n_neighbors=20, landmarks=100) == 8 * 1000 * 20**2
    assert least("glle", 10**6) == 8 * 10**6 * 22**2


@pytest.mark.parametrize("name", [name for name, one in METHODS.items() if "n_neighbors" in one.spec.parameters()])
def test_auto_neighbors_are_those_of_the_method(name: str) -> None:
    """n_neighbors of "auto" or None is the method's default; LLE alone finds it from the data."""
    spec = METHODS[name].spec
    assert spec.from_dict({"n_neighbors": "auto"}) == spec.from_dict({"n_neighbors": None})
    assert (spec.from_dict({"n_neighbors": "auto"}) == spec()) == (name != "lle")
    assert "auto" in spec.schema()["properties"]["n_neighbors"]["anyOf"][1]["enum"]
