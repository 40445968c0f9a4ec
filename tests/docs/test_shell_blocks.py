"""Shell blocks of the pages: those marked `<!-- run -->` run against a service, and targets of make exist."""

import os
import re
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glle import Client
from tests.docs.pages import PAGES, ROOT, STRICT, bash
from tests.system.conftest import Up

_MARKED = re.compile(r"<!-- run -->\n+(?:```\w*\n(?s:(.*?))\n```|((?: {4}.*\n|\n)+))")
_TARGET = re.compile(r"(?:^ *|`)make ((?:-C qa )?)([a-z][a-z -]*?)(?=  |`|$| [A-Z#])", re.MULTILINE)
RUN = [
    pytest.param(textwrap.dedent(fenced or indented), id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, (fenced, indented) in enumerate(_MARKED.findall(page.read_text(encoding="utf-8")))
]


def test_targets_of_make_exist() -> None:
    """Each `make TARGET` and `make -C qa TARGET` of a page exists, and six blocks or more are marked to run."""
    of_root, of_qa = (
        set(re.findall(r"^([a-z][\w-]*):", (ROOT / folder / "Makefile").read_text(), re.MULTILINE))
        for folder in (".", "qa")
    )
    for page in PAGES:
        for where, names in _TARGET.findall(page.read_text(encoding="utf-8")):
            assert set(names.split()) <= (of_qa if where else of_root), (page, names)
    assert len(RUN) >= 6


@pytest.fixture(scope="module")
def folder(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the blocks read, and a stored data set and posterior."""
    folder = tmp_path_factory.mktemp("blocks")
    points = pd.DataFrame(np.random.default_rng(3).normal(size=(120, 3)).round(4), columns=list("xyz"))
    species = points.assign(species=["a", "b"] * 60)
    customers = points.assign(customer=[f"C-{index:03d}" for index in range(120)])
    for name, table in {"sheet": species, "flowers": species.assign(note="-"), "customers": customers}.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    (folder / ".venv").symlink_to(sys.prefix)
    with Client(up.url) as client:
        dataset = client.dataset(folder / "customers.csv", id=["customer"])
        posterior = client.fit(dataset, n_neighbors=10)
        posterior.summary()
        (folder / "ids").write_text(f"{dataset.id} {posterior.id}")
    return folder


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("script", RUN)
def test_the_block_runs(script: str, up: Up, folder: Path) -> None:
    """The block succeeds with the test's address and ids in place of the page's."""
    dataset, posterior = (folder / "ids").read_text().split()
    script = script.replace("ds_...", dataset).replace("post_...", posterior).replace("curl -s", "curl --fail -s")
    for address in ("http://127.0.0.1:8000", "https://glle.example.org"):
        script = script.replace(address, up.url)
    servers = {name: up.redis_url(name) for name in ("GLLE_REDIS_URL", "GLLE_CACHE_URL")} if "doctor" in script else {}
    if servers:
        servers["GLLE_DATA_DIR"] = str(up.log.parent / "data")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    bash(script, folder, *STRICT, **servers, URL=up.url, GLLE_URL=up.url, PYTHONPATH=str(ROOT), PATH=path)
