"""Result files of the commands: arrays as npy, tables as csv or parquet, posteriors as npz."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from glle.cli.connection import argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glle.cli.connection import Argument
    from glle.client import Client
    from glle.transport.calls import Reply

ARRAY, TABLES = (".npy",), (".csv", ".parquet")
ARCHIVE = (".npz",)
# The media type that a service sends for a file with this ending.
_MEDIA = {".npy": "application/x-npy", ".csv": "text/csv", ".parquet": "application/vnd.apache.arrow.stream"}


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


def save(
    client: Client, out: Path, *path: str, query: Mapping[str, Any] | None = None, timeout: float | None = None
) -> Reply:
    """Write the service's answer to a GET of the path with these parts to the file `out`; return the reply.

    An npy file has the array of the answer. A csv or Parquet file has the table, which begins with the points' ids.
    """
    from glle.transport.calls import Call, path_of  # noqa: PLC0415 # late: `glle worker` sets BLAS threads before numpy loads

    def write_parquet(stream: IO[bytes]) -> None:
        import pyarrow as pa  # noqa: PLC0415 # an optional package
        from pyarrow import parquet  # noqa: PLC0415 # an optional package

        parquet.write_table(pa.ipc.open_stream(stream).read_all(), out)

    suffix = out.suffix.lower()
    call = Call("GET", path_of(*path), query or {}, accept=_MEDIA[suffix], read=Path, out=out)
    if suffix == ".parquet":
        call = replace(call, read=write_parquet, out=None)
    session = client._session  # noqa: SLF001 # no public method returns the bytes of an answer
    reply: Reply = session.run(session.fetch(call, timeout))
    return reply
