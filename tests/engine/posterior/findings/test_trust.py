"""The choice of the noise by the trust in draws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from glle_engine import FitSpec, fit, load
from glle_engine.base import errors, npz
from glle_engine.estimator import GLLE
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.posterior.findings import trust
from glle_engine.reliability.calibration import calibrate
from glle_engine.reliability.embedders import PosteriorEmbedder
from glle_engine.reliability.resamples import resample
from tests.engine.conftest import bent_sheet

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from glle_engine import Posterior
    from glle_engine.base.spec import Noise

NOISY = bent_sheet(400) + 0.6 * np.random.default_rng(0).standard_normal((400, 3))


def messages(posterior: Posterior, code: str) -> list[str]:
    """Return the messages of the notes with a code."""
    return [note.message for note in posterior.diagnostics.notes if note.code == code]


def draws_trust(X: NDArray[np.float64], posterior: Posterior) -> float:
    """Return the mean trust of draws that the fit has not seen, on other points than those of the fit."""
    points = np.random.default_rng(5).permutation(len(X))[:300]
    return float(np.mean([trustworthiness(X, draw.embedding, points=points) for draw in posterior.draws(8, seed=5)]))


def test_the_law_with_the_better_draws_is_chosen() -> None:
    """With noise the tangent law, whose other draws are better, too; the posterior is that of the law, bit for bit."""
    chosen = fit(NOISY, noise="auto")
    laws: tuple[Noise, ...] = ("isotropic", "tangent")
    alone = {law: fit(NOISY, noise=law) for law in laws}
    figures = chosen.diagnostics.figures["noise"]
    assert figures == {"law": "tangent"} | {law: trust.trust_of_draws(NOISY, alone[law]) for law in laws}
    assert chosen.spec == alone["tangent"].spec
    assert {name: array.tobytes() for name, array in chosen.arrays().items()} == {
        name: array.tobytes() for name, array in alone["tangent"].arrays().items()
    }
    assert draws_trust(NOISY, chosen) > draws_trust(NOISY, alone["isotropic"]) + 0.01
    (message,) = messages(chosen, "noise-chosen")
    assert f"{figures['isotropic']:.3f} isotropic, {figures['tangent']:.3f} tangent" in message
    assert not messages(alone["tangent"], "noise-chosen")
    assert fit(NOISY, noise="auto").head() == chosen.head()


@pytest.mark.parametrize(
    ("kept", "law"), [((0.9, 0.8), "isotropic"), ((0.8, 0.9), "tangent"), ((0.9, 0.9), "isotropic")]
)
def test_either_law_can_be_chosen(monkeypatch: pytest.MonkeyPatch, kept: tuple[float, float], law: str) -> None:
    """The higher trust decides, and equal trust for the default."""
    X = NOISY[:200]
    known = dict(zip(("isotropic", "tangent"), kept, strict=True))
    monkeypatch.setattr(trust, "trust_of_draws", lambda _, posterior: known[posterior.spec.noise])
    posterior = fit(X, noise="auto", disconnected="bridge")
    assert posterior.spec.noise == law


def test_a_chosen_posterior_does_all_that_others_do(tmp_path: Path) -> None:
    """Files, new points, calibration, landmarks and the estimator have the law that was chosen."""
    X = NOISY[:300]
    posterior = fit(X, noise="auto")
    posterior.save(tmp_path / "kept.npz")
    assert load(tmp_path / "kept.npz").head() == posterior.head()
    np.testing.assert_array_equal(posterior.transform(X, X[:5]), posterior.embedding[:5])
    assert calibrate(posterior, X, n_half_samples=4, n_draws=4).scale > 0
    some = fit(X, noise="auto", landmarks=150)
    assert some.spec.noise == some.diagnostics.figures["noise"]["law"]
    assert some.draw(0).embedding.shape == (300, 2)
    model = GLLE(noise="auto").fit(X)
    assert model.get_params()["noise"] == "auto"
    assert model.posterior_.spec.noise == model.posterior_.diagnostics.figures["noise"]["law"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"variant": "published"}, "variant='constrained'"),
        ({"neighborhoods": "adaptive"}, "noise='isotropic'"),
        ({"metric": "precomputed"}, "noise='isotropic'"),
    ],
)
def test_the_choice_needs_what_the_tangent_law_needs(options: dict[str, Any], word: str) -> None:
    """Options without tangent noise are refused with the remedy."""
    with pytest.raises(errors.InvalidParameterError) as caught:
        FitSpec(noise="auto", **options)
    assert word in str(caught.value)


def test_data_without_frames_are_refused() -> None:
    """Given neighbors and sparse data have no tangent frames."""
    X = NOISY[:100]
    nearest = np.argsort(cdist(X, X), axis=1)[:, 1:9]
    with pytest.raises(errors.InvalidParameterError, match="noise='auto', which searches 3 k neighbors"):
        fit(X, neighbors=nearest, noise="auto")
    with pytest.raises(errors.InvalidParameterError, match="noise='auto' takes no sparse data"):
        fit(csr_array(X), noise="auto")


def test_only_a_fit_resolves_the_choice(tmp_path: Path) -> None:
    """Resamples of an unresolved specification are refused, as is a file with one."""
    X = NOISY[:100]
    posterior = fit(X, disconnected="bridge")
    unresolved = replace(PosteriorEmbedder.of(posterior, X), spec=FitSpec(noise="auto", n_neighbors=10))
    with pytest.raises(errors.InvalidParameterError, match="specification of the posterior"):
        resample(unresolved, 1, strict=True)
    head = posterior.head()
    npz.save(tmp_path / "unresolved.npz", {**head, "spec": {**head["spec"], "noise": "auto"}}, posterior.arrays())
    with pytest.raises(errors.StorageError, match="names no law"):
        load(tmp_path / "unresolved.npz")


def test_trust_is_that_of_the_metric() -> None:
    """For few points all of them count."""
    X = NOISY[:250]
    Y = fit(X).embedding
    assert trust.trust_of(X, Y) == pytest.approx(trustworthiness(X, Y), rel=1e-12)


def test_a_draw_without_solution_keeps_no_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lowers the trust, and does not end the fit."""

    def failing(*_: Any, **__: Any) -> None:
        raise errors.ConvergenceError("No solver found the embedding.", remedy="Raise reg.")

    posterior = fit(NOISY[:200], disconnected="bridge")
    monkeypatch.setattr(type(posterior), "draws", failing)
    assert trust.trust_of_draws(NOISY[:200], posterior) == 0.0
