"""The reader process of one body: it takes its limits, reads, writes the outcome, and ends."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import traceback
from pathlib import Path
from typing import IO, NoReturn

from service.uploads.registry import reader_of
from service.uploads.sandbox.transfer import Order, write_outcome, write_table
from worker.base.problems import ProblemError
from worker.base.settings import Settings

DONE, NO_MEMORY, NO_SPACE, FAILED = 0, 77, 78, 79  # exit codes; the outcome is in the file after the first alone
GRACE_SECONDS = 5  # of processor time between the signal that ends a reader and the one that ends any process
_ENDS = {errno.ENOMEM: NO_MEMORY, errno.ENOSPC: NO_SPACE, errno.EDQUOT: NO_SPACE}  # nothing can be written then


def work(body: int, result: int) -> NoReturn:
    """Read the body of a descriptor into the file of another, and end this process."""
    code = FAILED
    try:
        with os.fdopen(body, "r+b") as file, os.fdopen(result, "r+b") as out:
            order = Order.read(out)
            restrict(order.memory, order.cpu)
            _read(order, file, out)
        code = DONE
    except MemoryError:
        code = NO_MEMORY
    except OSError as error:
        code = _ENDS.get(error.errno or 0, FAILED)
        traceback.print_exc()
    except BaseException:  # noqa: BLE001 # it goes to the log of the API
        traceback.print_exc()
    finally:
        os._exit(code)


def restrict(memory: int, cpu: int) -> None:
    """Limit this process to so many bytes beyond what it has, and so many seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + GRACE_SECONDS))
    with contextlib.suppress(OSError):  # a container may mount /proc for reading alone
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to go when the machine has no memory left
    with contextlib.suppress(FileNotFoundError):  # Linux has it, and counts private memory by RLIMIT_DATA
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _read(order: Order, file: IO[bytes], out: IO[bytes]) -> None:
    file.seek(0)
    try:
        read = reader_of(order.content_type, "", Settings()).read
        table = read(file, order.limits, order.apart)
    except ProblemError as error:
        write_outcome(out, {"problem": error.problem.to_dict()})
    else:
        write_table(out, table)
