"""Links: every state has one that opens in a fresh profile, and what is lost can be fitted again."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import numpy as np
from playwright.sync_api import expect

from tests.conftest import until
from tests.system.conftest import ROOT, running
from tests.ui.driver.tables import csv, sheet

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ui.driver.explorer import Explorer, Tab

LONG = 120_000  # milliseconds


def copied_link(explorer: Explorer) -> str:
    """Press Copy link; return its address without the host."""
    explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.at("copy-link").click()
    expect(explorer.at("export")).to_contain_text("Link copied")
    address: str = explorer.page.evaluate("navigator.clipboard.readText()")
    return address.removeprefix(explorer.url)


def test_the_audit_of_a_method_and_of_a_fit_has_a_link(tab_with_draws: Explorer, tab: Tab) -> None:
    """A fresh profile shows the same map with its verdict."""
    explorer = tab_with_draws
    for method in (None, "pca"):
        if method:
            explorer.open_set_up()
            explorer.at("method").select_option(method)
            explorer.at("fit").click()
            expect(explorer.at("frame-name")).to_have_text("PCA", timeout=LONG)
        expect(explorer.at("verdict")).not_to_be_empty(timeout=LONG)
        expect(explorer.at("cancel")).to_have_count(0, timeout=LONG)
        verdict = explorer.state("audit")["verdict"]
        with tab(explorer.url) as other:
            other.open(copied_link(explorer))
            other.expect_verdict(verdict, LONG)
            expect(other.at("frame-name")).to_contain_text("PCA" if method else "Average")


def test_a_reload_while_a_map_is_made_keeps_its_verdict(explorer: Explorer) -> None:
    """The address has the job of the map; after the reload the map is followed, shown and audited."""
    explorer.open_sheet("s_curve", 300)
    explorer.open_set_up()
    explorer.at("method").select_option("t-sne")
    explorer.at("fit").click()
    explorer.page.wait_for_url(lambda url: "job=" in url, wait_until="commit")
    assert "audit" not in explorer.page.url
    explorer.page.reload()
    expect(explorer.at("frame-name")).to_have_text("t-SNE", timeout=LONG)
    expect(explorer.at("verdict")).not_to_be_empty(timeout=LONG)


def test_axes_and_selected_rows_have_a_link(explorer: Explorer, tab: Tab) -> None:
    """A fresh profile shows the same two of three axes, and the same rows are selected."""
    explorer.open_sheet("s_curve", 80)
    explorer.at("form-em-n_components").fill("3")
    explorer.fit(count=2)
    explorer.at("axis-1").select_option(index=2)
    explorer.at("select-least").click()
    rows = explorer.state("selection")["list"]
    with tab(explorer.url) as other:
        other.open(copied_link(explorer))
        other.wait_drawn()
        expect(other.at("axis-1")).to_have_value("2")
        assert other.state("selection")["list"] == rows


def test_a_map_of_ones_own_has_a_link(explorer: Explorer, tab: Tab) -> None:
    """A fresh profile shows the coordinates of a file, and their verdict, also without the record of the job."""
    X = sheet(60)
    explorer.open()
    explorer.upload("sheet.csv", csv(X))
    expect(explorer.at("chosen")).to_be_visible()
    explorer.at("map-file").set_input_files({"name": "map.csv", "mimeType": "", "buffer": csv(X)})
    expect(explorer.at("cancel")).to_have_count(0, timeout=LONG)
    expect(explorer.at("verdict")).not_to_be_empty(timeout=LONG)
    link = copied_link(explorer)
    job = link.split("job=")[1].split("&")[0]
    for address in (link, link.replace(job, f"{job[:-4]}0000")):
        with tab(explorer.url) as other:
            other.expected.append("404")
            other.open(address)
            other.expect_verdict(explorer.state("audit")["verdict"], LONG)


def test_after_the_first_play_the_link_has_the_average(explorer: Explorer) -> None:
    """An example plays its draws once and rests at their average, as its address says."""
    explorer.open()
    explorer.at("example-wine").click()
    expect(explorer.at("play")).to_have_attribute("aria-pressed", "true", timeout=LONG)
    until(lambda: "frame=-1" in explorer.page.url)
    assert explorer.state("frame") != -1
    expect(explorer.at("cancel")).to_have_count(0, timeout=LONG)
    assert "frame=-1" in explorer.page.url


def test_the_lines_of_the_average_fetch_it(tab_with_draws: Explorer, tmp_path: Path) -> None:
    """The shell's and Python's lines give the mean of the draws, and not the reference."""
    path = f"{tab_with_draws.url}/v1/posteriors/{tab_with_draws.state('posterior')['id']}/draws"
    replies = [httpx.get(f"{path}/{i}?wait=30", headers={"Accept": "application/x-npy"}).content for i in range(6)]
    expected = np.mean([np.load(io.BytesIO(reply)) for reply in replies], axis=0)
    expect(tab_with_draws.at("frame-name")).to_contain_text("Average")
    tab_with_draws.at("show-curl").click()
    (tmp_path / "lines.sh").write_text(f"set -e\n{tab_with_draws.at('lines').inner_text()}\n")
    environment = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}
    subprocess.run(["bash", "lines.sh"], cwd=tmp_path, check=True, capture_output=True, timeout=60, env=environment)  # noqa: S607 -- the shell on PATH
    np.testing.assert_allclose(np.load(tmp_path / "average.npy"), expected, atol=1e-12)
    tab_with_draws.at("show-python").click()
    code = f"{tab_with_draws.at('lines').inner_text()}\nimport numpy as np\nnp.save('python.npy', embedding)\n"
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)
    np.testing.assert_allclose(np.load(tmp_path / "python.npy"), expected, atol=1e-12)


def test_a_deleted_fit_is_fitted_again(explorer: Explorer, tab: Tab) -> None:
    """The link of a deleted posterior opens its data and its settings, and one button makes it again."""
    explorer.open_sheet("s_curve", 120)
    explorer.at("form-em-n_neighbors").fill("7")
    explorer.fit(count=3)
    link, id_ = copied_link(explorer), explorer.state("posterior")["id"]
    assert httpx.delete(f"{explorer.url}/v1/posteriors/{id_}").status_code == 204
    with tab(explorer.url) as other:
        other.expected.append("404")
        other.open(link)
        other.at("fit-again").click()
        other.wait_drawn()
        assert other.state("posterior")["id"] == id_
        assert other.state("draws")["count"] == 3


def test_a_job_outlasts_a_restart(tab: Tab, tmp_path: Path) -> None:
    """The page follows the fit over a restart of the service to its draws."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tab(f"http://127.0.0.1:{port}") as explorer:
        explorer.expected += ["ERR_", "Failed to load resource"]
        with running(tmp_path, GLLE_PORT=str(port), GLLE_WORKERS="1"):
            explorer.open_sheet("swiss_roll", 3000)
            explorer.at("draws-n_draws").fill("3")
            explorer.at("fit").click()
            expect(explorer.at("cancel")).to_be_visible()
        expect(explorer.at("service-down")).to_be_visible(timeout=30_000)
        with running(tmp_path, GLLE_PORT=str(port), GLLE_WORKERS="1"):
            until(lambda: (explorer.state("draws") or {}).get("count") == 3, 120)
            expect(explorer.at("problem")).to_have_count(0)
