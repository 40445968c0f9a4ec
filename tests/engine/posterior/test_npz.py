"""Files of posteriors: all kinds can be read, and forged or damaged files are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glle_engine
from glle_engine import GlleError, fit
from glle_engine.base.errors import StorageError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior import npz
from tests.engine.conftest import bent_sheet

X = bent_sheet(150)
ALL = np.arange(150, dtype=np.int32)
PARTS = np.concatenate([X[:60], X[60:120] + 50])
KINDS: list[dict[str, Any]] = [
    {},
    {"method": "direct", "variance": "ml"},
    {"noise": "tangent"},
    {"neighborhoods": "adaptive", "disconnected": "bridge"},
    {"landmarks": 60},
    {"landmarks": 60, "neighborhoods": "adaptive", "disconnected": "bridge"},
    {"variant": "published"},
    {"variant": "published", "covariance": "full", "max_iter": 3},
    {"variant": "published", "method": "direct"},
    {"standardize": "zscore"},
    {"reg": 1e-9},
    {"metric": "correlation", "n_components": 3, "disconnected": "bridge"},
]


@pytest.mark.parametrize("spec", KINDS, ids=str)
def test_every_kind_reads_back_with_its_draws(spec: dict[str, Any], tmp_path: Path) -> None:
    """A loaded posterior has the arrays and the draws of the saved one, also for few points, copies and clusters."""
    copies = np.concatenate([X, X[:20], X[:20]])
    for data in (X[:70], copies, PARTS):
        posterior = fit(data, **({"disconnected": "bridge"} | spec))
        posterior.save(tmp_path / "kept.npz")
        loaded = glle_engine.load(tmp_path / "kept.npz")
        assert loaded.head() == posterior.head()
        for name, array in posterior.arrays().items():
            np.testing.assert_array_equal(loaded.arrays()[name], array)
        assert loaded.draw(5, scale=0.1).embedding.tobytes() == posterior.draw(5, scale=0.1).embedding.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["kept.npz"]


@pytest.mark.parametrize("fewer", [0, 2])
def test_given_neighbors_read_back(fewer: int, tmp_path: Path) -> None:
    """A posterior with neighbors of the caller is read back, also if some points have fewer neighbors than others."""
    near = kneighbors(X, 8)[0]
    near[:9, 8 - fewer :] = -1
    posterior = fit(X, neighbors=near)
    posterior.save(tmp_path / "given.npz")
    loaded = glle_engine.load(tmp_path / "given.npz")
    assert loaded.draw(5, scale=0.1).embedding.tobytes() == posterior.draw(5, scale=0.1).embedding.tobytes()


def test_other_files_are_no_posterior(tmp_path: Path) -> None:
    """Other .npz files, pickles, texts and truncated files are refused with a remedy."""
    other, pickled, half, text = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz", "d.csv"))
    text.write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(StorageError, match="is not a zip file"):
        glle_engine.load(text)
    np.savez(other, x=np.ones(3))
    np.savez(pickled, x=np.array([object()]))
    fit(X).save(half)
    half.write_bytes(half.read_bytes()[:5000])
    for path in (other, pickled, half):
        with pytest.raises(StorageError, match=r"Posterior\.save"):
            glle_engine.load(path)
    with pytest.raises(FileNotFoundError):
        glle_engine.load(tmp_path / "none.npz")


def replace_entry(index: Any, value: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
    """Return a function that returns a copy of an array with one entry replaced."""

    def change(array: np.ndarray[Any, Any]) -> Any:
        copy = np.array(array)
        copy[index] = value
        return copy

    return change


FULL = {"variant": "published", "covariance": "full-corrected", "max_iter": 2}


@pytest.mark.parametrize(
    ("spec", "name", "change", "words"),
    [
        ({}, "neighbors", replace_entry((3, 9), 150), "to 150, but only 0 to 149"),
        ({}, "neighbors", replace_entry((3, 0), -1), "from -1 to .* only 0 to 149"),
        ({}, "neighbors", lambda array: array[:, ::-1], "point 0 are not in ascending order"),
        ({}, "neighbors", replace_entry(7, np.arange(10)), "point 7 is one of its own neighbors"),
        ({}, "neighbors", lambda array: array.astype(np.int64), "type int64"),
        ({}, "neighbors", lambda array: array.ravel(), "shape"),
        ({}, "order", replace_entry(0, 1), "every point exactly once"),
        ({}, "order", replace_entry(0, 2**31 - 1), "only 0 to 149 are valid"),

        ({}, "pins", replace_entry(0, 150), "only 0 to 149 are valid"),
        ({}, "pins", lambda array: array[:0], "one point of each closed class"),
        ({}, "mean", replace_entry((0, 0), np.nan), "NaN or infinite"),
        ({}, "mean", lambda array: 2 * array, "sum to one"),
        ({}, "covariance_factor", replace_entry((3, 0, 0), np.inf), "NaN or infinite"),
        ({}, "covariance_factor", lambda array: array + 0.1, "sum to one"),
        ({}, "covariance_factor", lambda array: array[:, :, :4], "shape"),
        ({}, "prior_factor", lambda _: None, "missing"),
        ({}, "embedding", lambda array: array[:10], "shape"),
        ({}, "eigenvalues", lambda array: array[:2], "shape"),
        ({}, "landmarks", lambda _: np.arange(9, dtype=np.int32), "landmarks is there, but the parameters forbid it"),
        ({}, "sigma", lambda _: np.ones(150), "sigma is there, but the parameters forbid it"),
        ({}, "scatter", lambda _: np.eye(3), "scatter is there, but the parameters forbid it"),
        (FULL, "scatter", lambda array: array[:2], "shape"),
        (FULL, "second_moment", lambda _: None, "second_moment is missing"),
        ({"landmarks": 60}, "landmarks", lambda array: array[::-1].copy(), "not in ascending order"),
        ({"landmarks": 60}, "landmarks", lambda array: np.setdiff1d(ALL, array)[:60], "neighbors are not landmarks"),

        ({"neighborhoods": "adaptive"}, "kept", lambda array: array & False, "all entries of the array kept are False"),
        ({"neighborhoods": "adaptive"}, "flatness", lambda array: array[:2], "shape"),
        ({"standardize": "zscore"}, "scale", lambda array: array * 0, "the entry 0, but scales are positive"),
        ({"standardize": "zscore"}, "center", lambda array: array[:1], "shape"),
    ],
)  # fmt: skip
def test_forged_arrays_are_refused(spec: dict[str, Any], name: str, change: Any, words: str, tmp_path: Path) -> None:
    """A file is refused if an array has a wrong entry, type or shape, and the error names the array."""
    posterior = fit(X, **spec)
    forged = {**posterior.arrays(), name: change(posterior.arrays().get(name))}
    npz.save(
        tmp_path / "forged.npz", posterior.head(), {key: array for key, array in forged.items() if array is not None}
    )
    with pytest.raises(StorageError, match=words) as caught:
        glle_engine.load(tmp_path / "forged.npz")
    assert "export" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head | {"spec": head["spec"] | {"n_neighbors": "x"}},
        lambda head: head | {"spec": head["spec"] | {"variant": "published"}},
        lambda head: head | {"prior_mean": "x"},
        lambda head: {name: value for name, value in head.items() if name != "diagnostics"},
        lambda head: head | {"diagnostics": [1]},
        lambda head: head | {"data_sha256": 3},
        lambda head: {name: value for name, value in head.items() if name != "data_sha256"},
        lambda _: [],
    ],
)
def test_other_heads_are_refused(change: Any, tmp_path: Path) -> None:
    """A file with wrong metadata is refused; parameters that are missing have the defaults of a fit."""
    posterior, path = fit(X), tmp_path / "forged.npz"
    npz.save(path, posterior.head() | {"spec": {"n_neighbors": 10, "landmarks": "all"}}, posterior.arrays())
    assert glle_engine.load(path).spec == posterior.spec
    npz.save(path, change(posterior.head()), posterior.arrays())
    with pytest.raises(StorageError):
        glle_engine.load(path)


def test_more_components_than_a_fit_computes_are_refused(tmp_path: Path) -> None:
    """A file with more components than the solver can find is refused."""
    posterior = fit(X)
    columns = np.random.default_rng(0).standard_normal((150, 60))
    Y = np.linalg.qr(columns - columns.mean(axis=0))[0] * np.sqrt(150)
    head = posterior.head()
    head["spec"]["n_components"] = 60
    npz.save(tmp_path / "forged.npz", head, {**posterior.arrays(), "embedding": Y, "eigenvalues": np.arange(61.0)})
    with pytest.raises(StorageError, match="one computation finds at most 59 eigenvectors"):
        glle_engine.load(tmp_path / "forged.npz")


def test_random_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    """A file with one changed bit is refused, or its draws have the same bits."""
    posterior, path = fit(X), tmp_path / "kept.npz"
    posterior.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            loaded = glle_engine.load(path)
        except GlleError:
            continue
        assert loaded.draw(1).embedding.tobytes() == posterior.draw(1).embedding.tobytes()
