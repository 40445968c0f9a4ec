"""Read npy and npz bodies; sizes in headers are checked before anything is allocated, and pickles are refused."""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
import struct
import sys
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy

from glle_engine import GlleError
from glle_engine.base.arrays import require_lossless
from glle_engine.base.texts import Way
from glle_engine.tables.packed import HEAD_MEMBER, MAX_HEAD_BYTES, unpack
from glle_engine.tables.roles import MAX_ID_COLUMNS
from glle_engine.tables.row_texts import Ids, label_array
from glle_engine.tables.table import build_table, check_names, map_rows, read_table
from service.uploads.limits import check_inflated
from service.uploads.uploaded import uploaded
from worker.base.files import NPY_HEADER_LOCK
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from glle_engine.tables.roles import ColumnRoles
    from glle_engine.tables.table import Table
    from service.uploads.limits import Limits
    from worker.records.dataset import Array

    Members = dict[str, zipfile.ZipInfo]

_DATA = ("data", "X")
_SPARSE = frozenset({"data", "indices", "indptr", "shape"})  # members that scipy.sparse.save_npz writes
_NUMBERS = "fiub"
# Version of the npy format -> size in bytes of the field with the header's length, and numpy's parser of the header.
_HEADERS = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}
_MAX_HEADER_BYTES = 10_000  # a longer header is refused; numpy has the same limit, but checks it only after reading


