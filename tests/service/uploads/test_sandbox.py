"""Bodies are parsed by processes with limits, one process for each body; tenants take turns."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import anyio
import numpy as np
import pytest

from glle_engine import manifolds
from qa.inputs.hostile.bodies.bombs import arrow_schema_bomb, npz_labels_bomb, parquet_footer_bomb
from service.uploads.limits import Limits
from service.uploads.reading import Upload
from service.uploads.sandbox import forkserver
from service.uploads.sandbox.forkserver import table_of
from service.uploads.sandbox.processes import (
    MAX_SMALL_BYTES,
    READ_BYTES_PER_SECOND,
    ReaderBudget,
    ReaderExit,
    ReaderProcesses,
    _WaitingBody,
)
from service.uploads.synthetic import Synthetic
from tests.conftest import until
from tests.service.uploads.bodies import ARROW, CSV, NPY, NPZ, PARQUET, X, frame, npy, npz, parquet_file
from worker.base.problems import ProblemError
from worker.base.settings import Settings
from worker.records.shares import SHARE, UNLIMITED, Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine.tables.table import Table
    from worker.base.problems import Problem

LIMITS = Limits(points=3_000_000, features=20)
LARGE = 2**22  # bytes of a body
LABELS = ["a", "bc", "ü", "d", "e", "f"]


def settings(folder: Path, **options: Any) -> Settings:
    """Return settings with a folder for bodies."""
    (folder / "incoming").mkdir(exist_ok=True)
    return Settings(data_dir=str(folder), **options)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderProcesses]:
    """Readers with little memory."""
    readers = ReaderProcesses(settings(tmp_path_factory.mktemp("readers")), budget=ReaderBudget(2, 2**27))
    yield readers
    readers.close()


def temporary_file(body: bytes) -> IO[bytes]:
    """Return a body as a stored file."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 # the caller closes it
    file.write(body)
    file.seek(0)
    return file


class Unsafe(Upload):
    """Upload that no API process reads itself."""

    def is_safe(self, file: IO[bytes]) -> bool:
        """Return False."""
        del file
        return False


def upload(media: str, options: dict[str, str] | None = None) -> Upload:
    """Return the upload of a body."""
    return Unsafe(media, "", options or {}, LIMITS, tempfile.gettempdir())


def read(processes: ReaderProcesses, media: str, body: bytes, options: dict[str, str] | None = None) -> Table:
    """Read a body in a process."""
    with temporary_file(body) as file:
        return processes.read_table(upload(media, options), file)


def refusal(processes: ReaderProcesses, media: str, body: bytes) -> Problem:
    """Return the problem of a body."""
    with pytest.raises(ProblemError) as caught:
        read(processes, media, body)
    return caught.value.problem


def pid(processes: ReaderProcesses) -> int:
    """Return the process of the fork server."""
    processes.start()
    assert processes._server._process is not None
    return processes._server._process.pid


CELLS = zip(X.tolist(), LABELS, strict=True)
ROWS = "\n".join(f"{a!r},{b!r},{c!r},{label},{i}" for i, ((a, b, c), label) in enumerate(CELLS))
BODIES: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "npy, Fortran, big-endian": (NPY, npy(np.asfortranarray(X.astype(">f4"))), {}),
    "npy, one row": (NPY, npy(X[:1]), {}),
    "npz": (
        NPZ,
        npz(data=X, labels=np.array(LABELS), colors=X[:, 0], coordinates=X[:, :2], names=np.array(list("xyz"))),
        {},
    ),
    "csv": (CSV, f"x,y,z,l,c\n{ROWS}\n".encode(), {"labels": "l", "colors": "c"}),
    "parquet": (PARQUET, parquet_file(frame(l=LABELS, c=np.arange(6.0))), {"labels": "l", "colors": "c"}),
}


