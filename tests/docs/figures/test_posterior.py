"""The program behind the tables of both laws of the noise."""

import numpy as np
import pytest

from docs.figures import posterior


def test_the_chosen_law_is_one_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trust is that of the law in the same row; samples of other seeds differ."""
    monkeypatch.setattr(posterior, "OTHERS", 4)
    setting = posterior.Setting("s_curve", 150, 0.03)
    rows, laws = posterior.choice(setting, range(2))
    assert [row["auto"] for row in rows] == [row[law] for row, law in zip(rows, laws, strict=True)]
    assert all(0.5 < value <= 1 for row in rows for value in row.values())
    assert not np.array_equal(setting.sample(0), setting.sample(1))
    np.testing.assert_array_equal(posterior.Setting("digits", 50).sample(1), posterior.Setting("digits", 50).sample(1))
