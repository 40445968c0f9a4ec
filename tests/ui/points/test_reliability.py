"""How far to rely on the spread: a line beside the headline, before any region is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.ui.driver.explorer import Explorer


def answer(level: str) -> Any:
    """Return a handler that answers the request for the reliability with a level."""
    stated = {"reliability": {"level": level, "reason": "Because of the test."}, "notes": []}
    return lambda route: route.fulfill(json=stated)


def test_the_word_and_its_reason_are_the_services(tab_with_draws: Explorer) -> None:
    """Once the draws are shown, the line has one of the words; then a region can be chosen."""
    line = tab_with_draws.at("reliability")
    expect(line).to_contain_text("rank correlation", timeout=60_000)
    stated = tab_with_draws.state("reliability")
    assert stated["level"] in {"high", "moderate", "low"}
    expect(line).to_contain_text(f"How reliable is the spread? {stated['level'].capitalize()}. {stated['reason']}")
    tab_with_draws.at("shape-ellipse").click()


@pytest.mark.parametrize("level", ["high", "low"])
def test_a_low_reliability_is_a_warning_before_regions(explorer: Explorer, link: str, level: str) -> None:
    """No region before the word is known, also by a link; a low one warns beside the regions, too."""
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        waiting.append(route)

    explorer.page.route("**/summary?*points=*", hold)
    explorer.open(f"{link}&shape=ellipse")
    expect(explorer.at("reliability")).to_contain_text("Being measured", timeout=30_000)
    expect(explorer.at("shape-ellipse")).to_be_disabled()
    plain = explorer.wait_still()
    assert len(waiting) == 1
    answer(level)(waiting[0])
    expect(explorer.at("reliability")).to_contain_text(f"{level.capitalize()}. Because of the test.")
    expect(explorer.at("shape-ellipse")).to_be_enabled()
    expect(explorer.at("shape-warning")).to_have_count(int(level == "low"))
    explorer.wait_changed(plain)


def test_an_ensemble_that_is_refused_leaves_the_draws(explorer: Explorer, link: str) -> None:
    """The line has the reason of the refusal, and regions of the draws can be shown."""
    problem = {
        "type": "urn:glle:problem:too-long",
        "title": "Too long",
        "detail": "It takes some 900 s.",
        "status": 422,
    }
    explorer.expected.append("422")
    explorer.page.route("**/summary?*points=*", lambda route: route.fulfill(status=422, json=problem))
    explorer.open(link)
    expect(explorer.at("reliability")).to_contain_text("Not known. It takes some 900 s.", timeout=30_000)
    expect(explorer.at("shape-ellipse")).to_be_enabled()
    expect(explorer.at("problem")).to_have_count(0)


def test_many_points_are_assessed_when_asked(explorer: Explorer) -> None:
    """Above 5,000 points the line offers the measurement in place of making it; regions can be shown without it."""
    asked: list[Route] = []
    explorer.page.route("**/summary?*points=*", lambda route: asked.append(route))  # noqa: PLW0108 # it marks its handlers
    explorer.open_sheet("swiss_roll", 5_200)
    explorer.fit(count=2)
    expect(explorer.at("reliability")).to_contain_text("Not known. It was not measured")
    assert asked == []
    explorer.at("assess").click()
    expect(explorer.at("reliability")).to_contain_text("Being measured")
    explorer.page.wait_for_timeout(0)
    answer("moderate")(asked[0])
    expect(explorer.at("reliability")).to_contain_text("Moderate. Because of the test.")
    expect(explorer.at("assess")).to_have_count(0)