def test_a_process_samples_a_synthetic_data_set(processes: ReaderProcesses) -> None:
    """The points are the ones of the engine; a manifold beyond the memory of a reader is refused."""
    source = Synthetic("swiss_roll", 20_000, 0.1, 3)
    expected = manifolds.make("swiss_roll", 20_000, noise=0.1, seed=3)
    with temporary_file(b"") as empty:
        assert not source.is_safe(empty)
        table = processes.read_table(source, empty)
        assert np.array_equal(table.values, expected.X)
        assert table.coordinates is not None
        assert np.array_equal(table.coordinates, expected.coordinates)
        assert table.source == {"kind": "synthetic", **asdict(source)}
        with pytest.raises(ProblemError) as caught:
            processes.read_table(replace(source, n=3_000_000), empty)
    assert (caught.value.problem.code, caught.value.problem.status) == ("reader-memory", 413)


@pytest.mark.parametrize("name", BODIES)
def test_a_process_returns_the_table_of_the_reader(processes: ReaderProcesses, name: str) -> None:
    """Values, dtypes, memory order and all additional columns are equal."""
    media, body, options = BODIES[name]
    with temporary_file(body) as file, temporary_file(b"") as out:
        expected = upload(media, options).read(file, out)
        tables = read(processes, media, body, options)
        assert (tables.names, tables.source) == (expected.names, expected.source)
        assert list(tables.extras) == list(expected.extras)
        for array, expected_array in zip(
            (tables.values, *tables.extras.values()), (expected.values, *expected.extras.values()), strict=True
        ):
            assert (array.dtype, array.flags.f_contiguous) == (expected_array.dtype, expected_array.flags.f_contiguous)
            np.testing.assert_array_equal(array, expected_array)


def test_problems_pass_through(processes: ReaderProcesses) -> None:
    """The refusal of the process equals that of the reader."""
    body = b"x,y\n1,2\n3,oops\n"
    with temporary_file(body) as file, temporary_file(b"") as out, pytest.raises(ProblemError) as caught:
        upload(CSV).read(file, out)
    assert refusal(processes, CSV, body) == caught.value.problem


@pytest.mark.parametrize(
    ("media", "bomb"),
    [
        (ARROW, arrow_schema_bomb(10, 6, 2**20)),
        (PARQUET, parquet_footer_bomb(200_000)),
        (NPZ, npz_labels_bomb(40_000)),
    ],
    ids=["schema", "footer", "labels"],
)
def test_a_body_that_takes_too_much_memory_is_refused(processes: ReaderProcesses, media: str, bomb: bytes) -> None:
    """A body that needs too much memory is refused, however its library fails, and the next body is read."""
    assert len(bomb) < 2**23
    problem = refusal(processes, media, bomb)
    assert (problem.code, problem.status) == ("reader-memory", 413)
    assert problem.details == {"allowed": 2**27}
    assert "more memory" in problem.remedy
    read(processes, *BODIES["npz"])


