"""Convert a caller's values to arrays; refuse masked values and integers beyond 2^53, which conversion would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.errors import InexactIntegerError, InvalidShapeError, NotFiniteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

EXACT = 2**53
"""Up to this size, float64 represents every integer exactly; beyond it, some integers are rounded."""


class PointArray:
    """Base of results that numpy treats as the array of their coordinates: `np.asarray(result)` copies `embedding`.

    `result[rows]` are the coordinates of the points `rows`, and `len(result)` is the number of points.
    """

    if TYPE_CHECKING:

        @property
        def embedding(self) -> NDArray[Any]:
            """Coordinates (n, p) of the points."""

    @property
    def Y(self) -> NDArray[Any]:  # noqa: N802 # the mathematical symbol
        """Short name of `embedding`, the coordinates (n, p)."""
        return self.embedding

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 # numpy's protocol
        return np.array(self.embedding, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.embedding)

    def __getitem__(self, rows: Any) -> Any:
        return self.embedding[rows]

    def __bool__(self) -> bool:
        return True


def array_of(X: Any, name: str = "the data", *, are_labels: bool = False) -> NDArray[Any]:
    """Convert X to a numpy array of any dtype, or raise an error if the conversion would change a value.

    `name` is what error messages call the values, such as "the data". Labels (`are_labels`) may be integers of any
    size, because they are only compared.

    Raises
    ------
    NotFiniteError
        For masked values.
    InexactIntegerError
        For integers beyond 2^53, which float64 cannot hold exactly.
    InvalidShapeError
        For rows of different lengths, and for objects that have items but are neither sequence, array nor buffer, such
        as an AnnData: numpy would take them for sequences and read them item by item, which may take forever.

    """
    require_unmasked(X, name)
    require_open(X, name)
    try:
        if hasattr(X, "__getitem__") and not isinstance(X, Sequence) and not hasattr(X, "__array__"):
            # Of objects that have items but are neither sequence nor array, only buffers are accepted, such as a
            # ctypes array: numpy would read the others item by item.
            memoryview(X)  # raises TypeError unless X is a buffer
        raw = np.asarray(X)
    except ValueError as error:
        raise InvalidShapeError(
            "The rows of the data have different lengths.",
            remedy="Give a matrix with one row per point and one column per feature.",
        ) from error
    except TypeError:
        type_name = f"{type(X).__module__}.{type(X).__qualname__}"
        is_table = isinstance(X, Mapping) and not type_name.startswith("h5py")
        remedy = f"Give {'pandas.DataFrame(X)' if is_table else 'an array of numbers, such as X.X or X[name][:]'}."
        raise InvalidShapeError(
            f"The data are of type {type_name}, which is neither an array nor a sequence of rows.", remedy=remedy
        ) from None
    if not are_labels:
        require_lossless(X, name, raw)
    return raw


def require_open(values: Any, name: str) -> None:
    """Raise `InvalidShapeError` if the values are an h5py data set whose file is closed.

    `name` is what the error calls the values, such as "the data".
    """
    if type(values).__module__.startswith("h5py") and not values:
        raise InvalidShapeError(
            f"{name[0].upper()}{name[1:]} are in an HDF5 file that is closed.",
            remedy='Read them while the file is open, for example by X = file["X"][:].',
        )


def require_unmasked(values: Any, name: str) -> None:
    """Raise `NotFiniteError` if a masked array of numpy, or a list of masked arrays, has masked entries.

    Conversion to a plain array would drop the mask and use the masked numbers as data. `name` is what the error calls
    the values, such as "the data".
    """
    parts = values if isinstance(values, (list, tuple)) else [values]
    masked = sum(np.count_nonzero(part.mask) for part in parts if isinstance(part, np.ma.MaskedArray))
    if masked:
        remedy = "Remove or impute rows with masked values, for example by "
        remedy += "X.data[~numpy.ma.getmaskarray(X).any(axis=1)] or X.filled(value); nothing is dropped silently."
        if np.ndim(values) != 2:
            remedy = "Leave out the points where numpy.ma.getmaskarray is true, or fill in values by .filled(value)."
        raise NotFiniteError(
            f"{masked:,} of {np.size(values):,} values of {name} are masked.",
            remedy=remedy,
            details={"masked": masked},
        )


def require_lossless(values: Any, name: str, raw: NDArray[Any] | None = None) -> None:
    """Raise an error if the conversion to a float64 array would change a value.

    Parameters
    ----------
    values
        Numbers: an array, a sparse matrix, a frame or a series, or nested lists.
    name
        What error messages call the values, such as "the data".
    raw
        `values` as an array, if the caller has converted them already.

    Raises
    ------
    NotFiniteError
        For masked values.
    InexactIntegerError
        For integers beyond 2^53; `details` has the row and column of the first one.

    """
    require_unmasked(values, name)
    require_open(values, name)
    for column, whole in _integers(values, raw):
        bad = np.abs(whole.astype(object)) > EXACT if whole.dtype.kind == "O" else (whole > EXACT) | (whole < -EXACT)
        if not bad.any():
            continue
        index = [int(position) for position in np.argwhere(bad)[0]]
        place = dict(zip(("row", "column"), [*index, *([] if column is None else [column])], strict=False))
        place = {} if hasattr(values, "tocsr") else place  # in a sparse matrix, `index` counts the stored entries
        where = (
            f" in {', '.join(f'{axis} {number}' for axis, number in place.items())} (counted from 0)" if place else ""
        )
        raise InexactIntegerError(
            f"Integers of {name} are beyond 2^53, where float64 is not exact; the first is {whole[*index]}{where}.",
            remedy="Subtract an offset from the integers, or rescale them; if they are ids, leave the column out.",
            details={**place, "value": str(whole[*index])},
        )


def _integers(values: Any, raw: NDArray[Any] | None) -> Iterator[tuple[int | None, NDArray[Any]]]:
    """Yield (column, values) for each column of a frame that has integers beyond 2^53, which float64 may round.

    For an array, a sparse matrix or a list, yield at most one pair, whose `column` is None. `raw` is `values` as an
    array, if the caller has converted them already. Entries of object arrays that are not integers are replaced by 0.
    """
    parts: list[tuple[int | None, NDArray[Any]]] = []
    if hasattr(values, "tocsr"):
        parts += [(None, np.asarray(values.data))] if values.dtype.kind in "iu" and hasattr(values, "data") else []
    elif hasattr(values, "columns") and hasattr(values, "dtypes"):
        # The columns of a frame, one by one: in a single array, float columns would make numpy round all integers.
        columns = values.get_columns() if hasattr(values, "get_columns") else values.items()
        each = (column[1] if isinstance(column, tuple) else column for column in columns)
        parts += [(index, np.asarray(column)) for index, column in enumerate(each)]
    else:
        raw = np.asarray(values) if raw is None else raw
        has_floats = isinstance(values, (list, tuple)) and raw.dtype.kind == "f"
        is_mixed = has_floats and np.nanmax(np.abs(raw), initial=0) >= EXACT
        parts += [(None, np.array(values, object) if is_mixed else raw)]
    for column, numbers in parts:
        whole = numbers
        if numbers.dtype.kind == "O":
            whole = np.array([each if isinstance(each, (int, np.integer)) else 0 for each in numbers.ravel()], object)
            whole = whole.reshape(numbers.shape)
        elif numbers.dtype.kind not in "iu" or numbers.itemsize < 8:
            continue
        if whole.size and not (whole.max() <= EXACT and whole.min() >= -EXACT):
            yield column, whole
