"""README.md and the tutorials contain examples that run."""

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer

import glle
from glle import Client
from tests.docs.pages import PAGES as ALL_PAGES
from tests.docs.pages import ROOT, STRICT, bash, blocks, run
from tests.system.conftest import Up

mpl.use("Agg")
TUTORIALS = ROOT / "docs" / "tutorials"
URL = "http://127.0.0.1:8000"


def test_readme_audits_a_map() -> None:
    """The README's first block runs, with PCA in place of UMAP, which compiles for half a minute."""
    audit, _, _ = blocks(ROOT / "README.md", "python")
    assert 'method="umap"' in audit
    digits = load_digits()
    names = run([audit.replace('"umap"', '"pca"')], X=digits.data[:150], y=digits.target[:150])
    assert names["audit"].beyond_chance
    assert names["audit"].groups.apart.shape == (10, 10)


def test_readme_fits_with_the_engine_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The README's third block runs without a service, with fewer points."""
    monkeypatch.chdir(tmp_path)
    _, _, engine = blocks(ROOT / "README.md", "python")
    assert '"swiss_roll", 2000' in engine
    names = run([engine.replace("2000", "300")])
    assert names["draw"].embedding.shape == (300, 2)
    assert names["posterior"].calibration.scale == names["draw"].scale > 0


def test_readme_draws_with_the_client(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's second block runs against a service."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    monkeypatch.setenv("GLLE_URL", up.url)
    _, client, _ = blocks(ROOT / "README.md", "python")
    assert run([client])["posterior"].draw(7).shape == (5000, 2)
    plt.close("all")


def test_the_audit_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All blocks run with fewer points, and PCA in place of UMAP, which compiles for half a minute."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=lambda: PCA(2)))
    first, *rest = blocks(TUTORIALS / "audit.md", "python")
    names = run([first.replace("\naudit", "\nX, y = X[:100], y[:100]\naudit"), *rest])
    assert names["audit"].groups.apart.shape == (10, 10)
    assert names["alone"].level == "unknown"
    assert (tmp_path / "audit.png").exists()


def test_the_uncertainty_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All blocks run in their order in one namespace, with fewer points."""
    monkeypatch.chdir(tmp_path)
    adata = SimpleNamespace(n_obs=200, obsm={}, obs={}, uns={})
    if find_spec("jscatter") is None:  # of Python 3.14
        monkeypatch.setattr("glle.widget", lambda *_, **__: SimpleNamespace(selection=[0]), raising=False)
    first, *rest = blocks(TUTORIALS / "uncertainty.md", "python")
    assert '"swiss_roll", 1000' in first
    names = run([first.replace("1000", "200"), *rest], adata=adata)
    assert names["summary"].spread.shape == (200,)
    assert names["draws"].shape == (100, 200, 2)
    assert adata.obsm["X_glle"].shape == (200, 2)
    assert names["placed"].shape == (5, 2)
    assert (tmp_path / "roll.npz").exists()


# What a page assumes is replaced: fewer points, and another method for UMAP, which compiles for half a minute.
CHANGES = {
    '"umap", options={"repulsion_strength": 2.0, "set_op_mix_ratio": 0.8}': '"t-sne", options={"max_step_norm": 4.0}',
    '"umap", labels=y, target_weight=0.5': '"pca", labels=y',
    '"umap"': '"pca"',
    "1000": "300",
    "10_000": "50",
    "2000": "300",
    "5000": "300",
    URL: "URL",
    'result.audits["t-sne-30"]': "next(iter(result.audits.values()))",  # so few points have other perplexities
    "fit(X, search=\"approximate\")  # pip install '.[ann]'": "" if find_spec("faiss") is None else None,
}
PAGES = (
    "explanation/believe.md", "explanation/faq.md", "explanation/neighbors.md", "explanation/posterior.md",
    "explanation/published.md", "explanation/spread.md", "how-to/tables.md", "index.md", "reference/client-api.md",
    "reference/client.md", "reference/engine-api.md", "reference/formats.md", "reference/methods.md",
    "tutorials/gallery.md",
)  # fmt: skip
ELSEWHERE = {
    "ARCHITECTURE.md",
    "README.md",
    "docs/reference/http-api.md",
    "docs/tutorials/audit.md",
    "docs/tutorials/quickstart.md",
    "docs/tutorials/uncertainty.md",
}  # pages whose blocks other tests run


SLOW_PAGES = ("explanation/which-map.md",)  # audits of several methods


def test_every_page_with_python_is_run() -> None:
    """Each page with Python blocks is run here, in `test_examples.py`, or by `make -C qa clients`."""
    with_python = {str(page.relative_to(ROOT)) for page in ALL_PAGES if blocks(page, "python")}
    assert with_python == {*ELSEWHERE, *(f"docs/{page}" for page in (*PAGES, *SLOW_PAGES))}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [*PAGES, *(pytest.param(page, marks=pytest.mark.slow) for page in SLOW_PAGES)])
def test_the_blocks_of_the_page_run(up: Up, monkeypatch: pytest.MonkeyPatch, page: str, tmp_path: Path) -> None:
    """All blocks of the page run in their order, with the data and names that the page assumes."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    monkeypatch.setenv("GLLE_URL", up.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    X, y = (values[:150] for values in load_digits(return_X_y=True))
    rng = np.random.default_rng(0)
    points = glle.datasets.make("s_curve", 150, seed=0).X
    frame = pd.DataFrame(points, columns=list("abc")).assign(cluster=[f"group {each}" for each in y])
    frame.loc[3, "a"] = np.nan
    pieces = blocks(ROOT / "docs" / page, "python")
    if "cells.xlsx" in "".join(pieces):
        write_workbook(tmp_path / "cells.xlsx", frame.dropna())
    posterior = glle.fit(X)
    posterior.save(tmp_path / "post.npz")
    for old, new in CHANGES.items():
        pieces = [text if new is None else text.replace(old, up.url if new == "URL" else new) for text in pieces]
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    names: dict[str, Any] = {
        "X": X, "y": y, "D": distances, "near": np.argsort(distances, axis=1)[:, 1:9],
        "texts": [" ".join(each) for each in rng.choice(["red", "blue", "wide", "deep", "calm", "loud"], (90, 4))],
        "frame": frame, "fit": glle.fit, "glle": glle, "pandas": pd, "TfidfVectorizer": TfidfVectorizer,
    }  # fmt: skip
    with Client() as client:
        if "client" in page or page in {"index.md", "how-to/tables.md"}:
            names["posterior"] = client.fit(client.synthetic("s_curve", 300), n_neighbors=10)
        else:
            names["posterior"] = posterior
        for text in pieces:
            names = run([text], **{**names, "client": client})  # an earlier block may have closed its own
    plt.close("all")


def write_workbook(path: Path, frame: pd.DataFrame) -> None:
    """Write a workbook with one sheet of texts and numbers; the environment of the pages has no library for this."""
    cells = [
        "".join(
            f"<c><v>{value}</v></c>" if isinstance(value, float) else f'<c t="inlineStr"><is><t>{value}</t></is></c>'
            for value in row
        )
        for row in [tuple(frame.columns), *frame.itertuples(index=False)]
    ]
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="a" sheetId="1" '
        'r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>'
        + "".join(f"<row>{row}</row>" for row in cells)
        + "</sheetData></worksheet>",
    }
    with ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_tutorial_runs(up: Up, tmp_path: Path) -> None:
    """All blocks run as one script with fewer points; every response has a status below 400."""
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
    """Each curl line of the README works with the ids that earlier lines returned."""
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
