"""Examples of the documentation, run on a running service."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl
import numpy as np
import pytest

from service.cli import main
from service.schemas import openapi
from tests.docs.pages import ROOT, blocks, run
from tests.system.conftest import Up

EXAMPLES = ROOT / "docs" / "examples"
QUICKSTART = ROOT / "docs" / "tutorials" / "quickstart.md"
COMMANDS = {"sh": ["bash"], "py": [sys.executable]}

mpl.use("Agg")


def journey(ending: str, up: Up, folder: Path) -> str:
    """Run the example program of a language and return its output; skip if the machine lacks the language."""
    program = EXAMPLES / f"journey.{ending}"
    if ending == "sh" and not (shutil.which("bash") and shutil.which("curl")):
        pytest.skip("bash or curl is not installed")
    process = subprocess.run(
        [*COMMANDS[ending], str(program), str(EXAMPLES / "sheet.csv")],
        cwd=folder, env={**os.environ, "GLLE_URL": up.url, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_journeys_end_with_equal_draws(up: Up, tmp_path: Path) -> None:
    """The programs of all languages print one posterior's id and equal arrays; the single draw is in the batch."""
    results = set()
    for ending in COMMANDS:
        folder = tmp_path / ending
        folder.mkdir()
        with contextlib.suppress(pytest.skip.Exception):
            output = journey(ending, up, folder)
            draw, draws = np.load(folder / "draw.npy"), np.load(folder / "draws.npy")
            assert re.fullmatch(r"data set   ds_\w+\nposterior  post_\w+\ndraws      draw.npy draws.npy\n", output)
            assert (draw.shape, draws.shape) == ((300, 2), (3, 8, 300, 2))
            assert draw.tobytes() == draws[1, 7].tobytes()
            results.add((output, draws.tobytes()))
    assert len(results) == 1


def test_quickstart_plots_a_draw_in_five_lines(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first five lines plot an embedding; then the examples for the reader's own data run."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 # after the backend was chosen

    monkeypatch.setenv("GLLE_URL", up.url)
    monkeypatch.chdir(ROOT)
    five, with_own_data = blocks(QUICKSTART, "python")
    assert len([line for line in five.splitlines() if line]) == 5
    names = run([five])
    (scattered,) = plt.gca().collections
    np.testing.assert_array_equal(scattered.get_offsets(), names["posterior"].draw(7))
    plt.close("all")
    names = run([with_own_data], **names)
    assert names["draws"].shape == (100, 300, 2)
    assert names["placed"].embedding.shape == (5, 2)
    assert list(names["table"].columns) == ["y1", "y2"]


def test_quickstart_commands_work(
    up: Up, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command of the page runs with the id that `glle fit` printed."""
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
    """Each example body of the contract is accepted, with the ids that earlier responses gave."""
    used = set()

    def send(name: str, path: str, method: str = "post", **members: str) -> Any:
        used.add(name)
        answer = client.request(method, path, json=openapi.EXAMPLES[name] | members)
        assert answer.status_code in {200, 201}, (name, answer.text)
        assert answer.json().get("status", "succeeded") == "succeeded", name
        return answer.json()

    dataset = {"dataset": send("synthetic", "/v1/datasets/synthetic")["id"]}
    posterior = f"/v1/posteriors/{send('fit', '/v1/posteriors?wait=30', **dataset)['id']}"
    for name in ("draws", "transform", "reconstructions", "calibration"):
        send({"draws": "draw_many"}.get(name, name), f"{posterior}/{name}?wait=30")
    for name, path in (("compare", "comparisons"), ("audit", "audits"), ("embed", "embeddings")):
        embedded = send(name, f"/v1/{path}?wait=30", **dataset)
    embedding = embedded["links"]["embedding"]
    send("transform_embedding", f"{embedding}/transform?wait=30")
    paths = {"dataset": f"/v1/datasets/{dataset['dataset']}", "posterior": posterior, "embedding": embedding}
    for kind, path in paths.items():
        name = f"rename_{kind}"
        assert send(name, path, "patch")["name"] == openapi.EXAMPLES[name]["name"]
    assert used == set(openapi.EXAMPLES)
