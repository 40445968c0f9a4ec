"""Audits: chance, what remains, and the parts of a picture, on data whose answers are known."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import PCA

from glle_engine import fit, manifolds
from glle_engine.audit import chance
from glle_engine.audit.answers import disturbed_by_data, shape
from glle_engine.audit.audit import audit as typed_audit
from glle_engine.audit.audit import audits, is_certain
from glle_engine.audit.chance import discoveries, find_copies, unknown_reason
from glle_engine.audit.conclusion import common_share
from glle_engine.audit.dimension import canonical_correlations, shared_coordinates
from glle_engine.audit.groups import Groups, groups_apart
from glle_engine.audit.halves import embedder_of_halves
from glle_engine.audit.islands import contact, find_islands, islands_of_embedding, isolated
from glle_engine.audit.result import PAGE
from glle_engine.audit.sources import source_of_method
from glle_engine.base.errors import (
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
    TooFewPointsError,
)
from glle_engine.estimator import GLLE, Embedding
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import METHODS
from glle_engine.reliability.resamples import SEPARATE, draw_sample, resample
from glle_engine.reliability.thresholds import FAR_RATIO_IN_MAP, MAX_TORN_SHARE, MIN_ISOLATED_SHARE, STRUCTURE_LEVEL
from tests.engine.conftest import principal

audit: Any = typed_audit  # so that fields that may be None need no check of their type
find_relations: Any = chance.find_relations
RNG = np.random.default_rng(0)
NOISE = RNG.standard_normal((200, 8))
PLANE = RNG.standard_normal((200, 2)) @ RNG.standard_normal((2, 8)) + 0.1 * RNG.standard_normal((200, 8))
CLASSES = np.repeat(["a", "b", "c"], 60)
ISLANDS = 12 * np.eye(8)[np.repeat([0, 1, 2], 60)] + RNG.standard_normal((180, 8))


@pytest.mark.parametrize("method", ["pca", "glle"])
def test_noise_is_said_to_be_noise(method: str) -> None:
    """Independent features are no structure, and nothing is said of the order of the points."""
    audited = audit(NOISE[:120], method=method)
    assert audited.beyond_chance is False
    assert audited.level == "no"
    assert audited.verdict.startswith("✗ Do not read structure into this map: we found none.")
    assert audited.is_point_beyond.mean() < 0.05


def test_a_plane_is_believed() -> None:
    """Two factors are structure, remain in another sample, and are two coordinates."""
    audited = audit(PLANE, method="pca")
    assert audited.beyond_chance is True
    assert audited.remains > 0.95
    assert (audited.level, audited.statement.trusted) == ("trust", ("layout", "neighbors"))
    assert audited.verdict.startswith("✓ Trust the layout (")
    assert "\nWe expect a new sample half this size" in audited.verdict
    assert 0 <= audited.neighbors.data.min() <= audited.neighbors.data.max() < 1
    assert ((audited.stability > 0.2) & (audited.stability <= 1)).all()
    assert audited.regions["new sample"].radius(0.9) == pytest.approx(np.sqrt(2) * audited.regions["mean"].radius(0.9))


def test_a_ball_has_three_coordinates() -> None:
    """A map of two dimensions hides the third coordinate; that of a sheet is a function of the others."""
    ball = RNG.standard_normal((400, 3))
    ball *= (RNG.uniform(size=400) ** (1 / 3) / np.linalg.norm(ball, axis=1))[:, None]
    audited = audit(ball, method="glle")
    assert audited.dimension == 3
    assert "fill 3 dimensions" in audited.verdict
    sheet = manifolds.make("s_curve", 400, seed=1).X
    assert "fill" not in audit(sheet, fit(sheet, n_neighbors=12)).verdict


def test_islands_are_apart() -> None:
    """Separate groups are apart in all pictures, and each point is among its group."""
    audited = audit(ISLANDS, method="pca", labels=CLASSES)
    assert audited.verdict.startswith("✓ Trust all 3 islands")
    assert audited.verdict.endswith("the labels a, b and c stay apart from each other.")
    assert audited.islands.in_samples.tolist() == [1, 1, 1]
    assert audited.arrangement.share > 0.9
    groups = audited.groups
    assert groups.names.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(groups.apart, 1 - np.eye(3))
    assert groups.member_probability.mean() > 0.99
    mixed = audit(NOISE, method="pca", labels=np.arange(200) % 2).groups
    assert mixed.apart.max() < 0.2


def test_groups_are_apart_by_the_points_that_are_not_in_the_half() -> None:
    """The points of a half made its map; the other points show what a new sample would show."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 4
    X = 0.9 * rng.standard_normal((4, 30))[labels] + rng.standard_normal((120, 30))
    audited = audit(X, method="pca", labels=labels)
    embedder = embedder_of_halves(X, method="pca")
    apart = []
    for number, Y in enumerate(resample(embedder, 2 * audited.pairs, stream=SEPARATE).places):
        others = draw_sample(embedder, SEPARATE, 0, number).others
        apart.append(groups_apart(Y[others], labels[others]))
    np.testing.assert_array_equal(audited.groups.apart, np.mean(apart, axis=0))
    assert 0 < audited.groups.apart.sum() < 12
    is_first = labels == 0
    assert not groups_apart(X, labels, ~is_first)[0].any()  # a group without points is apart from none


