"""Audits: chance, what remains, and the parts of a picture, on data whose answers are known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.audit.agreement import canonical_correlations, common_share, shared_coordinates
from glle_engine.audit.audit import audit, audits
from glle_engine.audit.chance import discoveries
from glle_engine.audit.relations import find_relations
from glle_engine.base.errors import GlleError, InvalidParameterError, InvalidShapeError
from glle_engine.reliability.embedders import FunctionEmbedder
from glle_engine.reliability.resamples import QUARTERS, SEPARATE, draw_sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RNG = np.random.default_rng(0)
NOISE = RNG.standard_normal((200, 8))
PLANE = RNG.standard_normal((200, 2)) @ RNG.standard_normal((2, 8)) + 0.1 * RNG.standard_normal((200, 8))
CLASSES = np.repeat(["a", "b", "c"], 60)
ISLANDS = 12 * np.eye(8)[np.repeat([0, 1, 2], 60)] + RNG.standard_normal((180, 8))


def principal(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first two principal components."""
    centered = points - points.mean(axis=0)
    return np.asarray(centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T)


@pytest.mark.parametrize("method", ["pca", "glle"])
def test_noise_is_said_to_be_noise(method: str) -> None:
    """Independent features are no structure, and nothing is said of the order of the points."""
    found = audit(NOISE, method=method)
    assert found.beyond_chance is False
    assert found.verdict.startswith("Nothing here is more than chance")
    assert found.ranking is None
    assert found.is_point_beyond is not None
    assert found.is_point_beyond.mean() < 0.05


def test_a_plane_is_believed() -> None:
    """Two factors are structure, remain in another sample, and are two coordinates."""
    found = audit(PLANE, method="pca")
    assert found.beyond_chance is True
    assert found.remains is not None
    assert found.remains > 0.95
    assert "Believe the picture" in found.verdict
    assert found.neighbors is not None
    assert found.stability is not None
    assert 0 <= found.neighbors.data.min() <= found.neighbors.data.max() < 1
    assert ((found.stability > 0.2) & (found.stability <= 1)).all()
    assert found.regions["new sample"].radius(0.9) == pytest.approx(np.sqrt(2) * found.regions["mean"].radius(0.9))


def test_a_ball_has_three_coordinates() -> None:
    """A map of two dimensions hides the third coordinate; that of a sheet is a function of the others."""
    ball = RNG.standard_normal((400, 3))
    ball *= (RNG.uniform(size=400) ** (1 / 3) / np.linalg.norm(ball, axis=1))[:, None]
    found = audit(ball, method="glle")
    assert found.dimension == 3
    assert "fill 3 dimensions" in found.verdict
    sheet = manifolds.make("s_curve", 800, seed=1).X
    assert "dimensions" not in audit(sheet, fit(sheet, n_neighbors=12)).verdict


def test_islands_are_apart() -> None:
    """Separate groups are apart in all pictures, and each point is among its group."""
    groups = audit(ISLANDS, method="pca", labels=CLASSES).groups
    assert groups is not None
    assert groups.names.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(groups.apart, 1 - np.eye(3))
    assert groups.member_probability.mean() > 0.99
    mixed = audit(NOISE, method="pca", labels=np.arange(200) % 2).groups
    assert mixed is not None
    assert mixed.apart.max() < 0.2


def test_a_posterior_and_its_method_are_one() -> None:
    """The audit of a posterior is that of the method by name, with the same bits."""
    posterior = fit(PLANE, n_neighbors=12)
    by_posterior = audit(PLANE, posterior)
    by_name = audit(PLANE, method="glle", parameters={"n_neighbors": 12})
    assert by_posterior.to_dict() == by_name.to_dict()
    np.testing.assert_array_equal(by_posterior.p_value, by_name.p_value)


def test_a_function_is_a_method() -> None:
    """A function of the caller gets everything but the dimension, because it has a fixed number of coordinates."""
    found = audit(PLANE, method=principal)
    assert found.beyond_chance is True
    assert found.dimension is None
    assert found.remains == pytest.approx(audit(PLANE, method="pca").remains, abs=0.05)
    frame = found.frame()
    assert list(frame.columns) == ["y1", "y2", "p_value", "is_point_beyond", "spread", "stability"]
    assert len(frame) == len(PLANE)


def test_coordinates_alone_have_p_values() -> None:
    """Without a method there is fidelity, and no statement on another sample."""
    found = audit(PLANE, principal(PLANE))
    assert found.beyond_chance is True
    assert found.remains is None
    assert [note.code for note in found.notes] == ["coordinates-alone"]
    assert audit(NOISE, NOISE[:, :2]).beyond_chance is False
    assert audit(PLANE[:60], principal(PLANE[:60])).p_value is not None  # fewer points than t-SNE's default needs


@pytest.mark.parametrize(
    ("X", "reason"),
    [(NOISE[:, :2], "all 2 features"), (NOISE * [1000, 1, 1, 1, 1, 1, 1, 1], "one feature has 100% of the variance")],
)
def test_it_says_when_it_cannot_speak(X: NDArray[np.float64], reason: str) -> None:
    """Permuted data keep the neighbors of single points where the map has all features, or one feature dominates."""
    found = audit(X, method="pca", parameters={"n_components": 2})
    assert found.beyond_chance is False
    assert found.p_value is None
    assert reason in found.notes[0].message


