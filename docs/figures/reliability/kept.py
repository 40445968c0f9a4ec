"""Stored excerpt of the commands' reports: the numbers in the tables, with their commits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("kept.json")
_SOAKED = ("what", "unit", "first", "second", "change", "low", "high", "is_flat")


def read() -> dict[str, Any]:
    """Return the stored reports."""
    return dict(json.loads(PATH.read_text("utf-8"))) if PATH.exists() else {}


def excerpts(out: Path) -> dict[str, Any]:
    """Return the excerpts of the reports in a folder, by command; commands without a report are left out."""
    reports = {
        "chaos": _report(out / "chaos" / "chaos.json", _chaos),
        "degraded": _report(out / "degraded" / "degraded.json", _degraded_rows),
        "faults": _report(out / "hosts" / "faults.json", _faults),
        "joined": _report(out / "hosts" / "joined.json", dict),
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


def _faults(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with names that do not depend on the run; the number of requests is a separate member."""
    named = []
    for row in rows:
        count = re.search(r", (\d+) requests$", row["scenario"])
        name = row["scenario"][: count.start()] if count else row["scenario"]
        named.append({**row, "scenario": name, **({"requests": int(count[1])} if count else {})})
    return named


def _soak(report: dict[str, Any]) -> dict[str, Any]:
    summary = {name: report[name] for name in ("minutes", "rate", "requests", "requests_per_second", "answers")}
    verdicts = [{name: verdict[name] for name in _SOAKED} for verdict in report["verdicts"]]
    return summary | {"faults": len(report["faults"]), "errors": len(report["errors"]), "verdicts": verdicts}