@pytest.mark.parametrize(
    ("low", "said"),
    [
        ([], "the labels a, b, c, d and e stay apart from each other"),

        ([(0, 1), (0, 2), (0, 3)],
         "7 of 10 pairs of labels stay apart (label a stays apart from fewer than half of the others)"),
        ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)],
         "5 of 10 pairs of labels stay apart (labels a and b stay apart from fewer than half of the others)"),
        ([(i, j) for i in range(5) for j in range(i)], "0 of 10 pairs of labels stay apart"),
    ],
)  # fmt: skip
def test_the_verdict_names_groups_that_do_not_stay_apart(low: list[tuple[int, int]], said: str) -> None:
    """Those that stay apart from fewer than half of the others, unless that is all."""
    apart = 1 - np.eye(5)
    for i, j in low:
        apart[i, j] = apart[j, i] = 0.89
    assert Groups(np.array(list("abcde")), apart, np.ones(5), np.arange(5)).statement() == said
    assert Groups(np.array(["a"]), np.zeros((1, 1)), np.ones(5), np.zeros(5, np.int64)).statement() == ""
    for share, of_two in (
        (0.89, "the labels 0 and 1 do not stay apart"),
        (0.9, "the labels 0 and 1 stay apart from each other"),
    ):
        assert Groups(np.arange(2), share * (1 - np.eye(2)), np.ones(5), np.arange(5) % 2).statement() == of_two


def test_sparse_data_are_audited_as_dense_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates, methods and posteriors of sparse data have the audit of the dense data; huge ones are refused."""
    counts = np.random.default_rng(8).poisson(np.exp(PLANE[:120] / 2)).astype(float)
    rows = csr_array(counts)
    for options in ({"method": "pca"}, {"Y": counts[:, :2]}, {"method": "glle"}):
        assert audit(rows, **options).to_dict() == audit(counts, **options).to_dict()
    by_posterior = audit(rows, fit(rows))
    assert by_posterior.remains == pytest.approx(audit(counts, fit(counts)).remains, abs=1e-6)
    monkeypatch.setattr("glle_engine.audit.sources.MAX_DENSE_BYTES", 1000)
    with pytest.raises(InvalidParameterError, match=r"shape \(120, 8\) would"):
        audit(rows, method="pca")


def test_a_posterior_and_its_method_are_one() -> None:
    """The audit of a posterior is that of the method by name, with the same bits, by any number of threads."""
    X = PLANE[:100]
    with ThreadPoolExecutor(3) as threads, ThreadPoolExecutor(1) as one:
        by_posterior = audit(X, fit(X, n_neighbors=12), executor=threads)
        by_name = audit(X, method="glle", parameters={"n_neighbors": 12}, executor=one)
    assert by_posterior.to_dict() == by_name.to_dict()
    np.testing.assert_array_equal(by_posterior.p_value, by_name.p_value)
    np.testing.assert_array_equal(by_posterior.spread, by_name.spread)


def test_processes_are_refused() -> None:
    """An executor of processes could not share the audit's data; the error names threads."""
    with ProcessPoolExecutor(1) as processes, pytest.raises(InvalidParameterError, match="`threads`"):
        audit(PLANE, method="pca", executor=processes)


def test_a_function_is_a_method() -> None:
    """A function of the caller gets everything but the dimension, because it has a fixed number of coordinates."""
    audited = audit(PLANE, method=principal)
    assert audited.beyond_chance is True
    assert audited.dimension is None
    assert audited.remains == pytest.approx(audit(PLANE, method="pca").remains, abs=0.05)
    frame = audited.frame()
    assert list(frame.columns) == [
        "y1", "y2", "island", "is_trusted", "neighborhood", "stretch", "squeeze", "is_torn", "is_glued", "seam",
        "p_value", "is_point_beyond", "spread", "stability",
    ]  # fmt: skip
    assert len(frame) == len(PLANE)


def test_estimators_and_embeddings_are_audited() -> None:
    """An estimator is a method, and stays as it is; a fitted one has coordinates, and a posterior if it is ours."""
    X, model = PLANE[:60], PCA(2)
    by_estimator = audit(X, method=model)
    assert by_estimator.remains == pytest.approx(audit(X, method=lambda part: PCA(2).fit_transform(part)).remains)
    assert not hasattr(model, "components_")
    assert audit(X, GLLE().fit(X)).to_dict() == audit(X, fit(X)).to_dict()
    pca = METHODS["pca"].embed(X)
    assert audit(X, pca).to_dict() == audit(X, Embedding("pca").fit(X)).to_dict() == audit(X, pca.Y).to_dict()


def test_coordinates_alone_have_fidelity() -> None:
    """Without a method nothing is known of another sample; random positions show nothing."""
    X = PLANE[:45]
    audited, at_random = audit(X, principal(X)), audit(X, RNG.standard_normal((45, 2)))
    assert (audited.p_value, audited.remains, audited.neighborhoods) == (None, None, None)
    assert (audited.level, audited.beyond_chance) == ("unknown", True)
    assert audited.verdict.startswith("Give the method of this map")
    assert "of the neighbors" in audited.verdict
    assert "t-sne" not in audited.verdict.lower()
    assert (at_random.level, at_random.beyond_chance) == ("no", False)
    assert "does not show it" in at_random.verdict


