"""Commands of the client on a service without workers: text and JSON, errors and exit codes."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from importlib import metadata
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import TYPE_CHECKING, get_type_hints

import numpy as np
import pandas as pd
import pytest

from glle import Client, cli
from glle.cli.connection import UNREAD, add_options, select_options
from glle.types import DrawsOptions, FitOptions, SyntheticOptions
from glle_engine import load, manifolds
from glle_engine.methods import METHODS
from service.cli import main
from tests.service.routes.posteriors.conftest import finish, fit_posterior
from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from worker.stores import Stores

    Glle = Callable[..., tuple[int, str, str]]


@pytest.fixture
def glle(client: httpx.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Glle:
    """Return a function that runs a command against the app, and returns exit code, output and errors."""
    monkeypatch.setenv("GLLE_URL", str(client.base_url))

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(arguments)
        except SystemExit as end:  # of argparse
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_datasets_from_upload_to_delete(glle: Glle, client: httpx.Client, tmp_path: Path) -> None:
    """Upload, list, show and delete print text, and with --json one JSON value of the API."""
    np.save(tmp_path / "x.npy", np.arange(8.0).reshape(4, 2))
    code, out, err = glle("datasets", "upload", str(tmp_path / "x.npy"))
    id_ = out.removesuffix("\n")
    assert (code, err, id_.split()) == (0, "4 points, 2 features\n", [id_])
    made = ("datasets", "synthetic", "s_curve", "-n", "1500", "--noise", "0.1")
    assert glle(*made)[2] == "1,500 points, 3 features\n"
    listed = glle("datasets", "list")[1].splitlines()
    assert listed[0].split() == ["id", "points", "features", "from", "created"]
    assert listed[1].split()[1:4] == ["1,500", "3", "s_curve"]
    assert listed[2].split()[:4] == [id_, "4", "2", "npy"]
    assert json.loads(glle("datasets", "show", id_)[1])["n"] == 4
    assert glle("datasets", "delete", id_) == (0, f"{id_} is deleted.\n", "")
    (listed,) = json.loads(glle("datasets", "list", "--json")[1])
    assert json.loads(glle("datasets", "delete", listed["id"], "--json")[1]) == {"deleted": listed["id"]}
    assert glle("datasets", "list")[1] == "None.\n"
    (tmp_path / "x.csv").write_text("a,b,kind\n1,2,u\n3,4,v\n")
    uploaded = json.loads(glle("datasets", "upload", str(tmp_path / "x.csv"), "--labels", "kind", "--json")[1])
    assert uploaded == client.get(f"/v1/datasets/{uploaded['id']}").json()
    assert uploaded["has_labels"]


def test_jobs_are_listed_shown_and_cancelled(glle: Glle) -> None:
    """A queued fit is a job; after its cancellation `glle jobs wait` fails."""
    dataset = json.loads(glle("datasets", "synthetic", "s_curve", "-n", "60", "--json")[1])["id"]
    code, _, err = glle("fit", dataset, "-k", "7", "--timeout", "0")
    assert (code, "had not ended after 0 s; it is queued" in err) == (4, True)
    (listed,) = json.loads(glle("jobs", "list", "--status", "queued", "--kind", "fit", "--json")[1])
    assert listed["request"]["spec"]["n_neighbors"] == 7
    assert glle("jobs", "list")[1].splitlines()[1].split()[:4] == [listed["id"], "fit", "queued", "0/1"]
    assert json.loads(glle("jobs", "show", listed["id"])[1])["status"] == "queued"
    assert glle("jobs", "cancel", listed["id"]) == (0, f"{listed['id']}  fit cancelled\n", "")
    code, out, err = glle("jobs", "wait", listed["id"])
    assert (code, out) == (1, "")
    assert "was cancelled" in err


def test_lists_have_their_own_filters(glle: Glle, client: httpx.Client) -> None:
    """`glle datasets list` selects by name and tag, `glle jobs list` by status and kind."""
    ids = [json.loads(glle("datasets", "synthetic", "s_curve", "-n", n, "--json")[1])["id"] for n in ("50", "60")]
    client.patch(f"/v1/datasets/{ids[0]}", json={"name": "first", "tags": ["a"]}).raise_for_status()
    for options in (("--name", "first"), ("--tag", "a")):
        listed = json.loads(glle("datasets", "list", *options, "--json")[1])
        assert [dataset["id"] for dataset in listed] == [ids[0]]
    assert glle("fit", ids[0], "-k", "7", "--timeout", "0")[0] == 4
    assert glle("embed", ids[0], "--method", "pca", "--timeout", "0")[0] == 4
    jobs = {job["kind"]: job["id"] for job in json.loads(glle("jobs", "list", "--json")[1])}
    assert glle("jobs", "cancel", jobs["fit"])[0] == 0
    for options in (("--kind", "fit"), ("--status", "cancelled")):
        listed = json.loads(glle("jobs", "list", *options, "--json")[1])
        assert [job["id"] for job in listed] == [jobs["fit"]]


def test_errors_have_a_remedy(glle: Glle, client: httpx.Client) -> None:
    """Stderr has detail, remedy and request id, or the problem with --json; the exit code is 1."""
    problem = client.get("/v1/jobs/job_none").json()
    code, out, err = glle("jobs", "show", "job_none")
    assert (code, out) == (1, "")
    assert err.startswith(f"glle: {problem['detail']}\n  {problem['remedy']} Request ")
    code, out, err = glle("jobs", "show", "job_none", "--json")
    assert (code, out) == (1, "")
    del problem["detail_parts"], problem["remedy_parts"]
    assert json.loads(err) == {**problem, "request_id": json.loads(err)["request_id"]}


def test_a_reader_that_has_enough_ends_the_command_quietly() -> None:
    """A closed pipe ends the command with the exit code of SIGPIPE and no message, at a print and at the last flush."""
    for lines in (1, 100_000):
        program = (
            "import sys\nfrom glle import cli\n"
            "def add(commands):\n"
            f"    run = lambda _: [print('a line') for _ in range({lines})] and 0\n"
            "    commands.add_parser('many').set_defaults(run=run)\n"
            "sys.exit(cli.main(['many'], [add]))\n"
        )
        end, pipe = os.pipe()
        os.close(end)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, stdout=pipe, stderr=subprocess.PIPE, check=False)
        os.close(pipe)
        assert (done.returncode, done.stderr) == (UNREAD, b"")


def test_an_exported_posterior_is_one_of_the_engine(glle: Glle, client: httpx.Client, tmp_path: Path) -> None:
    """`glle export` writes a file that the engine loads, and prints its size."""
    path = tmp_path / "kept.npz"
    id_ = fit_posterior(client).rpartition("/")[2]
    code, out, err = glle("export", id_, "-o", str(path))
    assert (code, out, err) == (0, f"{path}  {path.stat().st_size:,} bytes\n", "")
    assert load(path).n_points == 60


def test_missing_service_has_a_separate_exit_code(glle: Glle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a service the exit code is 3, and the message names the command to start one."""
    fake = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr("glle.transport.session.time", fake)
    code, _, err = glle("jobs", "list", "--url", "http://127.0.0.1:9")
    assert code == 3
    assert "`glle up`" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["datasets", "upload", "nowhere.csv"], "There is no file nowhere.csv"),
        (["datasets", "upload", "table.doc"], "its name does not end in .npy"),
        (["fit", "nowhere.npy"], "There is no file nowhere.npy"),
        (["draw", "post_x", "-o", "draws.xlsx"], "name it draws.npy, draws.csv or draws.parquet"),
        (["draw", "post_x", "-o", "nowhere/draws.npy"], "no folder nowhere"),
        (["summary", "post_x", "-o", "spread.npy"], "name it spread.csv"),
        (["export", "post_x", "-o", "kept.zip"], "wrong ending: name it kept.npz"),
        (["embed", "ds_x", "--method", "pca", "--labels", "kind"], "got their roles when it was uploaded"),
        (
            ["embed", "ds_x", "--method", "pca", "--parameters", "labels=kind"],
            "labels cannot be given as NAME=VALUE: use --labels",
        ),
        (
            ["fit", "ds_x", "--labels", "kind", "--one-hot", "a"],
            "got their roles when it was uploaded: leave out --labels",
        ),
        (["draw", "post_x", "--coun", "3", "-o", "draws.npy"], "unrecognized arguments: --coun"),
        (["jobs", "list", "--url", "localhost:8000"], "such as http://127.0.0.1:8000"),
    ],
)
def test_misuse_is_reported_before_any_request(glle: Glle, arguments: list[str], message: str) -> None:
    """Wrong arguments give exit code 2 and the correct form, without a request."""
    code, out, err = glle(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_broken_server_leaves_the_commands_of_the_client(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the server's commands cannot be imported, the client's work, and the error says what to install again."""
    broken = EntryPoint("server", "missing_module:add", "glle.commands")
    monkeypatch.setattr("glle.cli.entry_points", lambda **_: [broken])
    assert cli.main(["jobs", "list", "--url", "localhost:8000"]) == 2
    err = capsys.readouterr().err
    assert ("No module named 'missing_module'" in err, "such as http://" in err) == (True, True)
    assert cli.main(["up"]) == 2
    assert "pip install glle-server" in capsys.readouterr().err


def test_fit_with_given_neighbors(glle: Glle, tmp_path: Path) -> None:
    """`--neighbors FILE` uploads the file of row numbers, and the job's record refers to this data set."""
    X = np.random.default_rng(0).random((30, 3))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "near.npy", np.argsort(((X[:, None] - X) ** 2).sum(axis=2), axis=1)[:, :7])
    code, _, _ = glle("fit", str(tmp_path / "x.npy"), "--neighbors", str(tmp_path / "near.npy"), "--timeout", "0")
    assert code == 4
    (listed,) = json.loads(glle("jobs", "list", "--status", "queued", "--kind", "fit", "--json")[1])
    assert listed["request"]["spec"]["n_neighbors"] == 6
    assert listed["request"]["spec"]["neighbors"].startswith("ds_")
    code, _, err = glle("fit", str(tmp_path / "x.npy"), "--neighbors", str(tmp_path / "x.npy"))
    assert code == 1
    assert "not the number of a point" in err


@pytest.mark.parametrize("options", [SyntheticOptions, FitOptions, DrawsOptions])
def test_every_parameter_of_the_contract_is_an_option(options: type, capsys: pytest.CaptureFixture[str]) -> None:
    """Each parameter is a flag with the contract's type, which errors name; an absent flag is not sent."""
    parser = argparse.ArgumentParser()
    add_options(parser, options)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert {"--" + name.replace("_", "-") for name in get_type_hints(options)} <= flags
    assert select_options(parser.parse_args([]), options) == {}
    if options is not DrawsOptions:
        return
    for arguments, parsed in (
        ("--scale 2", {"scale": 2.0}),
        ("--scale auto", {"scale": "auto"}),
        ("--scales 0.5 auto --first 3", {"scales": [0.5, "auto"], "first": 3}),
        ("--align none --source prior", {"align": "none", "source": "prior"}),
    ):
        assert select_options(parser.parse_args(arguments.split()), DrawsOptions) == parsed
    with pytest.raises(SystemExit):
        parser.parse_args(["--scale", "much"])
    assert "invalid number or auto value: 'much'" in capsys.readouterr().err


def test_methods_are_listed_and_refusals_come_before_work(glle: Glle, tmp_path: Path) -> None:
    """Invalid parameters are refused by name before a job starts; a valid comparison becomes a job."""
    listed = glle("methods", "--makes", "embedding")[1].splitlines()
    assert listed[0].split() == ["name", "makes", "family", "growth", "available", "title"]
    assert [line.split()[0] for line in listed[1:]] == list(METHODS)
    assert "…" not in glle("methods")[1]  # a pipe gets every cell in full
    dataset = json.loads(glle("datasets", "synthetic", "s_curve", "-n", "60", "--json")[1])["id"]
    code, _, err = glle("embed", dataset, "--method", "lle", "--parameters", "n_neighbors=1")
    assert (code, "n_neighbors=1 is not an integer of at least 2" in err) == (1, True)
    code, _, err = glle("compare", dataset, "--methods", "pca", "lle:n_neighbors=12,reg=x")
    assert (code, "methods.1: reg=x" in err) == (1, True)
    assert glle("embed", dataset, "--method", "pca", "-o", str(tmp_path / "y.txt"))[0] == 2
    code, _, err = glle("embed", dataset, "--method", "pca", "--parameters", "timeout=3")
    assert (code, "timeout cannot be given as NAME=VALUE" in err) == (2, True)
    code, _, err = glle(
        "compare", dataset, "--methods", "pca", "lle:n_neighbors=12", "--timeout", "0", "--scores", "continuity"
    )
    assert (code, "it is queued" in err) == (4, True)
    (job,) = json.loads(glle("jobs", "list", "--json")[1])
    assert job["request"]["methods"][1]["parameters"]["n_neighbors"] == 12
    assert job["request"]["scores"] == ["continuity"]


def test_commands_without_packages_name_the_extra(glle: Glle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without httpx the command prints its version and what to install; Parquet files need pyarrow."""
    assert glle("--version") == (0, f"glle {metadata.version('glle')}\n", "")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    code, _, err = glle("draw", "post_x", "-o", "draws.parquet")
    assert (code, "pip install pyarrow" in err) == (2, True)
    monkeypatch.setitem(sys.modules, "glle.client", None)
    code, out, err = glle("jobs", "list")
    assert (code, out) == (2, "")
    assert "pip install 'glle[client]'" in err


N = 310


@pytest.fixture
def run(glle: Glle, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs a command whose jobs are done at once, and returns its output."""
    monkeypatch.setattr(stores.queue, "enqueue", lambda job: finish(stores, job.id))

    def run(*words: str) -> str:
        code, out, err = glle(*words)
        assert code == 0, err
        return out

    return run


X = manifolds.make("s_curve", N, seed=22).X


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """Return a CSV file of points with a column of two classes."""
    file = tmp_path / "sheet.csv"
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(side=np.where(X[:, 0] > 0, "r", "l")).to_csv(file, index=False)
    return file


def test_results_as_tables(client: httpx.Client, run: Callable[..., str], sheet: Path, tmp_path: Path) -> None:
    """Draws, summary, new points and embeddings have the API's numbers in each kind of file."""
    id_ = run("fit", str(sheet), "--labels", "side", "-k", "9").strip()
    with Client(str(client.base_url)) as service:
        posterior = service.posterior(id_)
        draws, summary, placed = (
            posterior.draws(2, scales=[0.5, 1]),
            posterior.summary(6),
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
    matrix = np.zeros((N, N))
    matrix[triples["row"], triples["column"]] = triples["value"]
    np.testing.assert_array_equal(np.take_along_axis(matrix, near, axis=1), weights)
    out = run("summary", id_, "--n-draws", "6", "-o", str(tmp_path / "s.parquet"))
    table = pd.read_parquet(tmp_path / "s.parquet")
    np.testing.assert_array_equal(table["spread"], summary.spread)
    np.testing.assert_array_equal(table["half_sample_spread"], summary.half_sample_spread)
    np.testing.assert_array_equal(table["covariance_1_2"], summary.covariance[:, 0, 1])
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


def test_ids_are_the_first_column_of_every_table(
    client: httpx.Client, glle: Glle, run: Callable[..., str], tmp_path: Path
) -> None:
    """All tables of the commands and of the API begin with the file's ids, in the order of the file."""
    names = [f"C-{number:03d}" for number in np.random.default_rng(0).permutation(N)]
    X = manifolds.make("s_curve", N, seed=23).X
    sheet, new, out = tmp_path / "sheet.csv", tmp_path / "new.csv", tmp_path / "t.csv"
    pd.DataFrame(X, index=pd.Index(names, name="customer_id"), columns=["a", "b", "c"]).to_csv(sheet)
    pd.read_csv(sheet).iloc[[5, 2]].assign(customer_id=[7, 12]).to_csv(new, index=False)

    def table(*words: str) -> pd.DataFrame:
        run(*words, "-o", str(out))
        frame = pd.read_csv(out, dtype={"id": str})
        assert frame.columns[0] == "id"
        return frame

    id_ = run("fit", str(sheet), "-k", "9").strip()
    drawn = table("draw", id_, "--n-draws", "2", "--scales", "0.5", "1")
    assert drawn["id"].tolist() == names * 4
    assert drawn["point"].tolist() == [*range(N)] * 4
    assert table("summary", id_, "--n-draws", "4")["id"].tolist() == names
    assert table("transform", id_, str(new))["id"].tolist() == ["7", "12"]
    assert table("embed", str(sheet), "--method", "pca", "--scores", "none")["id"].tolist() == names
    code, out_, err = glle("embed", str(sheet), "--method", "pca", "--scores", "none")
    embedding = out_.strip()
    assert (code, "trustworthiness" in err) == (0, False)
    assert table("transform", embedding, str(new))["id"].tolist() == ["7", "12"]
    with Client(str(client.base_url)) as service:
        posterior = service.posterior(id_)
        dataset = service.dataset(posterior.metadata["dataset"])
        ids = dataset.ids()
        assert ids is not None
        assert ids.tolist() == names
        assert posterior.frame(posterior.draws(1)[0], index=ids).index.tolist() == names
        assert service.synthetic("s_curve", 50).ids() is None
        job = posterior.start_draws(2).wait().id
    for path, head, expected in (
        (f"/v1/jobs/{job}/result?points=0:4", "id,draw,point,y1,y2", names[:4] * 2),
        (f"/v1/posteriors/{id_}/summary?n_draws=3&scale=1&points=0:4&wait=30", "id,point,", names[:4]),
        (f"/v1/embeddings/{embedding}/coordinates?points=3,1", "id,point,embedding_1,embedding_2", names[3:0:-2]),
    ):
        first, *rows = client.get(path, headers={"accept": "text/csv"}).text.splitlines()
        assert first.startswith(head)
        assert [row.split(",")[0] for row in rows] == expected
        assert client.get(path).json() is not None


def test_tables_and_lines_of_methods(glle: Glle, run: Callable[..., str], sheet: Path, tmp_path: Path) -> None:
    """A comparison lists the problem of a method that fails; an audit prints how far to rely on a map."""
    data, audited = (str(sheet), "--labels", "side"), tmp_path / "a.csv"
    methods = ("--methods", "pca", "mds:n_components=300", "--scores", "continuity", "--no-audit")
    head, pca, mds = run("compare", *data, *methods).splitlines()
    assert head.split() == ["method", "continuity", "seconds", "notes"]
    name, *numbers = pca.split()
    assert (name, all(0 < float(number) < 1 for number in numbers), len(numbers)) == ("pca", True, 2)
    assert mds.split(maxsplit=1)[1].startswith("n_components=300 is more than the 3 dimensions")
    assert mds.endswith("of at most 3.")
    isomap = ("--method", "isomap", "--parameters", "n_neighbors=9", "--scores", "trustworthiness")
    _, out, err = glle("embed", *data, *isomap)
    assert re.fullmatch(rf"{N} points by isomap in \d+\.\d\d s\n  trustworthiness 0\.9\d+\n", err)
    id_ = out.strip()
    first, *lines = run("audit", *data, "--method", "pca", "-o", str(audited)).splitlines()
    assert re.match("(trust|partly|no): ", first)
    assert any(re.fullmatch(r"  Groups apart in other samples: l and r \d+%\.", line) for line in lines)
    assert audited.read_text("utf-8").startswith(
        "point,embedding_1,embedding_2,island,neighborhood,stretch,squeeze,is_torn,is_glued,seam,p_value,"
    )
    assert "Groups apart" in run("audit", id_)


def test_a_summary_and_draws_say_their_scale(glle: Glle, run: Callable[..., str], sheet: Path, tmp_path: Path) -> None:
    """A summary prints its scale; draws print the calibrated scale only if it was asked for."""
    id_ = glle("fit", str(sheet), "--labels", "side", "-k", "9")[1].strip()
    head, kept, spread = run("summary", id_, "--n-draws", "5").splitlines()[:3]
    assert re.fullmatch(rf"{id_}  {N} points, 5 draws at scale [\d.]+", head)
    assert re.fullmatch(r"  The median point keeps \d+ % of its neighbors in a draw\.", kept)
    assert re.fullmatch(r"  Its spread is [\d.]+; each axis has standard deviation 1\.", spread)
    assert run("summary", id_, "--n-draws", "5", "--scale", "1").splitlines()[0].endswith("5 draws at scale 1")
    file = str(tmp_path / "d.npy")
    lines = run("draw", id_, "--n-draws", "2", "--scale", "auto", "-o", file).splitlines()
    assert lines[0] == f"{file}  2 x {N} x 2, float64"
    assert lines[1].startswith("  The calibrated scale is ")
    assert len(run("draw", id_, "--n-draws", "2", "-o", file).splitlines()) == 1
