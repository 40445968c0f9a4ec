"""Log lines as text or JSON, which name the request and the job, and in which the secrets of API keys are replaced."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import TYPE_CHECKING, Any

from worker.base.clock import iso
from worker.observability.request_context import JOB_ID, REQUEST_ID
from worker.records.ids import KEY_ID_BYTES, KEY_PREFIX

if TYPE_CHECKING:
    from worker.base.settings import Settings

log = logging.getLogger("glle")
_KEY = re.compile(rf"({KEY_PREFIX}_[0-9a-f]{{{2 * KEY_ID_BYTES}}})_[\w-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class TextLines(logging.Formatter):
    """Formatter of log lines as text: time, level, logger, message, and fields such as ``[job_id=job_1]``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line of text, with its traceback on further lines."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{iso(int(1000 * record.created))} {record.levelname.lower()} {record.name}: {record.getMessage()}"
        line = _printable(line + (f" [{fields}]" if fields else ""))
        return redact_keys(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonLines(logging.Formatter):
    """Formatter of log lines as JSON: one object for each log record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line with a JSON object."""
        line = {
            "time": iso(int(1000 * record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return redact_keys(json.dumps(line, default=str))


def configure(settings: Settings) -> None:
    """Write all log lines and warnings of this process to standard error, in the format that the settings name.

    RQ logs a line for each heartbeat and some lines for each task at level info. These appear only at level debug,
    because the worker logs the events itself.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in ("rq", "rq.worker"):  # RQ sets the level of the second logger itself
        level = root.level if root.level < logging.INFO else max(root.level, logging.WARNING)
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=True)


def has_access_log(settings: Settings) -> bool:
    """Return whether each request is logged: always if the log is JSON; if it is text, only at level debug."""
    return settings.log_format == "json" or settings.log_level == "debug"


def announce(text: str, settings: Settings) -> None:
    """Print a message of a command to standard error: as JSON if the setting `log_format` is json, otherwise as is."""
    if settings.log_format == "json":
        record = log.makeRecord(log.name, logging.INFO, "", 0, text, (), None)
        text = JsonLines().format(record)
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the command's output


def redact_keys(text: str) -> str:
    """Replace the secret of each API key in a text by ``***``; the id of the key stays."""
    return _KEY.sub(r"\1_***", text)


def _printable(text: str) -> str:
    """Escape control characters, so that user input can neither begin a new log line nor control a terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a log line: the ids of request and job, if any, and what the caller gave as extra fields.

    A caller gives fields by `log.info(..., extra={"fields": {...}})`.
    """
    context = {"request_id": REQUEST_ID.get(), "job_id": JOB_ID.get()}
    return {name: value for name, value in context.items() if value} | getattr(record, "fields", {})
