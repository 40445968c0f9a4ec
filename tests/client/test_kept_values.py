"""Values are kept exactly or refused: types of columns, masks, integers beyond 2^53, lazy data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import glle
from glle.inputs import upload_of
from glle.reading import read_points
from glle_engine.base.errors import GlleError
from tests.service.uploads.bodies import read
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

N = 40
X = np.random.default_rng(0).normal(size=(N, 3))
POINTS = pd.DataFrame(X, columns=["a", "b", "c"])
ORDERED = pd.Categorical(["low", "high", "mid", "mid"] * 10, ["low", "mid", "high"], ordered=True)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (ORDERED, list(ORDERED)),
        (pd.cut(np.arange(N), 2, labels=["left", "right"]), ["left"] * 20 + ["right"] * 20),
        (pd.cut(np.arange(N), [-1, 19, 39]), ["(-1, 19]"] * 20 + ["(19, 39]"] * 20),
        (pd.Series(ORDERED).where(np.arange(N) > 0), ["", *list(ORDERED)[1:]]),
    ],
    ids=["ordered", "names", "intervals", "gaps"],
)
@pytest.mark.parametrize("way", ["pandas", "polars", "client"])
def test_ordered_categories_are_texts(way: str, values: Any, texts: list[str], client: httpx.Client) -> None:
    """Ordered categories can be labels, ids or one-hot columns, as texts, in this process and on a service."""
    frame: Any = POINTS.assign(x=values)
    if way == "polars":
        pl = pytest.importorskip("polars")
        present = [text or None for text in texts]
        frame = pl.DataFrame({**POINTS, "x": pl.Series(present, dtype=pl.Enum(sorted({*texts} - {""})))})
    with glle.Client(str(client.base_url), progress=False) as service:

        def read_parts(**options: Any) -> Any:
            if way == "client":
                dataset = service.dataset(frame, **options)
                return {**dataset.arrays(), "names": dataset.names}
            points = read_points(frame, options)
            return {"labels": points.labels, "ids": points.ids, "names": points.names}

        for options in ({}, {"labels": "x"}):
            assert read_parts(**options)["labels"].tolist() == texts
        assert read_parts(id="x")["ids"].tolist() == texts
        if "" not in texts:
            assert read_parts(one_hot="x")["names"] == ["a", "b", "c", *(f"x={text}" for text in sorted({*texts}))]


def test_types_without_an_order_are_texts_or_refused() -> None:
    """Periods become texts; durations are refused as ids, categories and labels, and left out of an index."""
    periods = POINTS.assign(x=pd.period_range("2024-01", periods=N, freq="M"))
    assert read_points(periods, {"labels": "x"}).labels[:2].tolist() == ["2024-01", "2024-02"]  # type: ignore[index]
    spans = pd.to_timedelta(range(N), unit="D")
    for role, noun in (("id", "ids"), ("one_hot", "categories"), ("labels", "the labels")):
        with pytest.raises(GlleError, match=f"'x' is of type duration, but {noun} have to be"):
            read_points(POINTS.assign(x=spans), {role: "x"})
    assert read_points(POINTS.set_index(spans), {}).ids is None


def test_integers_of_128_bits_are_exact_or_refused() -> None:
    """Small integers of 128 bits, a type that numpy lacks, are numbers; large ones are exact ids, but no features."""
    pl = pytest.importorskip("polars")
    small, large = (
        pl.DataFrame({**POINTS, "x": pl.Series([base + i for i in range(N)], dtype=pl.Int128)}) for base in (0, 2**90)
    )
    assert read_points(small, {}).X[:, 3].tolist() == list(range(N))
    assert read_points(large, {"id": "x"}).ids[0] == str(2**90)  # type: ignore[index]
    with pytest.raises(GlleError, match="'x' has numbers as texts"):
        read_points(large, {})


@pytest.mark.parametrize("kind", [np.int8, np.float32])
def test_a_series_of_vectors_is_a_table(kind: Any) -> None:
    """A series whose items are vectors gives a feature for each entry; an object array of vectors is refused."""
    vectors = np.round(X * 10).astype(kind)
    pl = pytest.importorskip("polars")
    for series in (pd.Series(list(vectors)), pl.Series(vectors.tolist()), pa.chunked_array([vectors.tolist()])):
        points = read_points(series, {})
        np.testing.assert_array_equal(points.X, vectors)
        assert points.names == ["0[0]", "0[1]", "0[2]"]
    with pytest.raises(GlleError, match=r"numpy\.stack"):
        glle.fit(pd.Series(list(vectors)).to_numpy())


class Query:
    """Stand-in for a frame of dask, which has no values before it is computed."""

    columns, iloc, __dask_graph__ = POINTS.columns, None, None


def test_data_without_values_are_refused_with_the_call_that_helps() -> None:
    """Frames of dask and Spark, and data sets of a closed HDF5 file, are refused as data, labels and colors."""
    with pytest.raises(GlleError, match=r"has not been computed yet\. Give data\.compute\(\)"):
        glle.fit(Query())
    with pytest.raises(GlleError, match=r"Give data\.toPandas\(\)"):
        glle.fit(type("DataFrame", (), {"toPandas": None})())
    closed: Any = type("Dataset", (), {"__module__": "h5py._hl.dataset", "__bool__": lambda _: False})()
    calls: list[Callable[[], Any]] = [
        lambda: glle.fit(closed),
        lambda: glle.embed(X, "pca", labels=closed),
        lambda: glle.embed(X, "pca", colors=closed),
        lambda: glle.GLLE().fit(closed),
        lambda: glle.plot(closed),
        lambda: upload_of(closed),
    ]
    for call in calls:
        with pytest.raises(GlleError, match="HDF5 file that is closed"):
            call()


def test_a_row_of_units_is_named() -> None:
    """A first row with units is named as the only bad row, in a frame and in a file."""
    frame = pd.DataFrame(
        {name: [unit, *map(str, X[:, column])] for column, (name, unit) in enumerate({"t": "oC", "p": "hPa"}.items())}
    )
    with pytest.raises(GlleError, match=r"Only the first row is not a number, 'oC', 'hPa'.*Remove that row"):
        glle.fit(frame)
    with pytest.raises(ProblemError) as refused:
        read(frame.to_csv(index=False).encode(), "text/csv")
    assert "If the first row has units, remove it" in refused.value.problem.remedy


MASKED = np.ma.masked_array(np.arange(float(N)), mask=np.arange(N) == 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: glle.embed(X, "pca", labels=MASKED),
        lambda: glle.embed(POINTS, "pca", colors=MASKED),
        lambda: glle.audit(X, method="pca", blocks=MASKED),
        lambda: glle.audit(X, method="pca", labels=MASKED),
        lambda: glle.plot(X, labels=MASKED),
        lambda: glle.plot(X, spread=MASKED),
        lambda: glle.frame(X, labels=MASKED),
        lambda: glle.compare(X, ["pca"], truth=np.ma.column_stack([MASKED, MASKED])),
        lambda: upload_of(POINTS, {"labels": MASKED}),
        lambda: upload_of(X, {"colors": MASKED}),
        lambda: upload_of(np.ma.column_stack([MASKED, MASKED])),
        lambda: upload_of(list(np.ma.column_stack([MASKED, MASKED]))),
        lambda: glle.Embedding("supervised-lle").fit(X, MASKED),
    ],
)
def test_a_mask_is_not_ignored(call: Callable[[], Any]) -> None:
    """Masked labels, colors, blocks and coordinates are refused; the values below a mask are never used."""
    with pytest.raises(GlleError, match="masked"):
        call()


LONG = np.column_stack([2**53 + 1 + 2 * np.arange(N), np.arange(N)])


@pytest.mark.parametrize(
    "call",
    [
        lambda: glle.fit(LONG),
        lambda: glle.embed(LONG.astype(np.uint64), "pca"),
        lambda: glle.fit(LONG.tolist()),
        lambda: glle.fit([[2**53 + 1, 0.5]] * N),
        lambda: glle.fit(LONG.astype(object)),
        lambda: glle.fit(csr_array(LONG)),
        lambda: glle.audit(LONG, method="pca"),
        lambda: glle.embed(LONG % 100, "pca").transform(LONG[:2]),
        lambda: glle.GLLE().fit(LONG),
        lambda: glle.GLLE().fit(pd.DataFrame({"a": LONG[:, 0], "b": X[:, 0]})),
        lambda: glle.embed(X, "pca", colors=LONG[:, 0]),
        lambda: glle.embed(POINTS, "pca", colors=LONG[:, 0].tolist()),
        lambda: glle.plot(LONG),
        lambda: upload_of(LONG),
        lambda: upload_of(X, {"colors": LONG[:, 0]}),
    ],
)
def test_integers_that_float64_cannot_hold_are_refused(call: Callable[[], Any]) -> None:
    """Features and colors beyond 2^53 are refused, because float64 would round them."""
    with pytest.raises(GlleError, match=r"2\^53") as refused:
        call()
    assert refused.value.code == "inexact-integer"
    labels = glle.embed(X, "pca", labels=LONG[:, 0]).labels
    assert labels is not None
    assert len(np.unique(labels)) == N
