"""A hundred thousand points, while they move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from tests.conftest import until
from tests.system.conftest import fitted, synthetic
from tests.ui.explorer import OUT

if TYPE_CHECKING:
    from tests.system.conftest import Up
    from tests.ui.explorer import Explorer

N = 100_000
SECONDS = 3
# Least frames a second while playing, far below what is measured, since other work may have the processors. The plain
# canvas: 52 to 60 on two busy cores. WebGL has the screen's rate on a graphics card; in software it had 1 to 6.
LEAST = {"flat": 5, "webgl": 0.2}


@pytest.fixture(scope="module")
def crowd(up: Up) -> str:
    """The part of a link that names a fit of so many points, and two draws."""
    with httpx.Client(base_url=up.url, timeout=90) as client:
        posterior = fitted(client, synthetic(client, N, name="swiss_roll"))
        assert client.post(f"{posterior}/draws?wait=60", json={"count": 2}).is_success
    return f"#posterior={posterior.rsplit('/', 1)[1]}&count=2"


@pytest.mark.parametrize("plot", ["flat", "webgl"])
def test_a_hundred_thousand_points_move_smoothly(explorer: Explorer, crowd: str, plot: str) -> None:
    """The animation runs at the rate that the machine can give, and the points are seen to move."""
    # The spread is left waiting: it would take the processors that are to draw.
    explorer.page.route("**/summary?*", lambda _: None)
    explorer.open(f"/?plot={plot}{crowd}")
    expect(explorer.at("play")).to_be_enabled(timeout=60_000)
    before = explorer.seen()
    explorer.at("play").click()
    until(lambda: explorer.state("frame") > 0)
    rate = explorer.frames_a_second(SECONDS)
    assert explorer.state("playing")
    assert explorer.seen() != before
    explorer.keep(f"crowd-{plot}")
    with (OUT / "frames.txt").open("a") as result:
        result.write(f"{plot}: {rate:.1f} frames a second, {N} points\n")
    assert rate > LEAST[plot]