def test_other_coordinates_are_no_map_of_the_method() -> None:
    """Coordinates beside a method are believed only if its maps have their neighbors."""
    data = np.random.default_rng(5)
    X = data.standard_normal((200, 2)) @ data.standard_normal((2, 8)) + 0.1 * data.standard_normal((200, 8))
    own_map = principal(X)
    line = np.c_[own_map[:, 0], np.zeros(len(X))]
    for Y in (line, own_map[RNG.permutation(len(X))], np.c_[X[:, 0], RNG.standard_normal(len(X))]):
        audited = audit(X, Y, method="pca")
        assert audited.level != "trust"
        assert audited.statement.trusted == ()
        assert (audited.remains, audited.neighborhoods) == (None, None)
    assert "this is not a map by Principal component analysis" in audit(X, line, method="pca").verdict
    noise = audit(NOISE[:120], RNG.permutation(principal(NOISE[:120])), method="pca")
    assert (noise.level, noise.verdict.startswith("Audit these coordinates by")) == ("no", True)
    assert "Do not read structure into this map: we found none; your points" in noise.verdict
    turned = 3 * own_map @ [[0, 1], [1, 0]] + 7
    assert audit(X, turned, method="pca").level == "trust"


def test_a_map_that_the_audit_makes_is_one_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """However far its neighbors are from those of maps of halves; coordinates that are given are compared."""
    monkeypatch.setattr("glle_engine.audit.conclusion._foreign", lambda *_: (0.1, 0.8))
    own_map = {"Y": principal(PLANE), "method": "pca", "is_own_map": True}
    for options in ({"method": "pca"}, {"Y": fit(PLANE)}, own_map):
        assert audit(PLANE, **options).remains is not None
    assert "this is not a map" in audit(PLANE, principal(PLANE), method="pca").verdict


def area_under_curve(score: NDArray[np.float64], is_planted: NDArray[np.bool_]) -> float:
    """Return the probability that a planted point has the larger score than another one."""
    ranks = np.argsort(np.argsort(score)) + 1
    count = is_planted.sum()
    return float((ranks[is_planted].sum() - count * (count + 1) / 2) / (count * (~is_planted).sum()))


SHEET = np.c_[RNG.uniform(-2, 2, (400, 2)), 0.02 * RNG.standard_normal((400, 3))]
SHEET[:, 2] += 0.3 * np.sin(SHEET[:, 0])


@pytest.mark.parametrize("method", ["pca", None])
def test_tears_are_found(method: str | None) -> None:
    """Points at the edge of a planted tear have the most stretch, and pairs across it are named."""
    Y = principal(SHEET)
    Y[Y[:, 0] > 0, 0] += 3
    position = principal(SHEET)[:, 0]
    audited = audit(SHEET, Y, method=method)
    assert area_under_curve(audited.stretch, abs(position) < 0.15) >= 0.9
    assert audited.is_torn[abs(position) < 0.05].mean() > 0.8
    assert not audited.is_torn[abs(position) > 1].any()
    assert len(audited.disturbed.tears)
    assert (np.sign(position[audited.disturbed.tears]).prod(axis=1) == -1).all()
    assert "the map tears islands A and B apart" in audited.verdict
    assert audited.level != "trust"
    seam = audited.disturbed.seams[0]
    assert (seam.kind, sorted(seam.islands)) == ("tear", [0, 1])
    sides = [position[side] for side in seam.sides]
    assert {bool((each > 0).all()) for each in sides} == {True, False}, "each side is on one side of the cut"
    np.testing.assert_array_equal(np.flatnonzero(audited.seam == 1), seam.sides[0])
    np.testing.assert_array_equal(np.flatnonzero(audited.seam == -1), seam.sides[1])


