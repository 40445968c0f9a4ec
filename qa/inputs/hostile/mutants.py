"""`python -m qa.inputs.hostile.mutants --seed WORD`: parse mutated bodies as uploads are parsed.

Bodies are parsed in batches, in processes with the limits of a reader, because a fork takes longer than a body. Bodies
that ended a process, and some others, then go over HTTP to an API process. The exit code is 1 if an answer is neither
a table nor a client problem, or if the API died or did not answer `/livez`. A body is a function of seed, reader and
number; the report names them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from qa.inputs.hostile.bodies.mutations import good
from qa.inputs.hostile.case import KINDS
from service.cli.main import listen
from service.uploads.registry import ColumnRoles, Limits, reader_of
from service.uploads.sandbox import forkserver
from service.uploads.sandbox.transfer import table_of, write_table
from worker.base.problems import ProblemError
from worker.base.settings import Settings
from worker.operations.embedded_redis import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

READERS = ("parquet", "arrow", "npz", "csv")
MEMORY = 2**28  # bodies of one batch
CPU_SECONDS = 60  # time limit of a batch, s
BATCH = 200  # number of stored bodies
_VALUES = (0, 1, 2, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
LIMITS = Limits(points=100_000, features=1000, inflated=2**26)


@dataclass
class Row:
    """Outcomes of one reader's bodies; `deadly` bodies ended a process."""

    bodies: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    deadly: list[int] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def mutant(seed: str, reader: str, number: int) -> bytes:
    """Return a mutated body."""
    chance = random.Random(f"{seed} {reader} {number}")  # noqa: S311 # for bodies, not for secrets
    body = chance.choice(good(reader))
    if reader == "npz" and chance.random() < 0.5:
        return _repacked(body, chance)  # otherwise nine of ten bodies fail their checksums
    return _changed(body, chance)


