"""Page object of the explorer: user actions and visible state."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.conftest import until
from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from playwright.sync_api import ConsoleMessage, FloatRect, Locator, Page, Request

    Tab: TypeAlias = Callable[..., AbstractContextManager["Explorer"]]

# The state comes from the modules of the page.
_STATE = "async (name) => (await import('/explorer/js/store.js')).state[name]"
_IS_DRAWN = """async () => {
    const { state } = await import('/explorer/js/store.js');
    return Boolean(state.draws && !state.work);
}"""
_PLACES = """async () => {
    const { onStage } = await import('/explorer/js/views/stage.js');
    while (!onStage.plot || !onStage.xy) await new Promise(requestAnimationFrame);
    const { x, y, sx, sy } = onStage.plot.screen();
    const box = document.querySelector('[data-testid=stage]').getBoundingClientRect();
    return Array.from({ length: onStage.xy.length / 2 }, (_, i) =>
        [box.left + x + sx * onStage.xy[2 * i], box.top + y + sy * onStage.xy[2 * i + 1]]);
}"""
# Whether the overlay has ink around places of the plot.
_INK = """async ([places, around]) => {
    const { onStage } = await import('/explorer/js/views/stage.js');
    const { x, y, sx, sy } = onStage.plot.screen();
    const context = onStage.overlay.getContext('2d');
    return places.every(([across, up]) => {
        const corner = [x + sx * across - around, y + sy * up - around];
        const pixels = context.getImageData(...corner.map(Math.round), 2 * around + 1, 2 * around + 1).data;
        return pixels.some((value, i) => i % 4 === 3 && value > 60);
    });
}"""


# Records the texts and ellipses that are drawn into a saved picture, which is no part of the page.
_RECORD = """() => {
    globalThis.marks ??= [];
    marks.length = 0;
    const context = CanvasRenderingContext2D.prototype;
    for (const name of ['fillText', 'ellipse']) {
        const draw = context[name];
        context[name] = function (...values) {
            if (!this.canvas.isConnected) marks.push([name, ...values]);
            return draw.apply(this, values);
        };
    }
}"""


@dataclass
class Explorer:
    """A browser tab with the explorer.

    Parameters
    ----------
    page
        The tab.
    url
        URL of the service.
    complaints
        Console errors, exceptions, and requests to other hosts.
    expected
        Substrings of complaints that a test provokes.

    """

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Record the errors and requests of the tab."""
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", self._record_request)

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text}")

    def _record_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"another host: {request.url}")

    def unexpected_complaints(self) -> list[str]:
        """Return the complaints that are not expected."""
        return [result for result in self.complaints if not any(expected in result for expected in self.expected)]

    def open(self, link: str = "/") -> None:
        """Open the page and wait until it has loaded the methods."""
        self.page.goto(self.url + link)
        expect(self.at("method-panel")).to_have_count(1, timeout=30_000)  # hidden once a link has its picture

    def open_draws(self, link: str) -> None:
        """Open a link, and wait until its draws are shown."""
        self.open(link)
        self.wait_drawn()

    def reload_draws(self) -> None:
        """Reload the page, and wait until its draws are shown."""
        self.page.reload()
        self.wait_drawn()

    def open_sheet(self, sheet: str, n: int) -> None:
        """Open the page, and make a synthetic data set."""
        self.open()
        self.make_sheet(sheet, n)

    def open_example(self) -> None:
        """Open the page, and show the example map with its verdict."""
        self.open()
        self.at("example-umap").click()
        expect(self.at("verdict")).to_be_visible()

    def at(self, name: str) -> Locator:
        """Return the element with this test id."""
        return self.page.get_by_test_id(name)

    def expect_verdict(self, verdict: str, timeout: float | None = None) -> None:
        """Wait until the page shows a verdict, each of its lines with a mark before it."""
        texts = [line.lstrip("✓✗ ") for line in verdict.removeprefix("Preliminary: ").split("\n")]
        lines = [re.compile(rf"^\s*[✓✗?]?\s*{re.escape(text)}$") for text in texts]
        expect(self.at("verdict").locator("p")).to_have_text(lines, timeout=timeout)

    def state(self, name: str) -> Any:
        """Return a member of the page's state."""
        return self.page.evaluate(_STATE, name)

    def choose_file(self, name: str, content: bytes) -> None:
        """Choose a file in the file field."""
        self.at("file").set_input_files({"name": name, "mimeType": "", "buffer": content})

    def upload(self, name: str, content: bytes) -> None:
        """Choose a file, and use it as it is."""
        self.choose_file(name, content)
        self.at("use-file").click()

    def give_role(self, column: str, role: str) -> None:
        """Choose the role of a column of the chosen file in the menu of its head."""
        self.at(f"head-{column}").click()
        self.at(f"role-{role}").click()

    def expect_roles(self, **roles: str) -> None:
        """Wait until the heads of these columns show these roles."""
        for column, role in roles.items():
            expect(self.at(f"head-{column}").locator(".head-role")).to_have_text(role)

    def drop_file(self, name: str, content: str) -> None:
        """Drop a file onto the page."""
        make = "([name, text]) => { const t = new DataTransfer(); t.items.add(new File([text], name)); return t; }"
        transfer = self.page.evaluate_handle(make, [name, content])
        self.page.dispatch_event("main", "dragenter", {"dataTransfer": transfer})
        expect(self.page.get_by_text("Drop the table here")).to_be_visible()
        self.page.dispatch_event("main", "drop", {"dataTransfer": transfer})

    def make_sheet(self, sheet: str, n: int) -> None:
        """Fill in the form of synthetic data, and wait for the data set."""
        self.at("synthetic").locator("summary").click()
        self.at(f"synthetic-{sheet}").click()
        self.at("synthetic-form-n").fill(str(n))
        self.at("make-synthetic").click()
        expect(self.at("chosen")).to_be_visible()

    def show_pca(self) -> None:
        """Use the chosen file, and show its map by PCA."""
        self.at("use-file").click()
        expect(self.at("chosen")).to_be_visible()
        self.open_set_up()
        self.embed("pca")
        expect(self.at("verdict")).not_to_be_empty(timeout=120_000)

    def embed(self, method: str) -> None:
        """Choose a method, and start its map."""
        self.at("method").select_option(method)
        self.at("fit").click()

    def choose_methods(self, *names: str) -> None:
        """Open the tab of comparisons, and choose the methods to compare."""
        self.at("tab-compare").click()
        self.page.get_by_text("Choose the methods").click()
        for name in names:
            self.at(f"compare-{name}").click()

    def open_set_up(self) -> None:
        """Unfold the steps (data, method, fit) if they are folded away."""
        if self.at("set-up").get_attribute("aria-expanded") == "false":
            self.at("set-up").click()
        expect(self.at("setup")).to_be_visible()

    def fit(self, *, count: int = 6) -> None:
        """Fit, draw, and wait for the spread."""
        self.open_set_up()
        self.at("draws-n_draws").fill(str(count))
        self.at("fit").click()
        self.wait_drawn()

    def wait_drawn(self) -> None:
        """Wait until the draws and their audit are there, and no work is pending."""
        until(lambda: bool(self.page.evaluate(_IS_DRAWN)), 150)

    def download(self, kind: str) -> tuple[str, bytes]:
        """Return the name and content of a saved file."""
        with self.page.expect_download() as result:
            self.at(f"export-{kind}").click()
        return result.value.suggested_filename, Path(result.value.path()).read_bytes()

    def download_picture(self) -> tuple[bytes, list[tuple[str, float]], int]:
        """Return the PNG, its texts with their pixels below the top of the stage, and the number of its ellipses."""
        self.page.evaluate(_RECORD)
        _, content = self.download("png")
        marks = self.page.evaluate("marks")
        texts = [(mark[1], mark[3]) for mark in marks if mark[0] == "fillText"]
        return content, texts, len(marks) - len(texts)

    def run_lines(self, folder: Path) -> None:
        """Run the page's lines for the shell, and its lines for Python, whose `embedding` is saved as python.npy."""
        self.at("show-curl").click()
        (folder / "lines.sh").write_text(f"set -e\n{self.at('lines').inner_text()}\n")
        environment = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}
        subprocess.run(["bash", "lines.sh"], cwd=folder, check=True, capture_output=True, timeout=60, env=environment)  # noqa: S607 -- the shell on PATH
        self.at("show-python").click()
        code = f"{self.at('lines').inner_text()}\nimport numpy as np\nnp.save('python.npy', embedding)\n"
        environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, timeout=60)

    def find(self, by: str, text: str) -> None:
        """Find points by their `row` or `label`."""
        self.at(f"find-{by}").fill(text)
        self.at(f"find-{by}").press("Enter")

    def box(self, name: str) -> FloatRect:
        """Return the place of a visible element."""
        box = self.at(name).bounding_box()
        assert box
        return box

    def places(self) -> list[list[float]]:
        """Return the position of each point on the screen, in pixels of the tab."""
        positions = self.page.evaluate(_PLACES)
        assert isinstance(positions, list)
        return positions

    def stability(self) -> list[float]:
        """Return for each point the share of its neighbors that stay neighbors in another sample."""
        shares = "async () => Array.from((await import('/explorer/js/store.js')).state.audit.arrays.stability)"
        return list(self.page.evaluate(shares))

    def has_ink(self, *places: tuple[float, float], around: int) -> bool:
        """Return whether the overlay has ink at most so many pixels from each place of the plot."""
        return bool(self.page.evaluate(_INK, [places, around]))

    def screenshot(self, name: str = "stage") -> bytes:
        """Return a screenshot of an element, as PNG."""
        return bytes(self.at(name).first.screenshot())

    def wait_still(self, name: str = "stage") -> bytes:
        """Wait until an element stops moving; return its screenshot."""
        last = [b""]

        def is_still() -> bool:
            now = self.screenshot(name)
            last[0], before = now, last[0]
            return now == before

        until(is_still, 20)
        return last[0]

    def wait_changed(self, before: bytes, name: str = "stage") -> None:
        """Wait until an element is drawn otherwise than in a screenshot."""
        until(lambda: self.screenshot(name) != before, 20)

    def horizontal_overflow(self) -> int:
        """Return how many pixels the page is wider than its window."""
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return max(0, int(self.page.evaluate(wider)))  # less by the gutter of its scroll bar
