"""Records of jobs as they are kept in a backup: read as they are written, and written as they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.base.clock import now_ms
from worker.jobs import lua_scripts
from worker.jobs.index import INDEX
from worker.records.ids import index_member, text
from worker.records.job import job_key
from worker.records.tenants import DEFAULT, tenant_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis


def ended_jobs(client: redis.Redis) -> Iterator[tuple[str, dict[str, str], int]]:
    """Yield (id, record as it is written, milliseconds it is still kept) of all tenants' jobs that have ended."""
    for raw in client.scan_iter(match=job_key("*"), count=1000):
        with client.pipeline(transaction=True) as both:
            both.hgetall(raw)
            both.pttl(raw)
            record, left = both.execute()
        if left > 0:  # without an end it is open; it is told perhaps twice
            yield text(raw).removeprefix(job_key("")), {text(k): text(v) for k, v in record.items()}, left


def put_job(client: redis.Redis, record: dict[str, str], left: int) -> bool:
    """Write the record of a job that has ended, as it was; return whether there was none."""
    id_ = record["id"]
    tenant = record.get("tenant", DEFAULT)
    keys = [job_key(id_), tenant_key(INDEX, tenant)]
    told = [part for field in record.items() for part in field]
    put = client.register_script(lua_scripts.PUT)
    return bool(put(keys=keys, args=[left, index_member(record["created"], id_), now_ms(), tenant, *told]))
