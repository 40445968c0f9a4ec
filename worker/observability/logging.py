"""Log lines: for people, or one JSON object a line; both with the ids of the request, the job and the trace."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from worker.observability.request_context import JOB_ID, REQUEST_ID
from worker.observability.tracing import trace_id
from worker.records.ids import KEY_ID_BYTES, KEY_PREFIX

if TYPE_CHECKING:
    from worker.base.settings import Settings

log = logging.getLogger("glle")
_KEY = re.compile(rf"({KEY_PREFIX}_[0-9a-f]{{{2 * KEY_ID_BYTES}}})_[\w-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class TextLines(logging.Formatter):
    """Time, level, logger and message, then what is known of where it comes from."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it."""
        told = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}"
        line = _printable(line + (f" [{told}]" if told else ""))
        return redacted(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonLines(logging.Formatter):
    """One object a line, tracebacks in it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return redacted(json.dumps(told, default=str))


def configure(settings: Settings) -> None:
    """Write the log lines of this process, whoever makes them, to standard error as the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.captureWarnings(capture=True)


def has_access_log(settings: Settings) -> bool:
    """Say whether each request has a line of its own."""
    return settings.access_log == "on" or (settings.access_log == "auto" and settings.log_format == "json")


def announce(text: str, settings: Settings) -> None:
    """Tell whoever started the program: a bare line, or an object where all lines are."""
    if settings.log_format == "json":
        record = log.makeRecord(log.name, logging.INFO, "", 0, text, (), None)
        text = JsonLines().format(record)
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the command's output


def redacted(text: str) -> str:
    """Replace the secret of each API key in a text by ``***``; the key's id stays."""
    return _KEY.sub(r"\1_***", text)


def _printable(text: str) -> str:
    """Return a text on one line: a path with %0a in it would begin another, and %1b command the terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return where a line comes from, and what its writer gave as `extra={"fields": ...}`."""
    known = {"request_id": REQUEST_ID.get(), "job_id": JOB_ID.get(), "trace_id": trace_id()}
    return {name: value for name, value in known.items() if value} | getattr(record, "fields", {})
