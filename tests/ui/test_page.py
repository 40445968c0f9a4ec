"""The page's dress: dark and light, on a telephone, without a mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.system.conftest import Up
    from tests.ui.driver.explorer import Explorer

    Tab = Callable[..., AbstractContextManager[Explorer]]

FIRST_LOAD_BYTES = 400_000
TELEPHONE = {"width": 390, "height": 844}
READABLE = 4.5  # contrast of text with what is behind it, as WCAG 2 asks at level AA
# Lightness of the page, and the least contrast of its texts with what is behind them (WCAG 2's definitions).
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
def test_colours_follow_the_system_and_can_be_read(tab: Tab, up: Up, link: str, scheme: str) -> None:
    """The background is as the system wants it, every text stands out from it, and the canvas takes part."""
    with tab(up.url, color_scheme=scheme) as explorer:
        explorer.open(link)
        explorer.wait_drawn()
        seen = explorer.page.evaluate(LIGHTNESS)
        assert (seen["page"] > 0.5) == (scheme == "light")
        assert seen["least"][0] >= READABLE, seen["least"]
        explorer.at("scrub").fill("2")
        explorer.keep(f"draw-{scheme}")


def test_the_switch_overrules_the_system_and_is_kept(tab: Tab, up: Up, link: str) -> None:
    """Also the points are drawn anew, and after a reload it is as it was left."""
    with tab(up.url, color_scheme="light") as explorer:
        explorer.open(link)
        explorer.wait_drawn()
        light = explorer.wait_still()
        explorer.at("theme").click()
        assert explorer.page.evaluate(LIGHTNESS)["page"] < 0.1
        assert explorer.wait_still() != light
        explorer.page.reload()
        explorer.wait_drawn()
        assert explorer.page.evaluate(LIGHTNESS)["page"] < 0.1
        explorer.page.keyboard.press("d")
        assert explorer.page.evaluate(LIGHTNESS)["page"] > 0.5


def test_a_telephone_needs_no_sideways_scrolling(tab: Tab, up: Up, link: str) -> None:
    """Empty and full, in each view, with the lines of a shell open: nothing is wider than 390 pixels."""
    with tab(up.url, viewport=TELEPHONE, has_touch=True, is_mobile=True, device_scale_factor=2) as explorer:
        explorer.open()
        assert explorer.sideways() == 0
        explorer.keep("phone-start")
        explorer.page.goto("about:blank")
        explorer.open(link)
        explorer.wait_drawn()
        explorer.keep("phone-draws")
        for name in ("show-curl", "tab-grid", "tab-scales"):
            explorer.at(name).click()
            if name == "tab-scales":
                expect(explorer.at("scale-grid")).to_be_visible(timeout=30_000)
            assert explorer.sideways() == 0, name
            explorer.keep(f"phone-{name}")
        explorer.at("tab-draws").tap()
        explorer.at("play").tap()
        expect(explorer.at("play")).to_have_attribute("aria-pressed", "true")


def test_all_is_reached_without_a_mouse(explorer: Explorer, link: str) -> None:
    """Tab goes from the data over method and fit to views and animation; each place is seen, Space and arrows play."""
    explorer.open(link)
    explorer.wait_drawn()
    keys = explorer.page.keyboard
    reached: list[str] = []
    for _ in range(60):
        keys.press("Tab")
        name, ring = explorer.page.evaluate(FOCUSED)
        assert ring, f"{name} does not show that it has the focus"
        reached.append(name)
    wanted = [
        "change-data",
        "method",
        "form-em-n_neighbors",
        "draws-count",
        "fit",
        "tab-draws",
        "stage",
        "play",
        "scrub",
    ]
    wanted += ["show-consensus", "export-png", "color"]
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted
    explorer.at("stage").focus()
    keys.press("Space")
    expect(explorer.at("play")).to_have_attribute("aria-pressed", "true")
    keys.press("Space")
    expect(explorer.at("play")).to_have_attribute("aria-pressed", "false")
    keys.press("Home")
    expect(explorer.at("frame-name")).to_contain_text("Reference")
    keys.press("ArrowRight")
    expect(explorer.at("frame-name")).to_contain_text("Draw 0")
    keys.press("2")
    expect(explorer.at("grid")).to_be_visible()
    keys.press("?")
    expect(explorer.at("keys-dialog")).to_be_visible()
    explorer.keep("keys")
    keys.press("Escape")
    expect(explorer.at("keys-dialog")).to_have_count(0)


# What has the focus, and whether it has a ring.
FOCUSED = """() => {
    const element = document.activeElement;
    const { outlineStyle, boxShadow } = getComputedStyle(element);
    const hidden = element.matches('input[type=file]');
    return [element.dataset.testid ?? element.textContent.trim().slice(0, 20),
        element === document.body || hidden || outlineStyle !== 'none' || boxShadow !== 'none'];
}"""


def test_a_screen_reader_is_told(explorer: Explorer) -> None:
    """Every control has a name, and what happens is said in a live region."""
    explorer.open()
    explorer.make("s_curve", 100)
    explorer.fit(count=2)
    nameless = explorer.page.evaluate(NAMELESS)
    assert nameless == []
    expect(explorer.page.locator("[role=status][aria-live=polite]").first).to_contain_text("The spread of every point")


# Controls without a name: neither a label, nor text, nor aria.
NAMELESS = """() => [...document.querySelectorAll('button, input, select, a, summary, [role=img], [role=button]')]
    .filter((element) => !element.labels?.length && !element.textContent.trim() &&
        !element.getAttribute('aria-label') && !element.getAttribute('aria-labelledby') && !element.title)
    .map((element) => element.outerHTML.slice(0, 120))"""


def test_an_empty_page_says_what_to_do(explorer: Explorer) -> None:
    """One large button, a place for a file; what cannot be done yet is not offered."""
    explorer.open()
    expect(explorer.at("try-example")).to_be_visible()
    expect(explorer.at("drop")).to_contain_text("Choose a file")
    expect(explorer.at("fit")).to_be_disabled()
    expect(explorer.at("tab-grid")).to_be_disabled()
    expect(explorer.at("inspector")).to_have_count(0)
    explorer.keep("start")


def test_first_load_is_light(explorer: Explorer) -> None:
    """What comes over the wire until the page can be used, contract and all, is under 400 kB."""
    session = explorer.page.context.new_cdp_session(explorer.page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda result: sizes.append(result["encodedDataLength"]))
    explorer.open()
    explorer.page.wait_for_load_state("networkidle")
    assert len(sizes) > 20
    assert sum(sizes) < FIRST_LOAD_BYTES


def test_an_example_is_one_click_away(explorer: Explorer) -> None:
    """A click makes a sheet, its first rows are shown, and it can be fitted."""
    explorer.open()
    explorer.at("try-example").click()
    expect(explorer.at("chosen")).to_contain_text("1,000 rows, 3 columns")
    expect(explorer.at("preview").locator("tbody tr").first).to_be_visible()
    expect(explorer.at("estimate")).to_contain_text("24 draws of 1,000 points")
    expect(explorer.at("fit")).to_be_enabled()
    explorer.keep("chosen")


def test_methods_and_settings_are_those_of_the_service(explorer: Explorer) -> None:
    """Every method that the API names is there, with its defaults; what is missing for it now cannot be chosen."""
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
        for name in {"n_components", "n_neighbors"} & (fields := own(method)).keys():
            if isinstance(default := fields[name].get("default"), int):
                assert explorer.at(f"form-{method['name']}-{name}").input_value() == str(default)


def own(method: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of a method's own parameters by their names."""
    fields = method["parameters"]["properties"]
    found = fields["parameters"]["properties"] if method["makes"] == "embedding" else fields
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_webgl_the_page_draws_flat(tab: Tab, explorer: Explorer, link: str, scheme: str) -> None:
    """The same link, drawn on a plain canvas, shows the draws."""
    with tab(explorer.url, color_scheme=scheme) as flat:
        flat.open(link.replace("/#", "/?plot=flat#"))
        flat.wait_drawn()
        expect(flat.at("plot")).to_have_attribute("data-kind", "canvas")
        before = flat.wait_still()
        flat.at("next").click()
        assert flat.wait_still() != before
        flat.keep(f"flat-{scheme}")
