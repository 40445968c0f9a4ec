"""Each file of the catalog is read as a person would read it, or refused with the option that helps."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.uploads.reading import Upload
from service.uploads.sandbox.processes import ReaderProcesses
from tests.service.uploads.bodies import FORM, form, messages
from tests.service.uploads.files import FILES, File, Reading
from worker.base.problems import ProblemError
from worker.base.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine.tables.table import Table


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderProcesses]:
    """Return the reader processes of a service."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "incoming").mkdir()
    readers = ReaderProcesses(Settings(data_dir=str(folder)))
    readers.start()
    yield readers
    readers.close()


def media_of(name: str) -> str:
    """Return the type that a browser gives to a file."""
    types = {"csv": "text/csv", "txt": "text/plain"}
    types["ods"] = "application/vnd.oasis.opendocument.spreadsheet"
    return types.get(name.rpartition(".")[2], "application/octet-stream")


def read(processes: ReaderProcesses, file: File, fields: dict[str, Any]) -> Table:
    """Read a form with the file and its fields, as browsers and curl send it, as the service does."""
    parts = [
        (f'name="{name}"', str(one).encode())
        for name, value in fields.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    head = f'name="file"; filename="{file.name}"\r\nContent-Type: {media_of(file.name)}'
    upload = Upload.from_headers(FORM, "", {}, processes._settings)
    with tempfile.TemporaryFile() as body:
        body.write(form(*parts, (head, file.body())))
        body.seek(0)
        return processes.read_table(upload, body)


def check(table: Table, expected: Reading) -> None:
    """Compare a table with its expected reading."""
    assert table.names == expected.names
    np.testing.assert_array_equal(table.values[: len(expected.rows)], expected.rows)
    assert (None if table.labels is None else table.labels.tolist()) == expected.labels
    assert (None if table.ids is None else table.ids.tolist()) == expected.ids
    assert table.source.get("columns", {}) == expected.columns
    assert table.source.get("dialect", {}) == expected.dialect
    notices = " ".join(messages(table))
    assert expected.notice in notices
    assert bool(notices) == bool(expected.notice or "id" in expected.columns)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_read_as_a_person_would(processes: ReaderProcesses, file: File) -> None:
    """Names, values, labels, roles and notices are the expected ones; the option of a refusal helps."""
    if isinstance(file.expected, Reading):
        check(read(processes, file, file.fields), file.expected)
        return
    with pytest.raises(ProblemError) as caught:
        read(processes, file, file.fields)
    problem = caught.value.problem
    assert (problem.code, file.expected.remedy in problem.to_dict()["remedy"]) == (file.expected.code, True), problem
    for name, columns in problem.details.get("options", {}).items():
        assert f"{name}=" in problem.remedy
        assert columns
    if file.expected.reading is not None:
        check(read(processes, file, file.expected.fields or {}), file.expected.reading)
