"""The explorer as a person uses it, for the tests: what is clicked, and what is seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.conftest import until

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Locator, Page, Request

OUT = Path(__file__).resolve().parents[3] / "out" / "ui"

# The page's own modules are asked, so that what is told is what they hold.
_STATE = "async (name) => (await import('/explorer/js/store.js')).state[name]"
_PLACES = """async () => {
    const { onStage } = await import('/explorer/js/views/stage.js');
    while (!onStage.plot || !onStage.xy) await new Promise(requestAnimationFrame);
    const { x, y, sx, sy } = onStage.plot.screen();
    const box = document.querySelector('[data-testid=stage]').getBoundingClientRect();
    return Array.from({ length: onStage.xy.length / 2 }, (_, i) =>
        [box.left + x + sx * onStage.xy[2 * i], box.top + y + sy * onStage.xy[2 * i + 1]]);
}"""
_FRAMES = """(seconds) => new Promise((resolve) => {
    const times = [];
    const tick = (now) => {
        times.push(now);
        if (now - times[0] < 1000 * seconds) requestAnimationFrame(tick);
        else resolve((1000 * (times.length - 1)) / (now - times[0]));
    };
    requestAnimationFrame(tick);
})"""


@dataclass
class Explorer:
    """A tab with the page in it.

    Parameters
    ----------
    page
        The tab.
    url
        Of the service.
    complaints
        Errors that the page left in the console, exceptions, and requests to other hosts.
    expected
        Parts of complaints that a test provokes.

    """

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen to what the tab complains of."""
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"another host: {request.url}")

    def unexpected(self) -> list[str]:
        """Return the complaints that no test provoked."""
        return [result for result in self.complaints if not any(part in result for part in self.expected)]

    def open(self, link: str = "/") -> None:
        """Open the page, and wait until it knows the service's methods."""
        self.page.goto(self.url + link)
        expect(self.at("method-panel")).to_be_visible()

    def at(self, name: str) -> Locator:
        """Return the part of the page that is called so."""
        return self.page.get_by_test_id(name)

    def state(self, name: str) -> Any:
        """Return a member of the page's state."""
        return self.page.evaluate(_STATE, name)

    def choose(self, name: str, content: bytes) -> None:
        """Choose a file in the field for one."""
        self.at("file").set_input_files({"name": name, "mimeType": "", "buffer": content})

    def drop(self, name: str, content: str) -> None:
        """Let a file fall onto the page."""
        make = "([name, text]) => { const t = new DataTransfer(); t.items.add(new File([text], name)); return t; }"
        transfer = self.page.evaluate_handle(make, [name, content])
        self.page.dispatch_event("main", "dragenter", {"dataTransfer": transfer})
        expect(self.page.get_by_text("Drop the table here")).to_be_visible()
        self.page.dispatch_event("main", "drop", {"dataTransfer": transfer})

    def make(self, sheet: str, n: int) -> None:
        """Have a sheet made."""
        self.at("synthetic").locator("summary").click()
        self.at(f"synthetic-{sheet}").click()
        self.at("synthetic-form-n").fill(str(n))
        self.at("make-synthetic").click()
        expect(self.at("chosen")).to_be_visible()

    def fit(self, *, count: int = 6) -> None:
        """Fit, draw, and wait until the spread is known."""
        self.at("draws-count").fill(str(count))
        self.at("fit").click()
        self.wait_drawn()

    def wait_drawn(self) -> None:
        """Wait until draws and their spread are there, and nothing is being done."""
        expect(self.at("shape-halo")).to_be_enabled(timeout=60_000)
        expect(self.at("cancel")).to_have_count(0)

    def places(self) -> list[list[float]]:
        """Return where each point is on the screen, in pixels of the tab."""
        found = self.page.evaluate(_PLACES)
        assert isinstance(found, list)
        return found

    def seen(self, name: str = "stage") -> bytes:
        """Return the pixels of a part, as they are now."""
        return bytes(self.at(name).first.screenshot())

    def wait_still(self, name: str = "stage") -> bytes:
        """Wait until a part stops moving; return its pixels."""
        last = [b""]

        def is_still() -> bool:
            now = self.seen(name)
            last[0], before = now, last[0]
            return now == before

        until(is_still, 20)
        return last[0]

    def frames_a_second(self, seconds: float) -> float:
        """Return how often a second the browser gave the page a chance to draw."""
        return float(self.page.evaluate(_FRAMES, seconds))

    def sideways(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def keep(self, name: str, *, whole: bool = False) -> None:
        """Save a picture of the tab among the artefacts."""
        OUT.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=OUT / f"{name}.png", full_page=whole)
