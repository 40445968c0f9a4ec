"""Write the tables of docs/explanation/reliability.md from the reports of `make -C qa chaos degraded soak`.

    python -m docs.figures.reliability            # reports in out/ replace the stored ones
    python -m docs.figures.reliability --page     # write the tables from the stored reports

`docs/figures/reliability.json` stores the numbers of the tables, with their commits, without samples and logs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.figures.methods.tables import put, table
from qa.load.soak import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).resolve().parents[1] / "explanation" / "reliability.md"
_SOAKED = ("what", "unit", "first", "second", "change", "low", "high", "is_flat")


def read() -> dict[str, Any]:
    """Return the reports that `docs/figures/reliability.json` stores, by command; empty if there is no such file."""
    return dict(json.loads(PATH.read_text("utf-8"))) if PATH.exists() else {}


def excerpts(out: Path) -> dict[str, Any]:
    """Return what the page needs of the reports in the folder `out`, by command; missing reports are left out."""
    reports = {
        "chaos": _report(out / "chaos" / "chaos.json", _chaos),
        "degraded": _report(out / "degraded" / "degraded.json", _degraded_rows),
        "soak": _report(out / "soak" / "soak.json", _soak),
    }
    return {name: report for name, report in reports.items() if report is not None}


def _report(path: Path, kept: Any) -> Any:
    return kept(json.loads(path.read_text("utf-8"))) if path.exists() else None


def _chaos(report: dict[str, Any]) -> dict[str, Any]:
    checks = [{**row, "violations": len(row["violations"])} for row in report["checks"]]
    members = ("requests", "attempts", "unanswered", "refused", "seconds", "arrays", "kills", "recovery")
    return {name: report[name] for name in (*members, "seconds until all jobs had ended")} | {"checks": checks}


def _degraded_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    members = ("name", "good", "refused", "worst", "alive", "healed")
    return [
        {name: row[name] for name in members}
        | {"other": sum(row["other"].values()), "wrong": len(row["wrong"]), "lost": len(row["lost"])}
        for row in rows
    ]


def _soak(report: dict[str, Any]) -> dict[str, Any]:
    summary = {name: report[name] for name in ("minutes", "rate", "requests", "requests_per_second", "answers")}
    verdicts = [{name: verdict[name] for name in _SOAKED} for verdict in report["verdicts"]]
    return summary | {"faults": len(report["faults"]), "errors": len(report["errors"]), "verdicts": verdicts}


def render(reports: dict[str, Any]) -> dict[str, str]:
    """Return the text of each marker of the page, for the reports that there are."""
    builders: dict[str, tuple[str, Callable[[Any], str]]] = {
        "kills": ("chaos", _kills),
        "degraded": ("degraded", _degraded_table),
        "soak": ("soak", _soak_text),
    }
    return {name: build(reports[report]) for name, (report, build) in builders.items() if report in reports}


def _kills(report: dict[str, Any]) -> str:
    took = report["recovery"].values()
    medians = [each["p50"] for each in took]
    broken = ", ".join(row["name"] for row in report["checks"] if row["violations"]) or "none"
    return (
        f"Checks that found a violation: {broken} of {len(report['checks'])}. "
        f"{sum(report['kills'].values())} processes of {len(report['kills'])} kinds were killed. The next success came "
        f"after {min(medians):.1f} to {max(medians):.1f} s (the median of a kind), and after "
        f"{max(each['p100'] for each in took):.1f} s at most."
    )


def _degraded_table(rows: list[dict[str, Any]]) -> str:
    head = ["situation", "2xx", "503", "slowest answer, s", "well again after, s"]
    return table(head, [[row["name"], *_figures(row, ("good", "refused"), ("worst", "healed"))] for row in rows])


def _figures(row: dict[str, Any], counts: tuple[str, ...], seconds: tuple[str, ...]) -> list[str]:
    return [*(str(row[name]) for name in counts), *(f"{row[name]:.1f}" for name in seconds)]


SHOWN = 2  # percent of change from which a flat series has a row


def _soak_text(report: dict[str, Any]) -> str:
    rows = [
        [
            verdict["what"],
            f"{verdict['first']:.1f} {verdict['unit']}".strip(),
            f"{verdict['second']:.1f} {verdict['unit']}".strip(),
            f"{100 * verdict['change']:+.1f} %",
            judge_series(verdict),
        ]
        for verdict in report["verdicts"]
        if verdict["unit"] and (verdict["unit"] != "ms" or verdict["what"].startswith("all:"))
    ]
    shown = [row for row in rows if row[-1] != "flat" or abs(float(row[3].split()[0])) >= SHOWN]
    series = table(["series", "first half", "second half", "change", ""], shown)
    counts = [abs(verdict["second"] - verdict["first"]) for verdict in report["verdicts"] if not verdict["unit"]]
    return (
        f"{report['requests']:,} requests in {report['minutes']:g} minutes; wrong answers: {report['faults']}, errors: "
        f"{report['errors']}. Descriptors, threads and waiting tasks changed by at most {max(counts):g}, and "
        f"{len(rows) - len(shown)} other series by less than {SHOWN} %.\n\n{series}"
    )


def judge_series(verdict: dict[str, Any]) -> str:
    """Return whether a series of the soak test is flat, in words.

    If a percentile of times is too noisy for a slope, "not higher" says that it did not rise in the second half.
    """
    if not verdict["is_flat"]:
        return "**not flat**"
    if verdict["unit"] != "ms" or verdict["high"] <= ALLOWED:
        return "flat"
    return "not higher" if verdict["change"] <= ALLOWED else "uncertain"


def main() -> None:
    """Store what the page needs of the reports, unless `--page` is given, and write the page's tables."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.reliability", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the commands' reports")
    parser.add_argument("--page", action="store_true", help="write the page from the stored reports")
    options = parser.parse_args()
    reports = read()
    if not options.page:
        reports |= excerpts(options.out)
        PATH.write_text(json.dumps(reports, indent=1) + "\n", "utf-8")
    for name, text in render(reports).items():
        put(PAGE, name, text)


if __name__ == "__main__":
    main()
