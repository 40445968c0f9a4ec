"""The page's dress: dark and light, on a telephone, without a mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.system.conftest import Up
    from tests.ui.explorer import Explorer

    Tab = Callable[..., AbstractContextManager[Explorer]]

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
