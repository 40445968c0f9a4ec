"""Random changes of valid bodies: bytes are changed, removed, repeated, or replaced by other numbers."""

from __future__ import annotations

import io
import json
import random
import zipfile
from functools import lru_cache

import numpy as np
import pyarrow as pa

from qa.inputs.hostile.bodies.npy import X, deflate, npy_of, npy_with_header, npz_of_names, zip_of
from qa.inputs.hostile.bodies.tables import arrow_stream, frame, parquet_file, with_words

_VALUES = (0, 1, 2, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


@lru_cache
def good(reader: str) -> list[bytes]:
    """Return valid bodies for the reader of a format, such as "csv"."""
    words = pa.array(["a", "b", None, "d", "e", "f"])
    labels = np.array(["a", "bc", "d", "e"])
    text = json.dumps({"data": X.tolist(), "names": ["a", "b", "c"], "labels": [1, 2, 3, 4.5], "colors": [0, 1, 2, 3]})
    return {
        "npy": [
            npy_of(X),
            npy_of(X.astype(">f4")),
            npy_of(np.asfortranarray(X)),
            npy_with_header(repr({"descr": "<f8", "fortran_order": False, "shape": X.shape}), X.tobytes(), version=2),
        ],
        "npz": [
            deflate(data=npy_of(X), labels=npy_of(labels), colors=npy_of(X[:, 0])),
            npz_of_names("X.npy", "names.npy"),
            deflate(X=npy_of(X)),
        ],
        "csv": [b"x,y,l\n1,2,3\n-4e5,0.5,6\n", b'"a ""b""","c\nd"\n1,2\n', b"\xef\xbb\xbf1,2\r\n3,4\r\n\r\n5,6\r\n"],
        "json": [text.encode(), json.dumps(X.tolist()).encode(), b'{"data": [[1e5, -0.0]]}'],
        "arrow": [
            arrow_stream(frame(y=range(6))),
            arrow_stream(with_words(6, ["a", "b"])),
            arrow_stream(frame(l=words)),
        ],
        "parquet": [
            parquet_file(frame(y=range(6))),
            parquet_file(with_words(6, ["a", "b"]), compression="zstd"),
            parquet_file(frame(500), compression="gzip"),
            parquet_file(frame(l=words), data_page_version="2.0"),
        ],
    }[reader]


def mutant(seed: str, reader: str, number: int) -> bytes:
    """Return a random change of a valid body, which seed, reader and number determine."""
    chance = random.Random(f"{seed} {reader} {number}")  # noqa: S311 # for bodies, not for secrets
    body = chance.choice(good(reader))
    if reader == "npz" and chance.random() < 0.5:
        return _repack(body, chance)  # otherwise nine of ten bodies fail their checksums
    return _change(body, chance)


def _repack(body: bytes, chance: random.Random) -> bytes:
    """Change one member of an npz file, and write the file again with correct checksums."""
    with zipfile.ZipFile(io.BytesIO(body)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    chosen = chance.choice(list(members))
    members[chosen] = _change(members[chosen], chance)
    return zip_of(*members.items(), packing=zipfile.ZIP_DEFLATED)


def _change(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        place = _place(len(changed), chance)
        choice = chance.randrange(10)
        if choice < 3:
            changed[place] = chance.randrange(256)
        elif choice < 5:
            changed[place] ^= 1 << chance.randrange(8)
        elif choice < 7:
            value = chance.choice(_VALUES).to_bytes(8, chance.choice(("little", "big")))
            piece = value[: chance.choice((1, 2, 4, 8))]
            changed[place : place + len(piece)] = piece
        elif choice == 7:
            start = chance.randrange(len(changed))
            changed[place : place + 8] = changed[start : start + 8]
        elif choice == 8:
            del changed[place : place + chance.randint(1, 16)]
        else:
            changed[place:place] = changed[place : place + chance.randint(1, 16)] * chance.choice((1, 2, 100))
        changed = changed or bytearray(b"0")
    return bytes(changed)


def _place(length: int, chance: random.Random) -> int:
    """Return a position in a body; half of them are near the end, where most formats store metadata."""
    if chance.random() < 0.5:
        return max(0, length - 9 - int(chance.expovariate(1 / 150)))
    return chance.randrange(length)


def query_of(reader: str, body: bytes) -> dict[str, str]:
    """Return the query for the upload of a mutant, which names the column of labels if the valid body had one."""
    return {"labels": "l"} if reader in {"csv", "arrow", "parquet"} and b"l" in body[-400:] else {}
