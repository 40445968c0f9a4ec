"""Movement of embeddings: what theory foretells, and what does not change it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score

from glle_engine import manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.methods import method
from glle_engine.reliability.alignment import rank_correlation
from glle_engine.reliability.movement import Movement, adjusted_rand, movement
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import HALVES, SEEDS, Resamples, resample, stream_of


def movement_of(
    X: np.ndarray,
    name: str,
    count: int = 12,
    labels: np.ndarray | None = None,
    share: float = 0.5,
    **options: object,
) -> Movement:
    """Return the movement of a method."""
    embed = again(X, name, **options)
    seeds = resample(embed, 4, stream=SEEDS) if embed.method.random else None
    samples = resample(embed, count, stream=stream_of(share))
    return movement(embed, whole(embed), samples, seeds, labels=labels)


def again(X: np.ndarray, name: str, **options: object) -> MethodEmbedder[Any]:
    """Return a method with its data."""
    return MethodEmbedder(X, method(name), method(name).spec.from_dict(options))


def whole(embed: MethodEmbedder[Any]) -> np.ndarray:
    """Return the embedding of all points."""
    return embed.method.embed(embed.X, embed.spec).Y


@pytest.mark.parametrize("share", [0.5, 0.632])
def test_principal_components_move_as_their_axis_turns(share: float) -> None:
    r"""The first axis of a Gaussian turns by an angle of variance E[a^2 b^2] / (n (l1 - l2)^2) (Anderson 1963).

    a and b are the two components of a point; for a Gaussian E[a^2 b^2] = l1 l2. To first order the coordinate of a
    point changes by its b times the angle, which is the movement over new samples.
    """
    n, l1, l2 = 400, 4.0, 1.0
    X = np.random.default_rng(1).standard_normal((n, 2)) * np.sqrt([l1, l2])
    found = movement_of(X, "pca", 60, n_components=1, share=share).movement
    centered = X - X.mean(axis=0)
    values, axes = np.linalg.eigh(centered.T @ centered / n)
    b, a = (centered @ axes).T
    angle = np.sqrt((a**2 * b**2).mean() / n) / (values[1] - values[0])
    assert rank_correlation(found, np.abs(b)) > 0.95
    assert np.median(found / (np.abs(b) * angle)) == pytest.approx(1, abs=0.2)


def test_the_part_by_sampling_of_larger_samples_is_corrected(curve: np.ndarray) -> None:
    """The variance of a linear method has a factor, that by seeds and that of LLE none; regions follow."""
    factor = 0.632 / 0.368
    rng = np.random.default_rng(0)
    for name, expected in (("lle", 1), ("pca", factor)):
        embed = again(curve, name)
        reference, larger = whole(embed), resample(embed, 8, stream=stream_of(0.632))
        both = (replace(larger, stream=HALVES), larger)
        plain, corrected = (movement(embed, reference, samples) for samples in both)
        np.testing.assert_allclose(corrected.movement, np.sqrt(expected) * plain.movement)
        np.testing.assert_allclose(corrected.covariance, expected * plain.covariance)
        np.testing.assert_allclose(corrected.radius, np.sqrt(expected) * plain.radius)
        np.testing.assert_array_equal(corrected.consensus, plain.consensus)
        assert (plain.figures["share"], corrected.figures["share"]) == (0.5, 0.632)
    seeds = Resamples(SEEDS, reference + rng.normal(scale=1e-3, size=(6, *reference.shape)))
    plain, corrected = (movement(embed, reference, samples, seeds) for samples in both)
    np.testing.assert_allclose(corrected.seed_movement, plain.seed_movement)
    np.testing.assert_allclose(corrected.sampling_movement, np.sqrt(factor) * plain.sampling_movement)
    np.testing.assert_allclose(np.trace(corrected.covariance, axis1=1, axis2=2), corrected.movement**2)


@pytest.mark.parametrize(("name", "options", "refits"), [("lle", {}, 0), ("alle", {"order": "random"}, 4)])
def test_the_parts_of_movement_add_up(curve: np.ndarray, name: str, options: dict[str, Any], refits: int) -> None:
    """Squares of the parts are that of the whole where seeds explain less than it; without a seed all is sampling."""
    found = movement_of(curve, name, **options)
    assert found.figures["n_refits"] == refits
    assert (found.movement > 0).all()
    assert ((found.seed_movement > 0) == bool(refits)).all()
    assert bool(found.figures["seed_share"]) == bool(refits)
    total = np.maximum(found.movement, found.seed_movement)
    assert np.allclose(np.hypot(found.sampling_movement, found.seed_movement), total, rtol=1e-9)


def test_order_and_motions_change_nothing(curve: np.ndarray) -> None:
    """Half-samples in another order, rotated, scaled and moved, have the same movement."""
    embed = again(curve, "isomap")
    Y, samples = whole(embed), resample(embed, 8)
    one = movement(embed, Y, samples)
    rng = np.random.default_rng(0)
    turns = (np.linalg.qr(rng.standard_normal((2, 2)))[0] for _ in range(8))
    other = np.array([3 * Z @ turn + rng.standard_normal(2) for Z, turn in zip(samples.places, turns, strict=True)])
    two = movement(embed, Y, Resamples(HALVES, other[rng.permutation(8)]))
    for name in ("consensus", "movement", "radius", "neighbor_stability", "covariance"):
        assert getattr(two, name) == pytest.approx(getattr(one, name), rel=1e-6, abs=1e-8)
    three = movement(embed, 10 * Y + 1, samples)
    assert three.movement == pytest.approx(10 * one.movement)
    assert three.figures["relative_movement"] == pytest.approx(one.figures["relative_movement"])


def test_equal_refits_do_not_move(curve: np.ndarray) -> None:
    """Refits that are the embedding itself keep all neighbors, clusters and distances between classes."""
    embed = again(curve, "lle")
    Y = whole(embed)
    found = movement(embed, Y, Resamples(HALVES, np.array([Y] * 5)))
    assert found.movement == pytest.approx(np.zeros(len(Y)), abs=1e-12)
    assert found.consensus == pytest.approx(Y, abs=1e-12)
    assert {found.figures[name] for name in ("pairs_kept", "cluster_stability", "separated")} == {1}
    assert found.figures["classes"] == "clusters"


def test_noise_keeps_neighbors_by_chance() -> None:
    """Refits that are noise keep k / (n - 1) of the neighbors, and clusters as by chance."""
    rng = np.random.default_rng(2)
    noise = Resamples(HALVES, rng.standard_normal((30, 300, 2)))
    found = movement(again(rng.standard_normal((300, 3)), "pca"), rng.standard_normal((300, 2)), noise).figures
    assert found["pairs_kept"] == pytest.approx(found["pairs_by_chance"], rel=0.1)
    assert abs(found["cluster_stability"]) < 0.05
    assert (found["separated"] or 0) < 0.05


def test_groups_far_apart_are_stable() -> None:
    """Three groups keep their places: the clusters are the groups, and no disc of half the refits meets another."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], 40)
    X = rng.standard_normal((120, 6)) + 20 * np.eye(6)[groups]
    blind, seeing = movement_of(X, "pca"), movement_of(X, "pca", labels=groups)
    assert adjusted_rand(blind.classes, groups) == 1
    for found in (blind, seeing):
        assert found.figures["cluster_stability"] == 1
        assert found.figures["separated"] == 1
        assert found.figures["n_classes"] == 3
    mixed = movement_of(X, "pca", labels=rng.permutation(groups))
    assert np.median(mixed.margin) < np.median(seeing.margin) / 5
    one = movement_of(X, "pca", labels=np.zeros(120, np.int64))
    assert one.figures["separated"] is None
    assert np.isnan(one.margin).all()


