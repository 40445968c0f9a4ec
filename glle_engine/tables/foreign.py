"""Recognize files of other programs by their first bytes, and say how to get a table out of them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from typing import IO

HEAD_BYTES = 1024  # number of first bytes by which a file is recognized


@dataclass(frozen=True)
class ForeignFile:
    """Kind of file that cannot be read as a table: its name with an article, such as "a pickle", and the remedy."""

    noun: str
    remedy: str


_SAVE = "Save the table as CSV UTF-8 or as .xlsx without a password."
_UNPACK = "Unpack it first; of compressed files only gzip (.gz) is read."
_READ = "Save it as CSV in the program that made it. Or read it in Python, as by {}, and give the array or the frame."
_HDF5 = ForeignFile(
    "an HDF5 file", _READ.format("anndata.read_h5ad (.h5ad), pandas.read_hdf (.h5) or h5py.File (.mat of MATLAB 7.3)")
)
_PICKLE = ForeignFile("a pickle", "Pickles are never read: save the array as .npy, or the frame as Parquet.")
_MAGIC: dict[bytes, ForeignFile] = {
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ForeignFile(
        "an Excel workbook of the format before 2007 (.xls), or one with a password", _SAVE
    ),
    b"\x89HDF\r\n\x1a\n": _HDF5,
    b"MATLAB 7.3": _HDF5,
    b"MATLAB 5.0": ForeignFile("a MATLAB file (.mat)", _READ.format("scipy.io.loadmat")),
    b"$FL2": ForeignFile("an SPSS file (.sav)", _READ.format("pandas.read_spss")),
    b"$FL3": ForeignFile("an SPSS file (.zsav)", _READ.format("pandas.read_spss")),
    b"<stata_dta>": ForeignFile("a Stata file (.dta)", _READ.format("pandas.read_stata")),
    b"\0" * 12 + b"\xc2\xea\x81\x60": ForeignFile("a SAS file (.sas7bdat)", _READ.format("pandas.read_sas")),
    b"HEADER RECORD*******": ForeignFile("a SAS transport file (.xpt)", _READ.format("pandas.read_sas")),
    b"RDX": ForeignFile("a file of R (.RData)", "Write the table in R by write.csv(table, file)."),
    b"RDA": ForeignFile("a file of R (.RData)", "Write the table in R by write.csv(table, file)."),
    b"X\n\0\0\0": ForeignFile("a file of R (.rds)", "Write the table in R by write.csv(table, file)."),
    b"\x1f\x8b": ForeignFile("a file compressed by gzip", "Give it the ending .gz."),
    b"BZh": ForeignFile("a file compressed by bzip2 (.bz2)", _UNPACK),
    b"\xfd7zXZ\0": ForeignFile("a file compressed by xz", _UNPACK),
    b"\x28\xb5\x2f\xfd": ForeignFile("a file compressed by zstd", _UNPACK),
    b"\x04\x22\x4d\x18": ForeignFile("a file compressed by lz4", _UNPACK),
    b"\x1f\x9d": ForeignFile("a file compressed by compress (.Z)", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": ForeignFile("an archive of 7-Zip", _UNPACK),
    b"Rar!": ForeignFile("an archive of RAR", _UNPACK),
    b"SQLite format 3\0": ForeignFile("an SQLite database", _READ.format("pandas.read_sql")),
    b"ORC": ForeignFile("an ORC file", _READ.format("pandas.read_orc")),
    b"Obj\1": ForeignFile("an Avro file", _READ.format("polars.read_avro")),
    b"FEA1": ForeignFile("a Feather file of version 1", "Save it again as Feather of version 2."),
    b"CDF": ForeignFile("a netCDF file (.nc)", _READ.format("xarray.open_dataset")),
    b"SIMPLE  =": ForeignFile("a FITS file", _READ.format("astropy.table.Table.read")),
    **{b"\x80" + bytes([protocol]): _PICKLE for protocol in (2, 3, 4, 5)},
    b"%PDF": ForeignFile("a PDF", _SAVE),
    b"{\\rtf": ForeignFile("a document (.rtf)", _SAVE),
    b"\x89PNG": ForeignFile("a picture (PNG)", _READ.format("matplotlib.pyplot.imread")),
    b"\xff\xd8\xff": ForeignFile("a picture (JPEG)", _READ.format("matplotlib.pyplot.imread")),
    b"GIF8": ForeignFile("a picture (GIF)", _READ.format("matplotlib.pyplot.imread")),
    b"II*\0": ForeignFile("a picture (TIFF)", _READ.format("matplotlib.pyplot.imread")),
    b"MM\0*": ForeignFile("a picture (TIFF)", _READ.format("matplotlib.pyplot.imread")),
}
_TAR = ForeignFile("an archive of tar", _UNPACK)
WORKBOOK = ForeignFile("an Excel workbook (.xlsx)", "Give it the ending .xlsx.")
_ODS = ForeignFile("an OpenDocument spreadsheet (.ods)", _SAVE)
_DOCUMENT = ForeignFile("an Office document", _SAVE)
_MODEL = ForeignFile("a zip archive with a pickle, such as a model of PyTorch", _PICKLE.remedy)
_PAGE = ForeignFile("a page of HTML, such as a login or an error", "Download the file itself, and look into it.")
_TEXTS = {b"<!doctype html": _PAGE, b"<html": _PAGE, b"<?xml": ForeignFile("an XML file", _SAVE)}
_RECORDS = ForeignFile(
    "JSON with a list of objects (records)",
    "Save it as CSV, or as JSON with the members data and names of arrays.",
)


def foreign_file(head: bytes, file: IO[bytes] | None = None) -> ForeignFile | None:
    """Return the kind of a file of another program, or None for a file that may be a table.

    Parameters
    ----------
    head
        The first `HEAD_BYTES` bytes of the file.
    file
        The whole file, to look into a zip archive; if it is None, the result for a zip archive is None.

    """
    is_binary = _is_binary(head)
    for magic, foreign in _MAGIC.items():
        # The first column of a text table may be named ORC or CDF, so that short codes count only in binary files.
        if head.startswith(magic) and (is_binary or len(magic) > 4):
            return foreign
    if head[257:262] == b"ustar":
        return _TAR
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return None if file is None else _of_archive(file)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for opening, foreign in _TEXTS.items():
        if text.lower().startswith(opening):
            return foreign
    return _RECORDS if _has_records(text) else None


def _of_archive(file: IO[bytes]) -> ForeignFile | None:
    """Return the kind of a zip archive, or None if the archive is an npz file or cannot be opened."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist()]
            is_ods = "mimetype" in names and archive.open("mimetype").read(100).endswith(b"spreadsheet")
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError):
        return None
    if any(name.endswith(".npy") for name in names):
        return None
    if "xl/workbook.xml" in names or "xl/workbook.bin" in names:
        return WORKBOOK
    if is_ods or "mimetype" in names or "[Content_Types].xml" in names:
        return _ODS if is_ods else _DOCUMENT
    if any(name.endswith(("data.pkl", ".pkl")) for name in names):
        return _MODEL
    files = [name for name in names if not name.endswith("/")]
    shown = f" with {', '.join(files[:3])}{' and others' if len(files) > 3 else ''}" if files else " without files"
    return ForeignFile(f"a zip archive{shown[:200]}", "Unpack it, and send the file with the table.")


def _is_binary(head: bytes) -> bool:
    """Return whether bytes are not text in UTF-8, or contain U+0000; the last character may be incomplete."""
    try:
        return "\0" in head.decode()
    except UnicodeDecodeError as error:
        return error.start < len(head) - 3 or b"\0" in head


def _has_records(text: bytes) -> bool:
    """Return whether a text is JSON that begins with a list of objects, or has an object in each line."""
    if text.startswith(b"["):
        return text[1:].lstrip().startswith(b"{")
    first = text.split(b"\n", 1)
    if not text.startswith(b"{") or len(first) < 2 or not first[1].lstrip().startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(first[0]), dict)
    except ValueError:
        return False