def test_a_body_that_takes_too_long_is_refused(processes: ReaderProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that cannot be read within the time limit is refused."""
    monkeypatch.setattr("service.uploads.sandbox.processes.MAX_READ_SECONDS", 0.1)
    problem = refusal(processes, CSV, b"1\n" * 2_000_000)
    assert (problem.code, problem.status) == ("reader-timeout", 422)
    assert "fewer rows" in problem.remedy


def test_limits_hold() -> None:
    """A process beyond its memory gets a MemoryError; one beyond its processor time is killed."""
    program = (
        "import time\nfrom service.uploads.sandbox.forkserver import restrict\n"
        "restrict(2**27, int(time.process_time()) + 2, 60)\nbytearray(2**20)\n"
        "try:\n    bytearray(2**28)\nexcept MemoryError:\n    while True: pass\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGXCPU


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "full"), forkserver.NO_SPACE),
        (OSError(errno.ENOMEM, "none"), forkserver.NO_MEMORY),
        (MemoryError(), forkserver.NO_MEMORY),
        (OSError(errno.EIO, "broken"), forkserver.FAILED),
        (ZeroDivisionError("oops"), forkserver.FAILED),
    ],
)
def test_errors_of_a_reader_are_its_exit_code(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    """Without memory or space the reader cannot write a problem; a bug goes to standard error."""

    def fail(*_: object) -> None:
        raise error

    codes: list[int] = []
    monkeypatch.setattr(Upload, "read", fail)
    monkeypatch.setattr(forkserver, "restrict", lambda **_: None)
    monkeypatch.setattr(os, "_exit", codes.append)
    request = json.dumps({"allowed": {}, "source": Upload.source, "options": asdict(upload(CSV))}).encode()
    with temporary_file(b"1\n") as file, temporary_file(b"") as out, temporary_file(request) as message:
        forkserver.work(*(os.dup(each.fileno()) for each in (file, out, message)))
    assert codes == [code]


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (ReaderExit(-signal.SIGABRT), "reader-crashed"),
        (ReaderExit(1), "reader-crashed"),
        (ReaderExit(0), "reader-crashed"),
        (ReaderExit(0, message="2^40 zeros"), "reader-crashed"),
        (ReaderExit(0, message='warning\n{"arrays": 1}'), "reader-crashed"),
        (ReaderExit(-signal.SIGABRT, message="terminate called: std::bad_alloc"), "reader-memory"),
        (ReaderExit(-signal.SIGKILL), "reader-memory"),
        (ReaderExit(forkserver.NO_MEMORY), "reader-memory"),
        (ReaderExit(-signal.SIGXCPU, seconds=60), "reader-timeout"),
        (ReaderExit(-signal.SIGALRM), "reader-timeout"),
    ],
)
def test_each_end_has_its_problem(processes: ReaderProcesses, ended: ReaderExit, code: str) -> None:
    """Each way in which a reader may end has a problem with a remedy."""
    with temporary_file(b"") as out, pytest.raises(ProblemError) as caught:
        processes._table(ended, CSV, out)
    assert caught.value.problem.code == code
    assert caught.value.problem.remedy


@pytest.mark.parametrize(("ended", "shown"), [(-signal.SIGABRT, "SIGABRT"), (1, "exit code 1")])
def test_a_crash_is_described(processes: ReaderProcesses, ended: int, shown: str) -> None:
    """The problem has the signal or the exit code of a reader that crashed."""
    with temporary_file(b"") as out, pytest.raises(ProblemError) as caught:
        processes._table(ReaderExit(ended), CSV, out)
    assert caught.value.problem.detail == f"The reader of text/csv crashed on the body ({shown})."


@pytest.mark.parametrize(
    ("code", "error"), [(forkserver.NO_SPACE, OSError), (forkserver.FAILED, RuntimeError)], ids=["full disk", "bug"]
)
def test_errors_of_the_service_are_not_those_of_the_body(
    processes: ReaderProcesses, code: int, error: type[Exception]
) -> None:
    """A full disk is 507, and a bug is 500."""
    with temporary_file(b"") as out, pytest.raises(error):
        processes._table(ReaderExit(code, message="Traceback"), CSV, out)


@pytest.mark.parametrize(
    "place",
    [
        {"dtype": "|O", "shape": [1, 1], "offset": 0},
        {"dtype": "<f8", "shape": [-1, 1], "offset": 0},
        {"dtype": "<f8", "shape": [2, 1], "offset": 0},
        {"dtype": "<f8", "shape": [1, 1], "offset": -8},
        {"dtype": "<f8", "shape": [1, 1], "offset": 8},
        {"dtype": "<U0", "shape": [1, 1], "offset": 0},
    ],
)
def test_no_array_is_outside_of_its_file(place: dict[str, Any]) -> None:
    """A compromised reader's output is not unpickled, and not mapped beyond its end."""
    with temporary_file(bytes(8)) as file, pytest.raises(ValueError, match="array"):
        table_of(file, {"arrays": {"values": {"order": "C", **place}}, "names": None, "source": {}})


def descendants(process: int | str) -> list[str]:
    """Return the child processes of a process, and theirs."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [*children, *(later for each in children for later in descendants(each))]


def is_running(process: str) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_limit(process: str) -> str:
    """Return the line of a process's limit on processor time, by which a reader differs from its watcher."""
    return next(line for line in Path(f"/proc/{process}/limits").read_text().splitlines() if "cpu time" in line)


def test_a_killed_fork_server_is_restarted(processes: ReaderProcesses) -> None:
    """A fork server that is killed before or during a body is restarted, and the body is read."""
    first = pid(processes)
    os.kill(first, signal.SIGKILL)
    read(processes, *BODIES["parquet"])
    second = pid(processes)
    assert second != first
    body = b"x,y\n" + b"1,2\n" * 150_000
    tables: list[Table] = []
    thread = threading.Thread(target=lambda: tables.append(read(processes, CSV, body)))
    thread.start()
    readers: list[str] = []

    def is_reading() -> bool:
        readers.extend(descendants(second))
        return bool(readers)

    until(is_reading)
    until(lambda: any("unlimited" not in cpu_limit(reader) for reader in descendants(second)))
    (reading,) = [reader for reader in descendants(second) if "unlimited" not in cpu_limit(reader)]
    opened = [path.readlink().name for path in Path(f"/proc/{reading}/fd").iterdir()]
    assert sum(name.startswith("socket:") for name in opened) == 1, "the API waits until this process has ended, too"
    os.kill(second, signal.SIGKILL)
    thread.join()
    assert tables[0].values.shape == (150_000, 2)
    until(lambda: not any(is_running(reader) for reader in readers))
    assert pid(processes) not in {first, second}


def test_a_dead_fork_server_costs_no_attempt(processes: ReaderProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that a server no longer accepts goes to the next one, also if nothing else tells that it has died."""
    monkeypatch.setattr("service.uploads.sandbox.processes._MAX_READ_ATTEMPTS", 1)
    read(processes, *BODIES["parquet"])
    control = processes._server._control
    assert control is not None
    control.shutdown(socket.SHUT_RDWR)
    assert len(read(processes, *BODIES["parquet"]).values)


def test_readers_have_no_secrets_and_no_descriptors_of_the_api(
    processes: ReaderProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `close` no process remains, and a body starts one: without settings, with its own descriptors, one thread.

    If that fails, the service is at fault, and a retry may succeed.
    It does not load pandas: pyarrow would import it, which takes half a second and 30 MB in each fork server.
    """
    monkeypatch.setenv("GLLE_REDIS_URL", "redis://:secret@127.0.0.1")
    former = Path(f"/proc/{pid(processes)}")
    processes.close()
    assert not former.exists()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/bin/false")
        problem = refusal(processes, CSV, b"1,2\n")
        assert (problem.code, problem.status) == ("readers-unavailable", 503)
    read(processes, *BODIES["parquet"])
    server = Path(f"/proc/{pid(processes)}")
    assert "GLLE_" not in (server / "environ").read_text()
    assert len(list((server / "task").iterdir())) == 1
    targets = [path.readlink().name for path in (server / "fd").iterdir()]
    assert sum(name.startswith("socket:") for name in targets) == 1  # its input
    assert len(targets) == 3  # and nowhere to write, and what the API logs to
    loaded = (server / "maps").read_text()
    assert ("/pyarrow/" in loaded, "/pandas/" in loaded) == (True, False)


def test_readers_share_half_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more API processes or less memory each has fewer readers, then smaller ones."""
    for memory, apis, budget in (
        (3 * 2**30, 1, ReaderBudget(2, 3 * 2**28)),
        (3 * 2**30, 2, ReaderBudget(2, 3 * 2**27)),
        (2**36, 2, ReaderBudget(4, 2**30)),
        (2**28, 4, ReaderBudget(1, 2**26)),
    ):
        monkeypatch.setattr("service.uploads.sandbox.processes.memory_limit", lambda memory=memory: memory)
        assert ReaderBudget.from_settings(settings(tmp_path, api_processes=apis)) == budget


def test_waiting_for_a_reader_holds_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bodies as readers are parsed at once; one that waits long gets 503, one that gives up frees its place."""
    readers = ReaderProcesses(settings(tmp_path), budget=ReaderBudget(2, 2**27))
    full = ReaderProcesses(settings(tmp_path), budget=ReaderBudget(1, 2**27))
    at_once: list[int] = [0]
    counts: list[int] = []

    async def use_reader() -> None:
        async with readers.slot("a", LARGE):
            at_once[0] += 1
            counts.append(at_once[0])
            await anyio.sleep(0.01)
            at_once[0] -= 1

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(use_reader)
        assert (len(counts), max(counts)) == (6, 2)
        async with full.slot("a", LARGE):
            for tenant in ("a", "b"):
                with anyio.move_on_after(0.01):  # the client disconnects
                    async with full.slot(tenant, LARGE):
                        pass
            monkeypatch.setattr("service.uploads.sandbox.processes.MAX_READ_SECONDS", 0.1)
            with pytest.raises(ProblemError) as caught:
                async with full.slot("a", LARGE):
                    pass
            assert (caught.value.problem.code, caught.value.problem.status) == ("readers-busy", 503)
        for tenant in ("a", "b"):
            async with full.slot(tenant, LARGE):
                pass

    anyio.run(all_of_them)


async def order_of(readers: ReaderProcesses, requests: list[str]) -> list[str]:
    """Return the order in which requests of tenants, such as `a1`, get a slot if they arrive in one moment.

    Those whose names end in `s` are small.
    """
    served = list[str]()

    async def use_reader(request: str) -> None:
        async with readers.slot(request[0], MAX_SMALL_BYTES if request.endswith("s") else LARGE):
            served.append(request)
            await asyncio.sleep(0.01)

    await asyncio.gather(*map(use_reader, requests))
    return served


@pytest.mark.parametrize(
    ("slots", "limit", "requests", "served"),
    [
        (1, SHARE, "a1 a2 a3 a4 b1", "a1 b1 a2 a3 a4"),
        (1, SHARE, "a1 a2 a3 b1 b2 b3", "a1 b1 a2 b2 a3 b3"),
        (1, SHARE, "a1 a2 a3 b1 c1", "a1 b1 c1 a2 a3"),
        (2, SHARE, "a1 a2 a3 b1 b2", "a1 b1 a2 b2 a3"),
        (3, SHARE, "a1 b1 c1 a2", "a1 b1 c1 a2"),
        (4, SHARE, "a1 a2 a3 a4 b1", "a1 a2 a3 b1 a4"),
        (2, UNLIMITED, "a1 a2 a3 a4", "a1 a2 a3 a4"),
        (2, 1, "a1 a2 a3 b1", "a1 b1 a2 a3"),
        (2, UNLIMITED, "a1 a2 a3 a4s a5s", "a1 a2 a4s a5s a3"),
        (1, SHARE, "a1 a2 b1s", "a1 b1s a2"),
    ],
)
def test_tenants_take_turns_at_the_readers(tmp_path: Path, slots: int, limit: int, requests: str, served: str) -> None:
    """The readers are never all one tenant's if there are several; small bodies do not wait for large ones."""
    share = Share(0, lambda _: limit)
    readers = ReaderProcesses(settings(tmp_path), budget=ReaderBudget(slots, 2**27), share=share)
    assert asyncio.run(order_of(readers, requests.split())) == served.split()
    assert (share.used, share.held, len(readers._slots._served)) == (0, {}, 0)


def test_a_large_body_does_not_wait_for_ever_behind_small_ones(tmp_path: Path) -> None:
    """A large body precedes small bodies that arrive later than the time that reading it takes."""
    slots = ReaderProcesses(settings(tmp_path), budget=ReaderBudget(1, 2**27))._slots
    sizes = [(READ_BYTES_PER_SECOND, 0.0), (1, 2.0), (1, 0.5)]
    waiting_bodies = [_WaitingBody("a", size, arrived, cast("asyncio.Future[bool]", None)) for size, arrived in sizes]
    assert [(body.size, body.arrived) for body in sorted(waiting_bodies, key=slots._order)] == [
        sizes[index] for index in (2, 0, 1)
    ]
