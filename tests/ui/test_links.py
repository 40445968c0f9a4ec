"""Links: every state has one that opens in a fresh profile, and what is lost can be fitted again."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from playwright.sync_api import expect

from tests.conftest import until
from tests.system.conftest import running
from tests.ui.driver.tables import csv, sheet
from worker.operations.embedded_redis import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Route

    from tests.ui.driver.explorer import Explorer, Tab

LONG = 120_000  # milliseconds


# What a reload has to bring back.
_SEEN = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const { linkHere } = await import('/explorer/js/actions/link.js');
    const { resolveColor } = await import('/explorer/js/lib/look.js');
    const { view, frame, shape, axes, turn, blocks, audit, single, comparison, selection, hidden } = state;
    return {
        view, frame, shape, axes, blocks, color: resolveColor(state), link: linkHere(), verdict: audit?.verdict,
        title: single?.title, maps: comparison?.rows.map(({ label }) => label), rows: Array.from(selection?.list ?? []),
        turn: turn?.flat().map((x) => x.toFixed(3)), hidden: [...(hidden?.names ?? [])],
        mask: Array.from(hidden?.mask ?? []),
        columns: state.metadata,
    };
}"""


def seen(explorer: Explorer) -> dict[str, Any]:
    """Return what the page shows, once no work is pending."""
    expect(explorer.at("method-panel")).to_have_count(1, timeout=30_000)
    until(lambda: bool(explorer.state("dataset")) and not explorer.state("work"), 150)
    return dict(explorer.page.evaluate(_SEEN))


def expect_again(explorer: Explorer, tab: Tab) -> dict[str, Any]:
    """Reload the page, then open its address in a fresh profile; assert that both show the same, and return it."""
    before = seen(explorer)
    until(lambda: explorer.page.evaluate("location.href") == before["link"])  # the look is written a moment later
    explorer.page.reload()
    assert seen(explorer) == before
    with tab(explorer.url) as other:
        other.open(before["link"].removeprefix(explorer.url))
        assert seen(other) | {"columns": before["columns"]} == before
    return before


def copied_link(explorer: Explorer) -> str:
    """Press Copy link; return the copied address without the host."""
    explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.at("copy-link").click()
    expect(explorer.at("export")).to_contain_text("Link copied")
    address: str = explorer.page.evaluate("navigator.clipboard.readText()")
    return address.removeprefix(explorer.url)


def test_a_reload_while_a_map_is_made_keeps_its_verdict(explorer: Explorer) -> None:
    """The address has the job of the map; after the reload the map is followed, shown and audited."""
    explorer.open_sheet("s_curve", 300)
    explorer.open_set_up()
    explorer.embed("t-sne")
    explorer.page.wait_for_url(lambda url: "job=" in url, wait_until="commit")
    assert "audit" not in explorer.page.url
    explorer.page.reload()
    expect(explorer.at("frame-name")).to_have_text("t-SNE", timeout=LONG)
    expect(explorer.at("verdict")).not_to_be_empty(timeout=LONG)


def test_the_look_comes_back(explorer: Explorer, tab: Tab) -> None:
    """A reload and a fresh profile show the same axes, frame, spread, color and selected rows."""
    explorer.open_sheet("s_curve", 80)
    explorer.at("form-em-n_components").fill("3")
    explorer.fit(count=2)
    explorer.at("axis-1").select_option(index=2)
    explorer.at("next").click()
    explorer.at("shape-ellipse").click()
    explorer.at("color").select_option("column:1")
    explorer.at("select-least").click()
    before = expect_again(explorer, tab)
    assert before["axes"] == [0, 2]
    assert (before["frame"], before["shape"], before["color"]) == (1, "ellipse", "column:1")
    assert before["rows"]
    explorer.at("stage").hover()
    explorer.page.mouse.down()
    explorer.page.mouse.move(300, 300, steps=3)
    explorer.page.mouse.up()
    assert expect_again(explorer, tab)["turn"]


def test_hidden_classes_and_further_columns_come_back(explorer: Explorer, tab: Tab) -> None:
    """A reload hides the same classes; another tab of the same profile also has the columns of a file."""
    explorer.open()
    explorer.choose_file("sheet.csv", csv(sheet(60), kind=["a", "b", "c"] * 20))
    explorer.give_role("kind", "labels")
    further_columns = "season\n" + "winter\n" * 30 + "summer\n" * 30
    explorer.show_pca()
    explorer.at("show-class").first.uncheck()
    assert expect_again(explorer, tab)["hidden"] == ["a"]
    explorer.at("add-columns").set_input_files({"name": "more.csv", "mimeType": "", "buffer": further_columns.encode()})
    expect(explorer.at("color")).to_have_value("further:season")
    before = seen(explorer)
    until(lambda: explorer.page.evaluate("location.href") == before["link"])
    explorer.page.reload()
    assert seen(explorer) == before
    page = explorer.page.context.new_page()
    page.goto(before["link"])
    expect(page.get_by_test_id("color")).to_have_value("further:season", timeout=LONG)


