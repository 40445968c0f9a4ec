"""Hostile CSV and JSON bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.inputs.hostile.case import MAX_BODY, MAX_JSON, Attack

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEARLY = MAX_BODY - 2**10
_LETTER = "\N{GRINNING FACE}"  # takes four bytes, which widens every character of the text to four bytes
_MANY = MAX_JSON - 100
DEEP = MAX_JSON // 16


def csv_attacks() -> Iterator[Attack]:
    """Yield hostile CSV bodies, and some valid ones at the limits."""

    def csv(name: str, text: str | bytes, *, times: int = 1, is_accepted: bool = False, **query: str) -> Attack:
        body = text.encode() if isinstance(text, str) else text
        return Attack("csv", name, lambda: body * times, query, is_accepted)

    yield csv("one line without an end", "1" * 2**10, times=_NEARLY // 2**10)
    yield csv("one line of cells without an end", "1," * 2**10, times=_NEARLY // 2**11)
    yield csv("a wide row after a narrow one", "1,2\n" + "12," * (_NEARLY // 3))
    yield csv("wide rows after a narrow one", "1,2\n" + ("12," * 2**16 + "\n") * (_NEARLY // (3 * 2**16 + 1)))
    yield csv("a row of lines in quotes without an end", '"\n",' * (_NEARLY // 4))
    yield csv("the smallest cells, a million times", "0,0,0,0,0,0,0,0\n" * (_NEARLY // 16))
    yield csv("one wide letter, then numbers", _LETTER + "\n" + "1\n" * (MAX_BODY // 24), is_accepted=True)
    yield csv("very long labels", "x,l\n" + f"1,{_LETTER * 30_000}\n" * (MAX_BODY // 125_000), labels="l")
    yield csv(
        "labels of four bytes a letter",
        "x,l\n" + f"1,{_LETTER * 900}\n" * (MAX_BODY // 4200),
        labels="l",
        is_accepted=True,
    )
    yield csv("one long label, many short ones", "x,l\n1," + "a" * 900 + "\n" + "1,a\n" * (MAX_BODY // 5), labels="l")
    yield csv("a label's column that is a huge number", "x,y\n1,2\n", labels="9" * 5000)
    yield csv("an integer of 5,000 digits", "x,y\n1,a\n" + "0" * 5000 + "1,4\n")
    yield csv("an integer of 100,000 digits", "x\n" + "1" * 100_000 + "\n")
    yield csv("numbers of 100,000 digits", ("0." + "1" * 100_000 + "\n") * (_NEARLY // 100_100))
    yield csv("a cell of megabytes", "x\n" + "1" * (_NEARLY // 2) + "\n")
    yield csv("an exponent without an end", "x\n1e" + "9" * 1000 + "\n")
    yield csv("digits of other scripts", "x\n\N{ARABIC-INDIC DIGIT ONE}\N{SUPERSCRIPT TWO}\n")
    yield csv("bytes of zero", b"x,y\n1,\0\n\0,2\n")
    yield csv("zeros alone", b"\0", times=_NEARLY)
    yield csv("half a surrogate pair", b"x\xed\xa0\x80\n1\n")
    yield csv("UTF-16", "x,y\n1,2\n".encode("utf-16"), is_accepted=True)
    yield csv("half a letter of UTF-16", b"\xff\xfex\0\n\0\x31")
    yield csv("line ends alone", "\n", times=_NEARLY)
    yield csv("carriage returns alone", "\r", times=_NEARLY)
    yield csv("commas alone", ",", times=_NEARLY)
    yield csv("quotes alone", '"', times=_NEARLY)
    yield csv("very many columns", ",".join(f"c{i}" for i in range(MAX_BODY // 110)) + "\n")
    yield csv("names of a hundred kilobytes", ("n" * 100_000 + ",") * 2 + "y\n1,2,3\n")
    yield csv("a name with a byte of zero", "x\0,y\n1,2\n")
    yield csv("a formula", "=cmd|' /C calc'!A0,y\n1,2\n", is_accepted=True)  # a valid name, returned unchanged
    yield csv("a byte order mark alone", b"\xef\xbb\xbf")


def json_attacks() -> Iterator[Attack]:
    """Yield hostile JSON bodies, and some valid ones at the limits."""

    def json(name: str, text: str | bytes, *, is_accepted: bool = False) -> Attack:
        body = text.encode() if isinstance(text, str) else text
        return Attack("json", name, lambda: body, {}, is_accepted)

    for depth in (500, 900, 940, 960, 980, 990, DEEP):
        yield json(f"arrays {depth:,} deep", "[" * depth + "1" + "]" * depth)
        yield json(f"a cell {depth:,} deep", "[[1," + "[" * depth + "1" + "]" * depth + "]]")
    yield json("arrays that never close", "[" * (MAX_JSON - 1))
    yield json("objects very deep", '{"data":' * DEEP + "1" + "}" * DEEP)
    yield json("an integer of 4,000 digits as a color", f'{{"data":[[1]],"colors":[{"1" * 4000}]}}')
    yield json("an integer of 400 digits as a label", f'{{"data":[[1]],"labels":[{"1" * 400}]}}')
    yield json("an integer of 50,000 digits", f"[[{'1' * 50_000}]]")
    yield json("an integer that float64 has not", f'{{"data":[[1]],"colors":[{2**53 + 1}]}}')
    yield json("an exponent of very many digits", f"[[1e{'9' * _MANY}]]")
    yield json("a number of very many digits", f"[[0.{'1' * _MANY}]]", is_accepted=True)
    yield json("a member twice", '{"data":[[1]],"data":[[2]]}')
    yield json("very many members", "{" + ",".join(f'"{i}":1' for i in range(MAX_JSON // 13)) + "}")
    yield json("a very long member", '{"' + "a" * _MANY + '":1}')
    yield json("half a surrogate pair as a name", '{"data":[[1]],"names":["\\ud800"]}')
    yield json("half a surrogate pair as a label", '{"data":[[1]],"labels":["\\udfff"]}')
    yield json("a byte of zero in a label", '{"data":[[1]],"labels":["a\\u0000"]}')
    yield json("a very long name", '{"data":[[1]],"names":["' + "n" * _MANY + '"]}')
    yield json("empty arrays", "[" + "[]," * (MAX_JSON // 4) + "[]]")
    yield json("objects for rows", "[" + "{}," * (MAX_JSON // 4) + "{}]")
    yield json("very many rows of one", "[" + "[0]," * (MAX_JSON // 5) + "[0]]", is_accepted=True)
    yield json("one long row", "[[" + "0," * (MAX_JSON // 3) + "0]]")
    yield json("UTF-16 by its look", "[[1]]".encode("utf-16"), is_accepted=True)
    yield json("UTF-32 cut in a letter", "[[1]]".encode("utf-32")[:-1])
    yield json("no UTF-8", b'{"data":[["\xff"]]}')
    yield json("a string without an end", '"' + "a" * _MANY)
    yield json("spaces alone", " " * _MANY)
    yield json("two values", "[[1]] [[2]]")
    yield json("a prototype", '{"__proto__":{"data":[[1]]},"data":[[1]]}')
    yield json("longer than is allowed", "[" + "[0]," * (MAX_JSON // 4) + "[0]]")
