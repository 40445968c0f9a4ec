"""A backup is a copy, taken under load and while the log is rewritten: records, keys, jobs and bits come back."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from qa.frame import repeat
from tests.system.conftest import ONE_EACH, ROOT, fit_posterior, glle, running, synthetic, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.system.conftest import Up

BACKUP = ROOT / "deploy" / "backup.sh"
NPY = {"accept": "application/x-npy"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@contextmanager
def service(folder: Path) -> Iterator[tuple[Up, httpx.Client]]:
    """Run `glle up` on a folder; yield the service and a client whose admin key is stored beside the folder."""
    folder.mkdir(exist_ok=True)
    with running(folder, **ONE_EACH, GLLE_AUTH="required") as up:
        key = (folder.parent / "key").read_text()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=up.url, timeout=60, headers=headers) as client:
            yield up, client
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(60) == 0, up.log.read_text()


def work(up: Up, client: httpx.Client, rng: random.Random) -> None:
    """Upload, fit and draw, and let the queue's server rewrite its log."""
    if rng.random() < 0.5:
        up.redis("GLLE_REDIS_URL").bgrewriteaof()
    path = fit_posterior(client, synthetic(client, 60 + rng.randrange(40), seed=rng.randrange(1000)))
    assert client.get(f"{path}/draws/{rng.randrange(9)}?wait=30").status_code == 200


def test_a_copy_is_a_backup(tmp_path: Path) -> None:
    """After the loss of the folder the copy serves the same bodies and ETags, to the same key."""
    data = tmp_path / "first" / "data"
    created = glle("keys", "create", "--scope", "admin", "--tenant", "alice", "--data-dir", str(data))
    assert created.returncode == 0, created.stderr
    (tmp_path / "key").write_text(created.stdout.strip())
    with service(tmp_path / "first") as (up, client):
        dataset = synthetic(client, 200)
        path = fit_posterior(client, dataset)
        job = client.post(f"{path}/draws", json={"n_draws": 40}).json()["id"]
        assert wait_for_end(client, job)["status"] == "succeeded"
        result = f"/v1/jobs/{job}/result"
        paths = [f"/v1/datasets/{dataset}/data", f"{path}/arrays?name=mean", f"{path}/draws/3?wait=30", result]
        before = {each: client.get(each, headers=NPY) for each in paths}
        assert {answer.status_code for answer in before.values()} == {200}
        rng = random.Random(0)  # noqa: S311 # not for secrets
        with repeat(lambda: work(up, client, rng)):
            for attempt in range(3):
                subprocess.run(["/bin/sh", BACKUP, data, tmp_path / f"copy{attempt}"], check=True, timeout=100)
    shutil.rmtree(tmp_path / "first")
    for attempt in range(3):
        (tmp_path / "second").mkdir()
        (tmp_path / f"copy{attempt}").rename(tmp_path / "second" / "data")
        with service(tmp_path / "second") as (_, client):
            for each, answer in before.items():
                again = client.get(each, headers=NPY)
                assert (again.status_code, again.content) == (200, answer.content), each
                assert again.headers["etag"] == answer.headers["etag"]
            assert client.get(f"/v1/jobs/{job}").json()["status"] == "succeeded"
        scrubbed = glle("scrub", "--data-dir", str(tmp_path / "second" / "data"))
        assert scrubbed.returncode == 0, scrubbed.stdout
        shutil.rmtree(tmp_path / "second")
