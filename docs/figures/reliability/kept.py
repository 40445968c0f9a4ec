"""What is kept of the commands' reports: the numbers that the tables show, each with the commit it is of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("kept.json")
_SOAKED = ("what", "unit", "first", "second", "change", "low", "high", "is_flat")


def read() -> dict[str, Any]:
    """Return what was kept before."""
    return dict(json.loads(PATH.read_text("utf-8"))) if PATH.exists() else {}


def taken(out: Path) -> dict[str, Any]:
    """Return what of the reports in a folder is to be kept, by command; one that was not run is not there."""
    found = {
        "chaos": _report(out / "chaos" / "chaos.json", _chaos),
        "degraded": _report(out / "degraded" / "degraded.json", _degraded),
        "faults": _report(out / "hosts" / "faults.json", _faults),
        "throughput": _report(out / "hosts" / "throughput.json", dict),
        "crowd": _report(out / "hosts" / "crowd.json", dict),
        "joined": _report(out / "hosts" / "joined.json", dict),
        "soak": _report(out / "soak" / "soak.json", _soak),
    }
    return {name: report for name, report in found.items() if report is not None}


def _report(path: Path, kept: Any) -> Any:
    return kept(json.loads(path.read_text("utf-8"))) if path.exists() else None


def _chaos(report: dict[str, Any]) -> dict[str, Any]:
    checks = [{**row, "violations": len(row["violations"])} for row in report["checks"]]
    told = ("requests", "attempts", "unanswered", "refused", "seconds", "arrays", "kills", "recovery")
    return {name: report[name] for name in (*told, "seconds until all jobs had ended")} | {"checks": checks}


def _degraded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = ("name", "good", "refused", "worst", "alive", "healed")
    return [
        {name: row[name] for name in told}
        | {"other": sum(row["other"].values()), "wrong": len(row["wrong"]), "lost": len(row["lost"])}
        for row in rows
    ]


def _faults(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows by names that are the same in every run; how many requests there were stands beside."""
    found = []
    for row in rows:
        asked = re.search(r", (\d+) requests$", row["scenario"])
        name = row["scenario"][: asked.start()] if asked else row["scenario"]
        found.append({**row, "scenario": name, **({"requests": int(asked[1])} if asked else {})})
    return found


def _soak(report: dict[str, Any]) -> dict[str, Any]:
    told = {name: report[name] for name in ("minutes", "rate", "requests", "requests_per_second", "answers")}
    verdicts = [{name: verdict[name] for name in _SOAKED} for verdict in report["verdicts"]]
    return told | {"faults": len(report["faults"]), "errors": len(report["errors"]), "verdicts": verdicts}
