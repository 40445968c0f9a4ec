"""Tables of docs/explanation/reliability.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docs.figures.methods.tables import table
from qa.soak.verdict import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable


def render(reports: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the stored reports, by marker name."""
    builders: dict[str, Callable[[Any], str]] = {
        "chaos": _chaos, "kills": _kills, "degraded": _degraded_table, "faults": _faults, "joined": _joined_table,
        "soak": _soak,
    }  # fmt: skip
    of = {"kills": "chaos"}
    return {
        name: build(reports[of.get(name, name)]) for name, build in builders.items() if of.get(name, name) in reports
    }


def _chaos(report: dict[str, Any]) -> str:
    return table(
        ["must be zero", "checked", "violations"],
        [[row["name"], f"{row['checked']:,}", str(row["violations"])] for row in report["checks"]],
    )


def _kills(report: dict[str, Any]) -> str:
    rows = []
    for kind, times in report["kills"].items():
        took = report["recovery"].get(kind, {})
        rows.append([kind, str(times), *(f"{took[p]:.1f}" if p in took else "" for p in ("p50", "p95", "p100"))])
    return table(["killed -9", "times", "seconds to the next success: median", "p95", "most"], rows)


def _degraded_table(rows: list[dict[str, Any]]) -> str:
    head = [
        "situation", "2xx", "503", "other", "wrong", "lost", "slowest answer, s", "slowest /livez, s",
        "well again after, s",
    ]  # fmt: skip
    counts = ("good", "refused", "other", "wrong", "lost")
    seconds = ("worst", "alive", "healed")
    return table(head, [[row["name"], *_figures(row, counts, seconds)] for row in rows])


def _faults(rows: list[dict[str, Any]]) -> str:
    head = [
        "scenario", "jobs", "finished", "wrong bits", "failed requests", "503", "slowest answer, s",
        "job ended after, s",
    ]  # fmt: skip
    counts = ("jobs", "finished", "wrong", "failed", "refused")
    return table(head, [[_scenario(row), *_figures(row, counts, ("slowest", "heal"))] for row in rows])


def _figures(row: dict[str, Any], counts: tuple[str, ...], seconds: tuple[str, ...]) -> list[str]:
    return [*(str(row[name]) for name in counts), *(f"{row[name]:.1f}" for name in seconds)]


def _scenario(row: dict[str, Any]) -> str:
    return f"{row['scenario']} ({row['requests']:,} requests)" if "requests" in row else str(row["scenario"])


def _joined_table(report: dict[str, Any]) -> str:
    before, after = report["before"], report["after"]
    return table(
        ["worker hosts", "then", "from draw", "of", "draws/s before", "and then", "times", "wrong bits"],
        [
            [
                str(report["hosts"]), str(report["then"]), f"{report['late']:,}", f"{report['draws']:,}",
                f"{before:.1f}", f"{after:.1f}", f"{after / before:.2f}", str(report["wrong"]),
            ]
        ],
    )  # fmt: skip


def _soak(report: dict[str, Any]) -> str:
    rows = [
        [
            verdict["what"],
            f"{verdict['first']:.1f} {verdict['unit']}".strip(),
            f"{verdict['second']:.1f} {verdict['unit']}".strip(),
            _change(verdict),
            f"{100 * verdict['low']:+.0f} to {100 * verdict['high']:+.0f} %",
            judge_series(verdict),
        ]
        for verdict in report["verdicts"]
        if verdict["unit"] != "ms" or verdict["what"].startswith("all:")
    ]
    series = table(["series", "first half", "second half", "change", "slope over the time, 95 %", ""], rows)
    summary = f"{report['requests']:,} requests in {report['minutes']:g} minutes; wrong answers: {report['faults']}, "
    return f"{summary}errors: {report['errors']}.\n\n{series}"


def _change(verdict: dict[str, Any]) -> str:
    """Return the change: absolute for a count, relative for other series."""
    if not verdict["unit"]:
        return f"{verdict['second'] - verdict['first']:+.1f}"
    return f"{100 * verdict['change']:+.1f} %"


def judge_series(verdict: dict[str, Any]) -> str:
    """Return the verdict on a series. A percentile too noisy for a slope may still be no higher in the second half."""
    if not verdict["is_flat"]:
        return "**not flat**"
    if verdict["unit"] != "ms" or verdict["high"] <= ALLOWED:
        return "flat"
    return "not higher" if verdict["change"] <= ALLOWED else "uncertain"
