"""The program behind docs/explanation/honesty.md measures what the page says."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from docs.figures.honesty.__main__ import read_rows
from docs.figures.honesty.rows import BASELINE, ENSEMBLE, judge
from docs.figures.honesty.settings import Finite, Population, Setting, settings
from docs.figures.honesty.table import by_word, figures
from glle_engine import manifolds


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.name)
def test_samples_share_their_probes_and_nothing_else(setting: Setting) -> None:
    """Sample j is a function of j; its other points are its own, in a finite set up to those chosen twice."""
    first, second = setting.sample(0), setting.sample(1)
    np.testing.assert_array_equal(setting.sample(1), second)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first[: setting.probes], second[: setting.probes])
    common = {row.tobytes() for row in first[setting.probes :]} & {row.tobytes() for row in second[setting.probes :]}
    if isinstance(setting, Finite):
        assert len(common) < 0.6 * setting.others
        assert setting.factor > 1
    else:
        assert not common
        assert setting.factor == 1


def test_the_factor_of_a_finite_set_is_that_of_means() -> None:
    """The variance of means over parts, times the square of the factor, is that of fresh samples of the set."""
    values = np.random.default_rng(0).standard_normal((200, 1))
    setting = Finite("numbers", lambda: values, 80, probes=20)
    rest = values[np.random.default_rng([0, 7]).permutation(200)][20:]
    means = [setting.sample(j)[20:].mean() for j in range(4000)]
    assert setting.factor**2 * np.var(means) == pytest.approx(rest.var(ddof=1) / 80, rel=0.1)


def test_a_setting_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares and correlations are in their ranges, and each sample that serves as data has a row."""
    monkeypatch.setattr("docs.figures.honesty.rows.RESAMPLES", 12)
    monkeypatch.setattr("docs.figures.honesty.rows.DRAWS", 30)

    def sheet(seed: int, n: int) -> NDArray[np.float64]:
        return manifolds.make("s_curve", n, noise=0.02, seed=seed).X

    rows = list(judge(Population("small", 80, sheet, probes=40), samples=4, data=2))
    assert [row.sample for row in rows] == [0, 1]
    for row in rows:
        assert all(-1 <= value <= 1 for value in row.rho.values())
        assert set(row.rho) - set(row.ratio) == {BASELINE}
        assert all(value > 0 for value in row.ratio.values())
        assert 0 <= row.coverage[0] <= row.coverage[1] <= 1
        assert f"{row.expected:.2f} | {row.level}" in row.line


def test_figures_with_goals() -> None:
    """Settings count once whatever their samples; the coverage and the ratio are shares within the goals."""
    row = read_rows()[0]
    made = [
        replace(
            row,
            setting=str(i),
            expected=0.5 + 0.1 * i,
            level="low" if i == 0 else "high",
            rho={**row.rho, ENSEMBLE: 0.6 + 0.1 * i},
            ratio={**row.ratio, ENSEMBLE: ratio},
            coverage=(0.5, covered),
        )
        for i, (ratio, covered) in enumerate(((1.0, 0.9), (1.5, 0.9), (0.6, 0.99), (1.2, 0.8)))
    ]
    assert figures([*made, made[3]]) == pytest.approx((0.75, 0.6, 0.5, 1.0))
    assert "| high | 3 | .80 | .70 | .90 |" in by_word(made)
