"""`glle doctor` on healthy and on broken deployments."""

from __future__ import annotations

import json
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis
from rq import Worker as RqWorker

from glle_engine.tables.table import Table
from service.app import create_app
from service.cli import doctor, main, options
from tests.conftest import until
from tests.service.conftest import embedded_redis, register_worker, serving
from tests.system.conftest import ROOT
from worker.base.problems import worker_lost
from worker.base.settings import Settings, rows, shared_values
from worker.jobs.rq_tasks import open_queue
from worker.operations import permissions
from worker.records.job import BATCH, INTERACTIVE, QUEUES
from worker.storage.mark import PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from worker.operations.health import Check
    from worker.records.job import Job
    from worker.stores import Stores


def checks_by_name(checks: Iterator[Check]) -> dict[str, Check]:
    """Return checks by name; exactly the failed ones have a remedy."""
    output = list(checks)
    assert all(bool(check.remedy) == (check.state != "ok") for check in output)
    return {check.name: check for check in output}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with every setting wrong."""
    options = ("appendonly no", "maxmemory-policy volatile-lru")
    with embedded_redis(tmp_path_factory.mktemp("broken"), *options) as server:
        yield server.url


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    """Check the engine once: its fits and draws are the same in each report."""
    checks = list(doctor.engine(Settings()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(doctor, "engine", lambda _: iter(checks))
        yield


def register_complete_worker(stores: Stores) -> None:
    """Register a live worker with both of its processes for tasks."""
    register_worker(stores, settings=shared_values(stores.settings))
    for name, queues in (("quick", QUEUES[:1]), ("batch", QUEUES[::-1])):
        RqWorker(queues, name=name, connection=stores.client).register_birth()  # type: ignore[no-untyped-call] # of RQ


def test_a_good_deployment_is_all_ok(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Correct servers, a live worker and free space: every check passes, and the exit code is 0."""
    monkeypatch.setattr(doctor, "MAX_ROUND_TRIP_SECONDS", 1.0)  # the machine may be busy
    register_complete_worker(stores)
    stores.client.config_set("appendfsync", "always")
    try:
        checks = checks_by_name(doctor.deployment(stores.settings))
    finally:
        stores.client.config_set("appendfsync", "everysec")
    bad = {name: check.detail for name, check in checks.items() if check.state != "ok" and name != "disk space"}
    assert bad == {}
    assert {
        "queue connection", "queue clock", "queue server", "queue persistence", "cache connection", "cache clock",
        "cache server", "cache policy", "cache memory", "two servers", "workers", "backlog of glle-interactive",
        "backlog of glle-batch", "backlog of draws", "engine versions", "queue replay", "records", "files",
        "worker threads", "worker clocks", "worker memory", "shared settings",
        "workers of glle-interactive", "workers of glle-batch", "data folder", "disk space", "fingerprint",
        "small draw",
    } <= set(checks)  # fmt: skip
    assert list(stores.client.scan_iter("glle:doctor:*")) == []


def test_wrong_policies_are_named(stores: Stores, broken: str) -> None:
    """A queue server that evicts, or that is also the cache, is a problem; no persistence is a warning."""
    other_database = stores.settings.redis_url.removesuffix("/0") + "/1"
    checks = checks_by_name(doctor.deployment(replace(stores.settings, redis_url=broken)))
    assert (checks["queue server"].state, checks["queue persistence"].state) == ("problem", "warning")
    assert "noeviction" in checks["queue server"].remedy
    assert "appendonly" in checks["queue persistence"].remedy
    assert checks["two servers"].state == "ok"
    for changes, names, states in (
        ({"cache_url": broken}, ("cache policy", "cache memory"), ("warning", "warning")),
        ({"cache_bytes": 2**40}, ("cache memory",), ("warning",)),  # beyond the memory of the server
        ({"cache_url": other_database}, ("two servers", "cache policy"), ("problem", "problem")),
    ):
        checks = checks_by_name(doctor.deployment(replace(stores.settings, **changes)))
        assert tuple(checks[name].state for name in names) == states


