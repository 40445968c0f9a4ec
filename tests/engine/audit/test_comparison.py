"""Comparisons of maps: candidates, their audits on the same halves, and which of them to show."""

from collections import deque
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.audit import chance
from glle_engine.audit.audit import audit
from glle_engine.audit.candidates import candidates_of, default_candidates
from glle_engine.audit.choice import Choices
from glle_engine.audit.comparison import compare_maps
from glle_engine.base.errors import InvalidParameterError


def compared(X: Any, methods: Any, **options: Any) -> tuple[dict[str, Any], Choices]:
    """Return the maps by label, and which of them to show."""
    ((maps, choices),) = deque(compare_maps(X, candidates_of(methods), threads=1, **options), maxlen=1)
    return {each.candidate.label: each for each in maps}, choices


def test_an_audit_within_a_comparison_is_the_audit() -> None:
    """With the same halves for all, of a function and of a method by name."""
    X = manifolds.make("swiss_roll", 200, seed=0).X
    maps, choices = compared(X, ["isomap", lambda points: points[:, :2]], seed=3)
    direct = audit(X, method="isomap", seed=3, threads=1)
    of_isomap = maps["isomap"].audit
    assert (of_isomap.verdict, of_isomap.remains) == (direct.verdict, direct.remains)
    assert set(choices.best) == {"neighbors", "layout", "groups"}
    assert 1 <= len(choices.sentences) <= 3


def test_a_candidate_that_refuses_is_a_row_with_its_reason() -> None:
    """Unknown methods, impossible parameters and failing functions; the others go on."""
    X = manifolds.make("s_curve", 80, seed=0).X
    maps, _ = compared(X, ["pca", "nonsense", ("isomap", {"n_neighbors": 200}), lambda points: points[:-1, :2]])
    problems = {label: str(each.problem) for label, each in maps.items() if each.problem is not None}
    assert set(problems) == set(maps) - {"pca"}
    assert "not known" in problems["nonsense"]
    assert maps["pca"].audit is not None


def test_noise_has_no_map() -> None:
    """One sentence, whatever the candidates keep."""
    X = np.random.default_rng(0).standard_normal((150, 6))
    _, choices = compared(X, ["pca", "isomap"])
    assert choices.sentences == ("Show no map: we found no structure in these data.",)


def test_points_in_no_island_belong_to_no_group() -> None:
    """A map with a clump that is too small to judge is compared as others, and its islands hold fewer points."""
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.standard_normal((n, 3)) + shift for n, shift in ((60, 0), (60, 30), (60, -30), (4, 90))])
    maps, _ = compared(X, ["pca"])
    facts, of_map = maps["pca"].facts, maps["pca"].audit
    assert of_map.islands.outside == 4
    assert facts.in_groups == facts.grouped == pytest.approx(180 / 184)


def test_a_map_that_is_clearly_behind_stops_after_two_pairs() -> None:
    """A map of one column of noise beside PCA of a plane; a named map has a complete audit."""
    rng = np.random.default_rng(0)
    X = np.column_stack([10 * rng.standard_normal((200, 2)), rng.standard_normal((200, 3))])
    X[:, 2] += X[:, 0]
    maps, choices = compared(X, {"plane": lambda points: points[:, :2], "bad": lambda points: points[:, 3:]})
    bad, plane = maps["bad"].audit, maps["plane"].audit
    assert (bad.is_preliminary, bad.pairs) == (True, 2)
    assert not plane.is_preliminary
    assert choices.best["layout"] == choices.best["neighbors"] == "plane"


def test_candidates_have_distinct_labels_and_titles() -> None:
    """By name, with parameters, as functions and as coordinates; a size is part of the label of one of several."""
    Y = np.zeros((5, 2))
    candidates = candidates_of(["pca", ("tsne", {"perplexity": 10}), ("t-sne", {"perplexity": 50}), "umap"])
    assert [each.label for each in candidates] == ["pca", "t-sne-10", "t-sne-50", "umap"]
    assert [each.title for each in candidates][:2] == ["PCA", "t-SNE with perplexity 10"]
    named = candidates_of({"mine": Y, "PCA": "pca"})
    assert [(each.label, each.name) for each in named] == [("mine", None), ("PCA", "pca")]
    with pytest.raises(InvalidParameterError, match="is not a method"):
        candidates_of([3])
    with pytest.raises(ValueError, match="label"):
        candidates_of([{"method": "pca", "label": "a"}, {"method": "lle", "label": "a"}])


def test_default_candidates_are_possible() -> None:
    """At most a dozen, and fewer for few points, whose halves have too few for large neighborhoods."""
    few, many = default_candidates(60, 4), default_candidates(1000, 10)
    assert "pca" in {each.label for each in few}
    assert len(few) < len(many) <= 12
    assert len({each.label for each in many}) == len(many)


def test_the_test_of_structure_is_made_once_for_all_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a function of the data, whatever the map."""
    tested = Mock(wraps=chance._test_relations)  # what is saved
    monkeypatch.setattr(chance, "_test_relations", tested)
    X = np.random.default_rng(8).standard_normal((60, 4))
    compared(X, ["pca", "isomap", "lle"])
    assert tested.call_count == 1
    assert chance.find_relations(X, 1) is not None
    assert tested.call_count == 2
