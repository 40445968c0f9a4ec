"""Handmade and generated bodies against a service that may die, and the table of outcomes."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, Self

from hypothesis import HealthCheck, Phase, given, settings

from qa.inputs.hostile.bodies.catalog import ATTACKS
from qa.inputs.hostile.bodies.mutations import bodies
from qa.inputs.hostile.case import Outcome
from qa.inputs.hostile.verdict import faults

HANGS_SECONDS = 120.0


@dataclass
class Row:
    """Outcomes of the bodies of one parser."""

    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    peak: int = 0
    left: int = 0
    bad: list[str] = field(default_factory=list)


class Victim:
    """An upload process, restarted when it dies."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="glle-hostile-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the process."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._end()
        self._folder.cleanup()

    def upload(self, reader: str, body: bytes, query: dict[str, str]) -> Outcome | str:
        """Return the outcome of a body, including a crash of the process."""
        taking, telling = self._pipes()
        try:
            taking.write(json.dumps({"reader": reader, "query": query, "bytes": len(body)}).encode() + b"\n" + body)
            taking.flush()
            line = telling.readline() if select.select([telling], [], [], HANGS_SECONDS)[0] else None
        except BrokenPipeError:
            line = b""
        if line:
            return Outcome(**json.loads(line))
        ended = self._end()
        return f"no answer in {HANGS_SECONDS:g} s" if line is None else f"the process ended with {ended}"

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            command = [sys.executable, "-m", "qa.inputs.hostile.child", self._folder.name]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _end(self) -> int | None:
        """End the process; return its exit code if it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
        with process:
            return process.returncode


def attack(victim: Victim, reader: str, examples: int) -> Row:
    """Return the outcomes of a reader's handmade bodies and of `examples` generated ones."""
    row = Row()

    def judge(name: str, body: bytes, query: dict[str, str], *, is_accepted: bool | None) -> None:
        result = victim.upload(reader, body, query)
        row.cases += 1
        if isinstance(result, str):
            row.answers["none"] += 1
            row.bad.append(f"{reader}: {name}: {result}")
            return
        row.answers[str(result.status)] += 1
        row.seconds, row.peak = max(row.seconds, result.seconds), max(row.peak, result.peak)
        row.left += len(result.left)
        row.bad += [f"{reader}: {name}: {fault}" for fault in faults(result, is_accepted=is_accepted)]

    for attack in ATTACKS:
        if attack.reader == reader:
            judge(attack.name, attack.build(), attack.query, is_accepted=attack.is_accepted)

    @settings(
        max_examples=max(1, examples),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies(reader))
    def by_chance(body: bytes) -> None:
        judge(f"by chance, {body[:2000].hex()}", body, {"label": "l"} if b"l" in body[-400:] else {}, is_accepted=None)

    if examples:
        by_chance()
    return row


def table(rows: dict[str, Row]) -> str:
    """Return the outcomes as a table."""
    lines = [f"{'reader':<9}{'cases':>7}  {'answers':<46}{'worst s':>9}{'peak MB':>9}{'files left':>12}{'bad':>5}"]
    for reader, row in rows.items():
        answers = ", ".join(f"{status}: {count}" for status, count in sorted(row.answers.items()))
        peak = row.peak / 2**20
        lines.append(
            f"{reader:<9}{row.cases:>7}  {answers:<46}{row.seconds:>9.2f}{peak:>9.0f}{row.left:>12}{len(row.bad):>5}"
        )
    return "\n".join(lines)
