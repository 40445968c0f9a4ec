"""Audits: chance, what remains, and the parts of a picture, on data whose answers are known."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from glle_engine import fit, manifolds
from glle_engine.audit.audit import audit, audits, canonical_correlations, common_share, shared_coordinates
from glle_engine.audit.chance import Chance, discoveries, find_copies, find_relations, unknown_reason
from glle_engine.audit.result import Groups, verdict
from glle_engine.base.errors import (
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
    TooFewPointsError,
)
from glle_engine.estimator import GLLE, Embedding
from glle_engine.methods import METHODS
from glle_engine.reliability.resamples import QUARTERS, SEPARATE, FunctionEmbedder, draw_sample

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
    found = audit(NOISE[:120], method=method)
    assert found.beyond_chance is False
    assert found.verdict.startswith("No relation among the features is more than chance")
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
    sheet = manifolds.make("s_curve", 400, seed=1).X
    assert "dimensions" not in audit(sheet, fit(sheet, n_neighbors=12)).verdict


def test_islands_are_apart() -> None:
    """Separate groups are apart in all pictures, and each point is among its group."""
    found = audit(ISLANDS, method="pca", labels=CLASSES)
    assert found.verdict.endswith("All 3 groups stay apart from each other.")
    groups = found.groups
    assert groups is not None
    assert groups.names.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(groups.apart, 1 - np.eye(3))
    assert groups.member_probability.mean() > 0.99
    mixed = audit(NOISE, method="pca", labels=np.arange(200) % 2).groups
    assert mixed is not None
    assert mixed.apart.max() < 0.2


@pytest.mark.parametrize(
    ("low", "said"),
    [
        ([], "All 5 groups stay apart from each other."),

        ([(0, 1), (0, 2), (0, 3)],
         "7 of 10 pairs of groups stay apart; group a stays apart from fewer than half of the others."),
        ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)],
         "5 of 10 pairs of groups stay apart; groups a and b stay apart from fewer than half of the others."),
        ([(i, j) for i in range(5) for j in range(i)], "0 of 10 pairs of groups stay apart."),
    ],
)  # fmt: skip
def test_the_verdict_names_groups_that_do_not_stay_apart(low: list[tuple[int, int]], said: str) -> None:
    """Those that stay apart from fewer than half of the others, unless that is all."""
    apart = 1 - np.eye(5)
    for i, j in low:
        apart[i, j] = apart[j, i] = 0.89
    assert Groups(np.array(list("abcde")), apart, np.ones(5), np.arange(5)).statement() == said
    assert Groups(np.array(["a"]), np.zeros((1, 1)), np.ones(5), np.zeros(5, np.int64)).statement() == ""
    for share, of_two in ((0.89, "The two groups do not stay apart."), (0.9, "Both groups stay apart.")):
        assert Groups(np.arange(2), share * (1 - np.eye(2)), np.ones(5), np.arange(5) % 2).statement() == of_two


def test_a_posterior_and_its_method_are_one() -> None:
    """The audit of a posterior is that of the method by name, with the same bits, by any number of threads."""
    X = PLANE[:100]
    with ThreadPoolExecutor(3) as threads, ThreadPoolExecutor(1) as one:
        by_posterior = audit(X, fit(X, n_neighbors=12), executor=threads)
        by_name = audit(X, method="glle", parameters={"n_neighbors": 12}, executor=one)
    assert by_posterior.to_dict() == by_name.to_dict()
    np.testing.assert_array_equal(by_posterior.p_value, by_name.p_value)
    np.testing.assert_array_equal(by_posterior.spread, by_name.spread)


def test_a_function_is_a_method() -> None:
    """A function of the caller gets everything but the dimension, because it has a fixed number of coordinates."""
    found = audit(PLANE, method=principal)
    assert found.beyond_chance is True
    assert found.dimension is None
    assert found.remains == pytest.approx(audit(PLANE, method="pca").remains, abs=0.05)
    frame = found.frame()
    assert list(frame.columns) == ["y1", "y2", "p_value", "is_point_beyond", "spread", "stability"]
    assert len(frame) == len(PLANE)


def test_estimators_and_embeddings_are_audited() -> None:
    """An estimator is a method, and stays as it is; a fitted one has coordinates, and a posterior if it is ours."""
    X, model = PLANE[:60], PCA(2)
    by_estimator = audit(X, method=model)
    assert by_estimator.remains == pytest.approx(audit(X, method=lambda part: PCA(2).fit_transform(part)).remains)
    assert not hasattr(model, "components_")
    assert audit(X, GLLE().fit(X)).to_dict() == audit(X, fit(X)).to_dict()
    X = X[:, :2]  # without a comparison by t-SNE, which takes seconds
    found = METHODS["pca"].embed(X)
    assert audit(X, found).to_dict() == audit(X, Embedding("pca").fit(X)).to_dict() == audit(X, found.Y).to_dict()


def test_coordinates_alone_have_p_values() -> None:
    """Without a method there is fidelity, and no statement on another sample; random places show nothing."""
    X = PLANE[:45]  # fewer points than t-SNE's default needs
    found, at_random = audit(X, principal(X)), audit(X, RNG.standard_normal((45, 2)))
    assert found.p_value is not None
    assert found.beyond_chance is True
    assert found.remains is None
    assert "by t-sne of data without structure" in found.verdict
    assert [note.code for note in found.notes] == ["coordinates-alone"]
    assert at_random.beyond_chance is False
    assert "does not show it" in at_random.verdict


@pytest.mark.parametrize("remains", [None, 0.1, 0.4, 0.98])
@pytest.mark.parametrize("gain", [-0.05, 0.01, 0.04, 0.2, None])
@pytest.mark.parametrize("beyond", [False, True, None])
@pytest.mark.parametrize("is_present", [False, True])
def test_a_verdict_does_not_contradict_itself(
    is_present: bool,  # noqa: FBT001
    beyond: bool | None,  # noqa: FBT001
    gain: float | None,
    remains: float | None,
) -> None:
    """A picture is believed only if it keeps clearly more neighbors than chance, and another sample shows it."""
    relations = None if beyond is None else (1.0 if is_present else -1.0)
    beyond = beyond and is_present
    expected = np.array([0.48, 0.52])
    known = None if gain is None else Chance(np.full(9, 0.5 + gain), expected, np.ones(9), np.ones(9, bool))
    text = verdict(beyond, relations, 0.4, "PCA", known, remains, 3)
    has_gain = gain is None or gain >= 0.05  # a tenth of what chance loses
    assert ("Believe" in text) == bool(beyond and has_gain and (remains or 0) > 0.3)
    assert ("not read neighbors" in text) == bool(beyond is not False and not has_gain and (remains or 0) > 0.3)
    assert ("98%" in text) == (beyond is not False and remains == 0.98)
    assert ("by PCA of data without structure" in text) == bool(beyond and known is not None and remains is None)
    if "No relation" in text or "does not show it" in text:
        assert "believe" not in text.lower()
        assert "stable" not in text
    assert ("No relation" in text) == (relations is not None and not is_present)
    assert ("fill 3 dimensions" in text) != ("No relation" in text)


@pytest.mark.parametrize(
    ("X", "reason", "codes"),
    [
        (NOISE[:, :2], "all 2 features", []),
        (NOISE * [1e3, 1, 1, 1, 1, 1, 1, 1], "one feature has 100% of the variance", ["unequal-feature-scales"]),
        (NOISE[:40, :2], "more points than 40", []),
    ],
)
def test_it_says_when_it_cannot_speak(X: NDArray[np.float64], reason: str, codes: list[str]) -> None:
    """Permuted data keep the neighbors of single points where the map has all features, or one feature dominates.

    They keep modes of a column, and few points show few relations; a group of one point says nothing.
    """
    found = audit(X, method="pca", parameters={"n_components": 2}, labels=np.arange(len(X)))
    assert found.beyond_chance is False
    assert found.p_value is None
    assert reason in " ".join(note.message for note in found.notes)
    expected = [*codes, "chance-unknown", "unseen-structure", "groups-of-one-point"]
    assert [note.code for note in found.notes] == expected
    assert "one feature has 99%" in str(unknown_reason(NOISE[:, :2] * [1e300, 1e299], 1))  # no square is a number


def test_copies_of_rows_are_no_structure() -> None:
    """Noise with every row twice is noise, with a note; rows of few values repeat by chance."""
    found = audit(np.repeat(NOISE[:100], 2, axis=0), method="pca")
    assert found.beyond_chance is False
    assert "100 of 200 rows repeat others" in next(note.message for note in found.notes if note.code == "repeated-rows")
    bits = RNG.random((300, 5)) < 0.3
    assert np.unique(bits, axis=0).shape[0] < 40
    assert not find_copies(bits.astype(float)).any()
    assert not find_copies(np.r_[NOISE, NOISE[:5]]).any(), "few copies change nothing"


def test_small_gains_on_single_points_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture may keep more neighbors than chance on the whole, and no point beyond the false-discovery rate."""
    monkeypatch.setattr("glle_engine.audit.chance.discoveries", lambda p_value: np.zeros(len(p_value), bool))
    found = audit(PLANE, method="pca", n_neighbors=60)
    assert found.is_point_beyond is not None
    assert not found.is_point_beyond.any()
    assert {"no-point-beyond", "fewer-neighbors"} <= {note.code for note in found.notes}


