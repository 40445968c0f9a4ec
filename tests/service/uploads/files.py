"""The files, with the reading that a person expects, or the refusal and the option that helps."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable

BOM = "\ufeff".encode()
_FLOWERS = pd.DataFrame(
    {"length": [5.1, 4.9, 7.0, 6.3], "width": [3.5, 3.0, 3.2, 3.3], "species": ["setosa", "setosa", "vir", "vir"]}
)
_NUMBERS = _FLOWERS[["length", "width"]]
_ROWS = _NUMBERS.to_numpy().tolist()


@dataclass(frozen=True)
class Reading:
    """Expected reading of a file.

    Parameters
    ----------
    names, rows
        Names of the features and their first rows.
    labels
        All labels, if there are any.
    columns
        Columns that are set apart or encoded, by role.
    dialect
        Dialect of a text, where it is not that of CSV.
    notice
        Part of a notice.
    ids
        Ids of the rows, if columns name them.

    """

    names: list[str] | None = field(default_factory=lambda: ["length", "width"])
    rows: list[list[float]] = field(default_factory=lambda: _ROWS)
    labels: list[Any] | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)
    dialect: dict[str, str] = field(default_factory=dict)
    notice: str = ""
    ids: list[Any] | None = None


@dataclass(frozen=True)
class Refusal:
    """Expected refusal: its code, a part of its remedy, and form fields with which the file is read."""

    code: str
    remedy: str
    fields: dict[str, Any] | None = None
    reading: Reading | None = None


@dataclass(frozen=True)
class File:
    """File of another program, as it is dropped on a form with these fields."""

    name: str
    body: Callable[[], bytes]
    expected: Reading | Refusal
    fields: dict[str, Any] = field(default_factory=dict)


def _text(text: str, encoding: str = "utf-8") -> Callable[[], bytes]:
    return lambda: text.replace("\n", "\r\n").encode(encoding)


def _pandas(write: Callable[[Any], Any]) -> Callable[[], bytes]:
    """Return a body that pandas writes into a buffer."""

    def body() -> bytes:
        buffer = io.BytesIO()
        write(buffer)
        return buffer.getvalue()

    return body


_GERMAN = "Länge;Breite;Art\n5,1;3,5;setosa\n4,9;3,0;setosa\n7,0;3,2;vir\n6,3;3,3;vir\n"
_LABELS = _FLOWERS["species"].tolist()
_COMMAS = {"delimiter": "semicolon", "decimal": "comma"}
_ENCODED = Reading(
    ["length", "width", "species=setosa", "species=vir"],
    [[5.1, 3.5, 1, 0], [4.9, 3.0, 1, 0], [7.0, 3.2, 0, 1], [6.3, 3.3, 0, 1]],
    columns={"one_hot": ["species"]},
)
_INDEXED = _NUMBERS.set_axis(["a", "b", "c", "d"])

FILES = (
    File(
        "excel-german-utf8.csv",
        lambda: BOM + _text(_GERMAN)(),
        Reading(["Länge", "Breite"], labels=_LABELS, columns={"labels": ["Art"]}, dialect=_COMMAS),
        {"labels": "Art"},
    ),
    File(
        "excel-german-ansi.csv",
        _text(_GERMAN, "cp1252"),
        Refusal(
            "malformed-csv",
            "charset=windows-1252",
            {"labels": "Art", "charset": "windows-1252"},
            Reading(
                ["Länge", "Breite"],
                labels=_LABELS,
                columns={"labels": ["Art"]},
                dialect={**_COMMAS, "encoding": "windows-1252"},
            ),
        ),
        {"labels": "Art"},
    ),
    File(
        "excel-sep-line.csv",
        _text("sep=;\nlength;width\n" + "".join(f"{a};{b}\n" for a, b in _ROWS)),
        Reading(dialect={"delimiter": "semicolon"}),
    ),
    File(
        "excel-unicode-text.txt",
        _text("length\twidth\tspécies\n5,1\t3,5\té\n4,9\t3,0\té\n7,0\t3,2\tv\n6,3\t3,3\tv\n", "utf-16"),
        Reading(
            labels=["é", "é", "v", "v"],
            columns={"labels": ["spécies"]},
            dialect={"delimiter": "tab", "decimal": "comma", "encoding": "utf-16"},
        ),
        {"labels": "spécies"},
    ),
    File(
        "excel-thousands.csv",
        _text("length;width\n1.234,5;1,5\n2.345,5;2,5\n3,5;3,5\n4,5;4,5\n"),
        Refusal("bad-cell", "without marks of thousands", {"ignore": "length"},
            Reading(["width"], [[1.5], [2.5], [3.5]], columns={"ignore": ["length"]}, dialect=_COMMAS)),
    ),
    File("libreoffice.ods", lambda: b"PK\3\4 a workbook", Refusal("unsupported-media-type", "CSV UTF-8")),
    File(
        "pandas-index.csv",
        _pandas(_NUMBERS.to_csv),
        Reading(
            columns={"id": ["0"]},
            notice="The first column, which has no name, numbers or names the rows",
            ids=[0, 1, 2, 3],
        ),
    ),
    File(
        "pandas-index-twice.csv",
        _pandas(_NUMBERS.reset_index(names="Unnamed: 0").to_csv),
        Reading(columns={"id": ["0", "Unnamed: 0"]}, notice="?features=*", ids=[[i, i] for i in range(4)]),
    ),
    File(
        "pandas-index-wanted.csv",
        _pandas(_NUMBERS.rename_axis("index").to_csv),
        Reading(["index", "length", "width"], [[i, *row] for i, row in enumerate(_ROWS)]),
        {"features": "*"},
    ),
    File("pandas.feather", _pandas(_NUMBERS.to_feather), Reading()),
    File(
        "pandas-index.parquet",
        _pandas(_INDEXED.to_parquet),
        Reading(columns={"id": ["__index_level_0__"]}, notice="set apart", ids=["a", "b", "c", "d"]),
    ),
    File(
        "r-write-csv2.csv",
        _text('"";"length";"width"\n"Mazda RX4";5,1;3,5\n"Fiat 128";4,9;3\n"Honda";7;3,2\n"Volvo";6,3;3,3\n'),
        Reading(columns={"id": ["0"]}, dialect=_COMMAS, ids=["Mazda RX4", "Fiat 128", "Honda", "Volvo"]),
    ),
    File(
        "r-write-table.tsv",
        _text('"length"\t"width"\n"1"\t5.1\t3.5\n"2"\t4.9\t3\n"3"\t7\t3.2\n"4"\t6.3\t3.3\n'),
        Reading(columns={"id": ["0"]}, dialect={"delimiter": "tab"}, ids=[1, 2, 3, 4]),
    ),
    File(
        "weka-missing.csv",
        _text("length,width\n5.1,3.5\n4.9,?\n7,3.2\n6.3,3.3\n"),
        Refusal("missing-value", "?ignore=width", {"ignore": "width"}, Reading(["length"], [[5.1], [4.9], [7], [6.3]],
            columns={"ignore": ["width"]})),
    ),
    File(
        "weka.arff",
        _text("% Iris\n@RELATION iris\n@ATTRIBUTE length REAL\n@DATA\n5.1\n4.9\n"),
        Refusal("malformed-csv", "Save as, CSV file"),
    ),
    File(
        "numbers.tsv.gz",
        lambda: gzip.compress(_NUMBERS.to_csv(index=False, sep="\t").encode(), mtime=0),
        Reading(dialect={"delimiter": "tab"}),
    ),
    File(
        "utf-16-without-mark.csv",
        lambda: _NUMBERS.to_csv(index=False).encode("utf-16-be"),
        Reading(dialect={"encoding": "utf-16be"}),
    ),
    File(
        "pipes.txt",
        _text("length|width\n" + "".join(f"{a}|{b}\n" for a, b in _ROWS)),
        Reading(dialect={"delimiter": "pipe"}),
    ),
    File(
        "semicolons-with-points.csv",
        _text("length;width\n" + "".join(f"{a};{b}\n" for a, b in _ROWS)),
        Reading(dialect={"delimiter": "semicolon"}),
    ),
    File(
        "categorical.csv",
        _text(_FLOWERS.to_csv(index=False)),
        Refusal("unsupported-column", "?ignore=species", {"one_hot": "species"}, _ENCODED),
    ),
    File(
        "several-texts.csv",
        _text(_FLOWERS.assign(**{"the place": ["a", "b", "a", "b"]}).to_csv(index=False)),
        Refusal(
            "unsupported-column",
            "?ignore=species&ignore=the%20place",
            {"ignore": ["species", "the place"]},
            Reading(columns={"ignore": ["species", "the place"]}),
        ),
    ),
    File(
        "pandas-without-names.csv",
        _pandas(_NUMBERS.set_axis([0, 1], axis=1).to_csv),
        Reading(["0", "1"], columns={"id": ["0"]}, notice="?header=absent", ids=[0, 1, 2, 3]),
    ),
    File(
        "years.csv",
        _text("country,2001,2002\nDE,5.1,3.5\nFR,4.9,3.0\nIT,7.0,3.2\nPL,6.3,3.3\n"),
        Reading(["2001", "2002"], columns={"id": ["country"]}, notice="?header=absent", ids=["DE", "FR", "IT", "PL"]),
        {"id": "country"},
    ),
    File(
        "wavelengths.csv",
        _text("400.0,400.5,401.0\n5.1,3.5,1\n4.9,3.0,1\n7.0,3.2,2\n"),
        Reading(None, [[400.0, 400.5, 401.0], [5.1, 3.5, 1]], notice="?header=present"),
    ),
    File("ends-of-lines.csv", _text("length,width,\n" + "".join(f"{a},{b},\n" for a, b in _ROWS)), Reading()),
    File("ends-of-rows.csv", _text("length,width\n" + "".join(f"{a},{b},\n" for a, b in _ROWS)), Reading()),
    File(
        "numpy-savetxt.txt",
        _text("".join(f"{a:.18e} {b:.18e}\n" for a, b in _ROWS)),
        Reading(None, dialect={"delimiter": "space"}),
    ),
    File(
        "r-write-table.txt",
        _text('"length" "width"\n' + "".join(f'"{row}" {a} {b}\n' for row, (a, b) in enumerate(_ROWS, 1))),
        Reading(columns={"id": ["0"]}, dialect={"delimiter": "space"}, ids=[1, 2, 3, 4]),
    ),
    File(
        "glove.txt",
        _text("".join(f"w{row} {a} {b}\n" for row, (a, b) in enumerate(3 * _ROWS))),
        Reading(None, columns={"id": ["0"]}, dialect={"delimiter": "space"}, ids=[f"w{row}" for row in range(12)]),
    ),
    File(
        "pixels.csv",
        _text("pixel_1,pixel_2,note\n5.1,3.5,good\n4.9,3.0,bad\n"),
        Reading(["pixel_1", "pixel_2"], _ROWS[:2], columns={"ignore": ["note"]}),
        {"features": "pixel_*"},
    ),
)  # fmt: skip
