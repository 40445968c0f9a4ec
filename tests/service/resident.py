"""`python -m tests.service.resident BODY QUERY`: the memory that a full answer cache takes, in shares of its budget.

Prints the growth of resident memory when the cache is first full, and after twice as many answers went through it.
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

BUDGET = 32 * 2**20
HEADERS = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept", "Accept-Ranges": "bytes"}


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def keep(recent: AnswerCache, number: int, body: int, query: int) -> None:
    """Keep the answer to a request for a draw."""
    posterior = "".join(["post_", f"{number % 10:032x}"])  # an object for each request, as its path gives one
    asked = b"seed=%d&points=" % number + b"1," * (query // 2) + b"1"
    scope: Scope = {
        "type": "http", "path": f"/v1/posteriors/{posterior}/draws/{number}", "query_string": asked, "route": None,
        "headers": [(b"accept", b"application/x-npy")], "glle.tenant": "default",
    }  # fmt: skip
    state = f"{posterior} 2000-01-01T00:00:00.000Z"  # an object for each request, too: a record's property
    tag = {"ETag": f'"{number:032x}"'}
    recent.keep(scope, posterior, state, Response(os.urandom(body), 200, tag | HEADERS, "application/x-npy"))


def main(body: int, query: int) -> None:
    """Fill a cache and print what it takes."""
    recent = AnswerCache(BUDGET, lambda _: "state")
    keep(recent, 0, body, query)
    gc.collect()
    before, number = resident(), 1
    while len(recent._answers) == number:
        keep(recent, number, body, query)
        number += 1
    gc.collect()
    full = resident() - before
    for more in range(number, 3 * number):
        keep(recent, more, body, query)
    gc.collect()
    print(full / BUDGET, (resident() - before) / BUDGET)  # noqa: T201 # the program's output


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
