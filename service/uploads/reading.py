"""Reading of one upload: unpack its layers, then read its table, in any process."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from service.uploads.column_roles import ColumnRoles
from service.uploads.limits import Limits
from service.uploads.packing import DIALECT_FIELDS, LIST_FIELDS, MAX_LAYERS, Packing
from service.uploads.registry import format_of
from service.uploads.spool import check_size
from worker.base.problems import refuse

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.records.dataset import Table


@dataclass(frozen=True)
class Upload:
    """Request to read a table, JSON-able.

    Parameters
    ----------
    content_type, encoding
        Headers of the request.
    options
        Roles of the columns and dialect of a text, by the query.
    limits
        Limits of the service.
    folder
        Folder of temporary files.

    """

    content_type: str
    encoding: str
    options: dict[str, Any]
    limits: Limits
    folder: str

    @classmethod
    def of(cls, content_type: str, encoding: str, options: dict[str, Any], settings: Settings) -> Self:
        """Return the upload of a request's headers; raise ``unsupported-media-type`` before its body is read."""
        folder = str(Path(settings.data_dir) / "incoming")
        upload = cls(content_type, encoding, options, Limits.of(settings), folder)
        upload._packing.check()
        return upload

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the upload of JSON."""
        return cls(**{**fields, "limits": Limits(**fields["limits"])})

    @property
    def _packing(self) -> Packing:
        return Packing(self.content_type, self.encoding)

    @property
    def cap(self) -> int:
        """Most bytes of the body."""
        max_body = self.limits.body
        return max_body if self._packing.is_packed else format_of(self.content_type).max_bytes(max_body)

    def is_safe(self, file: IO[bytes]) -> bool:
        """Return whether the API process may read the body, because it is small and simple."""
        if self._packing.is_packed:
            return False
        return os.fstat(file.fileno()).st_size <= format_of(self.content_type).safe

    def read(self, file: IO[bytes], out: IO[bytes]) -> Table:
        """Return the table of a spooled body, with its values in that or in the empty file `out`.

        Raises
        ------
        ProblemError
            Those of the formats, ``unsupported-media-type``, ``body-too-large``.

        """
        packing = self._packing
        with ExitStack() as stack:
            for _ in range(MAX_LAYERS):
                if not packing.is_packed:
                    break
                packing.check()
                unpacked = stack.enter_context(tempfile.TemporaryFile(dir=self.folder))
                packing = packing.unpack(file, unpacked, self.limits.body)
                unpacked.seek(0)
                file = unpacked
            if packing.is_packed:
                detail = f"The body is packed more than {MAX_LAYERS} times."
                raise refuse("unsupported-media-type", 415, detail, "Send it compressed once, by gzip or zstd.")
            options = _merge_options(self.options, packing.fields)
            found = format_of(_content_type_with_dialect(packing, options))
            check_size(os.fstat(file.fileno()).st_size, found.max_bytes(self.limits.body))
            return found.read(file, out, self.limits, ColumnRoles.of(options))


def _content_type_with_dialect(packing: Packing, options: dict[str, Any]) -> str:
    """Return the Content-Type with the options of the dialect as its parameters."""
    chosen = {name: options[name] for name in DIALECT_FIELDS if options.get(name)}
    if chosen and not format_of(packing.content_type).is_text:
        name = next(iter(chosen))
        remedy = "Leave it out, or send a table of text."
        detail = f"?{name}= cannot be used: {packing.kind} is no text."
        raise refuse(f"{name}-not-here", 422, detail, remedy)
    return packing.content_type + "".join(f"; {name}={value}" for name, value in chosen.items())


def _merge_options(query: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the query and of the form; lists are joined, others are the form's."""
    lists = {name: [*query.get(name, ()), *fields.get(name, ())] for name in LIST_FIELDS}
    return {**query, **fields, **lists}
