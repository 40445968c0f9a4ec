"""Which of several maps to show: the rules, on maps with given facts."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glle_engine.audit.choice import MapFacts, behind, choose

N = 300


def facts(label: str, kept: float = 0.4, layout: float = 0.5, *, spread: float = 0.0, **members: Any) -> MapFacts:
    """Return the facts of a map, whose halves differ from each other by `spread` as the halves of all maps do."""
    off = spread * np.random.default_rng(0).standard_normal(8)
    grouped = members.get("grouped", 0.0)
    typical: dict[str, Any] = {
        "title": label.upper(), "method": label, "level": "partly", "beyond_chance": True, "islands": 0, "trusted": 0,
        "in_groups": grouped, "grouped": grouped, "grouped_in_halves": np.full(8, grouped),
        "kept_in_halves": kept + off, "layout": np.repeat(layout + off[:, None], 2, axis=1),
    }  # fmt: skip
    return MapFacts(label=label, kept=kept, **(typical | members))


def test_each_question_has_its_own_best_map() -> None:
    """Neighbors by kept neighbors, the layout by rank correlations, groups by points on trusted islands."""
    islands: dict[str, Any] = {"islands": 4, "trusted": 4, "grouped": 0.9}
    maps = [facts("isomap", 0.4, 0.8), facts("umap", 0.7, 0.4), facts("pacmap", 0.5, 0.5, **islands)]
    choices = choose([MapFacts.from_dict(json.loads(json.dumps(each.to_dict()))) for each in maps], N)
    assert choices.best == {"neighbors": "umap", "layout": "isomap", "groups": "pacmap"}
    assert choices.sentences == (
        "To see who is near whom, show UMAP.",
        "For distances across the map, show ISOMAP.",
        "To see groups, show PACMAP: 4 islands that can be trusted hold 90% of the points.",
    )
    assert choices.to_dict()["as_good"] == {"neighbors": [], "layout": [], "groups": []}


@pytest.mark.parametrize(
    ("asks", "words"),
    [(("standardize",) * 2, "Standardize"), (("blocks",) * 2, "Name the subject"), (("standardize", None), None)],
)
def test_what_all_audits_ask_for_is_said_first(asks: tuple[Any, Any], words: str | None) -> None:
    """Maps that are read only after the features are standardized are not shown without this sentence."""
    maps = [facts(label, asks=one, level="unknown") for label, one in zip(("pca", "umap"), asks, strict=True)]
    choices = choose(maps, N)
    sentences = choices.sentences
    assert len(sentences) == (3 if words is None else 4)
    assert choices.asks == choices.to_dict()["asks"] == (None if words is None else asks[0])
    assert words is None or sentences[0].startswith(f"{words} ")


@pytest.mark.parametrize(("kept", "named"), [(0.495, "pca"), (0.48, "umap")])
def test_of_maps_that_are_as_good_the_simplest_is_named(kept: float, named: str) -> None:
    """A paired difference counts even if the halves vary much more than the maps differ."""
    choices = choose([facts("umap", 0.5, spread=0.1), facts("pca", kept, spread=0.1)], N)
    assert choices.best["neighbors"] == named
    assert ("(UMAP is as good)" in choices.sentences[0]) == (named == "pca")


def test_differences_within_the_error_are_no_differences() -> None:
    """If the difference of two maps varies from half to half, they are as good, unless it is large."""
    noise = 0.2 * np.random.default_rng(1).standard_normal(8)
    for kept, best in ((0.475, "pca"), (0.4, "umap")):
        other = facts("pca", kept, kept_in_halves=kept + noise)
        assert choose([facts("umap", 0.5), other], N).best["neighbors"] == best


def test_of_maps_with_all_points_on_islands_the_one_with_most_islands_shows_the_groups() -> None:
    """A simpler map that lays two groups onto each other has as many points on trusted islands, and fewer islands."""
    islands: dict[str, Any] = {"trusted": 4, "islands": 4, "grouped": 1.0}
    maps = [facts("pca", **{**islands, "trusted": 3}), facts("t-sne", **islands), facts("umap", **islands)]
    choices = choose(maps, N)
    assert choices.best["groups"] == "t-sne"
    assert choices.to_dict()["as_good"]["groups"] == ["umap"]


def test_two_trusted_islands_are_said() -> None:
    """No map is named for groups, and the sentence does not contradict an audit that trusts both islands."""
    maps = [facts("umap", islands=2, trusted=2, grouped=1.0), facts("pca", islands=3, trusted=1, grouped=0.3)]
    choices = choose(maps, N)
    assert choices.best["groups"] is None
    assert choices.sentences[2] == "No map separates more than 2 groups that can be trusted; UMAP shows 2."


def test_stability_chooses_nothing() -> None:
    """A map of level "trust" is not preferred to a map that is more faithful; a map that nothing supports is left."""
    choices = choose([facts("pca", 0.3, 0.4, level="trust"), facts("isomap", 0.5, 0.7)], N)
    assert choices.best == {"neighbors": "isomap", "layout": "isomap", "groups": None}
    assert choose([facts("pca"), facts("isomap", 0.6, 0.9, level="no")], N).best["neighbors"] == "pca"


def test_none_is_an_answer() -> None:
    """No neighbors, no order of distances, too few trusted islands: each has a sentence that says so."""
    maps = [facts("pca", 0.02, 0.1), facts("t-sne", 0.03, 0.2, islands=4, trusted=1, grouped=0.3)]
    choices = choose(maps, N)
    assert set(choices.best.values()) == {None}
    assert choices.sentences == (
        "No map keeps who is near whom.",
        "No map orders distances as the data do.",
        "No map separates groups that can be trusted; 3 of the 4 islands of T-SNE change with the sample.",
    )


@pytest.mark.parametrize(("n", "words"), [(300, "no structure"), (60, "60 points are too few")])
def test_data_without_structure_have_one_sentence(n: int, words: str) -> None:
    """Whatever the scores."""
    choices = choose([facts("pca", beyond_chance=False), facts("t-sne", 0.9, level="no", beyond_chance=False)], n)
    assert len(choices.sentences) == 1
    assert words in choices.sentences[0]
    assert set(choices.best.values()) == {None}
    nothing = choose([facts("pca", level="no"), facts("t-sne", level="no")], n)
    assert [sentence.startswith("Show no map") for sentence in nothing.sentences] == [True]


def test_maps_that_are_behind_in_all_questions_stop() -> None:
    """A map that may still win one question goes on: also for groups, by its islands in the data."""
    first = facts("umap", 0.7, 0.8, trusted=3, islands=3, grouped=0.9)
    worse = facts("lle", 0.3, 0.3)
    maps = [first, worse, facts("mds", 0.3, 0.8), facts("pacmap", 0.3, 0.3, in_groups=0.95)]
    assert behind(maps) == {"lle"}
    assert behind([first, facts("lle", 0.66, 0.3)]) == set()
    assert behind([facts("pca", beyond_chance=False), facts("lle", beyond_chance=False)]) == {"pca", "lle"}


def test_coordinates_alone_can_win_neighbors_only() -> None:
    """They have no maps of halves."""
    alone = replace(facts("mine", 0.9, method=None), layout=np.empty((0, 2)), kept_in_halves=np.empty(0))
    choices = choose([facts("pca"), alone], N)
    assert choices.best == {"neighbors": "mine", "layout": "pca", "groups": None}
