"""Reader process of one body: set its limits, read the body, write the outcome, and exit."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import traceback
from pathlib import Path
from typing import IO, NoReturn

from service.uploads.formats.posterior import read_posterior
from service.uploads.packing import Packing
from service.uploads.registry import reader_of
from service.uploads.sandbox.transfer import ReadRequest, write_outcome, write_table
from worker.base.memory import limit_memory
from worker.base.problems import ProblemError
from worker.base.settings import Settings

DONE, NO_MEMORY, NO_SPACE, FAILED = 0, 77, 78, 79  # exit codes; only DONE has an outcome in the file
GRACE_SECONDS = 5  # of processor time between SIGXCPU and SIGKILL
_EXIT_CODES = {
    errno.ENOMEM: NO_MEMORY,
    errno.ENOSPC: NO_SPACE,
    errno.EDQUOT: NO_SPACE,
}  # no outcome can be written then


def work(body: int, result: int) -> NoReturn:
    """Read the body of one descriptor, write the outcome to another, and end this process."""
    code = FAILED
    try:
        with os.fdopen(body, "r+b") as file, os.fdopen(result, "r+b") as out:
            request = ReadRequest.read(out)
            restrict(request.memory, request.cpu)
            _read(request, file, out)
        code = DONE
    except MemoryError:
        code = NO_MEMORY
    except OSError as error:
        code = _EXIT_CODES.get(error.errno or 0, FAILED)
        traceback.print_exc()
    except BaseException:  # noqa: BLE001 # the API logs it
        traceback.print_exc()
    finally:
        os._exit(code)


def restrict(memory: int, cpu: int) -> None:
    """Limit this process to `memory` further bytes, and to `cpu` seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + GRACE_SECONDS))
    with contextlib.suppress(OSError):  # a container may mount /proc read-only
        Path("/proc/self/oom_score_adj").write_text(
            "1000"
        )  # the first process to kill if the machine runs out of memory
    limit_memory(memory)


def _read(request: ReadRequest, file: IO[bytes], out: IO[bytes]) -> None:
    file.seek(0)
    try:
        if request.tenant:
            facts = read_posterior(file, out, request.limits, request.tenant, request.numbers)
        elif request.cap:
            packing = Packing(request.content_type, request.encoding).unpack(file, out, request.cap)
        else:
            table = reader_of(request.content_type, Settings()).read(file, request.limits, request.roles)
    except ProblemError as error:
        write_outcome(out, {"problem": error.problem.to_dict()})
        return
    if request.tenant:
        write_outcome(out, {"posterior": facts})
    elif request.cap:
        write_outcome(out, {"packing": packing.to_dict()})
    else:
        write_table(out, table)
