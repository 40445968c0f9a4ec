"""Audits of maps: of an embedding, a posterior, and coordinates from anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from glle import Client
from glle_engine import manifolds
from tests.ui.driver.tables import csv

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload

    from tests.ui.driver.explorer import Explorer

N = 150
SHEET = manifolds.make("s_curve", N, seed=4)
SIDES = ["left" if x < 0 else "right" for x in SHEET.X[:, 0]]


def test_an_embedding(explorer: Explorer) -> None:
    """The verdict in words on top, its figures, colors, and points opaque by their stability."""
    explorer.open()
    explorer.upload("sheet.csv", csv(SHEET.X, side=SIDES))
    explorer.at("method").select_option("isomap")
    explorer.at("fit").click()
    expect(explorer.at("stage")).to_be_visible(timeout=30_000)
    plain = explorer.wait_still()
    explorer.at("audit").click()
    expect(explorer.at("verdict")).to_be_visible(timeout=90_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=90_000)
    with Client(explorer.url, progress=False) as glle:
        found = glle.audit(explorer.state("single")["path"].split("/")[3])
    expect(explorer.at("verdict")).to_have_text(found.verdict)
    expect(explorer.at("audit-remains")).to_contain_text(f"{round(100 * found.remains)}%")
    expect(explorer.at("audit-groups")).to_contain_text(re.compile("apart in other samples"))
    explorer.wait_changed(plain)
    _, texts, _ = explorer.download_picture()
    assert found.verdict in " ".join(text for text, _ in texts), "the saved picture has the verdict"
    assert next(y for text, y in texts if found.verdict.startswith(text)) > explorer.box("stage")["height"] - 2
    for color in ("audited", "p_value"):
        explorer.at("color").select_option(color)
        expect(explorer.at("legend")).to_contain_text("Stability" if color == "audited" else "Chance")
    explorer.find("row", "7")
    expect(explorer.at("point-stays")).to_contain_text(f"{round(100 * found.stability[7])}%")


def test_a_posterior(explorer: Explorer, link: str) -> None:
    """The audit of the shown posterior; its draws keep it, another fit forgets it."""
    explorer.open_draws(link)
    explorer.at("audit").click()
    expect(explorer.at("verdict")).to_be_visible(timeout=90_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=90_000)
    expect(explorer.at("preliminary")).to_have_count(0)
    shown = explorer.state("audit")
    assert shown["method"] == "glle"
    expect(explorer.at("verdict")).to_have_text(shown["verdict"])
    expect(explorer.at("headline-box")).to_have_class(f"headline {shown['level']}")
    explorer.open_set_up()
    explorer.at("form-em-n_neighbors").fill("9")
    explorer.at("fit").click()
    expect(explorer.at("verdict")).to_have_count(0)
    explorer.wait_drawn()


def test_two_columns_of_coordinates_in_a_table(explorer: Explorer) -> None:
    """They are left out of the data, shown as the map, and compared with chance; the link shows them again."""
    across, up = SHEET.coordinates.round(4).T
    explorer.open()
    explorer.choose_file("sheet.csv", csv(SHEET.X, across=across, up=up))
    explorer.give_role("across", "map-x")
    explorer.give_role("up", "map-y")
    expect(explorer.at("pending")).to_contain_text("3 features")
    explorer.at("use-file").click()
    expect(explorer.at("verdict")).to_contain_text("Give the method of this map", timeout=90_000)
    expect(explorer.at("headline-box")).to_have_class("headline unknown")
    expect(explorer.at("cancel")).to_have_count(0, timeout=90_000)
    expect(explorer.at("frame-name")).to_contain_text("Your map")
    assert explorer.state("dataset")["n_features"] == 3
    explorer.open(explorer.page.url.removeprefix(explorer.url))
    explorer.page.reload()
    expect(explorer.at("verdict")).to_contain_text("Give the method of this map", timeout=30_000)


def test_coordinates_beside_a_data_set(explorer: Explorer) -> None:
    """A file with as many rows is audited; another one is refused with the remedy, and the data stay."""
    explorer.open_sheet("s_curve", N)
    explorer.expected.append("422")
    table = "y1,y2\n" + "".join(f"{a},{b}\n" for a, b in SHEET.coordinates.tolist())
    short: FilePayload = {"name": "map.csv", "mimeType": "", "buffer": table.encode().rsplit(b"\n", 3)[0]}
    explorer.at("map-file").set_input_files(short)
    expect(explorer.at("problem")).to_contain_text("rows of coordinates")
    explorer.at("dismiss").click()
    explorer.at("map-file").set_input_files({**short, "buffer": table.encode()})
    expect(explorer.at("verdict")).to_be_visible(timeout=90_000)
