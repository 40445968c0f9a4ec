"""The page: first load, color schemes, phone, keyboard and screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.conftest import until

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Route

    from tests.system.conftest import Up
    from tests.ui.driver.explorer import Explorer, Tab

PHONE = {"width": 390, "height": 844}
READABLE = 4.5  # least contrast of text, WCAG 2 level AA
# Luminance of the page, and the least contrast of its texts with their background (WCAG 2).
LIGHTNESS = """() => {
    const pixel = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const numbers = (text) => {
        pixel.clearRect(0, 0, 1, 1);
        pixel.fillStyle = text;
        pixel.fillRect(0, 0, 1, 1);
        return [...pixel.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const rgb = numbers(getComputedStyle(at).backgroundColor);
            if (rgb[3] > 127) return rgb;
        }
        return [255, 255, 255];
    };
    const texts = [...document.querySelectorAll('body *')].filter((element) =>
        !element.closest('svg, :disabled, .unseen, .skip') && element.offsetParent &&
        [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    const contrasts = texts.map((element) => {
        const [a, b] = [numbers(getComputedStyle(element).color), behind(element)].map(luminance);
        return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent.trim().slice(0, 40)];
    });
    return { page: luminance(behind(document.body)), least: contrasts.sort((a, b) => a[0] - b[0])[0] };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_follow_the_system_and_have_contrast(tab: Tab, up: Up, link: str, scheme: str) -> None:
    """The background follows the system's scheme, and every text has the contrast of WCAG level AA."""
    with tab(up.url, color_scheme=scheme) as explorer:
        explorer.open_draws(link)
        lightness = explorer.page.evaluate(LIGHTNESS)
        assert (lightness["page"] > 0.5) == (scheme == "light")
        assert lightness["least"][0] >= READABLE, lightness["least"]
        explorer.at("scrub").fill("2")


def test_the_theme_button_overrides_the_system_persistently(tab: Tab, up: Up, link: str) -> None:
    """The button changes the theme and the points' colors, also after a reload."""
    with tab(up.url, color_scheme="light") as explorer:
        explorer.open_draws(link)
        light = explorer.wait_still()
        explorer.at("theme").click()
        assert explorer.page.evaluate(LIGHTNESS)["page"] < 0.1
        explorer.wait_changed(light)
        explorer.reload_draws()
        assert explorer.page.evaluate(LIGHTNESS)["page"] < 0.1
        explorer.page.keyboard.press("d")
        assert explorer.page.evaluate(LIGHTNESS)["page"] > 0.5


def test_a_phone_needs_no_horizontal_scrolling(tab: Tab, up: Up, link: str) -> None:
    """No view is wider than 390 pixels, empty or with draws and snippets."""
    with tab(up.url, viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2) as explorer:
        explorer.open()
        assert explorer.horizontal_overflow() == 0
        explorer.page.goto("about:blank")
        explorer.open_draws(link)
        for name in ("show-curl", "tab-grid"):
            explorer.at(name).click()
            assert explorer.horizontal_overflow() == 0, name
        explorer.at("tab-draws").tap()
        explorer.at("play").tap()
        expect(explorer.at("play")).to_have_attribute("aria-pressed", "true")
        explorer.at("set-up").tap()
        expect(explorer.at("change-data")).to_be_in_viewport()  # the page scrolls to it


def test_a_laptop_shows_verdict_picture_and_save_at_once(tab: Tab, up: Up, link: str) -> None:
    """Verdict, picture and save button are within a window of 1366 x 820, also after an audit."""
    with tab(up.url, viewport={"width": 1366, "height": 820}) as explorer:
        explorer.open_draws(link)
        for name in ("headline", "stage", "play", "export-png", "copy-link"):
            expect(explorer.at(name)).to_be_in_viewport(ratio=1)


# Sums the shifts of the layout that no input has caused.
SHIFTS = """globalThis.shifts = 0;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifts += entry.value;
}).observe({ type: 'layout-shift' });"""


def test_the_layout_does_not_jump_when_figures_arrive(explorer: Explorer, link: str) -> None:
    """Between the first picture and the verdict the layout shift stays below 0.1, which web guidelines call good."""

    def delay(route: Route) -> None:
        explorer.page.wait_for_timeout(200)
        route.continue_()

    explorer.page.route("**/summary?*", delay)
    explorer.open(link)
    expect(explorer.at("stage")).to_be_visible()
    explorer.page.evaluate(SHIFTS)
    explorer.wait_drawn()
    assert explorer.page.evaluate("shifts") < 0.05


def within(inner: FloatRect, outer: FloatRect) -> bool:
    """Return whether a bounding box is within another."""
    right, bottom = inner["x"] + inner["width"], inner["y"] + inner["height"]
    return bool(
        outer["x"] <= inner["x"]
        and outer["y"] <= inner["y"]
        and right <= outer["x"] + outer["width"]
        and bottom <= outer["y"] + outer["height"]
    )


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_legend_and_tools_hide_nothing(tab: Tab, up: Up, link: str, width: int) -> None:
    """On a wide page legend and tools are in opposite corners of the stage, on a phone below the picture."""
    with tab(up.url, viewport={"width": width, "height": 844}) as explorer:
        explorer.open_draws(link)
        stage, legend, tool = (explorer.box(name) for name in ("stage", "legend", "zoom-in"))
        if width == 390:
            assert min(legend["y"], tool["y"]) >= stage["y"] + stage["height"]
        else:
            assert within(legend, stage)
            assert within(tool, stage)
            across, upward = zip(*explorer.places(), strict=True)
            assert min(across) > legend["x"] + legend["width"]
            assert max(across) < tool["x"]
            free = tool["x"] - legend["x"] - legend["width"]
            assert max((max(across) - min(across)) / free, (max(upward) - min(upward)) / stage["height"]) > 0.7


def test_all_controls_are_reached_by_keyboard(explorer: Explorer, link: str) -> None:
    """Tab visits all controls in order with a visible focus; Space and arrow keys control the animation."""
    explorer.open_draws(link)
    keys = explorer.page.keyboard
    explorer.open_set_up()
    explorer.page.evaluate("document.querySelector('.skip').focus()")
    reached: list[str] = []
    for _ in range(60):
        keys.press("Tab")
        name, ring = explorer.page.evaluate(FOCUSED)
        assert ring, f"{name} does not show that it has the focus"
        reached.append(name)
    expected = ["tab-draws", "stage", "play", "scrub", "show-consensus", "export-png", "change-data", "method"]
    expected += ["form-em-n_neighbors", "draws-n_draws", "fit", "color"]
    assert [name for name in dict.fromkeys(reached) if name in expected] == expected
    explorer.at("stage").focus()
    keys.press("Space")
    expect(explorer.at("play")).to_have_attribute("aria-pressed", "true")
    keys.press("Space")
    expect(explorer.at("play")).to_have_attribute("aria-pressed", "false")
    keys.press("Home")
    expect(explorer.at("frame-name")).to_contain_text("Average")
    keys.press("ArrowRight")
    expect(explorer.at("frame-name")).to_contain_text("Draw 0")
    keys.press("2")
    expect(explorer.at("grid")).to_be_visible()
    keys.press("?")
    expect(explorer.at("keys-dialog")).to_be_visible()
    keys.press("Escape")
    expect(explorer.at("keys-dialog")).to_have_count(0)


# The focused element, and whether it has a visible ring.
FOCUSED = """() => {
    const element = document.activeElement;
    const { outlineStyle, boxShadow } = getComputedStyle(element);
    const hidden = element.matches('input[type=file]');
    return [element.dataset.testid ?? element.textContent.trim().slice(0, 20),
        element === document.body || hidden || outlineStyle !== 'none' || boxShadow !== 'none'];
}"""


def test_a_screen_reader_has_names_and_announcements(explorer: Explorer) -> None:
    """Every control has a name, and a live region announces events."""
    explorer.open_sheet("s_curve", 100)
    explorer.fit(count=2)
    nameless = explorer.page.evaluate(NAMELESS)
    assert nameless == []
    announced = explorer.page.locator("[role=status][aria-live=polite]").first
    expect(explorer.at("verdict")).to_be_visible(timeout=60_000)
    expect(announced).to_have_text(explorer.state("audit")["verdict"])


# Controls without label, text and ARIA name.
NAMELESS = """() => [...document.querySelectorAll('button, input, select, a, summary, [role=img], [role=button]')]
    .filter((element) => !element.labels?.length && !element.textContent.trim() &&
        !element.getAttribute('aria-label') && !element.getAttribute('aria-labelledby') && !element.title)
    .map((element) => element.outerHTML.slice(0, 120))"""


def test_the_empty_page_asks_the_question_of_the_audit(explorer: Explorer) -> None:
    """The empty page offers a file, an example map with its verdict, and three methods; unusable buttons are off."""
    explorer.open()
    expect(explorer.page.locator("h1")).to_have_text("glle")
    expect(explorer.at("empty").locator("h2")).to_have_text("May I believe this map?")
    with explorer.page.expect_file_chooser():
        explorer.at("choose-file").click()
    expect(explorer.at("example-digits")).to_be_visible()
    for name in ("umap", "t-sne", "em"):
        expect(explorer.at(f"maker-{name}")).to_be_visible()
    explorer.at("maker-t-sne").click()
    expect(explorer.at("method")).to_have_value("t-sne")
    expect(explorer.at("drop")).to_contain_text("Choose a file")
    expect(explorer.at("fit")).to_be_disabled()
    expect(explorer.at("tab-grid")).to_have_count(0)
    expect(explorer.at("inspector")).to_have_count(0)


def test_the_page_does_not_wait_for_the_contract(explorer: Explorer) -> None:
    """The forms of draws and of synthetic data appear before openapi.json, which is fifty times as large."""
    asked: list[str] = []
    explorer.page.on("request", lambda request: asked.append(request.url))
    explorer.open_sheet("s_curve", 20)
    expect(explorer.at("draws-seed")).to_have_value("0")
    assert not any("openapi" in url for url in asked)


EXAMPLES = {"swiss-roll": (1000, None), "digits": (1797, "10"), "wine": (178, "3")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_click_on_an_example_plays_its_draws(explorer: Explorer, name: str) -> None:
    """One click loads and fits an example, and its points move; labels color the points of real data."""
    n, classes = EXAMPLES[name]
    explorer.open()
    explorer.at(f"example-{name}").click()
    expect(explorer.at("play")).to_have_attribute("aria-pressed", "true", timeout=60_000)
    before = explorer.screenshot()
    until(lambda: explorer.state("frame") > 1)
    assert explorer.screenshot() != before
    assert explorer.state("dataset")["n"] == n
    if classes:
        expect(explorer.at("legend").locator(".class")).to_have_count(int(classes))
    explorer.wait_drawn()


def test_an_example_does_not_play_where_motion_is_reduced(tab: Tab, up: Up) -> None:
    """If the system asks for reduced motion, the draws wait for the play button."""
    with tab(up.url, reduced_motion="reduce") as explorer:
        explorer.open()
        explorer.at("example-swiss-roll").click()
        explorer.wait_drawn()
        assert not explorer.state("playing")


def test_the_set_up_folds_away_after_the_fit(explorer: Explorer) -> None:
    """The picture takes the place of the steps; a button or key brings the steps back with their settings."""
    explorer.open_sheet("s_curve", 120)
    expect(explorer.at("set-up")).to_have_attribute("aria-expanded", "true")
    explorer.fit(count=3)
    expect(explorer.at("setup")).to_be_hidden()
    wide = explorer.box("stage")
    explorer.at("set-up").click()
    expect(explorer.at("chosen")).to_contain_text("120 rows")
    narrow = explorer.box("stage")
    assert wide["width"] > narrow["width"] + 250
    expect(explorer.at("draws-n_draws")).to_have_value("3")
    explorer.at("stage").focus()
    explorer.page.keyboard.press("s")
    expect(explorer.at("setup")).to_be_hidden()


def test_methods_and_settings_are_those_of_the_service(explorer: Explorer) -> None:
    """Every method of the API is offered with its defaults; unavailable ones are disabled."""
    explorer.open()
    methods = explorer.page.request.get(f"{explorer.url}/v1/methods").json()["items"]
    options = explorer.at("method").locator("option")
    assert [option.get_attribute("value") for option in options.all()] == [method["name"] for method in methods]
    for method in methods:
        if method.get("available") is False or method.get("needs_labels"):
            expect(options.and_(explorer.page.locator(f"[value='{method['name']}']"))).to_be_disabled()
            continue
        explorer.at("method").select_option(method["name"])
        expect(explorer.at(f"form-{method['name']}")).to_be_visible()
        for name in {"n_components", "n_neighbors"} & (fields := method_parameters(method)).keys():
            if isinstance(default := fields[name].get("default"), int):
                assert explorer.at(f"form-{method['name']}-{name}").input_value() == str(default)


def method_parameters(method: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of a method's parameters by name."""
    fields = method["parameters"]["properties"]
    schemas = fields["parameters"]["properties"] if method["makes"] == "embedding" else fields
    assert isinstance(schemas, dict)
    return schemas
