"""README.md and the tutorials contain examples that run."""

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import glle_engine
from glle import Client
from tests.docs.pages import ROOT, STRICT, bash, blocks, run
from tests.system.conftest import Up

mpl.use("Agg")
TUTORIALS = ROOT / "docs" / "tutorials"
URL = "http://127.0.0.1:8000"


def test_readme_audits_a_map() -> None:
    """The first block runs; PCA stands for UMAP, which compiles for half a minute."""
    audit, _, _ = blocks(ROOT / "README.md", "python")
    assert 'method="umap"' in audit
    digits = load_digits()
    names = run([audit.replace('"umap"', '"pca"')], X=digits.data[:150], y=digits.target[:150])
    assert names["found"].beyond_chance
    assert names["found"].groups.apart.shape == (10, 10)


def test_readme_fits_with_the_engine_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The third block needs no service; it runs with fewer points."""
    monkeypatch.chdir(tmp_path)
    _, _, engine = blocks(ROOT / "README.md", "python")
    assert '"swiss_roll", 2000' in engine
    names = run([engine.replace("2000", "300")])
    assert names["draw"].embedding.shape == (300, 2)
    assert names["posterior"].calibration.scale == names["draw"].scale > 0


def test_readme_draws_with_the_client(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second block needs `make up`."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    monkeypatch.setenv("GLLE_URL", up.url)
    _, client, _ = blocks(ROOT / "README.md", "python")
    assert run([client])["posterior"].draw(7).shape == (5000, 2)
    plt.close("all")


def test_the_audit_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All blocks of the page with fewer points; PCA stands for UMAP, which compiles for half a minute."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=lambda: PCA(2)))
    first, *more = blocks(TUTORIALS / "audit.md", "python")
    names = run([first.replace("\nfound", "\nX, y = X[:100], y[:100]\nfound"), *more])
    assert names["found"].groups.apart.shape == (10, 10)
    assert names["alone"].level == "unknown"
    assert (tmp_path / "audit.png").exists()


def test_the_uncertainty_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All blocks of the page, one after the other, in one namespace, with fewer points."""
    monkeypatch.chdir(tmp_path)
    adata = SimpleNamespace(n_obs=200, obsm={}, obs={}, uns={})
    monkeypatch.setitem(sys.modules, "xarray", SimpleNamespace(DataArray=lambda values, **_: values))
    if find_spec("jscatter") is None:  # of Python 3.14
        monkeypatch.setattr("glle.widget", lambda *_, **__: SimpleNamespace(selection=[0]), raising=False)
    first, *more = blocks(TUTORIALS / "uncertainty.md", "python")
    assert '"swiss_roll", 1000' in first
    names = run([first.replace("1000", "200"), *more], adata=adata)
    assert names["summary"].spread.shape == (200,)
    assert names["draws"].shape == (100, 200, 2)
    assert adata.obsm["X_glle"].shape == (200, 2)
    assert names["placed"].shape == (5, 2)
    assert (tmp_path / "roll.npz").exists()


ENGINE_PAGES = (
    "explanation/spread.md", "explanation/neighbors.md", "explanation/posterior.md", "explanation/published.md",
    "reference/engine-api.md", "reference/methods.md",
)  # fmt: skip
CLIENT_PAGES = ("index.md", "reference/client.md", "reference/client-api.md")


@pytest.mark.parametrize("page", ENGINE_PAGES)
def test_first_examples_with_the_engine_run(page: str) -> None:
    """The first block of the page, with the data that it assumes."""
    X = glle_engine.manifolds.make("s_curve", 200, seed=0).X
    names = run(blocks(ROOT / "docs" / page, "python")[:1], fit=glle_engine.fit, X=X)
    assert {"posterior", "result"} & names.keys()


@pytest.mark.parametrize("page", CLIENT_PAGES)
def test_first_examples_with_the_client_run(up: Up, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """The first block of the page, with the posterior that it assumes."""
    monkeypatch.setenv("GLLE_URL", up.url)
    with Client() as client:
        posterior = client.fit(client.synthetic("s_curve", 300), n_neighbors=10)
        run([blocks(ROOT / "docs" / page, "python")[0].replace(URL, up.url)], posterior=posterior)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_tutorial_runs(up: Up, tmp_path: Path) -> None:
    """All blocks of the page as one script, with fewer points; every response has a status below 400."""
    script = "\n".join(blocks(TUTORIALS / "curl.md", "sh"))
    assert URL in script
    assert "range(600)" in script
    script = script.replace(URL, up.url).replace("curl -s", "curl --fail -s").replace("range(600)", "range(120)")
    bash(script, tmp_path, *STRICT)
    assert np.load(tmp_path / "draw.npy").shape == (120, 2)
    assert np.load(tmp_path / "draws.npy").shape == (3, 8, 120, 2)
    assert (tmp_path / "head.npy").stat().st_size == 1024
    assert (tmp_path / "draws.csv").read_text().splitlines()[0] == "draw,scale,point,y1,y2"
    assert [row["problem"] for row in json.loads((tmp_path / "compared.json").read_text())["rows"]] == [None, None]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_readme_works_with_curl(up: Up, tmp_path: Path) -> None:
    """Each line works with the ids that the lines before it returned."""
    (block,) = blocks(ROOT / "README.md", "sh")
    script = f"cd {ROOT}\n" + block.replace(URL, up.url).replace("-o draw.npy", f"-o {tmp_path}/draw.npy")
    outputs: list[str] = []
    for line in script.splitlines()[2:]:
        command = line.replace("$URL", up.url)
        for prefix, output in zip(("ds_", "post_"), outputs, strict=False):
            (id_,) = re.findall(rf'"id": ?"({prefix}\w+)"', output)
            command = command.replace(f"{prefix}...", id_)
        outputs.append(bash(command, ROOT))
    assert np.load(tmp_path / "draw.npy").shape == (300, 2)
