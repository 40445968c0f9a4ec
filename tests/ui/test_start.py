"""The page before anything was done on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.ui.explorer import Explorer

FIRST_LOAD_BYTES = 400_000


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
def test_without_webgl_the_page_draws_flat(
    tab: Callable[..., AbstractContextManager[Explorer]], explorer: Explorer, link: str, scheme: str
) -> None:
    """The same link, drawn on a plain canvas, shows the draws."""
    with tab(explorer.url, color_scheme=scheme) as flat:
        flat.open(link.replace("/#", "/?plot=flat#"))
        flat.wait_drawn()
        expect(flat.at("plot")).to_have_attribute("data-kind", "canvas")
        before = flat.wait_still()
        flat.at("next").click()
        assert flat.wait_still() != before
        flat.keep(f"flat-{scheme}")
