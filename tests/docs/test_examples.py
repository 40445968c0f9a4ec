"""Examples of the documentation, run on a running service."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest

from service.cli import main
from service.schemas import openapi
from tests.docs.pages import ROOT, blocks
from tests.system.clients.typescript import typescript

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.system.conftest import Up

EXAMPLES = ROOT / "docs" / "examples"
QUICKSTART = ROOT / "docs" / "tutorials" / "quickstart.md"
COMMANDS = {"sh": ["bash"], "py": [sys.executable]}
LANGUAGES = (*COMMANDS, "ts")

mpl.use("Agg")


def journey(ending: str, up: Up, folder: Path) -> str:
    """Return the output of the program of a language; skip the test if the machine cannot run it."""
    program = EXAMPLES / f"journey.{ending}"
    if ending == "ts":
        return typescript(folder).run(program, str(EXAMPLES / "sheet.csv"), cwd=folder, GLLE_URL=up.url).stdout
    if ending == "sh" and not (shutil.which("bash") and shutil.which("curl")):
        pytest.skip("bash or curl is not installed")
    process = subprocess.run(
        [*COMMANDS[ending], str(program), str(EXAMPLES / "sheet.csv")],
        cwd=folder, env={**os.environ, "GLLE_URL": up.url, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def journeys(up: Up, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """The output and the folder of each journey that this machine can run."""
    journeys_by_ending = {}
    for ending in LANGUAGES:
        folder = tmp_path_factory.mktemp(ending)
        with contextlib.suppress(pytest.skip.Exception):
            journeys_by_ending[ending] = journey(ending, up, folder), folder
    return journeys_by_ending


@pytest.mark.parametrize("ending", LANGUAGES)
def test_journey_ends_with_draws(journeys: dict[str, tuple[str, Path]], ending: str) -> None:
    """Each prints the ids and writes two arrays; the single draw is one of the batch."""
    if ending not in journeys:
        pytest.skip("bash and curl, or what TypeScript needs, are not installed")
    result, folder = journeys[ending]
    assert re.fullmatch(r"data set   ds_\w+\nposterior  post_\w+\ndraws      draw.npy draws.npy\n", result)
    draw, draws = np.load(folder / "draw.npy"), np.load(folder / "draws.npy")
    assert (draw.shape, draws.shape) == ((300, 2), (3, 8, 300, 2))
    assert draw.tobytes() == draws[1, 7].tobytes()


def test_journeys_have_equal_results(journeys: dict[str, tuple[str, Path]]) -> None:
    """In every language: one data set, one posterior, one draw."""
    assert len({result for result, _ in journeys.values()}) == 1
    assert len({np.load(folder / "draws.npy").tobytes() for _, folder in journeys.values()}) == 1


def test_quickstart_plots_a_draw_in_five_lines(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five lines plot an embedding; then the examples with the reader's data run."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    monkeypatch.setenv("GLLE_URL", up.url)
    monkeypatch.chdir(ROOT)
    five, own = blocks(QUICKSTART, "python")
    assert len([line for line in five.splitlines() if line]) == 5
    names: dict[str, Any] = {}
    exec(five, names)  # noqa: S102 # the project's own page
    (scattered,) = plt.gca().collections
    np.testing.assert_array_equal(scattered.get_offsets(), names["posterior"].draw(7))
    plt.close("all")
    exec(own, names)  # noqa: S102 # the project's own page
    assert names["draws"].shape == (100, 300, 2)
    assert names["placed"].embedding.shape == (5, 2)
    assert list(names["table"].columns) == ["y1", "y2"]


def test_quickstart_commands_work(
    up: Up, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line of the page runs with the id that `glle fit` printed."""
    monkeypatch.setenv("GLLE_URL", up.url)
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks(QUICKSTART, "sh") for line in block.splitlines() if line.startswith("glle ")]
    assert len(lines) == 5
    result = "post_..."
    for line in lines:
        words = shlex.split(line.replace("docs/", f"{ROOT}/docs/").replace("post_...", result), comments=True)
        assert main.main(words[1:]) == 0
        output = capsys.readouterr().out
        result = output.split()[0] if words[1] == "fit" else result
    assert np.load(tmp_path / "draws.npy").shape == (8, 300, 2)


def test_examples_of_the_contract_work_in_turn(client: httpx.Client) -> None:
    """Each body of the contract is accepted with the ids of the responses before it."""
    sampled = client.post("/v1/datasets/synthetic", json=openapi.EXAMPLES["synthetic"])
    dataset = {"dataset": sampled.json()["id"]}
    expected = client.post("/v1/posteriors/estimate?wait=30", json=openapi.EXAMPLES["estimate_fit"] | dataset)
    assert (expected.status_code, expected.json()["problem"]) == (200, None)
    fitted = client.post("/v1/posteriors?wait=30", json=openapi.EXAMPLES["fit"] | dataset)
    assert (sampled.status_code in {200, 201}, fitted.status_code in {200, 201}) == (True, True)
    posterior = f"/v1/posteriors/{fitted.json()['id']}"
    paths = {"draw_many": "/draws", **{name: f"/{name}" for name in ("transform", "reconstructions", "calibration")}}
    for name, path in paths.items():
        answer = client.post(f"{posterior}{path}?wait=30", json=openapi.EXAMPLES[name])
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded"), name
    advice = client.post("/v1/advice?wait=30", json=openapi.EXAMPLES["advice"] | dataset)
    assert (advice.status_code, advice.json()["status"]) == (200, "succeeded")
    for name, path in (("embed", "embeddings"), ("compare", "comparisons"), ("audit", "audits")):
        answer = client.post(f"/v1/{path}?wait=30", json=openapi.EXAMPLES[name] | dataset)
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded"), name
        if name == "embed":
            for task, last in (("transform_embedding", "transform"), ("spread", "spread")):
                place = f"{answer.json()['links']['embedding']}/{last}?wait=30"
                made = client.post(place, json=openapi.EXAMPLES[task])
                assert (made.status_code, made.json()["status"]) == (200, "succeeded"), task
    assert client.post("/v1/embeddings/estimate", json=openapi.EXAMPLES["estimate"]).json()["problem"] is None
    for name, path in (("rename_dataset", f"/v1/datasets/{dataset['dataset']}"), ("rename_posterior", posterior)):
        assert client.patch(path, json=openapi.EXAMPLES[name]).json()["name"] == openapi.EXAMPLES[name]["name"]
    others = {
        "synthetic",
        "estimate_fit",
        "fit",
        "advice",
        "audit",
        "embed",
        "transform_embedding",
        "spread",
        "estimate",
        "compare",
        "rename_dataset",
        "rename_posterior",
    }
    assert {*others, *paths} == set(openapi.EXAMPLES)
