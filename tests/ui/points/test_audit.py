"""Audits of maps: of an embedding, a posterior, and coordinates from anywhere."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from playwright.sync_api import expect

from glle import Client
from glle_engine import manifolds
from tests.system.conftest import ROOT
from tests.ui.driver.tables import csv

if TYPE_CHECKING:
    from tests.system.conftest import Up
    from tests.ui.driver.explorer import Explorer, Tab

N = 150
EXAMPLE = json.loads((ROOT / "service" / "explorer" / "examples" / "digits-umap.json").read_text())
SHEET = manifolds.make("s_curve", N, seed=4)
SIDES = ["left" if x < 0 else "right" for x in SHEET.X[:, 0]]


def test_an_embedding(explorer: Explorer) -> None:
    """The panel begins with the verdict in words; points are opaque by their stability."""
    explorer.open()
    explorer.upload("sheet.csv", csv(SHEET.X, side=SIDES))
    explorer.embed("isomap")
    expect(explorer.at("stage")).to_be_visible(timeout=30_000)
    expect(explorer.at("transport")).to_have_count(0)
    expect(explorer.at("verdict")).to_be_visible(timeout=90_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=90_000)
    with Client(explorer.url, progress=False) as glle:
        audit = glle.audit(explorer.state("single")["path"].split("/")[3])
    explorer.expect_verdict(audit.verdict)
    expect(explorer.at("audit-remains")).to_contain_text("A repeat of the study would show")
    expect(explorer.at("audit-remains")).to_contain_text(
        f"{round(100 * audit.remains)}%; 30% needed for the rough layout"
    )
    expect(explorer.at("audit-groups")).to_contain_text("pairs stay apart in other samples")
    _, texts, _ = explorer.download_picture()
    saved = " ".join(text for text, _ in texts)
    assert all(line in saved for line in audit.verdict.split("\n")), "the saved picture has the verdict"
    assert next(y for text, y in texts if audit.verdict.startswith(text)) > explorer.box("stage")["height"] - 2
    for color in ("audited", "p_value"):
        explorer.at("color").select_option(color)
        expect(explorer.at("legend")).to_contain_text("Stability" if color == "audited" else "Chance")
    explorer.find("row", "7")
    expect(explorer.at("point-stays")).to_contain_text(f"{round(100 * audit.stability[7])}%")


def test_the_example_map_has_its_verdict_at_once(explorer: Explorer, tab: Tab) -> None:
    """The verdict is that of the shipped audit, without a job; a fresh profile opens its link."""
    explorer.open()
    jobs: list[str] = []
    explorer.page.on("request", lambda request: jobs.append(request.url) if "/audits" in request.url else None)
    explorer.at("example-umap").click()
    explorer.expect_verdict(EXAMPLE["verdict"])
    expect(explorer.at("headline-box")).to_have_class(f"headline {EXAMPLE['level']}")
    expect(explorer.at("preliminary")).to_have_count(0)
    expect(explorer.at("legend").locator(".class")).to_have_count(10)
    assert jobs == []
    _, texts, _ = explorer.download_picture()
    assert all(line in " ".join(text for text, _ in texts) for line in EXAMPLE["verdict"].split("\n"))
    assert explorer.at("verdict").locator(".do, .do-not").count() == 2, "what to read, and what not"
    explorer.at("found").locator("summary").click()
    expect(explorer.at("found")).to_contain_text("no verdict trusted anything that fresh samples did not show")
    np.testing.assert_allclose(np.load(io.BytesIO(explorer.download("npy")[1])), EXAMPLE["arrays"]["embedding"]["data"])
    with tab(explorer.url) as other:
        other.open(explorer.page.url.removeprefix(explorer.url))
        other.expect_verdict(EXAMPLE["verdict"])


def test_a_preliminary_verdict_is_marked(explorer: Explorer) -> None:
    """While more samples are embedded, a line says so."""
    explorer.open_example()
    explorer.page.evaluate(WORK)
    expect(explorer.at("preliminary")).to_be_visible()


# Make the shown verdict a preliminary one, while work goes on.
WORK = """async () => {
    const { set, state } = await import('/explorer/js/store.js');
    set({ audit: { ...state.audit, is_preliminary: true }, work: { label: '', stage: '', done: 0, total: 0 } });
}"""


OUTLINES = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const context = CanvasRenderingContext2D.prototype;
    const { moveTo, stroke } = context;
    const seen = [];
    let moves = 0;
    context.moveTo = function (...at) { moves++; return moveTo.apply(this, at); };
    context.stroke = function () { seen.push([this.lineWidth, moves]); moves = 0; return stroke.apply(this); };
    (await import('/explorer/js/store.js')).set({ hover: 0 });
    await new Promise((resolve) => setTimeout(resolve, 300));
    Object.assign(context, { moveTo, stroke });
    return seen;
}"""