def test_two_features_may_be_related() -> None:
    """A map with all features shows their relation; a single feature has none."""
    angle = RNG.uniform(0, 2 * np.pi, 300)
    circle = np.c_[np.cos(angle), np.sin(angle)] + 0.05 * RNG.standard_normal((300, 2))
    assert audit(circle, circle).beyond_chance is True
    assert find_relations(np.c_[angle, np.ones(300)]) is None
    assert "cannot be decided" in audit(np.c_[angle, np.ones(300)], circle).verdict


def test_a_map_of_random_places_shows_nothing() -> None:
    """The data have structure, and the map does not show it."""
    found = audit(PLANE, RNG.standard_normal((200, 2)))
    assert found.beyond_chance is False
    assert "does not show it" in found.verdict


@pytest.mark.parametrize("transform", [np.exp, lambda X: X**3, lambda X: X * [1, 1e9, 1, 1, 1, 1, 1, 1e-9]])
def test_relations_have_no_unit(transform: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    """A monotone transformation of a feature changes nothing."""
    assert find_relations(transform(PLANE)) == find_relations(PLANE)


def test_stages_are_refined() -> None:
    """The first statement is by four pairs; later ones have more until they are certain."""
    stages = list(audits(NOISE, method="pca"))
    assert [stage.pairs for stage in stages] == [4, 8, 12][: len(stages)]
    assert stages[-1].pairs == audit(NOISE, method="pca").pairs


def test_separate_halves_share_no_point() -> None:
    """Resamples 2 j and 2 j + 1 are disjoint, for odd numbers of points, too."""
    embed = FunctionEmbedder(principal, PLANE[:101])
    for number in range(0, 6, 2):
        first, second = (draw_sample(embed, SEPARATE, 0, number + side).chosen for side in (0, 1))
        assert len(first) == len(second) == 50
        assert not set(first) & set(second)


def test_agreement_of_known_pictures() -> None:
    """Rotated, scaled and moved pictures are the same; independent ones share next to nothing."""
    Y, other = RNG.standard_normal((2, 500, 2))
    turned = 3 * Y @ [[0, 1], [1, 0]] + 7
    np.testing.assert_allclose(common_share(np.array([Y, turned, Y, other])), [1, 0], atol=0.05)
    np.testing.assert_allclose(canonical_correlations(Y, turned), [1, 1])
    assert shared_coordinates(np.array([np.c_[Y, other[:, 0]], np.c_[turned, other[:, 1]]])) == 2


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    """The largest p-value below its line, and all smaller ones."""
    p_value = np.array([0.001, 0.04, 0.03, 0.5, 0.9])
    np.testing.assert_array_equal(discoveries(p_value), [True, True, True, False, False])
    np.testing.assert_array_equal(discoveries(p_value, 0.02), [True, False, False, False, False])
    assert not discoveries(np.ones(5)).any()


def test_the_level_of_the_test_holds() -> None:
    """Of 100 samples of noise few have relations; the expected number is .5."""
    found = [find_relations(np.random.default_rng(seed).standard_normal((60, 6)), seed) for seed in range(100)]
    assert sum(relations is not None and relations.is_present for relations in found) <= 4


def test_nested_quarters_are_of_one_half() -> None:
    """Even resamples have no point in common with odd ones."""
    embed = FunctionEmbedder(principal, PLANE[:101])
    sides = [
        {int(row) for number in range(side, 12, 2) for row in draw_sample(embed, QUARTERS, 0, number).chosen}
        for side in (0, 1)
    ]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) > 90


def test_threads_change_no_bit() -> None:
    """Resamples of several threads are those of one."""
    with ThreadPoolExecutor(3) as threads:
        several = audit(PLANE, method="glle", executor=threads)
    with ThreadPoolExecutor(1) as one:
        alone = audit(PLANE, method="glle", executor=one)
    assert several.to_dict() == alone.to_dict()
    np.testing.assert_array_equal(several.spread, alone.spread)
    np.testing.assert_array_equal(several.p_value, alone.p_value)


@pytest.mark.parametrize(
    ("Y", "options", "error", "text"),
    [
        (None, {}, InvalidParameterError, "no embedding to audit"),
        (NOISE[:5, :2], {}, InvalidShapeError, "200 points"),
        (None, {"method": "no-such"}, GlleError, "no-such"),
        (None, {"method": "pca", "labels": [1, 2]}, InvalidParameterError, "200 labels"),
        (None, {"method": "mds", "parameters": {"dissimilarity": "precomputed"}}, GlleError, "permutes the columns"),
        (None, {"method": "lle", "parameters": {"metric": "precomputed"}}, GlleError, "permutes the columns"),
    ],
)
def test_errors_name_the_remedy(Y: object, options: dict[str, object], error: type[GlleError], text: str) -> None:
    """Requests that cannot be audited are refused."""
    with pytest.raises(error, match=text) as caught:
        audit(NOISE, Y, **options)  # type: ignore[arg-type] # on purpose
    assert caught.value.remedy
