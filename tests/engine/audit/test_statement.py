"""Statements of audits: what they name, and how far they rely on it."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from glle_engine.audit.agreement import Agreement
from glle_engine.audit.answers import Answer, Disturbed, Seam
from glle_engine.audit.islands import Islands
from glle_engine.audit.statement import Facts, state

N = 200
NEAR, FAR = Answer(0.95, 0.01), Answer(0.2, 0.01)


def islands(in_data: Any, in_samples: Any) -> Islands:
    """Return islands of equal sizes."""
    samples = None if in_samples is None else np.array(in_samples)
    return Islands(0.5, 0.1, np.arange(N) % len(in_data), np.array(in_data, bool), samples)


def disturbed(torn: int = 0, glued: int = 0, *seams: tuple[Literal["tear", "fold"], int, int]) -> Disturbed:
    """Return so many disturbed points, and seams of 12 points of an island and 5 of another one."""
    regions = (np.arange(12), np.arange(5))
    found = tuple(Seam(kind, regions, (a, b), 2.0) for kind, a, b in seams)
    numbers = np.arange(N)
    return Disturbed(np.ones(N), np.ones(N), numbers < torn, numbers < glued, np.empty((0, 2), np.int64), found)


ONE, BOTH, THREE = islands([0], [0.3]), islands([1, 1], [1, 1]), islands([1, 1, 1], [1, 1, 1])
SOME = islands([1, 1, 1], [1, 0.9, 0.2])
TRUE, LOST = Agreement(0.6, 0.1, 0.97, 0.93, 0.94), Agreement(0.105, 0.1, 0.97, 0.93, 0.94)
NOISE: Any = {"has_structure": False}
ALONE: Any = {"remains": None}


@pytest.mark.parametrize(
    ("changes", "level", "trusted", "distrusted", "parts"),
    [
        ({}, "trust", "layout neighbors", "", ["Trust the layout", "half this size", "96%", "in another sample."]),
        ({"half": 2000}, "trust", "layout neighbors", "", ["of 2,000 points"]),
        ({"fidelity": Agreement(0.5, 0.1, 0.51, 0.93, 0.9)}, "trust", "layout", "neighbors",
         ["51% of its neighbors are near in the data (80% needed), and 95% are neighbors in another sample (30% need"]),
        ({"fidelity": Agreement(0.5, 0.1, 0.9, 0.93, 0.4)}, "trust", "layout neighbors", "",
         ["rank like straight distances (0.93), not like distances along the data (0.40)"]),
        ({"fidelity": Agreement(0.5, 0.1, 0.9, 0.4, 0.93)}, "trust", "layout neighbors", "",
         ["rank like distances along the data (0.93), not like straight ones (0.40)"]),
        ({"fidelity": Agreement(0.5, 0.1, 0.9, 0.4, 0.6)}, "partly", "neighbors", "layout",
         ["Its distances rank neither like straight distances (0.40) nor"]),
        ({"remains": 0.5}, "partly", "layout neighbors", "", ["read details of the", "rough layout (50%, 30% needed)"]),
        ({"remains": 0.2}, "partly", "neighbors", "layout", ["✗ Do not read the layout (20%, 30% needed)"]),
        ({"remains": 0.2, "neighborhoods": FAR}, "no", "", "layout neighbors", ["✗ Do not rely on this map.", "20%"]),
        ({"has_gain": False}, "trust", "layout", "neighbors", ["✗ Do not read single neighbors (maps of data"]),
        ({"neighborhoods": None}, "trust", "layout", "neighbors", []),
        ({"islands": BOTH}, "trust", "islands neighbors", "", ["both islands"]),
        ({"islands": THREE, "arrangement": NEAR, "shape": NEAR}, "trust", "islands arrangement shape neighbors", "",
         ["all 3 islands, the distances between islands (95%, 60% needed), the shapes of the islands (95%"]),
        ({"islands": THREE, "arrangement": FAR, "shape": FAR}, "partly", "islands neighbors", "arrangement shape",
         ["the distances between islands (20%, 60% needed) or the shapes of the islands (20%, 60% needed)"]),
        ({"islands": SOME, "arrangement": NEAR}, "partly", "islands neighbors", "", ["2 of the 3 islands (A, B)"]),
        ({"islands": SOME, "arrangement": FAR}, "partly", "islands neighbors", "arrangement", ["One island is", "(C)"]),
        ({"islands": islands([1, 1, 1], [1, 0.75, 0.1])}, "partly", "islands neighbors", "",
         ["One island is not separate in other samples (C)", "is separate in most other samples, but not in all (B)"]),
        ({"islands": islands([1, 0], [1, 1])}, "partly", "islands neighbors", "", ["have cut it (B)"]),
        ({"islands": islands([0, 0], [1, 1])}, "partly", "layout neighbors", "islands", ["may have cut them (A, B)"]),
        ({"islands": islands([1, 1], [0.2] * 2)}, "partly", "layout neighbors", "islands", ["2 islands are", "(A, B)"]),
        ({"foreign": (0.1, 0.8)}, "unknown", "", "", ["shares 10% of its", "share 80%", "keeps 60%", "positions 10%."]),
        ({"foreign": (0.1, 0.8), **NOISE}, "no", "", "", ["shares 10%", "we found none; your points"]),
        ({"n": 99, **NOISE}, "unknown", "", "", ["99 points are too few"]),
        ({"clustered": ("column 1", "column 3"), **NOISE}, "partly", "", "",
         ["no relations between columns.\nColumn 1 and column 3 have clusters, but they combine as independent"]),
        ({"clustered": ("column 1",), **NOISE}, "partly", "", "", ["Column 1 has clusters, but it combines with"]),
        ({"n": 100, **NOISE}, "no", "", "", ["we found none."]),
        ({"fidelity": LOST}, "no", "", "", ["the map does not show it", "keeps 10%"]),
        ({"has_structure": None, "fidelity": LOST}, "unknown", "layout neighbors", "", ["fewer than two features"]),
        ({"dominant": ("column 'a'", 0.97)}, "unknown", "", "", ["column 'a' has 97% of the variance"]),
        (ALONE, "unknown", "", "", ["coordinates alone cannot tell.\nThe map keeps 60% of", "positions 10%."]),
        (ALONE | {"islands": islands([1, 0, 0], None)}, "unknown", "", "", ["1 of its 3 islands is separate"]),
        (ALONE | {"islands": islands([1, 1], None)}, "unknown", "", "", ["both islands are separate"]),
        (ALONE | {"islands": islands([1, 1, 1], None)}, "unknown", "", "", ["all 3 islands are separate"]),
        (ALONE | {"islands": islands([0, 0], None)}, "unknown", "", "", ["none of its 2 islands are separate"]),
        ({"hidden": 3}, "partly", "layout neighbors", "", ["fill 3 dimensions, and this map has 2)"]),
        ({"hidden": 3, "groups": "ABC"}, "partly", "layout neighbors", "", ["96%", "has 2)", "; ABC."]),
        ({"disturbed": disturbed(20)}, "partly", "layout neighbors", "", ["20 points lie far", "where the map tears"]),
        ({"disturbed": disturbed(0, 20)}, "partly", "layout neighbors", "", ["that are far in the data"]),
        ({"disturbed": disturbed(150, 150)}, "trust", "layout neighbors", "", ["needed).\nWe expect"]),
        ({"disturbed": disturbed(1)}, "trust", "layout neighbors", "", ["needed).\nWe expect"]),
        ({"disturbed": disturbed(20, 0, ("tear", 0, 0))}, "partly", "layout neighbors", "", ["in two (5 and 12"]),
        ({"disturbed": replace(disturbed(20), seams=(Seam("tear", (np.arange(3), np.arange(3)), (0, 0), 5.0),))},
         "partly", "layout neighbors", "", ["The map has a small tear (3 and 3 points)"]),
        ({"disturbed": disturbed(0, 20, ("fold", 0, 0))}, "partly", "layout neighbors", "", ["regions of 5 and 12"]),
        ({"islands": BOTH, "disturbed": disturbed(20, 0, ("tear", 1, 0))}, "partly", "islands neighbors", "",
         ["islands A and B apart (5 and 12 points"]),
        ({"islands": BOTH, "disturbed": disturbed(0, 20, ("fold", 0, 1))}, "partly", "islands neighbors", "",
         ["parts of islands A and B (12 and 5 points"]),
        ({"disturbed": disturbed(20, 0, ("tear", 0, 0), ("tear", 0, 0))}, "partly", "layout neighbors", "",
         ["in 2 places (20 points"]),
    ],
)  # fmt: skip
def test_a_statement_follows_from_the_facts(
    changes: Any, level: str, trusted: str, distrusted: str, parts: list[str]
) -> None:
    """Its level, what to rely on, and the numbers and names that it says."""
    facts: dict[str, Any] = {
        "name": "PCA", "n": N, "has_structure": True, "fidelity": TRUE,
        "islands": ONE, "remains": 0.96, "neighborhoods": NEAR,
    }  # fmt: skip
    statement = state(Facts(**facts | changes))
    assert statement.level == level
    assert (" ".join(statement.trusted), " ".join(statement.distrusted)) == (trusted, distrusted)
    for part in parts:
        assert part in statement.text
    assert statement.text.count(";") <= 3


SHARES = (0.0, 0.2, 0.45, 0.95)


@pytest.mark.parametrize("structure", [True, None, False])
@pytest.mark.parametrize("remains", [None, *SHARES])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_statement_does_not_contradict_itself(count: int, remains: float | None, structure: bool | None) -> None:  # noqa: FBT001
    """Nothing is both trusted and not; there are at most two sentences; the level agrees with the lists."""
    rng = np.random.default_rng(count)
    for _ in range(40):
        in_samples, in_data = rng.choice([0.3, 0.9, 1.0], count), rng.random(count) < 0.7
        islands = Islands(
            0.5, 0.1, np.arange(60) % count, in_data & (count > 1), None if remains is None else in_samples
        )
        flags = rng.random((2, 60)) < rng.choice([0, 0.05, 0.9])
        disturbed = Disturbed(np.ones(60), np.ones(60), flags[0], flags[1], np.empty((0, 2), np.int64))
        answers = [None if remains is None else Answer(float(share), 0.01) for share in rng.choice(SHARES, 3)]
        facts = Facts(
                name="PCA", n=200, has_structure=structure,
                fidelity=Agreement(float(rng.choice([0.1, 0.6])), 0.1, *rng.choice([0.3, 0.9], 3).tolist()),
                islands=islands, disturbed=disturbed, remains=remains, arrangement=answers[0] if count > 2 else None,
                neighborhoods=answers[1], shape=answers[2], has_gain=bool(rng.random() < 0.5),
                foreign=(0.1, 0.8) if rng.random() < 0.1 else None,
                dominant=("column 1", 0.97) if rng.random() < 0.1 else None,
                hidden=3 if rng.random() < 0.2 else None,
            )  # fmt: skip
        statement = state(facts)
        assert not set(statement.trusted) & set(statement.distrusted)
        assert statement.text.count(". ") <= 1
        assert statement.text.endswith(".")
        lines = statement.text.splitlines()
        assert sum(line.startswith("✓ Trust ") for line in lines) == bool(statement.trusted)
        if statement.trusted:
            assert any(line.startswith("✗ Do not read ") for line in lines) >= bool(statement.distrusted)
            assert lines[0].startswith("✗ Do not read ") == (statement.level == "partly"), "the exception comes first"
        early = state(replace(facts, is_preliminary=True))
        assert (early.level, early.trusted) == (statement.level, statement.trusted)
        assert not (early.trusted and "%" in early.text), "numbers that may still change are not said"
        assert (statement.level in {"trust", "partly", "unknown"}) or not statement.trusted
        if statement.level == "trust":
            assert remains is not None
            assert not set(statement.distrusted) - {"neighbors"}
        if structure is False:
            assert (statement.level, statement.trusted) == ("no", ())
        assert statement.text.startswith("Audit these coordinates by the method") == (facts.foreign is not None)