def test_the_picture_shows_what_stays(explorer: Explorer) -> None:
    """Islands that stay come first and have thick outlines, others thin ones; tears are lines; a pair is selected."""
    explorer.open_example()
    explorer.wait_still()
    islands = EXAMPLE["islands"]
    widths = [round(width, 1) for width, _ in explorer.page.evaluate(OUTLINES)]
    assert (widths.count(2), widths.count(1.4)) == (sum(islands["stays"]), 1)
    assert widths.count(1.2) >= len(islands["stays"]) - sum(islands["stays"])
    rows = explorer.at("island")
    ticks = [text.startswith("✓") for text in rows.all_inner_texts()]
    assert ticks == sorted(ticks, reverse=True)
    assert sum(ticks) == sum(islands["stays"])
    rows.first.click()
    assert len(explorer.state("selection")["list"]) in islands["sizes"]
    groups = EXAMPLE["groups"]["names"]
    pairs = explorer.at("pairs").locator("button")
    expect(pairs).to_have_count(len(groups) * (len(groups) - 1) // 2)
    torn = pairs.and_(explorer.page.locator(":not(.apart)"))
    expect(torn).to_have_count(
        sum(share < 0.9 for i, row in enumerate(EXAMPLE["groups"]["apart"]) for share in row[:i])
    )
    assert pairs.and_(explorer.page.locator("[tabindex='0']")).count() == 1, "one stop of Tab"
    pairs.first.focus()
    explorer.page.keyboard.press("ArrowDown")
    explorer.page.keyboard.press("End")
    expect(pairs.nth(2)).to_be_focused()
    torn.first.click()
    labels = explorer.page.evaluate(LABELS)
    name = torn.first.get_attribute("aria-label") or ""
    assert set(labels) == set(name.split(":")[0].split(" and "))


def test_points_in_no_island_are_gray(explorer: Explorer) -> None:
    """Colored by island, points in clumps too small to judge are gray, and last in the legend; a click selects them."""
    explorer.open_example()
    outside = EXAMPLE["islands"]["outside"]
    assert outside > 0, "the example has some"
    explorer.at("color").select_option("island")
    names = explorer.at("legend").locator(".class-name")
    expect(names).to_have_text([*EXAMPLE["islands"]["names"], "in no island"])
    gray = explorer.at("legend").locator(".swatch").last
    assert gray.evaluate("(swatch) => getComputedStyle(swatch).backgroundColor") == "rgb(154, 154, 154)"
    explorer.at("audit-outside").get_by_role("button").click()
    assert len(explorer.state("selection")["list"]) == outside


def test_lines_of_tears_are_those_that_the_panel_names(explorer: Explorer) -> None:
    """The panel names as many lines as are drawn; without torn points there are no lines, and no word of them."""
    explorer.open_example()
    for torn, tears in (([], [[1, 2]]), ([3], [[3, 4], [1, 2], [5, 3]]), ([3, 5], [[3, 4]])):
        explorer.page.evaluate(TEAR, [torn, tears])
        drawn = [pair for pair in tears if set(pair) & set(torn)]
        expect(explorer.at("audit-torn")).to_have_count(int(bool(torn)))
        expect(explorer.at("audit-lines")).to_have_count(int(bool(drawn)))
        if drawn:
            said = "an orange line" if len(drawn) == 1 else f"{len(drawn)} orange lines"
            expect(explorer.at("audit-lines")).to_contain_text(said)
        assert (
            explorer.page.evaluate(
                "async () => (await import('/explorer/js/lib/islands.js')).tearLines("
                "(await import('/explorer/js/store.js')).state)"
            )
            == drawn
        )


# Make the shown audit have these torn points and tears.
TEAR = """async ([torn, tears]) => {
    const { set, state } = await import('/explorer/js/store.js');
    const isTorn = new Float32Array(state.dataset.n);
    for (const row of torn) isTorn[row] = 1;
    set({ audit: { ...state.audit, tears, arrays: { ...state.audit.arrays, is_torn: isTorn } } });
}"""


def test_rings_of_folds_are_those_that_the_panel_names(explorer: Explorer) -> None:
    """Each folded point has a ring, and the panel names as many; if most points are folded, none has."""
    explorer.open_example()
    n = explorer.state("dataset")["n"]
    for folded, rings in (([], 0), ([3], 1), ([3, 5, 8], 3), (list(range(n // 2 + 2)), 0)):
        explorer.page.evaluate(FOLD, folded)
        expect(explorer.at("audit-folded")).to_have_count(int(bool(folded)))
        expect(explorer.at("audit-rings")).to_have_count(int(bool(rings)))
        if rings:
            said = "it has an orange ring" if rings == 1 else f"{rings} have an orange ring"
            expect(explorer.at("audit-rings")).to_contain_text(said)
        assert explorer.page.evaluate(CIRCLES) == rings


# Make the shown audit have these folded points.
FOLD = """async (folded) => {
    const { set, state } = await import('/explorer/js/store.js');
    const isGlued = new Float32Array(state.dataset.n);
    for (const row of folded) isGlued[row] = 1;
    set({ audit: { ...state.audit, arrays: { ...state.audit.arrays, is_glued: isGlued } } });
}"""


# How many circles of the radius of a fold a picture has.
CIRCLES = """async () => {
    const frames = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    await frames();
    const context = CanvasRenderingContext2D.prototype;
    const { arc } = context;
    let count = 0;
    context.arc = function (...at) { count += at[2] === 4; return arc.apply(this, at); };
    const { set, state } = await import('/explorer/js/store.js');
    set({ traced: state.traced + 1 });
    await frames();
    Object.assign(context, { arc });
    return count;
}"""


def test_letters_and_points_are_below_the_title(up: Up, tab: Tab) -> None:
    """On a phone the name of the frame covers no point, no outline and no letter of an island."""
    phone: Any = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    with tab(up.url, **phone, device_scale_factor=2) as explorer:
        explorer.open_example()
        explorer.wait_still()
        title, stage = explorer.box("frame-name"), explorer.box("stage")
        height = title["y"] + title["height"] - stage["y"]
        points, letters = explorer.page.evaluate(HIGHEST)
        assert {letter for letter, _ in letters} == set(EXAMPLE["islands"]["names"])
        assert min(points, *(y for _, y in letters)) > height


# The upper edge of the points, and the middles of the islands' letters.
HIGHEST = """async () => {
    const { onStage } = await import('/explorer/js/views/stage.js');
    const { set, state } = await import('/explorer/js/store.js');
    const context = CanvasRenderingContext2D.prototype;
    const { fillText } = context;
    const letters = [];
    context.fillText = function (text, x, y) {
        if (state.audit.islands.names.includes(text)) letters.push([text, y]);
        return fillText.call(this, text, x, y);
    };
    set({ traced: state.traced + 1 });
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    Object.assign(context, { fillText });
    const { y, sy } = onStage.plot.screen();
    return [Math.min(...onStage.xy.filter((_, i) => i % 2).map((up) => y + sy * up)), letters];
}"""


def test_each_island_has_a_closed_outline_around_its_points(explorer: Explorer) -> None:
    """Of five groups in a row, which a wide stage shows beyond the box, each has one ring that holds its points."""
    group = np.repeat(np.arange(5), 40)
    X = np.random.default_rng(4).standard_normal((200, 4))
    X[:, 0] += 12 * group
    explorer.open()
    explorer.choose_file("row.csv", csv(X, across=X[:, 0].round(3).tolist(), up=X[:, 1].round(3).tolist()))
    explorer.give_role("across", "map-x")
    explorer.give_role("up", "map-y")
    explorer.at("use-file").click()
    expect(explorer.at("verdict")).to_be_visible(timeout=90_000)
    explorer.wait_still()
    shares = explorer.page.evaluate(ENCLOSED)
    assert len(shares) == 5
    assert min(shares) > 0.9, shares
    assert explorer.page.evaluate(IS_ODD_LINE) == []


# For each island, the share of its points within the outer ring of its outline.
ENCLOSED = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const { onStage: { box } } = await import('/explorer/js/views/stage.js');
    const { directionsOf, placeOf } = await import('/explorer/js/lib/frames.js');
    const { contoursTraced, islandsHere } = await import('/explorer/js/plot/overlay.js');
    const { data } = state.single;
    const context = document.createElement('canvas').getContext('2d');
    const directions = directionsOf(2, state.axes, null);
    islandsHere({ p: 2, box, directions });
    await contoursTraced();
    return islandsHere({ p: 2, box, directions }).traced.map(({ rings }, island) => {
        const path = new Path2D(`M${rings[0].join('L')}Z`);
        const of = state.audit.arrays.island;
        const rows = Array.from(of.keys()).filter((row) => of[row] === island);
        const isInside = (row) => context.isPointInPath(path, ...placeOf(data, row, 2, directions, box));
        return rows.filter(isInside).length / rows.length;
    });
}"""


# The lines of tears that join no point which the panel counts as torn.
IS_ODD_LINE = """async () => {
    const { state } = await import('/explorer/js/store.js');
    const { tearLines } = await import('/explorer/js/lib/islands.js');
    const { is_torn: isTorn } = state.audit.arrays;
    return tearLines(state).filter(([row, other]) => !isTorn[row] && !isTorn[other]);
}"""


LABELS = """async () => {
    const { selection, columns } = (await import('/explorer/js/store.js')).state;
    return Array.from(selection.list, (row) => columns.labels[row]);
}"""


# Counts the clicks of the user, and not those of the page on its file field.
CLICKS = "globalThis.clicks = 0; addEventListener('click', ({ isTrusted }) => { clicks += isTrusted; }, true);"


def test_a_map_of_ones_own_takes_three_clicks_and_its_method(explorer: Explorer) -> None:
    """Columns with coordinates are found by name; the verdict has a level once the map's method is chosen."""
    X = SHEET.X - SHEET.X.mean(axis=0)
    across, up = (X @ np.linalg.svd(X, full_matrices=False)[2][:2].T).T.round(5)
    explorer.page.add_init_script(CLICKS)
    explorer.open()
    with explorer.page.expect_file_chooser() as chooser:
        explorer.at("choose-file").click()
    content = csv(SHEET.X, side=SIDES, map_1=across, map_2=up)
    chooser.value.set_files({"name": "sheet.csv", "mimeType": "", "buffer": content})
    explorer.expect_roles(map_1="map x, guessed", map_2="map y, guessed", x="feature")
    expect(explorer.at("use-file")).to_have_text("Audit this map")
    explorer.at("use-file").click()
    expect(explorer.at("verdict")).to_contain_text("Give the method of this map", timeout=90_000)
    assert explorer.page.evaluate("clicks") <= 3
    assert explorer.state("dataset")["n_features"] == 3
    expect(explorer.at("cancel")).to_have_count(0, timeout=90_000)
    explorer.at("map-method").select_option("pca")
    expect(explorer.at("headline-box")).not_to_have_class("headline unknown", timeout=90_000)
    expect(explorer.at("cancel")).to_have_count(0, timeout=90_000)
    verdict = explorer.state("audit")["verdict"]
    assert "Give the method" not in verdict
    explorer.page.reload()
    expect(explorer.at("verdict")).to_be_visible(timeout=30_000)
    explorer.expect_verdict(verdict)
    expect(explorer.at("map-method")).to_have_count(0)


def test_a_posterior(explorer: Explorer, link: str) -> None:
    """A fit is audited without a click; another fit has another verdict."""
    explorer.open(link)
    expect(explorer.at("verdict")).to_be_visible(timeout=90_000)
    explorer.wait_drawn()
    expect(explorer.at("preliminary")).to_have_count(0)
    shown = explorer.state("audit")
    assert shown["method"] == "glle"
    explorer.expect_verdict(shown["verdict"])
    expect(explorer.at("headline-box")).to_have_class(f"headline {shown['level']}")
    explorer.open_set_up()
    explorer.at("form-em-n_neighbors").fill("9")
    explorer.at("fit").click()
    expect(explorer.at("verdict")).to_have_count(0)
    explorer.wait_drawn()
    assert explorer.state("audit")["arrays"] != shown["arrays"]
