"""Everything that is content-addressed has the same bits on every processor, as far as one processor can pretend.

`make -C qa slow` compares with the oldest processor, `make -C qa processors` with each kernel. `test_fingerprint.py`
compares the bits of a few fits with those on the oldest processor.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glle_engine
from glle_engine import NUMBERS, Draw, Posterior, manifolds
from glle_engine.posterior import fingerprint
from qa.processors.__main__ import other_processors

pytestmark = pytest.mark.timeout(300)  # each test computes all digests in a separate process


def data() -> dict[str, np.ndarray]:
    """Return a sheet, integers with many ties, clusters in many features, and few points."""
    words = np.random.Philox(key=5).random_raw(180 * 40 + 60 * 4)
    uniform = (words >> np.uint64(11)) * 2.0**-53
    clusters = uniform[: 180 * 40].reshape(180, 40) + 0.4 * (np.arange(180)[:, None] % 3 == np.arange(40) % 3)
    return {
        "roll": manifolds.make("swiss_roll", 240, seed=0).X,
        "integers": np.floor(uniform[: 160 * 30].reshape(160, 30) * 4) * (np.arange(30) < 20),
        "clusters": clusters,
        "few": uniform[180 * 40 :].reshape(60, 4),
    }


@pytest.fixture(scope="module")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of the data sets, made once, because sines differ between processors."""
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, allow_pickle=False, **data())
    return path


def digests(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the digests that a process with these settings computes."""
    command = [sys.executable, "-W", "ignore::ImportWarning", "-m", "tests.engine.reproducibility.digests", str(path)]
    process = subprocess.run(
        command, env={**os.environ, **environment}, cwd=Path(__file__).parents[3], check=True, capture_output=True
    )
    return dict(json.loads(process.stdout))


@pytest.fixture(scope="module")
def expected(data_file: Path) -> dict[str, str]:
    """Return the digests on this processor as it is."""
    return digests(data_file, {})


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, marks=[pytest.mark.slow] if position == 0 else [pytest.mark.processors])
        for position, setting in enumerate(other_processors())
    ],
    ids=str,
)
def test_results_do_not_depend_on_the_processor(
    expected: dict[str, str], data_file: Path, setting: dict[str, str]
) -> None:
    """Dense operations, neighbors, eigenproblems, and all results of four data sets."""
    other = digests(data_file, setting)
    assert len(expected) > 300
    assert other.keys() == expected.keys(), "the same solvers"
    assert {name: other[name] for name in expected if other[name] != expected[name]} == {}


ROOT = Path(__file__).resolve().parents[3]


def output_of(*arguments: str, environment: dict[str, str]) -> str:
    """Return the output of another process of Python."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_this_machine_has_the_pinned_fingerprint() -> None:
    """The reference results have the pinned bits; where they changed, NUMBERS and PINNED change together."""
    assert fingerprint.fingerprint() == fingerprint.PINNED_FINGERPRINT


def test_the_command_prints_the_bits_of_any_processor() -> None:
    """`python -m glle_engine.posterior.fingerprint` prints the digest and the pinned one, the same on the oldest."""
    oldest = next(iter(other_processors()), {})
    output = output_of("-m", "glle_engine.posterior.fingerprint", environment=oldest)
    assert f"fingerprint {fingerprint.fingerprint()}\n" in output
    assert f"pinned      {fingerprint.PINNED_FINGERPRINT}\n" in output


def test_the_references_cover_both_orders_and_wide_fronts() -> None:
    """The digest covers minimum degree and nested dissection, and fronts of one and of several supernodes."""
    sparse = [fitted for fitted in fingerprint.fits() if fitted.diagnostics.figures["elimination"]]
    orders = {fitted.diagnostics.figures["elimination"]["order"] for fitted in sparse}
    widths = np.concatenate([np.diff(fitted.eigenproblem.pattern.structure.front) for fitted in sparse])
    assert orders == {"minimum-degree", "nested-dissection"}
    assert widths.min() == 1
    assert widths.max() > 1


KEPT = Path(__file__).with_name("numbers.json")
FITS: dict[str, dict[str, Any]] = {
    "default": {},
    "em": {"method": "em", "variant": "published"},
    "direct": {"method": "direct", "variant": "published"},
    "three": {"n_components": 3, "n_neighbors": 8},
}
TOLERANCE = 1e-6  # between processors and libraries; a change of the order of sums is not detected


def numbers_of_fits() -> dict[str, list[float]]:
    """Return some numbers of each kind of fit: of the weights, the embedding, and draws."""
    X = manifolds.make("s_curve", 60, seed=5).X
    numbers = {}
    for name, options in FITS.items():
        posterior = glle_engine.fit(X, **options)
        parts = [posterior.mean, posterior.embedding, posterior.eigenvalues, posterior.weights(3, seed=1)]
        if name != "em":  # whose draws have several null vectors, of which rounding chooses
            parts += [posterior.draw(3, seed=1).embedding, posterior.draw(4, scale=0.5).embedding]
        numbers[name] = [float(value) for part in parts for value in np.ravel(part)[:6]]
    return numbers


def test_other_numbers_have_another_version() -> None:
    """If this fails, results have changed: write the coming release into NUMBERS, then run this file."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept["numbers"] == NUMBERS
    for name, values in numbers_of_fits().items():
        np.testing.assert_allclose(values, kept["found"][name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


if __name__ == "__main__":
    KEPT.write_text(json.dumps({"numbers": NUMBERS, "found": numbers_of_fits()}, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"Written to {KEPT}.\n")


@pytest.mark.parametrize("align", ["procrustes", "none"])
def test_one_other_bit_is_seen(monkeypatch: pytest.MonkeyPatch, align: str) -> None:
    """The last bit of one value of one draw changes the digest."""
    before = fingerprint.fingerprint()
    original = Posterior.draws

    def draws(self: Posterior, *count: Any, **options: Any) -> Iterator[Draw]:
        for draw in original(self, *count, **options):
            embedding = draw.embedding.copy()
            if draw.align == align and draw.index == 1:
                embedding[3, 1] = np.nextafter(embedding[3, 1], np.inf)
            yield replace(draw, embedding=embedding)

    monkeypatch.setattr(Posterior, "draws", draws)
    assert fingerprint.fingerprint.__wrapped__() != before