@pytest.mark.parametrize(
    ("n", "k", "cuts", "count"), [(200, 8, 2, 2), (200, 4, 1, 0), (1000, 8, 1, 0), (1000, 10, 1, 1)]
)
def test_a_seam_has_points_on_each_side(n: int, k: int, cuts: int, count: int) -> None:
    """A cut across a line parts k / 2 points on each side; a seam has at least three, and .5 % of all points."""
    line = np.c_[np.arange(n) + 0.3 * RNG.random(n), np.zeros(n)]
    torn = line + np.c_[np.zeros(n), 3.0 * n * (np.arange(n) * (cuts + 1) // n)]
    disturbed = disturbed_by_data(torn, line, k, np.zeros(n, np.int64))
    assert [len(side) for seam in disturbed.seams for side in seam.sides] == [k / 2, k / 2] * count
    for number, seam in enumerate(disturbed.seams, start=1):
        for side, sign in zip(seam.sides, (1, -1), strict=True):
            np.testing.assert_array_equal(np.flatnonzero(disturbed.seam == sign * number), side)


def test_the_agreement_of_shapes_is_a_mean_over_points() -> None:
    """Islands count by their points; points on no island do not count."""
    answer = shape(np.array([[0.5, 0.1], [0.3, 0.1]]), np.array([0, 0, 0, 1, -1]))
    assert answer.share == pytest.approx((3 * 0.4 + 0.1) / 4)


@pytest.mark.parametrize("method", ["pca", None])
def test_glue_is_found(method: str | None) -> None:
    """Points that are laid on others have the most squeeze."""
    rng = np.random.default_rng(7)
    X, side = rng.standard_normal((300, 6)), np.arange(300) % 6 == 0
    X[:, 2:] *= 0.1
    X[side, 0] += 12
    Y = principal(X)
    Y[side] += Y[~side][:1] - Y[side].mean(axis=0)
    audited = audit(X, Y, method=method)
    assert area_under_curve(audited.squeeze, side) >= 0.9
    assert audited.is_glued[side].mean() > 0.5
    assert audited.is_glued[~side].mean() < 0.2
    seam = next(seam for seam in audited.disturbed.seams if seam.kind == "fold")
    assert {bool(side[each].all()) for each in seam.sides} == {True, False}, "each side is a group"
    assert not any(side[each].any() and not side[each].all() for each in seam.sides)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_torn_roll_is_said_to_be_torn() -> None:
    """t-SNE of a Swiss roll at perplexity 150, a published example of a torn map: the points along the tears are found.

    Both sides of a tear are beside each other on the roll, on different sides of a cut across it, and far in the map.
    """
    sheet = manifolds.make("swiss_roll", 1000, seed=0)
    audited = audit(sheet.X, method="t-sne", parameters={"perplexity": 150}, threads=1)
    on_sheet = kneighbors(np.ascontiguousarray(sheet.coordinates), 10)[0]
    reach = kneighbors(np.ascontiguousarray(audited.embedding), 10)[1][:, -1]
    apart = np.linalg.norm(audited.embedding[:, None] - audited.embedding[on_sheet], axis=2)
    is_torn = (apart > FAR_RATIO_IN_MAP * np.maximum(reach[:, None], reach[on_sheet])).mean(axis=1) > MAX_TORN_SHARE
    assert is_torn.sum() > 20, "this map is torn"
    assert "the map tears" in audited.verdict.lower()
    assert audited.level != "trust"
    assert area_under_curve(audited.stretch, is_torn) >= 0.9
    assert audited.is_torn[is_torn].mean() > 0.6
    assert is_torn[audited.is_torn].mean() > 0.6
    first, second = audited.disturbed.seams[0].sides
    along = sheet.coordinates[:, 0]
    assert abs(np.median(along[first]) - np.median(along[second])) < 0.1 * np.ptp(along)
    assert area_under_curve(np.r_[along[first], along[second]], np.arange(len(first) + len(second)) < len(first)) in (
        pytest.approx(0, abs=0.1),
        pytest.approx(1, abs=0.1),
    )
    centers = [np.median(audited.embedding[side], axis=0) for side in (first, second)]
    assert np.linalg.norm(centers[0] - centers[1]) > FAR_RATIO_IN_MAP * np.median(reach)


def test_exchanged_points_have_stretch() -> None:
    """Points that are given the places of each other lie far from their neighbors."""
    Y, rows = principal(SHEET), np.arange(0, 400, 20)
    moved = Y.copy()
    moved[rows] = Y[rows[::-1]]
    is_moved = np.linalg.norm(moved - Y, axis=1) > 1
    assert area_under_curve(audit(SHEET, moved, method="pca").stretch, is_moved) >= 0.95


def test_islands_of_embeddings() -> None:
    """Separate groups are islands, the largest first; a disc, and groups joined by a bridge of points, are one."""
    rng = np.random.default_rng(3)
    sizes = (150, 90, 60)
    Y = np.concatenate([rng.standard_normal((size, 2)) + 12 * number for number, size in enumerate(sizes)])
    np.testing.assert_array_equal(find_islands(Y), np.repeat([0, 1, 2], sizes))
    assert find_islands(rng.uniform(size=(500, 2))).max() == 0
    bridge = np.c_[np.linspace(0, 12, 60), np.linspace(0, 12, 60)]
    joined = find_islands(np.concatenate([Y[:240], bridge]))
    assert joined.max() == 0
    assert [find_islands(rng.standard_normal((n, 2))).max() for n in (3, 12)] == [0, 0], "few points have no islands"
    shares, any_other, _ = contact(Y, np.repeat([0, 1, 2], sizes))
    assert (shares.max(), any_other.max()) == (0, 0)


def test_rare_groups_are_islands() -> None:
    """Twenty of 1,220 points apart are an island, five are none, and sixty small clumps are sixty islands."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2, 3, 4], [400, 400, 400, 20, 5])
    Y = np.array([[0, 0], [12, 0], [0, 12], [9, 9], [25, 9.0]])[group]
    Y = Y + np.where(group == 4, 0.3, 1.0)[:, None] * rng.standard_normal((1225, 2))
    islands = find_islands(Y)
    assert islands.max() == 3
    np.testing.assert_array_equal(islands[group == 3], 3)
    np.testing.assert_array_equal(islands[group == 4], -1)
    assert (islands[group < 3] < 3).all()
    clumps = np.repeat(np.arange(60), 30)
    centers = 10.0 * np.stack([clumps % 10, clumps // 10], axis=1)
    assert find_islands(centers + rng.standard_normal((1800, 2))).max() == 59


def test_a_rare_group_is_trusted_and_a_smaller_one_is_none() -> None:
    """The answers leave out points of no island, and the result says how many there are."""
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1, 2, 3], [250, 245, 10, 5])
    X = np.array([[0, 0], [14, 0], [7, 14], [7, -14.0]])[group] @ np.eye(2, 6) + rng.standard_normal((510, 6))
    X[group == 3] = X[group == 3].mean(axis=0) + 0.2 * rng.standard_normal((5, 6))
    audited = audit(X, method="pca", standardize="none")
    assert audited.islands.count == 3
    assert audited.islands.stays.all()
    np.testing.assert_array_equal(audited.island[group > 1], np.repeat([2, -1], [10, 5]))
    assert audited.islands.outside == audited.islands.to_dict()["outside"] == 5
    assert audited.islands.to_dict()["sizes"] == [250, 245, 10]
    assert all(np.isfinite(values).all() for values in audited.arrays().values())


def test_a_few_points_that_the_method_tears_off_are_no_island() -> None:
    """A small island has to be isolated in the data, too: a method may tear a few points off anywhere."""
    X = np.random.default_rng(5).standard_normal((600, 2))
    Y = X.copy()
    Y[np.argsort(X[:, 0])[295:304]] += (0, 20)
    islands = islands_of_embedding(Y, X)
    assert islands.count == 0
    assert islands.outside == 9


def test_islands_that_a_method_places_by_chance_have_no_arrangement() -> None:
    """UMAP starts at random, and GLLE and LTSA place the parts of a graph as it comes; PCA does neither."""
    for method, is_by_chance in (("umap", True), ("t-sne", True), ("pca", False), ("isomap", False)):
        source, _ = source_of_method(ISLANDS, method, {}, principal(ISLANDS))
        assert source.is_placed_by_chance == is_by_chance
    assert source_of_method(np.concatenate([ISLANDS[:40], ISLANDS[:40] + 1e3]), "ltsa", {})[0].is_placed_by_chance
    audited = audit(ISLANDS, fit(ISLANDS, n_neighbors=8, disconnected="bridge"))
    assert audited.islands.stays.all()
    assert audited.arrangement is None
    assert "arrangement" in audited.statement.distrusted
    assert "the distances between islands (this method places them by chance)" in audited.verdict


@pytest.mark.parametrize(
    ("share", "pairs", "expected"),
    [(1.0, 4, True), (0.5, 4, True), (0.75, 4, False), (0.875, 4, False), (0.75, 8, False), (0.96, 8, True)],
)
def test_unclear_islands_need_more_halves(share: float, pairs: int, expected: bool) -> None:  # noqa: FBT001
    """Islands of the data that are isolated in some halves only are not settled by 16 halves."""
    audited = audit(ISLANDS, method="pca")
    shares = np.array([1.0, 1.0, share])
    unclear = replace(audited, islands=replace(audited.islands, in_samples=shares), remains=0.9, remains_error=0.01)
    assert is_certain(unclear, pairs) == expected
    cut = replace(unclear.islands, in_data=np.array([True, True, False]))
    assert is_certain(replace(unclear, islands=cut), pairs)


def without_groups(name: str, n: int, seed: int) -> NDArray[np.float64]:
    """Return points of one piece."""
    rng = np.random.default_rng([n, seed])
    angle, u = rng.uniform(0, 2 * np.pi, n), rng.uniform(size=(n, 2))
    circle = np.c_[np.cos(angle), np.sin(angle)]
    pieces = {
        "sheet": u, "strip": u * [10, 1], "disc": np.sqrt(u[:, :1]) * circle, "normal": rng.standard_normal((n, 2)),
        "ring": circle + 0.03 * rng.standard_normal((n, 2)), "curve": np.c_[9 * u[:, 0], np.sin(9 * u[:, 0])],
        "band": np.c_[9 * u[:, 0], np.sin(9 * u[:, 0])] + 0.1 * rng.standard_normal((n, 2)),
    }  # fmt: skip
    return np.asarray(pieces[name])


@pytest.mark.parametrize("name", ["sheet", "strip", "disc", "normal", "ring", "curve", "band"])
def test_chance_gaps_are_no_islands(name: str) -> None:
    """Random points of one piece have gaps, and none of them makes an island, in two or in three dimensions."""
    counts = [int(find_islands(without_groups(name, n, seed)).max()) for n in (100, 400) for seed in range(4)]
    assert sum(count > 0 for count in counts) <= 1
    X = without_groups(name, 250, 0)
    assert islands_of_embedding(X, np.c_[X, 0.1 * X[:, 0] ** 2]).count == 0


def test_islands_that_the_method_cuts_are_named() -> None:
    """A function that cuts one sheet in two makes two islands of each half of the data, and the data have none."""

    def cut(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.c_[points[:, 0] + 9 * (points[:, 0] > 0.3), points[:, 1]])

    audited = audit(SHEET, method=cut)
    assert audited.islands.count == 2
    assert not audited.islands.in_data.any()
    assert not audited.islands.stays.any()
    assert audited.islands.is_cut.all()
    assert "islands" in audited.statement.distrusted
    assert "2 islands are separate in the maps but not in the data" in audited.verdict
    assert "the method may have cut them (A, B)" in audited.verdict


def test_a_small_group_stays() -> None:
    """A group with fewer points in a half than the neighbors that place the others is an island of other samples."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 6))
    X[::17, :2] += 10
    audited = audit(X, method=lambda points: points[:, :2])
    assert audited.islands.count == 2
    assert audited.islands.in_samples.min() >= MIN_ISOLATED_SHARE
    assert audited.islands.stays.all()


def test_groups_of_many_features_are_in_the_data() -> None:
    """Distances in many features are alike, and the first components show the groups; a linear map cuts nothing."""
    rng, groups = np.random.default_rng(1), np.arange(90) % 3
    centers = np.zeros((3, 2000))
    centers[:, :100] = 1.1 * rng.standard_normal((3, 100))
    X = centers[groups] + rng.standard_normal((90, 2000))
    assert not isolated(X, groups).any()
    assert islands_of_embedding(principal(X), X).in_data.tolist() == [True] * 3
    assert audit(X, method="pca").islands.in_data.all()


def test_series_need_blocks() -> None:
    """Rows near the row before them are no independent samples, and the first sentence asks for the blocks."""
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.standard_normal((300, 3)), axis=0) @ rng.standard_normal((3, 6))
    audited = audit(walk, method="pca")
    assert audited.level == "unknown"
    assert audited.statement.trusted == ()
    assert audited.verdict.startswith("Before you rely on this map, name the subject or series of each row, or")
    assert "unknown" not in {audit(X, method="pca").level for X in (walk[rng.permutation(300)], ISLANDS)}, "sorted"
    assert audit(walk, method="pca", blocks=np.arange(300) // 30).level != "unknown"


def test_units_are_named_first() -> None:
    """A column with nearly all of the variance is named; with standardize the map is another one."""
    X = PLANE * [1, 1e3, 1, 1, 1, 1, 1, 1]
    audited = audit(X, method="pca", names=list("abcdefgh"))
    assert audited.level == "unknown"
    assert audited.verdict.startswith("Standardize the features")
    assert "column 'b' has 100%" in audited.verdict
    assert "column 2 has" in audit(X, method="pca").verdict
    for method in ("pca", principal):
        standardized = audit(X, method=method, standardize="zscore")
        assert "✓ Trust the layout (" in standardized.verdict
        assert standardized.remains == pytest.approx(
            audit(PLANE, method=method, standardize="zscore").remains, abs=1e-6
        )
    with pytest.raises(InvalidParameterError, match="standardize cannot be given for a posterior"):
        audit(PLANE, fit(PLANE), standardize="zscore")


def test_few_points_of_many_features_have_structure() -> None:
    """Groups in 2,000 features are seen by the largest eigenvalue; near points see parity, and none sees noise."""
    rng, seed = np.random.default_rng(0), 0
    centers = np.zeros((3, 2000))
    centers[:, :100] = 2 * rng.standard_normal((3, 100))
    noise = rng.standard_normal((80, 2000))
    p_value = find_relations(centers[rng.integers(0, 3, 80)] + noise, seed)
    assert 0 < p_value <= STRUCTURE_LEVEL
    at_random = find_relations(noise, seed)
    assert at_random > STRUCTURE_LEVEL


@pytest.mark.parametrize("by_name", [True, False])
def test_many_points_are_audited_by_a_sample(by_name: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """No map but the shown one has more than half of 4,000 points, and few are made; every point has its scores."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5200, 2)) @ rng.standard_normal((2, 5)) + 0.1 * rng.standard_normal((5200, 5))
    sizes, embed = [], METHODS["pca"].embed

    def counted(part: NDArray[np.float64]) -> NDArray[np.float64]:
        sizes.append(len(part))
        return principal(part)

    def embed_counted(_: object, part: NDArray[np.float64], *arguments: Any, **options: Any) -> Any:
        sizes.append(len(part))
        return embed(part, *arguments, **options)

    monkeypatch.setattr(type(METHODS["pca"]), "embed", embed_counted)
    audited = audit(X, principal(X), method="pca" if by_name else counted)
    assert max(sizes) == 2000
    assert len(sizes) <= 8 + 4 + (4 if by_name else 0), "halves, permuted data, and one more dimension"
    assert "audited-by-sample" in {note.code for note in audited.notes}
    assert audited.level == "trust"
    assert "a new sample of 2,000 points" in audited.verdict
    assert len(np.unique(audited.neighbors.indices)) <= 4000
    assert (audited.neighbors.indptr[1:] > audited.neighbors.indptr[:-1]).all()
    is_sampled = np.isin(np.arange(5200), audited.neighbors.indices)
    for score in (audited.stretch, audited.squeeze, audited.spread):
        others = np.median(score[~is_sampled])
        assert others == pytest.approx(np.median(score[is_sampled]), rel=0.25), "placed points are like the others"


@pytest.mark.parametrize("n", [20, 60, 99])
def test_few_points_are_too_few_to_tell(n: int) -> None:
    """Without visible structure, the level of few points is "unknown"; one sample of 40 shows structure by chance."""
    audits_of_noise = [audit(np.random.default_rng(seed).standard_normal((n, 5)), method="pca") for seed in range(3)]
    without = [audited for audited in audits_of_noise if not audited.beyond_chance]
    assert len(without) >= 2
    for audited in without:
        assert (audited.level, audited.statement.trusted) == ("unknown", ())
        assert audited.verdict.startswith(f"Collect more points before you read this map: {n} points are too few")


@pytest.mark.parametrize(
    ("X", "reason", "codes"),
    [
        (NOISE[:, :2], "all 2 features", []),
        (NOISE * [1e3, 1, 1, 1, 1, 1, 1, 1], "one feature has 100% of the variance", ["unequal-feature-scales"]),
        (NOISE[:40, :2], "More points than 40", []),
    ],
)
def test_it_says_when_it_cannot_speak(X: NDArray[np.float64], reason: str, codes: list[str]) -> None:
    """Permuted data keep the neighbors of single points where the map has all features, or one feature dominates.

    They keep modes of a column, and few points show few relations; a group of one point says nothing.
    """
    audited = audit(X, method="pca", parameters={"n_components": 2}, labels=np.maximum(np.arange(len(X)), len(X) - 3))
    assert audited.beyond_chance is False
    assert audited.p_value is None
    assert reason in " ".join(note.message for note in audited.notes)
    expected = [*codes, "chance-unknown", "unseen-structure", "groups-of-one-point"]
    assert [note.code for note in audited.notes] == expected
    assert "one feature has 99%" in str(unknown_reason(NOISE[:, :2] * [1e300, 1e299], 1))  # no square is a number


def test_copies_of_rows_are_no_structure() -> None:
    """Noise with every row twice is noise, with a note; rows of few values repeat by chance."""
    audited = audit(np.repeat(NOISE[:100], 2, axis=0), method="pca")
    assert audited.beyond_chance is False
    assert "100 of 200 rows repeat others" in {note.code: note.message for note in audited.notes}["repeated-rows"]
    bits = RNG.random((300, 5)) < 0.3
    assert np.unique(bits, axis=0).shape[0] < 40
    assert not find_copies(bits.astype(float)).any()
    assert not find_copies(np.r_[NOISE, NOISE[:5]]).any(), "few copies change nothing"


def test_small_gains_on_single_points_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture may keep more neighbors than chance on the whole, and no point beyond the false-discovery rate."""
    monkeypatch.setattr("glle_engine.audit.chance.discoveries", lambda p_value: np.zeros(len(p_value), bool))
    audited = audit(PLANE, method="pca", score_neighbors=60)
    assert not audited.is_point_beyond.any()
    assert {"no-point-beyond", "fewer-neighbors"} <= {note.code for note in audited.notes}


def test_two_features_may_be_related() -> None:
    """A map with all features shows their relation; a single feature has none."""
    angle = RNG.uniform(0, 2 * np.pi, 300)
    circle = np.c_[np.cos(angle), np.sin(angle)] + 0.05 * RNG.standard_normal((300, 2))
    assert audit(circle, circle).beyond_chance is True
    assert find_relations(np.c_[angle, np.ones(300)]) is None
    constant = audit(np.c_[angle, np.ones(300)], circle)
    assert (constant.level, constant.beyond_chance) == ("unknown", None)


@pytest.mark.parametrize("transform", [np.exp, lambda X: X**3, lambda X: X * [1, 1e9, 1, 1, 1, 1, 1, 1e-9]])
def test_relations_have_no_unit(transform: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    """A monotone transformation of a feature hides no relation, and makes none; huge and tiny ones are no errors."""
    for X, is_related in ((PLANE, True), (NOISE, False)):
        for scale in (1.0, 1e-300, 1e-3):
            p_value = find_relations(scale * transform(X))
            assert (p_value <= STRUCTURE_LEVEL) == is_related


@pytest.mark.parametrize("is_grouped", [True, False])
def test_principal_components_show_groups(is_grouped: bool) -> None:  # noqa: FBT001
    """Thirty principal components of counts in three groups have structure, although most of them are noise."""
    rng, n = np.random.default_rng(0), 300
    groups, mean = rng.integers(0, 3 if is_grouped else 1, n), rng.gamma(0.5, 2, 200)
    factor = np.exp((rng.random((3, 200)) < 0.15) * rng.normal(0, 1.5, (3, 200)))
    X = np.log1p(rng.poisson(mean * factor[groups]))
    _, _, axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    p_value = find_relations((X - X.mean(axis=0)) @ axes[:30].T)
    assert (p_value <= STRUCTURE_LEVEL) == is_grouped


def test_stages_are_refined() -> None:
    """The first statement is by two pairs, and preliminary; later ones have more until certain."""
    stages = list(audits(PLANE, method="pca"))
    assert [stage.pairs for stage in stages] == [2, 4]
    assert [stage.is_preliminary for stage in stages] == [True, False]
    assert [stage.level for stage in stages] == ["unknown", "trust"]
    assert stages[0].verdict.startswith("Preliminary: ")
    assert "%" not in stages[0].verdict
    assert stages[-1].how == f"Your data were halved {stages[-1].pairs} times and mapped again ({PAGE})."
    assert stages[-1].how in str(stages[-1]).splitlines()
    assert stages[-1].pairs == audit(PLANE, method="pca").pairs


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
    assert not discoveries(np.ones(5)).any()


def test_the_level_of_the_test_holds() -> None:
    """Of 60 samples of noise of any distribution few have relations; the expected number is 1.5."""
    samples = [np.random.default_rng(seed).standard_t(2, (40, 6)) for seed in range(60)]
    p_values = np.array([find_relations(X, seed) for seed, X in enumerate(samples)], np.float64)
    assert p_values.min() >= 1 / (chance.PERMUTATIONS + 1)
    assert (p_values <= STRUCTURE_LEVEL).sum() <= 5
    assert (p_values <= 0.5).sum() == pytest.approx(30, abs=12)


@pytest.mark.parametrize(
    "sizes", [np.full(50, 4), np.tile([1, 2, 3, 4], 20), np.array([9, 40, 40, 40, 40, 9, 9, 40])], ids=str
)
def test_blocks_are_permuted_whole(sizes: NDArray[np.int64]) -> None:
    """Noise in replicates or series has no structure by blocks, has some by rows, and one factor has some by blocks."""
    blocks = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    by_blocks, by_rows, of_factor = [], [], []
    for seed in range(4):
        rng = np.random.default_rng([seed, len(sizes)])
        noise = rng.standard_normal((len(sizes), 5))[blocks] + 0.3 * rng.standard_normal((len(blocks), 5))
        factor = noise + 3 * rng.standard_normal(len(sizes))[blocks, None]
        by_blocks.append(find_relations(noise, seed, blocks))
        by_rows.append(find_relations(noise, seed))
        of_factor.append(find_relations(factor, seed, blocks))
    discoveries = [(np.array(p_values) <= STRUCTURE_LEVEL).sum() for p_values in (by_blocks, by_rows, of_factor)]
    assert discoveries[0] <= 1, "two of four are one case of 270"
    assert min(discoveries[1:]) >= 3


def test_replicates_of_noise_are_noise_by_blocks() -> None:
    """Blocks reach the halves, the test of structure, the p-values of points and the notes."""
    rng, blocks = np.random.default_rng(4), np.repeat(np.arange(60), 4)
    X = rng.standard_normal((60, 10))[blocks] + 0.1 * rng.standard_normal((240, 10))
    without, by_blocks = (audit(X, method="pca", blocks=of) for of in (None, blocks))
    assert {"near-copies", "order-of-rows"} <= {note.code for note in without.notes}
    assert not {"near-copies", "order-of-rows"} & {note.code for note in by_blocks.notes}
    assert (without.beyond_chance, by_blocks.beyond_chance) == (True, False)
    assert by_blocks.level == "no"
    assert by_blocks.remains < without.remains
    assert np.median(by_blocks.p_value) > 1.5 * np.median(without.p_value), "copies keep their replicates together"
    with pytest.raises(InvalidParameterError, match="`blocks` has 2 different values"):
        audit(PLANE, method="pca", blocks=np.arange(200) % 2)


def test_few_points_are_refused() -> None:
    """No neighbor would be compared: at most a fifth of the points are, of distinct ones for the relations."""
    for X in (NOISE[:4], NOISE[:5], np.repeat(NOISE[:4], 10, axis=0)):
        for Y, options in ((X[:, :2], {}), (None, {"method": "pca", "parameters": {"n_components": 1}})):
            with pytest.raises(TooFewPointsError, match="at least 6 distinct points"):
                audit(X, Y, score_neighbors=2, **options)
    assert audit(NOISE[:6, :2], NOISE[:6, :2], score_neighbors=2).verdict


@pytest.mark.parametrize(
    ("Y", "options", "error", "text"),
    [
        (None, {}, InvalidParameterError, "no map to audit"),
        (NOISE[:5, :2], {}, InvalidShapeError, "200 points"),
        (None, {"method": "pca", "seed": 2**64}, InvalidParameterError, "seed="),
        (NOISE[:, 0], {}, InvalidShapeError, "no coordinates"),
        (None, {"method": "lle", "parameters": {"k": 3}}, InvalidParameterError, "Unknown parameters: k"),
        (None, {"method": "no-such"}, GlleError, "no-such"),
        (None, {"method": "pca", "labels": [1, 2]}, InvalidParameterError, "200 labels"),
        (NOISE[:, :2], {"score_neighbors": 199}, InvalidParameterError, "score_neighbors <= 198"),
        (np.zeros((200, 2)), {}, InvalidParameterError, "no map to audit"),
        (np.full((200, 2), np.nan), {}, NotFiniteError, "200 of 200 points"),
        (None, {"method": lambda part: part[:, :2] * np.nan}, NotFiniteError, "every part of the data"),
        (None, {"method": "mds", "parameters": {"dissimilarity": "precomputed"}}, GlleError, "permutes the columns"),
        (None, {"method": "supervised-lle", "labels": np.arange(200) % 3}, InvalidParameterError, "uses labels"),
        (None, {"method": "diffusion-maps", "parameters": {"lump": True}}, InvalidParameterError, "uses labels"),
    ],
)
def test_errors_name_the_remedy(Y: object, options: dict[str, object], error: type[GlleError], text: str) -> None:
    """Requests that cannot be audited are refused."""
    with pytest.raises(error, match=text) as caught:
        audit(NOISE, Y, **options)
    assert caught.value.remedy
