"""Files of other programs, recognized by their first bytes, in a form, as a body and by the client."""

from __future__ import annotations

import bz2
import io
import lzma
import pickle
import tarfile
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.io

from glle.inputs import upload_of
from glle_engine.base.errors import GlleError
from glle_engine.tables.foreign import HEAD_BYTES, foreign_file
from tests.service.uploads.bodies import CSV, JSON, NPY, NPZ, npy, npz, refusal

if TYPE_CHECKING:
    from pathlib import Path

TABLE = b"a,b\n" + b"1.5,2.5\n" * 40


def _archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return buffer.getvalue()


def _matlab() -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"X": np.eye(3)})
    return buffer.getvalue()


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("table.csv"))
    return buffer.getvalue()


FILES = {
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "before 2007"),
    "h5ad": (b"\x89HDF\r\n\x1a\n" + bytes(600), "HDF5"),
    "mat": (_matlab(), "MATLAB"),
    "sav": (b"$FL2@(#) SPSS DATA FILE" + bytes(200), "SPSS"),
    "bz2": (bz2.compress(TABLE), "bzip2"),
    "xz": (lzma.compress(TABLE), "xz"),
    "pkl": (pickle.dumps([1.5] * 50), "pickle"),
    "tar": (_tar(), "tar"),
    "zip": (_archive(train_csv=TABLE), "zip archive with train.csv"),
    "pt": (_archive(archive__data_pkl=b"x"), "PyTorch"),
    "ods": (_archive(mimetype=b"application/vnd.oasis.opendocument.spreadsheet"), "OpenDocument"),
    "jsonl": (b'{"a": 1}\n{"a": 2}\n', "records"),
    "html": (b"<!DOCTYPE html><html>Log in</html>", "HTML"),
}


@pytest.mark.parametrize("suffix", FILES)
def test_a_file_of_another_program_is_named(suffix: str, tmp_path: Path) -> None:
    """With a way to read or send it, and no advice for tables of text."""
    content, noun = FILES[suffix]
    form = f'--b\r\nContent-Disposition: form-data; name="file"; filename="t.{suffix}"\r\n\r\n'.encode()
    bodies = {
        CSV: content,
        NPY: content,
        NPZ: content,
        "multipart/form-data; boundary=b": form + content + b"\r\n--b--\r\n",
    }
    for media, body in bodies.items():
        problem = refusal(body, media)
        assert noun in problem.detail
        assert not any(word in problem.remedy for word in ("savez", "charset", "reshape"))
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(content)
    with pytest.raises(GlleError, match=noun):
        upload_of(path)


def test_records_in_json_and_a_workbook_by_another_name_are_named() -> None:
    """A list of objects has no order of columns."""
    assert "records" in refusal('[{"a": 1}, {"a": 2}]', JSON).detail
    assert "Excel workbook" in refusal(_archive(xl__workbook_xml=b"<x/>"), NPZ).detail


def test_a_table_is_no_file_of_another_program() -> None:
    """Its header may begin like such a file, and its own format is not foreign."""
    for head in (b"ORC,CDF\n1,2\n", b"BZh,RDX\n", b"Obj,x\n", npy(np.eye(2)), b"[[1, 2]]", b'{"data": [[1]]}', TABLE):
        assert foreign_file(head[:HEAD_BYTES]) is None
    assert foreign_file(npz(data=np.eye(2))[:HEAD_BYTES], io.BytesIO(npz(data=np.eye(2)))) is None
    assert "missing" in refusal("ORC,CDF\n1,\n2,3\n").detail
    assert (foreign_file("BZh,é".encode()[:-1]), foreign_file(b"BZh9" + b"\xff" * 9) is None) == (None, False)