def test_an_unreachable_server_is_one_problem(stores: Stores) -> None:
    """A server that does not answer is one problem; checks that need it are skipped, and the password is hidden."""
    nowhere = "redis://:hidden@127.0.0.1:1/0"
    checks = checks_by_name(doctor.deployment(replace(stores.settings, redis_url=nowhere)))
    assert checks["queue connection"].state == "problem"
    assert "GLLE_REDIS_URL" in checks["queue connection"].remedy
    assert "hidden" not in str(checks)
    assert checks["queue connection"].detail.endswith("refused.")
    assert checks["cache connection"].state == "ok"
    without = re.sub("//.*@", "//", stores.settings.redis_url)
    checks = checks_by_name(doctor.deployment(replace(stores.settings, redis_url=without)))
    assert checks["queue connection"].remedy == "Correct the user or the password of GLLE_REDIS_URL."
    assert not {"workers", "two servers", "queue server"} & set(checks)


def test_missing_urls(settings: Settings) -> None:
    """One URL alone is a mistake; no URL means the embedded servers of a running service."""
    for redis_url, cache_url, state in (("", "", "warning"), ("redis://x", "", "problem")):
        checks = checks_by_name(doctor.deployment(replace(settings, redis_url=redis_url, cache_url=cache_url)))
        assert checks["servers"].state == state


