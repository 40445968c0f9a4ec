"""The commands on a running service, from a file to an npy of draws."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pandas as pd
import pytest

from glle import Client
from glle_engine import manifolds
from service.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.system.conftest import Up

N = 310


def test_file_to_draws_by_commands(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fit a file, draw into a file and list the job, as text and as JSON."""
    sheet, out = tmp_path / "sheet.npy", tmp_path / "draws.npy"
    np.save(sheet, manifolds.make("s_curve", N, seed=21).X)
    assert main.main(["fit", str(sheet), "-k", "9", "-p", "2", "--method", "direct", "--url", up.url]) == 0
    made = capsys.readouterr()
    id_ = made.out.removesuffix("\n")
    assert id_.split() == [id_]
    assert made.err.startswith(f"{N} points, fitted in ")
    drawing = ["draw", id_, "--n-draws", "3", "--first", "4", "--seed", "2", "--scales", "0.5", "1", "-o", str(out)]
    assert main.main([*drawing, "--dtype", "float32", "--url", up.url]) == 0
    assert capsys.readouterr().out == f"{out}  2 x 3 x {N} x 2, float32\n"
    assert main.main([*drawing, "--json", "--url", up.url]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(out), "shape": [2, 3, N, 2], "dtype": "float64"}
    assert np.isfinite(np.load(out)).all()
    assert main.main(["jobs", "list", "--kind", "draws", "--json", "--url", up.url]) == 0
    job = json.loads(capsys.readouterr().out)[0]
    assert job["posterior"] == id_
    assert main.main(["jobs", "wait", job["id"], "--url", up.url]) == 0
    assert capsys.readouterr().out == f"{job['id']}  draws succeeded\n"


