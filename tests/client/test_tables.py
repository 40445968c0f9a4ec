"""Tables with named columns: read alike in this process and by a service, and embedded in one call."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from scipy.sparse import csr_array, lil_array

import glle
import glle_engine
from glle import Client
from glle.inputs import upload_of
from glle.reading import read_points
from glle_engine.base.errors import GlleError
from tests.client.answers import DATASET, Service, Stream, job, posterior
from tests.service.routes.posteriors.conftest import finish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from worker.stores import Stores


WHEN = pd.date_range("2024-01-01", periods=4, freq="h")
FRAME = pd.DataFrame({"x": [1.5, 2.5, 4.0, 8.0], "y": [1, 2, 4, 3], "kind": ["u", "v", "u", "v"], "when": WHEN})
ROLES: Any = {"labels": "kind", "ignore": "when"}


TABLES = {"pandas": FRAME, "arrow": Stream(pa.Table.from_pandas(FRAME))}
METHODS_WITH_DATA: dict[str, Callable[..., Any]] = {
    "dataset": lambda client, data, **options: client.dataset(data, **options),
    "preview": lambda client, data, **options: client.preview(data, **options),
    "fit": lambda client, data, **options: client.fit(data, **options),
    "embed": lambda client, data, **options: client.embed(data, "pca", **options),
    "compare": lambda client, data, **options: client.compare(data, ["pca", "lle"], **options),
    "transform": lambda client, data, **options: posterior(client).transform(data, **options),
}


@pytest.mark.parametrize("call", METHODS_WITH_DATA)
@pytest.mark.parametrize("table", TABLES)
def test_every_method_takes_the_options_of_the_data(call: str, table: str) -> None:
    """Each method first uploads its data, with the roles of the columns in the query."""
    service = Service(httpx.Response(418, json={}))
    with pytest.raises(Exception, match="418"):
        METHODS_WITH_DATA[call](service.client(), TABLES[table], **ROLES)
    query = service.requests[0].url.params
    assert (query["labels"], query.get_list("ignore")) == ("kind", ["when"])


def test_a_vector_of_labels_is_an_option_of_a_fit() -> None:
    """`fit(labels=vector)` uploads the vector as a column with the role of the label."""
    service = Service(httpx.Response(418, json={}))
    with pytest.raises(Exception, match="418"):
        service.client().fit(FRAME[["x", "y"]], labels=[0, 1, 0, 1])
    assert service.requests[0].url.params["labels"] == "labels"


@pytest.mark.parametrize("call", [name for name in METHODS_WITH_DATA if name != "preview"])
def test_roles_of_a_stored_data_set_are_refused(call: str) -> None:
    """Options that name columns are refused for an id, for the stored columns have their roles already."""
    with pytest.raises(ValueError, match=r"stored .* leave out (labels=, )?ignore=, or give the data"):
        METHODS_WITH_DATA[call](Service().client(), "ds_1", **ROLES)


def test_a_data_set_is_one() -> None:
    """`client.dataset(dataset)` returns the same object, without a request."""
    client = Service().client()
    dataset = client._session.build("dataset", DATASET)
    assert client.dataset(dataset) is dataset


@pytest.mark.parametrize("labels", ["kind", np.arange(4), "ds_2"])
def test_labels_are_a_column_of_the_data_or_another_data_set(labels: Any) -> None:
    """One keyword takes the name of a column, an array, and the id of a data set."""
    bodies = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/datasets":
            of_column = request.url.params.get("labels") == "kind"
            id_ = "ds_1" if "ignore" in request.url.params else "ds_2"
            return httpx.Response(200, json={**DATASET, "id": id_, "has_labels": of_column})
        if request.method == "POST":
            bodies.append(json.loads(request.read()))
            return job("succeeded", kind="embedding")
        return httpx.Response(200, json={"rows": []})

    client = Client("http://glle.test", progress=False, transport=httpx.MockTransport(answer))
    client.embed(FRAME, "pca", labels=labels, ignore=["when"])
    client.compare(FRAME, ["pca", {"method": "lle"}], labels=labels, ignore=["when"])
    client.audit(FRAME, method="pca", labels=labels, ignore=["when"])
    expected = ["ds_1", "ds_1", None] if isinstance(labels, str) and labels == "kind" else ["ds_2"] * 3
    assert [body["labels"] for body in bodies] == expected
    with pytest.raises(ValueError, match=r"labels='kind' names a column, but columns cannot be chosen"):
        client.embed("ds_1", "pca", labels="kind")


def test_an_object_with_an_arrow_stream_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow, a table that has only an Arrow stream is refused; a pandas frame is still sent."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ImportError,
        match=r"Data of the type .*\.Stream can be read only with pyarrow\. Install it with pip install pyarrow",
    ):
        upload_of(TABLES["arrow"])
    assert upload_of(FRAME, ROLES).body.media == "application/zip"


N = 40
X = np.random.default_rng(0).normal(size=(N, 3))
CLUSTERS = ["left", "right"] * (N // 2)
NAMES = [f"s-{row}" for row in range(N)]
POINTS = pd.DataFrame(X, columns=["a", "b", "c"])
TABLE = POINTS.assign(cluster=CLUSTERS, when=pd.date_range("2024-01-01", periods=N, freq="D"))
DAYS = TABLE.astype({"when": pd.ArrowDtype(pa.date32())})


def polars() -> Any:
    """Return the table with dates as a frame of polars."""
    return pytest.importorskip("polars").from_pandas(DAYS)


class Cells:
    """Stand-in for an AnnData, whose slices are such objects again."""

    def __init__(self) -> None:
        self.X, self.obs_names, self.var_names = csr_array(X), pd.Index(NAMES), pd.Index(list(POINTS))
        self.obs = pd.DataFrame({"cell_type": pd.Categorical(CLUSTERS)}, index=self.obs_names)
        self.obsm = {"X_pca": X[:, :2]}

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: object) -> Cells:
        return Cells()


def anndata() -> Any:
    """Return the points as a real AnnData, or skip."""
    cells, module = Cells(), pytest.importorskip("anndata")
    made = module.AnnData(cells.X, cells.obs, pd.DataFrame(index=cells.var_names))
    made.obsm["X_pca"] = cells.obsm["X_pca"]
    return made


GAPS = TABLE.copy()
GAPS.iloc[3, 0] = GAPS.iloc[5, 1] = np.nan


@pytest.mark.parametrize("index", [None, NAMES])
def test_rows_that_are_dropped_leave_the_index_and_the_ids(index: Any, client: httpx.Client) -> None:
    """After `missing="drop"` the kept rows have their index as ids, or else their row numbers."""
    table = GAPS if index is None else GAPS.set_index(pd.Index(index))
    points = read_points(table, {"missing": "drop"})
    with glle.Client(str(client.base_url), progress=False) as service:
        dataset = service.dataset(table, missing="drop")
        kept = [each for row, each in enumerate(index or range(N)) if row not in {3, 5}]
        assert points.ids is not None
        assert points.ids.tolist() == list(dataset.index) == list(points.kept_index) == kept
        assert dataset.arrays()["ids"].tolist() == kept
        dated = table.set_index(pd.date_range("2026-01-01", periods=N)).assign(who=NAMES)
        whole = dated.drop(index=dated.index[[3, 5]])
        dataset = service.dataset(dated, id=["who"], missing="drop")
        pd.testing.assert_index_equal(dataset.index, whole.index)
        assert dataset.arrays()["ids"].tolist() == whole["who"].tolist()
    values = table[["a", "b", "c"]].dropna().to_numpy()
    np.testing.assert_array_equal(points.X, values)


def test_results_of_a_service_have_notices_index_and_blocks_of_their_table(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each result notes the dropped rows, an audit equals the library's audit, and the job of a fit returns the fit."""
    monkeypatch.setattr(stores.queue, "enqueue", lambda created: finish(stores, created.id))
    options: Any = {"labels": "cluster", "missing": "drop"}
    whole = GAPS.dropna().assign(who=np.arange(N - 2) // 2)
    audited: Any = {"method": "pca", "labels": "cluster", "blocks": "who", "standardize": "zscore"}
    with glle.Client(str(client.base_url), progress=False) as service:
        embedding, fitted = service.embed(GAPS, "pca", **options), service.fit(GAPS, n_neighbors=6, **options)
        results = [
            embedding,
            embedding.transform(GAPS, **options),
            service.audit(GAPS, method="pca", **options),
            service.compare(GAPS, ["pca"], **options),
        ]
        for result in results:
            assert "2 of 40 rows" in " ".join(note.message for note in result.notes)
            assert list(result.index) == list(whole.index)
        assert list(glle.frame(fitted).index) == list(whole.index)
        assert service.job(str(fitted.metadata["job"])).result() == fitted
        audit = service.audit(whole, **audited)
    direct = glle.audit(whole, **audited)
    assert direct.groups is not None
    assert audit.groups == direct.groups.to_dict()
    assert (audit.level, audit.verdict, audit.remains) == (direct.level, direct.verdict, direct.remains)
    assert (audit.neighbors != direct.neighbors).nnz == 0
    assert [note.message for note in audit.notes] == [note.message for note in direct.notes]
    for name, array in direct.arrays().items():
        np.testing.assert_allclose(getattr(audit, name), array, rtol=1e-9, err_msg=name)


def test_a_table_is_embedded_in_one_call() -> None:
    """`embed` drops rows with gaps, guesses the roles, and notes both."""
    embedding = glle.embed(GAPS, "lle", n_neighbors=6, missing="drop")
    rows = GAPS[["a", "b", "c"]].dropna().to_numpy()
    np.testing.assert_array_equal(embedding.Y, glle.embed(rows, "lle", n_neighbors=6).Y)
    messages = " ".join(note.message for note in embedding.notes)
    assert ("2 distinct words" in messages, "2 of 40 rows have missing values" in messages) == (True, True)


def test_a_fit_has_the_columns_of_its_table() -> None:
    """A fit has the rows without gaps, the classes as labels, and notes; `calibrate` takes the same table."""
    table = GAPS.set_index(pd.Index(NAMES))
    posterior = glle.fit(table, labels="cluster", missing="drop", n_neighbors=6)
    kept = [row for row in range(N) if row not in {3, 5}]
    assert [note.code for note in posterior.notes][:3] == ["colors-guessed", "date-colors", "rows-dropped"]
    assert posterior.calibrate(table, n_resamples=4, n_draws=4).scale > 0
    same = glle.fit(POINTS.to_numpy()[kept], n_neighbors=6)
    np.testing.assert_array_equal(posterior.embedding, same.embedding)
    legend = posterior.plot(ax=Figure().gca()).get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "cluster"
    assert [text.get_text() for text in legend.get_texts()] == ["left", "right"]


def test_guessed_roles_and_large_features_are_said_by_name() -> None:
    """Notes name the guessed column and the feature with the most variance; the legend has the column's name."""
    table = TABLE.assign(c=TABLE["c"] * 1e4)
    for result in (glle.fit(table, n_neighbors=6), glle.embed(table, "lle", n_neighbors=6)):
        assert any("'cluster' has 2 distinct words. It has the labels" in note.message for note in result.notes)
    posterior = glle.fit(table, n_neighbors=6)
    assert "1 of 3 features hold 99 % of the variance, most of it c, and" in " ".join(
        n.message for n in posterior.notes
    )
    assert "'cluster' has 2 distinct words" in str(posterior)
    assert "distinct words" not in repr(posterior)
    legend = posterior.plot(ax=Figure().gca()).get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "cluster"


def test_labels_by_name_reach_what_uses_them() -> None:
    """`labels="column"` gives the labels to scores and to supervised methods."""
    compared = glle.compare(TABLE, ["pca"], labels="cluster", audit=False)
    assert "neighborhood_hit" in compared.scores["pca"]
    assert "2 distinct words" in repr(glle.compare(TABLE, ["pca"], scores=[], audit=False))
    named = glle.embed(TABLE, "supervised-lle", labels="cluster", n_neighbors=6)
    np.testing.assert_array_equal(named.Y, glle.embed(X, "supervised-lle", labels=CLUSTERS, n_neighbors=6).Y)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (TABLE, {"labels": "clutser"}, "Did you mean cluster"),
        (TABLE, {"lable": "cluster"}, "Did you mean labels"),
        (X, {"labels": "cluster"}, "no named columns"),
        (X, {"obsm": "X_pca"}, "only an AnnData has obsm"),
        (Cells(), {"obsm": "X_umap"}, "Name one of X_pca"),
        (Cells(), {"labels": "kind"}, "Name one of its columns: cell_type"),
        (Cells(), {"ignore": ["a"]}, r"Choose variables before"),
        ("table.csv", {}, r"path \'table.csv\', .*Read the file first, for example with pandas.read_csv"),
        (POINTS[[]], {}, "The table has no columns"),
        (POINTS.set_axis(["a", "b", "a"], axis=1), {}, "Several columns are named 'a'"),
        (POINTS.assign(k=[1, "a"] * 20), {}, r"'k' \(object, such as 'a'\)"),
        ({"a": X[:, 0]}, {}, r"pandas\.DataFrame"),
        (X[:1], {}, r"than 1 points\. Give more points"),
        *(
            (POINTS.assign(k=[text.replace("7", f"{row:03}") for row in range(N)]), {}, "'k' has numbers as texts")
            for text in ("1.7,5", "7%", "$4.7", "7,5 €", "1 7")
        ),
        (POINTS.assign(k=["?", "4", "5", "4"] * 10), {}, r"numbers as texts, such as '\?'"),
    ],
)
def test_what_cannot_be_read_is_refused(data: Any, options: Any, message: str) -> None:
    """The error names the possible choices, or the closest name."""
    with pytest.raises((GlleError, ValueError), match=message):
        glle.fit(data, **options)


