"""`python -m tests.service.middleware.answer_cache_memory BODY,QUERY ...`: memory of a full answer cache.

Prints a line for each pair of sizes, measured in a forked process: the growth of resident memory as a share of the
budget when the cache is first full, and after twice as many responses.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response

from service.middleware.answer_cache import AnswerCache

if TYPE_CHECKING:
    from starlette.types import Scope

BUDGET = 2**22
HEADERS = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept", "Accept-Ranges": "bytes"}


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def keep(cache: AnswerCache, number: int, body: int, query: int) -> None:
    """Cache the response to a request for a draw."""
    posterior = "".join(["post_", f"{number % 10:032x}"])  # a new object, as from a request's path
    query_string = b"seed=%d&points=" % number + b"1," * (query // 2) + b"1"
    scope: Scope = {
        "type": "http", "path": f"/v1/posteriors/{posterior}/draws/{number}", "query_string": query_string,
        "route": None, "headers": [(b"accept", b"application/x-npy")], "glle.tenant": "default",
    }  # fmt: skip
    state = f"{posterior} 2000-01-01T00:00:00.000Z"  # a new object, as from a record's property
    tag = {"ETag": f'"{number:032x}"'}
    cache.keep(scope, posterior, state, Response(os.urandom(body), 200, tag | HEADERS, "application/x-npy"))


async def present(_tenant: str, _id: str) -> str:
    """Return the state of every posterior."""
    return "state"


def main(body: int, query: int) -> None:
    """Fill a cache and print its memory."""
    cache = AnswerCache(BUDGET, present)
    keep(cache, 0, body, query)
    gc.collect()
    before, number = resident(), 1
    while len(cache._answers) == number:
        keep(cache, number, body, query)
        number += 1
    gc.collect()
    full = resident() - before
    for more in range(number, 2 * number):
        keep(cache, more, body, query)
    gc.collect()
    print(full / BUDGET, (resident() - before) / BUDGET, flush=True)  # noqa: T201 # the program's output


if __name__ == "__main__":
    for sizes in sys.argv[1:]:
        if (pid := os.fork()) == 0:
            main(*map(int, sizes.split(",")))
            os._exit(0)
        os.waitpid(pid, 0)