def test_mismatched_workers_are_reported(stores: Stores) -> None:
    """Another engine version, unpinned threads, a waiting queue, and no worker are each reported."""
    assert checks_by_name(doctor.deployment(stores.settings))["workers"].state == "problem"
    register_worker(stores)
    differing = {"GLLE_JOB_TIMEOUT": "5"}
    register_worker(stores, "old", engine="0.0.1", threads="", skew=-90.0, memory=2**30, settings=differing)
    RqWorker([INTERACTIVE], name="quick", connection=stores.client).register_birth()  # type: ignore[no-untyped-call] # of RQ
    open_queue(BATCH, stores.client).enqueue_call("fit", job_id="waits")
    since = datetime.now(UTC) - timedelta(minutes=5)
    stores.client.hset("rq:job:waits", "enqueued_at", since.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    checks = checks_by_name(doctor.deployment(stores.settings))
    assert checks["workers"].state == "ok"
    assert (checks["engine versions"].state, checks["worker threads"].state) == ("warning", "warning")
    assert "0.0.1" in checks["engine versions"].detail
    assert checks["worker threads"].detail == "These workers may compute with several threads: old."
    assert checks["backlog of glle-batch"].state == "warning"
    assert (
        checks["worker clocks"].detail
        == "The clocks of these workers differ from the clock of the queue's server: old (-90.0 s)."
    )
    assert "old has GLLE_JOB_TIMEOUT=5, this command 600" in checks["shared settings"].detail
    assert "old (1GiB)" in checks["worker memory"].detail
    takers = [checks[f"workers of {queue}"].state for queue in QUEUES]
    assert takers == ["warning", "problem"], "no worker runs long tasks"


def test_url_without_a_glle_service(client: httpx.Client) -> None:
    """No URL, no server, another program: one problem each, with a remedy."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        free = occupied.getsockname()[1]
    for url in ("nowhere", f"http://127.0.0.1:{free}", f"{client.base_url}/nowhere"):
        checks = checks_by_name(doctor.service(url))
        assert {name: check.state for name, check in checks.items()} == {"service": "problem"}


def test_service_without_workers_is_reported_with_its_remedy(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness fails with the service's remedy; the job does not end, and its data set is deleted."""
    monkeypatch.setattr(doctor, "FIT_SECONDS", 0.0)
    with impatient(stores, monkeypatch) as client:
        checks = checks_by_name(doctor.service(str(client.base_url)))
    assert [check.state for check in checks.values()] == ["ok", "problem", "ok", "problem"]
    assert "glle worker" in checks["ready"].remedy
    assert "had not ended" in checks["long task"].detail
    assert list(stores.datasets.newest()) == []


def test_workers_on_which_long_tasks_die_are_reported(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor's fit is a long task, not one that executors run; its failure is named, with the worker's log."""
    lost: list[Job] = []

    def lose() -> None:
        until(lambda: stores.jobs.sample_open(1))
        (id_,) = stores.jobs.sample_open(1)
        lost.append(stores.jobs.fetch(id_))
        stores.jobs.fail(id_, worker_lost(id_, 4))

    with impatient(stores, monkeypatch) as client, ThreadPoolExecutor() as worker:
        end = worker.submit(lose)
        checks = checks_by_name(doctor.service(str(client.base_url)))
        end.result()
    assert [job.queue for job in lost] == [BATCH]
    assert (checks["long task"].state, "end to end" in checks) == ("problem", False)
    assert checks["long task"].detail.startswith("A fit of 6,000 points failed. 503: A task of job ")
    assert "log" in checks["long task"].remedy
    assert "requirements/server.lock" in checks["long task"].remedy


@contextmanager
def impatient(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """Serve an app that waits for no job."""
    monkeypatch.setattr("service.submission.waiting.MAX_WAIT_SECONDS", 0.1)
    with serving(create_app(stores)) as client:
        yield client


def test_report_as_text_and_as_json(
    stores: Stores, broken: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line per check with remedies and a summary, or an object. A problem has exit code 1, a misspelled option 2."""
    register_complete_worker(stores)
    for name, value in replace(stores.settings, port=0).to_env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLLE_WORKER", "3")
    assert main.main(["doctor"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "warning  settings: These variables are not settings: GLLE_WORKER."
    assert output[1].startswith("         -> ")
    assert output[-1].endswith(" 0 problems.")
    monkeypatch.setenv("GLLE_REDIS_URL", broken)
    assert main.main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["counts"]["problem"] == sum(check["state"] == "problem" for check in report["checks"]) > 0
    assert {"name", "state", "detail", "remedy", "code"} == set(report["checks"][0])


def test_a_service_with_keys(guarded_client: httpx.Client, stores: Stores) -> None:
    """Without a key the remedy is the variable of the doctor's key; with a key the check succeeds."""
    url = str(guarded_client.base_url)
    without = checks_by_name(doctor.service(url))["key"]
    assert (without.state, "Set GLLE_KEY" in without.remedy) == ("problem", True)
    key = stores.keys.create("default", ("write",), "doctor", None)[1]
    version = next(check for check in doctor.service(url, key) if check.name == "version")  # no worker for the rest
    assert version.state == "ok"


def test_records_without_files_are_named(stores: Stores) -> None:
    """Records that have lost their file are named, also if the files of other records are left."""
    kept, lost = (stores.datasets.add(Table(values=np.eye(n), source={}))[0] for n in (3, 4))
    stores.mark.renew()
    check = checks_by_name(doctor.deployment(stores.settings))["files"]
    assert (check.state, check.detail) == ("ok", "The files of all records are there.")
    for path in lost.files:
        stores.datasets.files.bucket.remove(path)
    check = checks_by_name(doctor.deployment(stores.settings))["files"]
    assert (check.state, check.detail) == ("problem", f"1 records have no file: {lost.id}.")
    assert kept.id not in check.detail


def test_a_loss_is_a_problem_until_it_is_accepted(
    stores: Stores, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says what is lost, that no key is left, and changes nothing if nothing is lost."""
    for name, value in stores.settings.to_env().items():
        monkeypatch.setenv(name, value)
    stores.keys.create("alice", ("read",), "", None)
    stores.mark.renew()
    assert main.main(["doctor", "--accept-loss"]) == 0
    assert "Nothing is lost" in capsys.readouterr().out
    stores.client.flushall()
    check = checks_by_name(doctor.deployment(stores.settings))["records"]
    assert (check.state, check.code) == ("problem", "records-lost")
    assert "had records (keys: 1)" in check.detail
    assert main.main(["doctor", "--accept-loss"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(check.detail)
    assert "No API key is left" in output
    stores.mark.__init__(stores.client, stores.datasets.files.bucket)  # type: ignore[misc] # as a new process
    assert checks_by_name(doctor.deployment(stores.settings))["records"].state == "ok"


DAMAGE: dict[str, Callable[[Path], object]] = {
    "mark-damaged": lambda folder: (folder / "objects" / PATH).write_text("{}"),
    "other-schema": lambda folder: (folder / "objects" / PATH).write_text('{"format": 4}'),
    "files-lost": lambda folder: (folder / "objects" / PATH).unlink(),
    "records-lost": lambda folder: shutil.rmtree(folder / "queue" / "appendonlydir"),
}


@pytest.mark.parametrize("code", DAMAGE)
def test_the_data_folder_of_a_stopped_service_is_checked(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other commands refuse a loss, and its acceptance helps, unless the schema differs."""
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)
    monkeypatch.setenv("GLLE_DATA_DIR", str(tmp_path))
    assert main.main(["keys", "create"]) == 0
    assert checks_by_name(doctor.deployment(Settings(data_dir=str(tmp_path))))["records"].state == "ok"
    DAMAGE[code](tmp_path)
    check = checks_by_name(doctor.deployment(Settings(data_dir=str(tmp_path))))["records"]
    assert (check.state, check.code) == ("problem", code)
    capsys.readouterr()
    for command in ("list", "create"):
        assert main.main(["keys", command]) == options.CANNOT_START
        output = capsys.readouterr()
        assert (check.detail in output.err, output.out) == (True, "")
    is_accepted = code != "other-schema"
    assert main.main(["doctor", "--accept-loss"]) == (0 if is_accepted else 1)
    assert main.main(["keys", "list"]) == (0 if is_accepted else options.CANNOT_START)


def test_what_the_log_survives_is_named(stores: Stores, tmp_path: Path) -> None:
    """`appendfsync everysec` is a warning, and a user that cannot read this setting is told so."""
    stores.client.config_set("appendfsync", "everysec")
    info = {"aof_enabled": 1}
    check = doctor._persistence(stores.client, info)
    assert (check.state, "appendfsync everysec" in check.detail) == ("warning", True)
    assert "appendfsync always" in check.remedy
    with embedded_redis(tmp_path) as server:
        admin = redis.Redis.from_url(server.url)
        admin.execute_command("ACL", "SETUSER", "glle", "on", ">secret", "~*", "&*", "+@all", "-config")  # type: ignore[no-untyped-call]
        with redis.Redis.from_url(re.sub("//[^@]*@", "//glle:secret@", server.url)) as client:
            check = doctor._persistence(client, info)
        assert (check.state, "does not show" in check.detail) == ("ok", True)
        admin.config_set("appendfsync", "always")
        assert doctor._persistence(admin, info).detail.endswith("appendfsync always.")


def test_a_user_default_without_permissions_is_a_problem(tmp_path: Path) -> None:
    """Redis replays its append-only file as this user; the documented line is enough, and does not let it log in."""
    page = (ROOT / "docs" / "how-to" / "storage.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"^    user default (.*)$", page, re.MULTILINE)
    with embedded_redis(tmp_path) as server:
        admin = redis.Redis.from_url(server.url)
        admin.execute_command("ACL", "SETUSER", "glle", "on", ">secret", "~*", "&*", "+@all")  # type: ignore[no-untyped-call]
        with redis.Redis.from_url(re.sub("//[^@]*@", "//glle:secret@", server.url)) as client:
            for line, state in (("off", "problem"), ("off ~glle:* +@all", "problem"), (documented, "ok")):
                client.execute_command("ACL", "SETUSER", "default", "reset", *line.split())
                assert doctor._replay(client).state == state
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(server.url).ping()


@pytest.mark.parametrize(
    ("version", "slow_seconds", "state", "remedy"),
    [
        ("6.2.14", doctor.MAX_ROUND_TRIP_SECONDS, "problem", "Use Redis"),
        ("7.0.15", doctor.MAX_ROUND_TRIP_SECONDS, "ok", None),
        ("7.0.15", -1.0, "warning", "Move the server nearer"),
    ],
)
def test_servers_that_are_old_or_far_away_are_named(
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    slow_seconds: float,
    state: str,
    remedy: str | None,
) -> None:
    """An old or a distant server has a remedy; the page of the documentation names the same oldest version."""
    page = (ROOT / "docs" / "how-to" / "storage.md").read_text(encoding="utf-8")
    assert f"glle needs Redis {'.'.join(map(str, doctor.MIN_REDIS_VERSION))} or newer" in page
    monkeypatch.setattr(stores.client, "info", lambda *_: {"redis_version": version})
    monkeypatch.setattr(doctor, "MAX_ROUND_TRIP_SECONDS", slow_seconds)
    checks = checks_by_name(doctor._connection("queue", stores.client, "GLLE_REDIS_URL", permissions.QUEUE))
    assert checks["queue connection"].state == state
    assert (checks["queue connection"].remedy or "").startswith(remedy or "")


def test_missing_rules_of_users_are_named(tmp_path: Path) -> None:
    """The documented rules are complete, and administer nothing; the doctor names each missing one, and stops."""
    page = (ROOT / "docs" / "how-to" / "storage.md").read_text(encoding="utf-8")
    called: dict[str, set[str]] = {"queue": set(), "cache": set()}
    for path in (ROOT / "worker").rglob("*.py"):
        calls = re.findall(r"redis\.p?call\(\s*'(\w+)'(?:, '(CREATE)')?", path.read_text(encoding="utf-8"))
        called["cache" if path.name == "draw_stream.py" else "queue"] |= {
            "|".join(filter(None, words)).lower() for words in calls
        }
    assert {"incrby", "hset"} <= called["queue"] <= {*permissions.QUEUE.commands.split()}
    assert {"xreadgroup"} <= called["cache"] <= {*permissions.CACHE.commands.split()}
    with embedded_redis(tmp_path) as server:
        admin = redis.Redis.from_url(server.url)
        for name, needed in (("queue", permissions.QUEUE), ("cache", permissions.CACHE)):
            (line,) = re.findall(rf"user glle-{name} on >PASSWORD (.*)", page)
            assert {w for w in line.split() if w[0] in "+~&"} == {
                *(f"+{command}" for command in needed.commands.split()),
                *(f"~{prefix}*" for prefix in needed.keys),
                *(f"&{prefix}*" for prefix in needed.channels),
            }
            administration = {"acl|list", "config|get", "debug", "flushall", "keys", "shutdown"}
            assert not administration & {*needed.commands.split()}
            with redis.Redis.from_url(re.sub("//[^@]*@", f"//{name}:secret@", server.url)) as client:
                for rules, missing in (
                    (line.split(), []),
                    (["-set", "-eval", "-client|setname"], ["+client|setname", "+eval", "+set"]),
                    (["resetchannels"], [f"&{prefix}*" for prefix in needed.channels]),
                    (["resetkeys", *(f"&{p}*" for p in needed.channels)], [f"~{prefix}*" for prefix in needed.keys]),
                    (["reset", "on", ">secret", "~*", "&*", "+@all", "-multi"], ["+multi"]),
                ):
                    admin.execute_command("ACL", "SETUSER", name, "on", ">secret", *rules)  # type: ignore[no-untyped-call]
                    assert needed.missing(client) == missing
                (check,) = doctor._connection(name, client, "GLLE_X_URL", needed)
        assert (check.state, "+multi" in check.detail) == ("problem", True)