def test_half_of_the_refits_are_within_the_radius(curve: np.ndarray) -> None:
    """The radius is the median distance from the consensus; movement bounds it as a second moment does."""
    found = movement_of(curve, "lle", 16)
    assert (found.radius <= np.sqrt(2) * found.movement).all()
    assert found.baseline == pytest.approx(np.sort(cdist(curve, curve), axis=1)[:, 1:11].mean(axis=1))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40))
def test_the_adjusted_rand_index_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    """For any two partitions."""
    a, b = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    assert adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)


def test_notes_and_refusals(curve: np.ndarray) -> None:
    """Methods known to fail the test say so; failed half-samples are counted; too few are refused."""
    embed = again(curve, "isomap")
    Y, four = whole(embed), resample(embed, 4)
    torn = Resamples(HALVES, np.full((1, *Y.shape), np.nan), ("torn",))
    found = movement(embed, Y, torn + four)
    assert (found.figures["failed"], found.figures["n_resamples"]) == (1, 4)
    assert "half-samples-failed" in {note.code for note in found.notes}
    doubts = [found, movement_of(curve, "ltsa", 4), movement_of(curve, "pca", 4)]
    messages = [[note.message for note in one.notes if note.code == "movement-unreliable"] for one in doubts]
    assert [len(each) for each in messages] == [1, 1, 0]
    assert "residual_variance above .04" in messages[0][0]
    assert "11 times" in messages[1][0]
    three = Resamples(HALVES, four.places[1:]) + torn
    wrong: list[tuple[Resamples, dict[str, Any], str]] = [
        (three, {}, r"3 of 4 half-samples.* The first problem: torn"),
        (four, {"labels": np.arange(120)}, "120 classes"),
        (four, {"n_neighbors": 119}, "n_neighbors=119"),
    ]
    for samples, options, words in wrong:
        with pytest.raises(InvalidParameterError, match=words):
            movement(embed, Y, samples, **options)


def test_seeds_that_do_not_settle_are_a_note() -> None:
    """A descent of few steps from noise depends on the seed more than on the data."""
    X = manifolds.make("s_curve", 80, seed=1).X
    found = movement_of(X, "symmetric-sne", perplexity=10, init="random", max_iter=1)
    assert found.figures["seed_share"] > 0.5
    assert "movement-by-seed" in {note.code for note in found.notes}
    assert replace(found, notes=()).to_dict()["notes"] == []


@pytest.mark.parametrize(
    ("name", "doubt"), [("isomap", "residual_variance above .04"), ("ltsa", "11 times"), ("pca", "")]
)
def test_methods_whose_movement_misleads_have_a_note(name: str, doubt: str) -> None:
    """The note says for which data, and what to do."""
    found = movement_of(manifolds.make("s_curve", 80, seed=0).X, name, count=4)
    messages = [note.message for note in found.notes if note.code == "movement-unreliable"]
    assert len(messages) == bool(doubt)
    assert doubt in "".join(messages)
