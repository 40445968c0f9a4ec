"""Outages and API keys: the page reports them and recovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from qa.inputs.fuzz.running import make_key
from tests.system.conftest import running
from worker.operations.embedded_redis import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ui.driver.explorer import Explorer, Tab


def test_an_outage_is_reported_and_recovered_from(tab: Tab, tmp_path: Path) -> None:
    """A banner reports the outage; after the return everything works without a reload."""
    port = free_port()
    with tab(f"http://127.0.0.1:{port}") as explorer:
        explorer.expected += ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE"]
        with running(tmp_path, GLLE_PORT=str(port), GLLE_WORKERS="1"):
            explorer.open_sheet("s_curve", 200)
            expect(explorer.at("fit")).to_be_enabled()
        explorer.at("fit").click()
        expect(explorer.at("service-down")).to_contain_text("The service does not answer")
        expect(explorer.at("missed")).to_be_visible()
        missed, button = explorer.page.evaluate(
            "['missed', 'fit'].map((id) => document.querySelector(`[data-testid=${id}]`).getBoundingClientRect())"
        )  # at one moment: the banner moves both
        assert abs(missed["x"] - button["x"]) < button["width"]
        assert abs(missed["y"] - button["y"]) < 60, "pixels"  # from the click; the banner may move the button since
        expect(explorer.at("chosen")).to_be_visible()
        with running(tmp_path, GLLE_PORT=str(port), GLLE_WORKERS="1"):
            expect(explorer.at("service-down")).to_have_count(0, timeout=15_000)
            explorer.fit(count=2)
            assert explorer.state("draws")["count"] == 2


# What a page throws, and its state, after an answer whose body breaks off.
CUT = """async () => {
    const { askJson } = await import('/explorer/js/api.js');
    const { state } = await import('/explorer/js/store.js');
    const real = window.fetch;
    const body = new ReadableStream({ start: (controller) => controller.error(new TypeError('Failed to fetch')) });
    window.fetch = async () => new Response(body);
    try {
        return await askJson('/v1/info');
    } catch (error) {
        return [error.constructor.name, state.service];
    } finally {
        window.fetch = real;
    }
}"""


def test_an_answer_that_breaks_off_is_an_outage(explorer: Explorer) -> None:
    """A response that breaks off shows the banner of an outage, and logs no error to the console."""
    explorer.open()
    assert explorer.page.evaluate(CUT) == ["Refused", "down"]


@pytest.fixture(scope="module")
def guarded_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run a service that requires a key; return its URL and a key."""
    folder = tmp_path_factory.mktemp("guarded")
    with running(folder, GLLE_AUTH="required", GLLE_WORKERS="1") as up:
        yield up.url, make_key(folder)


def test_a_service_with_keys_shows_a_key_form(tab: Tab, guarded_service: tuple[str, str]) -> None:
    """The form requests the key, a valid key opens the page, and no address contains it."""
    url, key = guarded_service
    with tab(url) as explorer:
        explorer.expected.append("401")
        explorer.page.goto(url)
        expect(explorer.at("key-form")).to_contain_text("asks for a key")
        expect(explorer.at("problem")).to_have_count(0)
        addresses: list[str] = []
        explorer.page.on("request", lambda request: addresses.append(request.url))
        explorer.at("key").fill(key)
        explorer.at("use-key").click()
        expect(explorer.at("key-form")).to_have_count(0)
        explorer.make_sheet("s_curve", 200)
        explorer.fit(count=2)
        assert addresses
        assert not [address for address in addresses if key in address]


def test_a_rejected_key_is_reported(tab: Tab, guarded_service: tuple[str, str]) -> None:
    """The form stays and reports that the key was not accepted."""
    url, _ = guarded_service
    with tab(url) as explorer:
        explorer.expected.append("401")
        explorer.page.goto(url)
        explorer.at("key").fill("glle_wrong_wrong")
        explorer.at("use-key").click()
        expect(explorer.at("key-form")).to_contain_text("The last one was not accepted")
