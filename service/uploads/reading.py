"""Reading of one upload: unpack its layers, then read its table in this process or in a reader process."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from service.uploads.column_roles import ColumnRoles
from service.uploads.limits import Limits
from service.uploads.packing import DIALECT_FIELDS, LIST_FIELDS, MAX_LAYERS, Packing
from service.uploads.registry import TEXT, reader_of
from service.uploads.spool import check_size
from worker.base.problems import refuse

if TYPE_CHECKING:
    from service.uploads.sandbox.processes import ReaderProcesses
    from worker.base.settings import Settings
    from worker.records.dataset import Table


@dataclass(frozen=True)
class Upload:
    """Body of a request: how it is packed, and the roles of its columns by the query."""

    packing: Packing
    options: dict[str, Any]
    settings: Settings

    @classmethod
    def of(cls, content_type: str, encoding: str, options: dict[str, Any], settings: Settings) -> Upload:
        """Return the upload of a request's headers; raise ``unsupported-media-type`` before its body is read."""
        upload = cls(Packing(content_type, encoding), options, settings)
        if upload.packing.is_packed:
            upload.packing.check()
        else:
            reader_of(content_type, settings)
        return upload

    @property
    def cap(self) -> int:
        """Most bytes of the body."""
        packing = self.packing
        return self.settings.max_body if packing.is_packed else reader_of(packing.content_type, self.settings).cap

    def is_safe(self, file: IO[bytes]) -> bool:
        """Return whether this process may read the body, because it is small and simple."""
        if self.packing.is_packed:
            return False
        return os.fstat(file.fileno()).st_size <= reader_of(self.packing.content_type, self.settings).safe

    def table(self, file: IO[bytes], processes: ReaderProcesses) -> Table:
        """Return the table of a spooled body.

        Raises
        ------
        ProblemError
            Those of the formats, ``unsupported-media-type``, ``body-too-large``.

        """
        packing, settings = self.packing, self.settings
        folder = Path(settings.data_dir) / "incoming"
        with contextlib.ExitStack() as stack:
            for _ in range(MAX_LAYERS):
                if not packing.is_packed:
                    break
                unpacked = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                packing = processes.unpack(packing, file, unpacked)
                file = unpacked
            if packing.is_packed:
                detail = f"The body is packed more than {MAX_LAYERS} times."
                raise refuse("unsupported-media-type", 415, detail, "Send it compressed once, by gzip or zstd.")
            options = _merged(self.options, packing.fields)
            content_type = _declared(packing.content_type, options)
            reader = reader_of(content_type, settings)
            size = os.fstat(file.fileno()).st_size
            check_size(size, reader.cap)
            read = reader.read if size <= reader.safe else partial(processes.read, content_type)
            out = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            return read(file, out, Limits.of(settings), ColumnRoles.of(options))


def _declared(content_type: str, options: dict[str, Any]) -> str:
    """Return the Content-Type with the options of the dialect as its parameters."""
    chosen = {name: options[name] for name in DIALECT_FIELDS if options.get(name)}
    kind = content_type.partition(";")[0].strip().lower()
    if chosen and kind not in TEXT:
        name = next(iter(chosen))
        remedy = "Leave it out, or send a table of text."
        raise refuse(f"{name}-not-here", 422, f"?{name}= cannot be used: {kind or 'the body'} is no text.", remedy)
    return content_type + "".join(f"; {name}={value}" for name, value in chosen.items())


def _merged(query: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the query and of the form; lists are joined, others are the form's."""
    lists = {name: [*query.get(name, ()), *fields.get(name, ())] for name in LIST_FIELDS}
    return {**query, **fields, **lists}