def _repacked(body: bytes, chance: random.Random) -> bytes:
    """Return an npz file with one mutated member and correct checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        chosen = chance.choice(old.namelist())
        for name in old.namelist():
            member = old.read(name)
            new.writestr(name, _changed(member, chance) if name == chosen else member)
    return buffer.getvalue()


def _changed(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        place = _place(len(changed), chance)
        kind = chance.randrange(10)
        if kind < 3:
            changed[place] = chance.randrange(256)
        elif kind < 5:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind < 7:
            value = chance.choice(_VALUES).to_bytes(8, chance.choice(("little", "big")))
            piece = value[: chance.choice((1, 2, 4, 8))]
            changed[place : place + len(piece)] = piece
        elif kind == 7:
            start = chance.randrange(len(changed))
            changed[place : place + 8] = changed[start : start + 8]
        elif kind == 8:
            del changed[place : place + chance.randint(1, 16)]
        else:
            changed[place:place] = changed[place : place + chance.randint(1, 16)] * chance.choice((1, 2, 100))
        changed = changed or bytearray(b"0")
    return bytes(changed)


def _place(length: int, chance: random.Random) -> int:
    """Return a position in a body; half of them are near the end, where most formats store metadata."""
    if chance.random() < 0.5:
        return max(0, length - 9 - int(chance.expovariate(1 / 150)))
    return chance.randrange(length)


def label(reader: str, body: bytes) -> str | None:
    """Return the label column of a request."""
    return "l" if reader != "npz" and b"l" in body[-400:] else None


def parse_in_batches(seed: str, reader: str, numbers: range, folder: str) -> Row:
    """Parse bodies in forked, limited processes; after a crash, continue after the fatal body in another process."""
    row, remaining = Row(), numbers
    while remaining:
        batch, remaining = remaining[:BATCH], remaining[BATCH:]
        answers, status = _forked(seed, reader, batch, folder)
        row.bodies += len(answers)
        row.answers.update(answers)
        row.bad += [
            f"{reader} {batch[i]} of {seed!r}: {answer}" for i, answer in enumerate(answers) if answer[:3] == "500"
        ]
        if status:
            row.bodies += 1
            row.answers[f"ended with {status}"] += 1
            row.deadly.append(batch[len(answers)])
            remaining = range(row.deadly[-1] + 1, numbers.stop)
    return row


def _forked(seed: str, reader: str, numbers: range, folder: str) -> tuple[list[str], int]:
    """Return the outcomes until the first crash, and the exit status of the process."""
    come, go = os.pipe()
    if not (pid := os.fork()):
        code = forkserver.FAILED
        try:
            forkserver.restrict(MEMORY, CPU_SECONDS, 10 * CPU_SECONDS)
            with os.fdopen(go, "w", buffering=1) as output:
                for number in numbers:
                    output.write(_read(reader, mutant(seed, reader, number), folder) + "\n")
            code = forkserver.DONE
        except MemoryError:
            code = forkserver.NO_MEMORY
        finally:
            os._exit(code)
    os.close(go)
    with os.fdopen(come) as answers:
        lines = answers.read().splitlines()
    return lines, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _read(reader: str, body: bytes, folder: str) -> str:
    """Parse a body as a reader process does; return its outcome in one word."""
    with tempfile.TemporaryFile(dir=folder) as file, tempfile.TemporaryFile(dir=folder) as out:
        file.write(body)
        file.seek(0)
        try:
            roles = ColumnRoles(label(reader, body))
            table = reader_of(KINDS[reader], Settings()).read(file, out, LIMITS, roles)
            table_of(json.loads(json.dumps(write_table(out, table))), out)
        except ProblemError as error:
            return error.problem.code if error.problem.status < 500 else f"500 {error.problem.code}"
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 # counted as bad
            return f"500 {error!r}".replace("\n", " ")
        return "table"


@contextmanager
def serving(folder: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """Run an API; yield its process and a client."""
    with ExitStack() as stack:
        server = Server(Path(folder) / "server", ("appendonly no",))
        stack.callback(server.stop)
        server.spawn()
        url = server.wait().url
        settings = Settings(redis_url=url, cache_url=url, data_dir=folder, log_level="error")
        sock = stack.enter_context(listen("127.0.0.1", 0))
        command = [sys.executable, "-m", "service.cli", "serve", "--fd", str(sock.fileno())]
        environment = {**os.environ, **settings.to_env()}
        with subprocess.Popen(command, env=environment, pass_fds=[sock.fileno()]) as process:
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=60) as client:
                    client.get("/livez")
                    yield process, client
            finally:
                process.terminate()


def send_over_http(seed: str, reader: str, numbers: list[int], folder: str) -> Row:
    """Send bodies to an API process, and check `/livez` after every hundred bodies."""
    row = Row()
    with serving(folder) as (api, client):
        for done, number in enumerate(numbers):
            body = mutant(seed, reader, number)
            apart = {} if label(reader, body) is None else {"label": "l"}
            answer = client.post("/v1/datasets", content=body, params=apart, headers={"Content-Type": KINDS[reader]})
            row.bodies += 1
            row.answers["table" if answer.is_success else answer.json()["type"].rpartition(":")[2]] += 1
            if answer.status_code >= 500:
                row.bad.append(f"{reader} {number} of {seed!r}: {answer.status_code}")
            if done % 100 == 0 and client.get("/livez").status_code != 200:
                row.bad.append(f"{reader} {number} of {seed!r}: /livez")
        if api.poll() is not None:
            row.bad.append(f"{reader}: the API ended with {api.returncode}")
    return row


def shown(name: str, row: Row) -> str:
    """Return a row of the table."""
    answers = ", ".join(f"{answer} {count:,}" for answer, count in row.answers.most_common())
    return f"{name}: {row.bodies:,} bodies, {len(row.bad)} bad: {answers}"


def main() -> int:
    """Run the mutants and print the table."""
    parser = argparse.ArgumentParser(prog="python -m qa.inputs.hostile.mutants", description=__doc__)
    parser.add_argument("--seed", required=True, help="seed of the bodies, any word")
    parser.add_argument("--bodies", type=int, default=5000, help="bodies for each reader")
    parser.add_argument(
        "--http", type=int, default=200, help="bodies for each reader over HTTP, beside those that ended a process"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first body")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    chosen = parser.parse_args()
    bad: list[str] = []
    numbers = range(chosen.first, chosen.first + chosen.bodies)
    with tempfile.TemporaryDirectory(prefix="glle-mutants-") as folder:
        for reader in chosen.readers:
            row = parse_in_batches(chosen.seed, reader, numbers, folder)
            sent = send_over_http(chosen.seed, reader, [*row.deadly, *numbers[: chosen.http]], folder)
            print(shown(reader, row), shown(f"{reader} over HTTP", sent), sep="\n", flush=True)  # noqa: T201 # the command's output
            bad += row.bad + sent.bad
    print(*bad[:50], sep="\n")  # noqa: T201
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