def read_npy(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the matrix in an npy file as a table, whose values are memory-mapped from `file`; `out` is not used.

    Raises
    ------
    ProblemError
        ``malformed-npy``, ``unsupported-dtype``, ``truncated-npy``, ``labels-not-here``, or a problem of the shape.

    """
    del out
    roles.require_none(
        "an npy file has no named columns.",
        "Leave the option out, or send an npz file with the members labels and colors.",
    )
    shape, fortran, dtype = read_header(file)
    check_matrix(shape, dtype, limits)
    offset = file.tell()
    check_length(shape, dtype, os.fstat(file.fileno()).st_size - offset)
    order = "F" if fortran else "C"
    values = np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload] # IO[bytes] will do
    return uploaded(build_table(values, missing=roles.missing), "npy")


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], limits: Limits) -> None:
    """Raise `ProblemError` unless shape and dtype describe a matrix of real numbers within the limits."""
    if dtype.kind not in _NUMBERS:
        remedy = "Convert the array with .astype(float). Python objects are never unpickled."
        detail = f"The array is of dtype {dtype}, not of real numbers."
        raise refuse("unsupported-dtype", 422, detail, remedy, dtype=str(dtype))
    limits.check(shape)


def check_length(shape: tuple[int, ...], dtype: np.dtype[Any], received: int) -> None:
    """Raise `ProblemError` unless the `received` bytes after an array's header are as many as the header announces."""
    announced = math.prod(shape) * dtype.itemsize
    if received != announced:
        code = "truncated-npy" if received < announced else "malformed-npy"
        detail = f"The header of the array announces {announced:,} bytes of values (shape {shape}, {dtype}), but "
        detail += f"{received:,} bytes arrived."
        remedy = "Send the whole file, and nothing after it."
        raise refuse(code, 422, detail, remedy, announced=announced, came=received)


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an npy file; return shape, whether the values are in Fortran order, and dtype.

    Leaves `file` at the first value. Raises `ProblemError` (``malformed-npy``).
    """
    try:
        length, parse = _HEADERS[npy.read_magic(file)]
        prefix = file.read(length)
        # The announced length may be 4 GB: read at most one byte more than numpy accepts, so that numpy refuses it.
        announced = min(int.from_bytes(prefix, "little"), _MAX_HEADER_BYTES + 1)
        header = io.BytesIO(prefix + file.read(announced))
        with NPY_HEADER_LOCK:
            shape, fortran, dtype = parse(header)
    except Exception as error:  # noqa: BLE001 # numpy evaluates the text: any exception may follow
        raise _malformed_array(str(error)) from None
    # numpy's parser accepts any int as a length, even True and -1.
    if not all(type(size) is int and 0 <= size < 2**62 for size in shape):
        raise _malformed_array(f"its header has the shape {shape}")
    return shape, fortran, dtype


def _malformed_array(reason: str) -> ProblemError:
    remedy = "Save the array again as .npy, or the table as .csv."
    return refuse("malformed-npy", 422, f"The array cannot be read as npy: {reason[:200]}.", remedy)


def read_npz(file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the matrix in an npz file: its member `data` or `X`, its only matrix, or a sparse matrix.

    The file may also have `labels`, `colors`, `ids` and `coordinates`, with one row for each point, and `names` of the
    features. `roles` may name other members for labels and colors. The values are unpacked to `out` and
    memory-mapped from there.

    Raises
    ------
    ProblemError
        ``malformed-npz``, ``unknown-member``, ``inflated-too-large`` and the problems of `read_npy`.

    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = checked_members(archive, limits)
            if HEAD_MEMBER in members:
                return _columns(archive, members, out, limits, roles)
            return _table(archive, members, file, out, limits, roles)
    except GlleError:  # it is a ValueError, too
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # the disk failed; EINVAL is a bad offset
            raise
        reason = "a member begins beyond the end of the file" if isinstance(error, OSError) else str(error)[:200]
        remedy = "Save the arrays again as .npz, with or without compression, and send the whole file."
        raise refuse("malformed-npz", 422, f"The npz file cannot be read: {reason.rstrip('.')}.", remedy) from None


def _columns(archive: zipfile.ZipFile, members: Members, out: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table in an npz file of columns, which the Python client sends for a data frame."""

    def array(name: str, kinds: str, length: int) -> Array:
        with archive.open(members[name]) as stream:
            shape = read_header(stream)[0]
        expected_shape = (shape[0] if length < 0 else length, *shape[1:2]) if shape else (1,)
        limits.check(expected_shape if len(expected_shape) == 2 else (length if length > 0 else 1, 1))
        return _array(archive, members[name], kinds, expected_shape, may_be_empty=True)

    if members[HEAD_MEMBER].file_size > MAX_HEAD_BYTES:
        size = members[HEAD_MEMBER].file_size
        raise ValueError(f"the description of the columns has {size:,} bytes; {MAX_HEAD_BYTES:,} are allowed")
    table = unpack(array(HEAD_MEMBER, "u", -1).tobytes(), array, list(members), limits.check)
    return uploaded(read_table(table, roles, out, limits), "columns")


def _table(
    archive: zipfile.ZipFile, members: Members, file: IO[bytes], out: IO[bytes], limits: Limits, roles: ColumnRoles
) -> Table:
    roles.require_none(
        "an npz file has arrays instead of columns.",
        "Leave the option out, and choose the columns before you save the file.",
        but=("labels", "colors"),
    )
    labels, colors = roles.labels or "labels", roles.colors or "colors"
    extras = {"names", "coordinates", "ids", labels, colors}
    for name in filter(None, (roles.labels, roles.colors)):
        if name not in members:
            raise refuse(
                "no-such-column",
                422,
                f"The npz file has no member {name!r}.",
                f"Use one of its members, {', '.join(members)}.",
            )
    is_sparse = members.keys() >= _SPARSE
    extras |= {*_SPARSE, "format", "_is_array"} - {"data"} if is_sparse else set()
    data = _data_member(archive, {name: info for name, info in members.items() if name not in extras})
    if unknown := sorted(set(members) - extras - {data}):
        detail = f"The npz file has the member {unknown[0]!r}, which is not known; the data are in {data!r}."
        remedy = (
            f"Remove that member, or use it with {Way('labels', unknown[0])} or {Way('colors', unknown[0])}; the known "
            "members are data, labels, colors, ids, coordinates and names."
        )
        raise refuse("unknown-member", 422, detail, remedy, members=unknown[:20])
    values = _sparse_matrix(archive, file, out, limits) if is_sparse else _matrix(archive, members[data], out, limits)
    n, d = values.shape
    names = _array(archive, members["names"], "U", (d,)).tolist() if "names" in members else None
    check_names(names, d)
    table = build_table(
        values,
        names,
        labels=_numbers(archive, members[labels], (n,), text=True) if labels in members else None,
        ids=Ids(_id_columns(archive, members["ids"], n)) if "ids" in members else None,
        colors=_numbers(archive, members[colors], (n,)) if colors in members else None,
        coordinates=_numbers(archive, members["coordinates"], (n, 2)) if "coordinates" in members else None,
        missing=roles.missing,
    )
    return uploaded(table, "npz")


def _id_columns(archive: zipfile.ZipFile, info: zipfile.ZipInfo, n: int) -> list[list[Any]]:
    """Return the columns of the member with the ids, which is an array (n,) or (n, columns), as lists."""
    with archive.open(info) as stream:
        shape = read_header(stream)[0]
    is_matrix = len(shape) == 2 and 0 < shape[1] <= MAX_ID_COLUMNS
    ids = _array(archive, info, "iuU", (n, shape[1]) if is_matrix else (n,)).reshape(n, -1)
    columns: list[list[Any]] = ids.T.tolist()
    return columns


def checked_members(archive: zipfile.ZipFile, limits: Limits) -> Members:
    """Return the members of an archive by the names of their arrays, without the suffix .npy.

    Raises ValueError for a member that is no array, and `ProblemError` (``inflated-too-large``).
    """
    members: Members = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            raise ValueError(f"the member {info.filename!r} is not an array, because its name does not end in .npy")
        if name in members:
            raise ValueError(f"the member {info.filename!r} occurs several times")
        if info.flag_bits & 1:
            raise ValueError(f"the member {info.filename!r} is encrypted")
        if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError(f"the member {info.filename!r} is compressed by a method other than deflate")
        members[name] = info
    check_inflated("The npz file", sum(info.file_size for info in members.values()), limits.inflated)
    return members


def _data_member(archive: zipfile.ZipFile, members: Members) -> str:
    for name in _DATA:
        if name in members:
            return name
    matrices = []
    for name, info in members.items():
        with archive.open(info) as stream:
            if len(read_header(stream)[0]) == 2:
                matrices.append(name)
    if len(matrices) == 1:
        return matrices[0]
    detail = "No member of the npz file is named data, and none is a matrix."
    if matrices:
        detail = f"No member of the npz file is named data, and the matrices {', '.join(matrices)} might be the data."
    remedy = "Save the points under the name data."
    raise refuse("no-data-member", 422, detail, remedy, members=list(members)[:20])


def _matrix(archive: zipfile.ZipFile, info: zipfile.ZipInfo, out: IO[bytes], limits: Limits) -> Array:
    """Return a member of the archive as a matrix (n, d), which is unpacked to `out` and mapped from there."""
    with archive.open(info) as stream:
        shape, fortran, dtype = read_header(stream)
        check_matrix(shape, dtype, limits)
        check_length(shape, dtype, info.file_size - stream.tell())
        stored = max(dtype.itemsize, 4 if dtype == np.float32 else 8)
        check_inflated("The matrix", math.prod(shape) * stored, limits.inflated)
        shutil.copyfileobj(stream, out)
    return map_rows(out, dtype, shape[1], "F" if fortran else "C")


def _sparse_matrix(archive: zipfile.ZipFile, file: IO[bytes], out: IO[bytes], limits: Limits) -> Array:
    """Return the matrix in a file of scipy.sparse.save_npz as a dense matrix (n, d), mapped from `out`."""
    shape = tuple(map(int, _array(archive, archive.getinfo("shape.npy"), "iu", (2,))))
    with archive.open("data.npy") as stream:
        dtype = read_header(stream)[2]
    check_matrix(shape, dtype, limits)
    dtype = np.dtype(np.float32 if dtype == np.float32 else np.float64)
    check_inflated("The dense matrix", math.prod(shape) * dtype.itemsize, limits.inflated)
    file.seek(0)
    try:
        matrix = scipy.sparse.load_npz(file)
    except (KeyError, AttributeError) as error:  # a member is missing, or the member `format` is not text
        raise ValueError(f"the sparse matrix is inconsistent ({error})") from None
    if matrix.format not in {"csr", "csc"}:
        detail = f"The sparse matrix is in the format {matrix.format}; CSR and CSC are read."
        remedy = "Convert the matrix to CSR before you save it."
        raise refuse("invalid-member", 422, detail, remedy, member="format.npy")
    matrix.check_format(full_check=True)
    require_lossless(matrix, "the sparse matrix")
    out.truncate(math.prod(shape) * dtype.itemsize)
    values = map_rows(out, dtype, shape[1])
    matrix.astype(dtype).toarray(out=values)
    return values


def _array(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, kinds: str, shape: tuple[int, ...], *, may_be_empty: bool = False
) -> Array:
    """Return a small member as an array; raise `ProblemError` unless it has `shape` and a dtype of one of `kinds`."""
    with archive.open(info) as stream:
        actual, fortran, dtype = read_header(stream)
        is_empty = 0 in actual and not may_be_empty
        if not dtype.itemsize or dtype.kind not in kinds or is_empty or actual != shape:
            content = "text" if kinds == "U" else f"numbers{' or text' if 'U' in kinds else ''}"
            detail = f"The member {info.filename!r} has shape {actual} and dtype {dtype}; it needs shape {shape} and "
            detail += f"{content}."
            remedy = f"Save that member as an array of {content} of shape {shape}."
            raise refuse("invalid-member", 422, detail, remedy, member=info.filename)
        check_length(actual, dtype, info.file_size - stream.tell())
        flat = np.frombuffer(stream.read(), dtype)
        if dtype.kind == "U" and (flat.view(dtype.byteorder + "u4") > sys.maxunicode).any():
            detail = f"The texts of the member {info.filename!r} have characters beyond Unicode (above U+10FFFF)."
            remedy = "The array may be damaged: create it again from strings."
            raise refuse("invalid-label", 422, detail, remedy, member=info.filename)
    return flat.reshape(actual, order="F" if fortran else "C")


def _numbers(archive: zipfile.ZipFile, info: zipfile.ZipInfo, shape: tuple[int, ...], *, text: bool = False) -> Array:
    """Return a member as an array of float64; with `text` it may be an array of labels instead.

    Raises `ProblemError` unless the member has `shape` and its numbers are finite; NaN may stand for a missing label.
    """
    array = _array(archive, info, "fiuU" if text else "fiu", shape)
    if array.dtype.kind == "U":
        return label_array(array.tolist())
    if not text:
        require_lossless(array, f"the member {info.filename!r}")
    numbers = np.ascontiguousarray(array, np.float64)
    if text and not np.isinf(numbers).any():
        return label_array(array.tolist())  # NaN is a missing label
    if len(bad := np.argwhere(~np.isfinite(numbers))):
        row = int(bad[0][0]) + 1
        detail = (
            f"The member {info.filename!r} has {len(bad):,} values that are not finite; the first is in row {row}, "
        )
        detail += "counted from 1."
        remedy = "Fill these values in, or remove their rows from every member."
        raise refuse("not-finite", 422, detail, remedy, row=row)
    return numbers