@pytest.fixture
def run(up: Up, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command on the service and returns its output."""

    def run(*words: str) -> str:
        assert main.main([*words, "--url", up.url]) == 0
        return capsys.readouterr().out

    return run


X = manifolds.make("s_curve", N, seed=22).X


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """Return a file of points with a column of two classes."""
    file = tmp_path / "sheet.csv"
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(side=np.where(X[:, 0] > 0, "r", "l")).to_csv(file, index=False)
    return file


def test_results_as_tables(up: Up, run: Callable[..., str], sheet: Path, tmp_path: Path) -> None:
    """Draws, summary, new points and embeddings have the numbers of the API in files of each kind."""
    id_ = run("fit", str(sheet), "--labels", "side", "-k", "9").strip()
    with Client(up.url) as client:
        posterior = client.posterior(id_)
        draws, summary, placed = (
            posterior.draws(2, scales=[0.5, 1]),
            posterior.summary(6, n_resamples=4),
            posterior.transform(X[:4]),
        )
        weights, near = posterior.weights(3, seed=1), posterior.arrays()["neighbors"]
    run("draw", id_, "--n-draws", "2", "--scales", "0.5", "1", "-o", str(tmp_path / "d.csv"))
    table = pd.read_csv(tmp_path / "d.csv").set_index(["scale", "draw", "point"])
    np.testing.assert_array_equal(table.loc[1.0, 1].to_numpy(), draws[1, 1])
    for file in (tmp_path / "w.npy", tmp_path / "w.csv"):
        assert "weights" in run("weights", id_, "--index", "3", "--seed", "1", "-o", str(file))
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), weights)
    triples = pd.read_csv(tmp_path / "w.csv")
    found = np.zeros((N, N))
    found[triples["row"], triples["column"]] = triples["value"]
    np.testing.assert_array_equal(np.take_along_axis(found, near, axis=1), weights)
    out = run("summary", id_, "--n-draws", "6", "--n-resamples", "4", "-o", str(tmp_path / "s.parquet"))
    table = pd.read_parquet(tmp_path / "s.parquet")
    np.testing.assert_array_equal(table["spread"], summary.spread)
    np.testing.assert_array_equal(table["random_k_spread"], summary.random_k_spread)
    np.testing.assert_array_equal(table["covariance12"], summary.covariance[:, 0, 1])
    word, reason = summary.reliability["level"], summary.reliability["reason"]
    assert out.index(f"Reliability of the spread: {word}. {reason}") < out.index("The median point keeps")
    assert f"The median point keeps {100 * np.median(summary.stability):.0f} % of its neighbors" in out
    np.save(tmp_path / "new.npy", X[:4])
    run("transform", id_, str(tmp_path / "new.npy"), "-o", str(tmp_path / "P.NPY"))
    np.testing.assert_array_equal(np.load(tmp_path / "P.NPY"), placed.embedding)
    embed = ("embed", str(sheet), "--method", "pca", "--labels", "side", "--scores", "-o", str(tmp_path / "t.csv"))
    scored = json.loads(run(*embed, "--json"))
    assert scored["scores"].keys() >= {"trustworthiness", "neighborhood_hit"}
    places = pd.read_csv(tmp_path / "t.csv")
    assert len(places) == N
    run("transform", scored["id"], str(tmp_path / "new.npy"), "-o", str(tmp_path / "n.csv"))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "n.csv"), places[:4], atol=1e-8)


def test_ids_are_the_first_column_of_every_table(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables of the commands and of the API begin with the ids of the file, in its order."""
    names = [f"C-{number:03d}" for number in np.random.default_rng(0).permutation(N)]
    X = manifolds.make("s_curve", N, seed=23).X
    sheet, new, out = tmp_path / "sheet.csv", tmp_path / "new.csv", tmp_path / "t.csv"
    pd.DataFrame(X, index=pd.Index(names, name="customer_id"), columns=["a", "b", "c"]).to_csv(sheet)
    pd.read_csv(sheet).iloc[[5, 2]].assign(customer_id=[7, 12]).to_csv(new, index=False)

    def table(*words: str) -> pd.DataFrame:
        assert main.main([*words, "-o", str(out), "--url", up.url]) == 0
        frame = pd.read_csv(out, dtype={"id": str})
        assert frame.columns[0] == "id"
        return frame

    assert main.main(["fit", str(sheet), "-k", "9", "--url", up.url]) == 0
    id_ = capsys.readouterr().out.strip()
    drawn = table("draw", id_, "--n-draws", "2", "--scales", "0.5", "1")
    assert drawn["id"].tolist() == names * 4
    assert drawn["point"].tolist() == [*range(N)] * 4
    assert table("summary", id_, "--n-draws", "4", "--n-resamples", "4")["id"].tolist() == names
    assert table("transform", id_, str(new))["id"].tolist() == ["7", "12"]
    capsys.readouterr()
    placed = table("embed", str(sheet), "--method", "pca", "--scores", "none")
    assert placed["id"].tolist() == names
    printed = capsys.readouterr()
    embedding = printed.out.strip()
    assert "trustworthiness" not in printed.err
    assert table("transform", embedding, str(new))["id"].tolist() == ["7", "12"]
    with Client(up.url) as client:
        posterior = client.posterior(id_)
        dataset = client.dataset(posterior.metadata["dataset"])
        ids = dataset.ids()
        assert ids is not None
        assert ids.tolist() == names
        assert posterior.frame(posterior.draw(1), index=ids).index.tolist() == names
        assert client.synthetic("s_curve", 50).ids() is None
        job = posterior.start_draws(2).wait().id
    with httpx.Client(base_url=up.url, timeout=60, headers={"accept": "text/csv"}) as api:
        for path, head, expected in (
            (f"/v1/posteriors/{id_}/draws/0?points=0:4&wait=30", "id,y1,y2", names[:4]),
            (f"/v1/jobs/{job}/result?points=0:4", "id,draw,point,y1,y2", names[:4] * 2),
            (f"/v1/posteriors/{id_}/summary?n_draws=3&scale=1&points=0:4&wait=30", "id,point,", names[:4]),
            (f"/v1/embeddings/{embedding}/coordinates?points=3,1", "id,point,embedding_1,embedding_2", names[3:0:-2]),
        ):
            first, *rows = api.get(path).text.splitlines()
            assert first.startswith(head)
            assert [row.split(",")[0] for row in rows] == expected
            assert api.get(path, headers={"accept": "application/json"}).json() is not None