def test_two_features_may_be_related() -> None:
    """A map with all features shows their relation; a single feature has none."""
    angle = RNG.uniform(0, 2 * np.pi, 300)
    circle = np.c_[np.cos(angle), np.sin(angle)] + 0.05 * RNG.standard_normal((300, 2))
    assert audit(circle, circle).beyond_chance is True
    assert find_relations(np.c_[angle, np.ones(300)]) is None
    assert "cannot be decided" in audit(np.c_[angle, np.ones(300)], circle).verdict


@pytest.mark.parametrize("transform", [np.exp, lambda X: X**3, lambda X: X * [1, 1e9, 1, 1, 1, 1, 1, 1e-9]])
def test_relations_have_no_unit(transform: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    """A monotone transformation of a feature changes nothing."""
    assert find_relations(transform(PLANE)) == find_relations(PLANE)


def test_stages_are_refined() -> None:
    """The first statement is by four pairs, before a comparison with chance; later ones have more until certain."""
    stages = list(audits(NOISE, method="pca"))
    assert [stage.pairs for stage in stages] == [4, 8, 12][: len(stages)]
    assert ["Believe" in stage.verdict for stage in audits(PLANE, method="pca")][:2] == [False, True]
    assert stages[-1].pairs == audit(NOISE, method="pca").pairs


def test_separate_samples_share_no_point() -> None:
    """Halves 2 j and 2 j + 1 are disjoint, for odd numbers of points, too; even quarters are those of one half."""
    embed = FunctionEmbedder(principal, PLANE[:101])
    for stream, size in ((SEPARATE, 50), (QUARTERS, 25)):
        samples = [set(draw_sample(embed, stream, 0, number).chosen.tolist()) for number in range(12)]
        assert {len(sample) for sample in samples} == {size}
        assert not any(first & second for first, second in zip(samples[::2], samples[1::2], strict=True))
        if stream == QUARTERS:
            assert not set().union(*samples[::2]) & set().union(*samples[1::2])


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
    found = [find_relations(np.random.default_rng(seed).standard_normal((40, 6)), seed) for seed in range(100)]
    assert sum(relations is not None and relations > 0 for relations in found) <= 4


def test_few_points_are_refused() -> None:
    """No neighbor would be compared: at most a fifth of the points are, of distinct ones for the relations."""
    for X in (NOISE[:4], NOISE[:5], np.repeat(NOISE[:4], 10, axis=0)):
        for Y, options in ((X[:, :2], {}), (None, {"method": "pca", "parameters": {"n_components": 1}})):
            with pytest.raises(TooFewPointsError, match="at least 6 distinct points"):
                audit(X, Y, n_neighbors=2, **options)
    assert audit(NOISE[:6, :2], NOISE[:6, :2], n_neighbors=2).verdict


@pytest.mark.parametrize(
    ("Y", "options", "error", "text"),
    [
        (None, {}, InvalidParameterError, "no embedding to audit"),
        (NOISE[:5, :2], {}, InvalidShapeError, "200 points"),
        (None, {"method": "pca", "seed": 2**64}, InvalidParameterError, "seed="),
        (NOISE[:, 0], {}, InvalidShapeError, "no coordinates"),
        (None, {"method": "lle", "parameters": {"k": 3}}, InvalidParameterError, "Unknown parameters: k"),
        (None, {"method": "no-such"}, GlleError, "no-such"),
        (None, {"method": "pca", "labels": [1, 2]}, InvalidParameterError, "200 labels"),
        (NOISE[:, :2], {"n_neighbors": 199}, InvalidParameterError, "n_neighbors <= 198"),
        (np.zeros((200, 2)), {}, InvalidParameterError, "no picture to audit"),
        (np.full((200, 2), np.nan), {}, NotFiniteError, "200 of 200 points"),
        (None, {"method": lambda part: part[:, :2] * np.nan}, NotFiniteError, "every part of the data"),
        (None, {"method": "mds", "parameters": {"dissimilarity": "precomputed"}}, GlleError, "permutes the columns"),
    ],
)
def test_errors_name_the_remedy(Y: object, options: dict[str, object], error: type[GlleError], text: str) -> None:
    """Requests that cannot be audited are refused."""
    with pytest.raises(error, match=text) as caught:
        audit(NOISE, Y, **options)
    assert caught.value.remedy