def test_categories_of_numbers_are_noted() -> None:
    """A categorical column of numbers is a feature with a note; one of texts of digits has the labels."""
    numbers, digits = (
        TABLE[["a", "b"]].assign(k=pd.Categorical([1, 2] * 20).astype(kind)) for kind in ("category", str)
    )
    assert "labels='k'" in read_points(numbers, {}).notes[0].message
    assert read_points(digits.astype({"k": "category"}), {}).labels is not None


def test_unsigned_integers_and_lists_of_rows_are_numbers() -> None:
    """Columns of uint64 and sparse matrices stored as lists of rows are read as their numbers."""
    unsigned = pd.DataFrame(np.abs(X * 10).astype(np.uint64))
    assert read_points(unsigned, {}).X.tobytes() == read_points(unsigned.astype(float), {}).X.tobytes()
    assert glle.fit(lil_array(X)).n_points == N


MIXED = TABLE.assign(kind=["u", "v", "w", "u"] * 10)


@pytest.mark.parametrize("table", [POINTS, TABLE, MIXED], ids=["points", "table", "categories"])
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_new_points_are_placed_by_the_names_of_their_columns(table: Any, kind: str) -> None:
    """New rows may have their columns in any order and columns that are no features; unknown names are refused."""
    options: Any = {"labels": "cluster", "one_hot": ["kind"]} if "kind" in table else {}
    posterior = glle.fit(table, n_neighbors=6, **options)
    embedding = glle.embed(table, "pca", **options)
    features = table.drop(columns=["cluster", "when"], errors="ignore")
    for new in (table[:2], table[table.columns[::-1]][:2], features[:2], features.iloc[:2, ::-1]):
        points = new if kind == "pandas" else pa.Table.from_pandas(new)
        np.testing.assert_array_equal(posterior.transform(table, points), posterior.embedding[:2])
        np.testing.assert_allclose(embedding.transform(points), embedding.Y[:2], atol=1e-12)
    places: list[Callable[[Any], Any]] = [lambda new: posterior.transform(table, new), embedding.transform]
    for result in places:
        with pytest.raises(GlleError, match="missing: 'a'; unknown: 'q'"):
            result(table[:1].rename(columns={"a": "q"}))
        with pytest.raises(GlleError, match=r"Values are missing.*fill the values in"):
            result(table[:2].assign(a=np.nan))
    weights = posterior.weights(0)
    values = read_points(table, options).X
    np.testing.assert_array_equal(posterior.reconstruct(table, weights), posterior.reconstruct(values, weights))
    if options:
        with pytest.raises(GlleError, match="unknown: 'kind=z'"):
            posterior.transform(table, table[:1].assign(kind="z"))
    else:
        array = posterior.transform(POINTS.to_numpy(), POINTS.to_numpy()[:2])
        np.testing.assert_array_equal(array, posterior.embedding[:2])


