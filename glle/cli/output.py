"""Result files of the commands: arrays as npy, tables as csv or parquet, posteriors as npz."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.cli.connection import argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glle.cli.connection import Argument
    from glle.client import Client, Result
    from glle.transport.calls import Array

ARRAY, TABLES = (".npy",), (".csv", ".parquet")
ARCHIVE = (".npz",)


def out_argument(*suffixes: str, required: bool = False) -> Argument:
    """Return the option `--out`, which takes the path of a file with one of the suffixes."""

    def path(text: str) -> Path:
        return writable(Path(text), suffixes)

    text = f"file of the result: {', '.join(suffix[1:] for suffix in suffixes)}"
    return argument("-o", "--out", type=path, required=required, metavar="FILE", help=text)


def writable(path: Path, suffixes: tuple[str, ...]) -> Path:
    """Return `path` if a result can be written to it, or raise `ArgumentTypeError`.

    The path needs one of the suffixes and an existing folder, and a Parquet file needs pyarrow.
    """
    from argparse import ArgumentTypeError  # noqa: PLC0415 # the parser has imported it

    if path.suffix.lower() not in suffixes:
        *others, last = [str(path.with_suffix(suffix)) for suffix in suffixes]
        raise ArgumentTypeError(f"{path} has a wrong ending: name it {', '.join(others)}{' or ' * bool(others)}{last}")
    if not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"there is no folder {path.parent}: create it first")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401, PLC0415 # an optional package
        except ImportError as error:
            message = f"{path} needs pyarrow: install it with pip install pyarrow, or name a .csv file"
            raise ArgumentTypeError(message) from error
    return path


def save_rows(
    client: Client, dataset: str, out: Path, columns: Mapping[str, Any], array: Array, repeats: int = 1
) -> None:
    """Write `array` if `out` is an npy file; otherwise write a table with the ids of the points, followed by `columns`.

    The ids are read from the data set. A table of several draws lists all points once for each draw; `repeats` is the
    number of draws.
    """
    ids = client.dataset(dataset).ids() if out.suffix.lower() in TABLES else None
    save_columns(out, {**id_columns(ids, repeats), **columns}, array)


def embedding_columns(embedding: Array) -> dict[str, Array]:
    """Return coordinates (..., p) as the columns y1, ..., yp of a table, with one row for each point of each draw."""
    return {f"y{i + 1}": embedding[..., i].reshape(-1) for i in range(embedding.shape[-1])}


def id_columns(ids: Array | None, repeats: int = 1) -> dict[str, Any]:
    """Return ids (n,) as the column `id`, or ids (n, m) as the columns `id_1`, ..., `id_m`; empty if `ids` is None.

    Each column lists all ids `repeats` times, once for each draw in the table.
    """
    if ids is None:
        return {}
    columns = {"id": ids} if ids.ndim == 1 else {f"id_{i + 1}": ids[:, i] for i in range(ids.shape[1])}
    return {name: values.tolist() * repeats for name, values in columns.items()}


def draws_columns(draws: Array, first: int, scales: list[Any] | None) -> dict[str, Array]:
    """Return the columns of a table of draws (n_draws, n, p): draw, point, y1, ..., yp.

    Draws at several `scales`, (scales, n_draws, n, p), also have the column scale. `first` is the number of the first
    draw.
    """
    import numpy as np  # noqa: PLC0415 # late: `glle worker` sets BLAS threads before numpy loads

    names = {"scale": scales} if draws.ndim == 4 and scales is not None else {}
    axes = [*names.values(), range(first, first + draws.shape[-3]), range(draws.shape[-2])]
    grid = np.meshgrid(*[np.asarray(axis) for axis in axes], indexing="ij")
    index = {name: values.reshape(-1) for name, values in zip([*names, "draw", "point"], grid, strict=True)}
    return {**index, **embedding_columns(draws)}


def weights_columns(weights: Array, neighbors: Array) -> dict[str, Array]:
    """Return the sparse matrix of weights (n, n) as the columns `row`, `column` and `value` of a table.

    `weights` (n, k) are the weights of each point on its `neighbors` (n, k).
    """
    import numpy as np  # noqa: PLC0415 # late: `glle worker` sets BLAS threads before numpy loads

    rows = np.arange(len(weights)).repeat(weights.shape[1])
    return {"row": rows, "column": neighbors.reshape(-1), "value": weights.reshape(-1)}


def point_columns(result: Result) -> dict[str, object]:
    """Return a summary as the columns of a table with a row for each point: y1, spread, covariance11 and others."""
    vectors = {name: array for name, array in result.arrays.items() if array.ndim == 1}
    p = result.covariance.shape[-1]
    covariance = {f"covariance{i + 1}{j + 1}": result.covariance[:, i, j] for i in range(p) for j in range(i, p)}
    return {**embedding_columns(result.consensus), **vectors, **covariance}


def save_columns(path: Path, columns: Mapping[str, Any], array: Array) -> None:
    """Write `array` if `path` is an npy file; otherwise write `columns` to a csv or Parquet file, with all digits."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        import numpy as np  # noqa: PLC0415 # `glle worker` pins BLAS threads before numpy is imported

        with path.open("wb") as file:  # to a path that ends in .NPY, numpy would append .npy
            np.save(file, array)
    elif suffix == ".parquet":
        import pyarrow as pa  # noqa: PLC0415 # an optional package
        from pyarrow import parquet  # noqa: PLC0415 # an optional package

        parquet.write_table(pa.table(dict(columns)), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            lists = (values if isinstance(values, list) else values.tolist() for values in columns.values())
            writer.writerows(zip(*lists, strict=True))