def test_a_reload_in_the_middle_of_a_comparison_follows_it(explorer: Explorer, tab: Tab) -> None:
    """The address has the job from its start, and over a second reload; then it has the chosen map."""
    explorer.open_sheet("swiss_roll", 400)
    explorer.choose_methods("pca", "isomap")
    explorer.at("compare-go").click()
    explorer.page.wait_for_url(lambda url: "comparison=" in url, wait_until="commit")
    link = explorer.page.url
    for _ in range(2):
        explorer.page.reload()
        assert explorer.page.url == link
        expect(explorer.at("method-panel")).to_have_count(1, timeout=30_000)
    assert seen(explorer)["maps"] == ["pca", "isomap"]
    explorer.at("thumb").last.locator("canvas").press("Enter")
    expect(explorer.at("frame-name")).to_have_text("Isomap")
    expect_again(explorer, tab)


def test_a_card_opened_while_outlines_are_read_has_its_address(explorer: Explorer, tab: Tab) -> None:
    """A link to a comparison is open once its maps are there; the audits of the maps come later."""
    explorer.open_sheet("s_curve", 60)
    explorer.choose_methods("pca", "isomap")
    explorer.at("compare-go").click()
    expect(explorer.at("thumb")).to_have_count(2, timeout=LONG)
    link = seen(explorer)["link"].removeprefix(explorer.url)
    with tab(explorer.url) as other:
        held: list[Route] = []
        other.page.route("**/v1/audits", lambda route: held.append(route))  # noqa: PLW0108 -- playwright marks it
        other.open(link)
        expect(other.at("thumb")).to_have_count(2, timeout=LONG)
        until(lambda: bool(other.state("comparison")) and len(held) == 2)
        other.at("thumb").last.locator("canvas").press("Enter")
        expect(other.at("frame-name")).to_have_text("Isomap")
        until(lambda: "method=isomap" in other.page.url)
        for route in held:
            route.continue_()
        seen(other)


def test_a_refused_audit_is_repeated_alone(explorer: Explorer, link: str) -> None:
    """If a restart interrupts the audit of a link, only the audit is repeated; later changes of the view stay."""
    explorer.expected.append("503")
    refused: list[Route] = []

    def refuse(route: Route) -> None:
        refused.append(route)
        route.fulfill(status=503, json={})

    explorer.page.route("**/v1/audits", refuse, times=2)  # without being asked, and for the link
    explorer.open(f"{link}&audit=1")
    until(lambda: bool(explorer.state("dataset")) and len(refused) == 2, 60)  # asking the page lets it send, too
    explorer.at("color").select_option("row")
    expect(explorer.at("verdict")).not_to_be_empty(timeout=LONG)
    expect(explorer.at("color")).to_have_value("row")


def test_a_link_with_another_scale_draws_again(tab_with_draws: Explorer) -> None:
    """Draws of the same fit and seed at another scale are requested anew."""
    here = tab_with_draws.page.url
    assert "scale=1" in here
    tab_with_draws.page.evaluate("address => { location.href = address; }", here.replace("scale=1", "scale=0.5"))
    until(lambda: (tab_with_draws.state("draws") or {}).get("scale") == 0.5, 60)
    tab_with_draws.wait_drawn()
    expect(tab_with_draws.at("draws-scale")).to_have_value("0.5")


def test_stretches_of_a_series_without_subjects(explorer: Explorer) -> None:
    """A time series without a column of subjects is audited again by stretches of its rows."""
    walk = np.cumsum(np.random.default_rng(3).standard_normal((300, 3)), axis=0)
    explorer.open()
    explorer.upload("walk.csv", csv(walk))
    explorer.embed("pca")
    expect(explorer.at("verdict")).to_contain_text("with “Rows that belong together”: ", timeout=LONG)
    expect(explorer.at("blocks")).to_have_count(0)
    explorer.at("stretches").click()
    until(lambda: (explorer.state("audit") or {}).get("blocks"), 120)
    assert not seen(explorer)["verdict"].startswith("Before you rely")


def test_the_subjects_of_a_verdict_come_back(explorer: Explorer, tab: Tab) -> None:
    """For a time series the column of subjects is chosen below the verdict, and is part of the address."""
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.standard_normal((300, 3)), axis=0)
    explorer.open()
    explorer.choose_file("walk.csv", csv(walk, visit=[f"v{i // 20}" for i in range(300)]))
    explorer.at("use-file").click()
    expect(explorer.at("chosen")).to_be_visible()
    explorer.open_set_up()
    explorer.embed("pca")
    expect(explorer.at("verdict")).to_contain_text("name the subject or series of each row", timeout=LONG)
    explorer.at("blocks").select_option("visit")
    until(lambda: (explorer.state("audit") or {}).get("blocks") == "visit", 120)
    assert not seen(explorer)["verdict"].startswith("Before you rely")
    assert expect_again(explorer, tab)["blocks"] == "visit"


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
    """The saved file, and the shell's and Python's lines, give the mean of the draws, and not the reference."""
    path = f"{tab_with_draws.url}/v1/posteriors/{tab_with_draws.state('posterior')['id']}/draws"
    replies = [httpx.get(f"{path}/{i}?wait=30", headers={"Accept": "application/x-npy"}).content for i in range(6)]
    expected = np.mean([np.load(io.BytesIO(reply)) for reply in replies], axis=0)
    expect(tab_with_draws.at("frame-name")).to_contain_text("Average")
    name, saved = tab_with_draws.download("npy")
    assert name == "average.npy"
    np.testing.assert_allclose(np.load(io.BytesIO(saved)), expected, atol=1e-5)
    tab_with_draws.run_lines(tmp_path)
    for name in ("average.npy", "python.npy"):
        np.testing.assert_allclose(np.load(tmp_path / name), expected, atol=1e-12)


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
    port = free_port()
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