def test_new_cells_are_placed_by_the_names_of_their_variables() -> None:
    """New cells of an AnnData are matched by the variables' names; arrays and `obsm` by their position."""

    class Shuffled(Cells):
        def __init__(self) -> None:
            super().__init__()
            self.X, self.var_names = self.X[:, [2, 0, 1]], self.var_names[[2, 0, 1]]

    fits: list[Any] = [glle.fit(Cells(), n_neighbors=6, obsm=key) for key in (None, "X_pca")]
    posterior, reduced = fits
    for data, new in ((Cells(), Shuffled()), (Shuffled(), csr_array(X))):
        np.testing.assert_array_equal(posterior.transform(data, new), posterior.embedding)
    for new in (Cells(), X[:, :2]):
        np.testing.assert_array_equal(reduced.transform(new, Cells()), reduced.embedding)


def test_rows_keep_their_index(tmp_path: Path) -> None:
    """Frames of all results have the index, labels and ids of the kept rows, also after a save."""
    gaps = GAPS.set_axis([f"r{row}" for row in range(N)])
    kept = gaps.dropna()
    posterior = glle.fit(gaps, missing="drop", n_neighbors=6)
    posterior.save(tmp_path / "post.npz")
    results: list[Any] = [
        posterior,
        glle.load(tmp_path / "post.npz"),
        glle.embed(gaps, "pca", missing="drop"),
        glle.audit(gaps, X[:, :2], labels="cluster", missing="drop"),
    ]
    assert "2 of 40 rows" in " ".join(note.message for note in results[3].notes)
    for result in results:
        frame = result.frame()
        assert (list(frame.index), list(frame["label"]), list(frame["id"])) == (
            list(kept.index),
            list(kept["cluster"]),
            list(kept.index),
        )
        shuffled = result.frame(labels=gaps["cluster"][::-1])
        assert list(shuffled["label"]) == list(kept["cluster"])
        with pytest.raises(GlleError, match="is not the index of the data"):
            result.plot(labels=gaps["cluster"].reset_index(drop=True), ax=Figure().gca())
    assert glle_engine.load(tmp_path / "post.npz").embedding.tobytes() == posterior.embedding.tobytes()
    assert results[1].options == posterior.options
    assert results[1].transform(gaps, gaps[:1]).tolist() == posterior.embedding[:1].tolist()
    levels = glle.embed(POINTS.set_index(pd.MultiIndex.from_product([["u", "v"], range(N // 2)])), "pca").frame()
    assert (list(levels)[:2], list(levels["id_2"])[-1], levels.loc[("v", 0), "id_1"]) == (["id_1", "id_2"], "19", "v")
    dense = GAPS.to_numpy()[:, :3].astype(float)
    for data in (dense, csr_array(dense)):
        assert list(glle.fit(data, missing="drop").frame().index)[3:5] == [4, 6]
    named = repr(results[2])
    assert named.startswith("TableEmbedding(embedding=float64(38, 2)")
    assert "labels" not in named


def test_blocks_are_a_column_or_an_array() -> None:
    """A column with the blocks of an audit is not a feature, with a role or without; its name alone is refused."""
    subjects = np.arange(N) // 4
    texts = np.array([f"s{subject:02}" for subject in subjects])
    direct = glle.audit(X, method="pca", blocks=subjects)
    for column in (subjects, texts):
        frame = pd.DataFrame(X).rename(columns=str).assign(who=column)
        for options in ({"blocks": "who"}, {"blocks": "who", "id": "who"}, {"blocks": column, "ignore": "who"}):
            audit = glle.audit(frame, method="pca", **options)
            assert (audit.remains, audit.pairs) == (direct.remains, direct.pairs), options
    gaps = frame.assign(who=texts)
    gaps.iloc[5, 0] = np.nan
    kept = gaps["who"].notna() & gaps["0"].notna()
    dropped = glle.audit(gaps, method="pca", blocks="who", missing="drop")
    assert dropped.remains == glle.audit(X[kept], method="pca", blocks=subjects[kept]).remains
    with pytest.raises(GlleError, match="blocks='who' names a column, but the data have no named columns"):
        glle.audit(X, method="pca", blocks="who")
    with pytest.raises(GlleError, match=r"no column 'nobody'\. Use one of the columns"):
        glle.audit(frame, method="pca", blocks="nobody")


def test_a_column_of_ids_is_a_candidate_for_blocks() -> None:
    """An audit without blocks names the id whose values group the rows."""
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)), columns=list("abc"))
    frame["who"] = [f"mouse {row // 3}" for row in range(60)]
    codes = {note.code: note.message for note in glle.audit(frame, method="pca", id="who").notes}
    assert "give blocks='who'" in codes["blocks-candidate"]
    assert "blocks-candidate" not in {note.code for note in glle.audit(frame, method="pca", blocks="who").notes}


def test_labels_are_those_of_their_rows() -> None:
    """A series of labels is matched by its index; missing labels are the empty text."""
    table = POINTS.set_axis(NAMES)
    labels = pd.Series(CLUSTERS, NAMES)
    for values in (labels[::-1], labels.to_numpy()):
        supervised = glle.embed(table, "supervised-lle", labels=values, n_neighbors=6)
        np.testing.assert_array_equal(supervised.Y, glle.embed(X, "slle", labels=CLUSTERS, n_neighbors=6).Y)
    assert "neighborhood_hit" in glle.compare(table, ["pca"], labels=labels, audit=False).scores["pca"]
    with pytest.raises(GlleError, match="is not the index of the data"):
        glle.audit(table, X[:, :2], labels=labels.reset_index(drop=True))
    missing: Any
    for missing in (None, np.nan, pd.NA):
        groups = glle.audit(X, method="pca", labels=["a", missing] * 20).groups
        assert groups is not None
        assert groups.names.tolist() == ["", "a"]
