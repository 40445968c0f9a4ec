"""Upload handmade and randomly changed bodies, and count what happens.

The service runs in this process with small limits, so that small bodies reach the limits.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Self

import httpx

from qa.frame import align, memory, reset_peak_memory
from qa.inputs.hostile.bodies.mutations import mutant, query_of
from qa.inputs.hostile.bodies.npy import npy_attacks, npz_attacks
from qa.inputs.hostile.bodies.tables import arrow_attacks, parquet_attacks
from qa.inputs.hostile.bodies.text import csv_attacks, json_attacks
from qa.inputs.hostile.case import KINDS, MAX_BODY, MAX_BYTES, Outcome, faults
from service.app import create_app
from service.uploads.sandbox.processes import ReaderBudget, ReaderExit, ReaderProcesses
from worker.base.settings import Settings
from worker.operations.embedded_redis import EmbeddedRedis
from worker.storage import mark
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SERVER = "server"  # folder of the Redis server
GOOD = b"x,y\n1,2\n3,4\n"
ATTACKS = list(chain(npy_attacks(), npz_attacks(), csv_attacks(), json_attacks(), arrow_attacks(), parquet_attacks()))


class Service:
    """The service in this process; a context manager, which stops it at the end.

    Parameters
    ----------
    folder
        Empty data folder.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = EmbeddedRedis(folder / SERVER, ("appendonly no",))
        self._server.spawn()
        url = self._server.wait().url
        settings = Settings(redis_url=url, cache_url=url, data_dir=str(folder), max_body=MAX_BODY)
        self._runner = asyncio.Runner()
        self._stores = Stores.connect(settings)
        app = create_app(self._stores)
        self._ended: list[ReaderExit] = []
        self._readers = app.state.readers = ReaderProcesses(settings, self._ended.append, ReaderBudget(2, MAX_BYTES))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def __enter__(self) -> Self:
        """Return the service, which runs already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the service."""
        self._runner.run(self._client.aclose())
        self._readers.close()
        self._runner.close()
        self._stores.close()
        self._server.stop()

    def upload(self, reader: str, body: bytes, query: dict[str, str] | None = None) -> Outcome:
        """Upload a body with the media type of `reader`, and return what happened; delete the data set, if any."""
        reset_peak_memory()
        self._ended.clear()
        before, started = memory("VmRSS"), time.process_time()
        answer = self._runner.run(
            self._client.post(
                "/v1/datasets", content=body, headers={"Content-Type": KINDS[reader]}, params=query, timeout=None
            )
        )
        seconds, peak = time.process_time() - started, max(0, memory("VmHWM") - before)
        for ended in self._ended:  # the reader process belongs to the body
            seconds, peak = seconds + ended.seconds, max(peak, ended.peak)
        result = answer.json()
        code = result["type"].rpartition(":")[2] if "type" in result else ""
        if answer.is_success:
            self._stores.datasets.delete(result["id"])
        return Outcome(answer.status_code, answer.headers["content-type"], code, seconds, peak, self._remaining_files())

    def accepts_a_valid_upload(self) -> bool:
        """Upload a valid body, and return whether it was accepted."""
        return self.upload("csv", GOOD).status == 201

    def _remaining_files(self) -> list[str]:
        """Return the files in the data folder that an upload may have left, without those of the Redis servers."""
        files = {path.relative_to(self._folder) for path in self._folder.rglob("*") if path.is_file()}
        return sorted(str(path) for path in files if path.parts[0] != SERVER and not str(path).endswith(mark.PATH))


@dataclass
class Row:
    """Counts of what happened to the bodies for one reader."""

    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    peak: int = 0
    left: int = 0
    bad: list[str] = field(default_factory=list)


def upload_all(service: Service, reader: str, seed: str, mutants: Iterable[int]) -> Row:
    """Upload the handmade bodies for a reader and the mutants with these numbers, and count what happens."""
    row = Row()

    def judge(name: str, body: bytes, query: dict[str, str], *, is_accepted: bool | None) -> None:
        result = service.upload(reader, body, query)
        row.cases += 1
        row.answers[str(result.status)] += 1
        row.seconds, row.peak = max(row.seconds, result.seconds), max(row.peak, result.peak)
        row.left += len(result.left)
        row.bad += [f"{reader}: {name}: {fault}" for fault in faults(result, is_accepted=is_accepted)]
        if not service.accepts_a_valid_upload():
            row.bad.append(f"{reader}: {name}: the next valid upload was refused")

    for attack in ATTACKS:
        if attack.reader == reader:
            judge(attack.name, attack.build(), attack.query, is_accepted=attack.is_accepted)
    for number in mutants:
        body = mutant(seed, reader, number)
        judge(f"mutant {number} of {seed!r}", body, query_of(reader, body), is_accepted=None)
    return row


def table(rows: dict[str, Row]) -> str:
    """Return the counts by reader as a text with aligned columns."""
    lines: list[tuple[object, ...]] = [("reader", "cases", "worst s", "peak MB", "files left", "bad", "answers")]
    for name, row in rows.items():
        answers = ", ".join(f"{answer}: {count:,}" for answer, count in row.answers.most_common())
        lines.append((name, row.cases, f"{row.seconds:.2f}", row.peak // 2**20, row.left, len(row.bad), answers))
    return align(lines)
