"""Compressed bodies and forms: unpacked under limits, in reader processes, layer by layer."""

from __future__ import annotations

import gzip
import io
import random
import tempfile
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from service.encoding import arrow
from service.uploads import packing
from service.uploads.packing import Packing
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    import httpx

CSV = b"x,y,kind\n1,2,a\n3,4,b\n5,7,a\n"
FORM = "multipart/form-data; boundary=b0"


def gz(body: bytes) -> bytes:
    """Return the gzip file of a body, without the time: test processes must collect the same names of cases."""
    return gzip.compress(body, mtime=0)


def zstd(body: bytes) -> bytes:
    """Return the zstd file of a body."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def form(*parts: tuple[str, bytes]) -> bytes:
    """Return the body of a form of parts: the end of the Content-Disposition and further headers, and the content."""
    pieces = [b"--b0\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + body for head, body in parts]
    return b"\r\n".join([*pieces, b"--b0--\r\n"])


def unpacked(body: bytes, content_type: str, encoding: str = "", cap: int = 2**20) -> tuple[bytes, Packing]:
    """Return the content of the outermost layer, and its packing."""
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.flush()
        out = io.BytesIO()
        packed = Packing(content_type, encoding)
        assert packed.is_packed
        packed.check()
        return_value = packed.unpack(file, out, cap)
    return out.getvalue(), return_value


def refused(*arguments: Any, **options: Any) -> str:
    """Return the code of a refused body."""
    with pytest.raises(ProblemError) as caught:
        unpacked(*arguments, **options)
    assert 400 <= caught.value.problem.status < 500
    assert caught.value.problem.remedy.endswith((".", "csv."))
    return caught.value.problem.code


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "left"),
    [
        (gz(CSV), "text/csv", "gzip", Packing("text/csv")),
        (gz(CSV[:9]) + gz(CSV[9:]) + bytes(9), "text/csv", "x-gzip", Packing("text/csv")),
        (zstd(CSV), "text/csv; header=present", "zstd", Packing("text/csv; header=present")),
        (gz(CSV), "text/csv", "zstd, gzip", Packing("text/csv", "zstd")),
        (gz(CSV), "application/gzip", "", Packing("text/csv")),
        (zstd(CSV), "application/zstd", "identity", Packing("text/csv", "identity")),
        (form(('name="file"; filename="a.csv"', CSV)), FORM, "", Packing("text/csv")),
        (form(('name="file"', CSV)), FORM, "", Packing("text/csv")),
        (form(('name="f"; filename="a"\r\nContent-Type: text/csv', CSV)), FORM, "", Packing("text/csv")),
        (
            form(("name=label", b"l"), ("name=ignore", b"x"), ("name=ignore", b"y"), ("name=f; filename=A.TXT", CSV)),
            FORM, "", Packing("text/plain", "", {"label": "l", "ignore": ["x", "y"]}),
        ),
        (
            form(("name=delimiter", b"comma"), ("name=f; filename=a.csv.gz", CSV)),
            FORM, "", Packing("text/csv", "gzip", {"delimiter": "comma"}),
        ),
        (b"preface\r\n" + form(("name=f; filename=a.zst", CSV)), FORM, "", Packing("application/zstd")),
    ],
)  # fmt: skip
def test_a_layer_is_unpacked(body: bytes, content_type: str, encoding: str, left: Packing) -> None:
    """The content is that of the layer, and what is left says how to go on."""
    assert unpacked(body, content_type, encoding) == (CSV, left)


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "code"),
    [
        (gz(CSV)[:-9], "text/csv", "gzip", "malformed-gzip"),
        (gz(CSV) + b"more", "text/csv", "gzip", "malformed-gzip"),
        (CSV, "text/csv", "gzip", "malformed-gzip"),
        (CSV, "text/csv", "zstd", "malformed-zstd"),
        (zstd(CSV)[:-5], "text/csv", "zstd", "malformed-zstd"),
        (gz(b""), "text/csv", "gzip", "empty-body"),
        (CSV, "text/csv", "br", "unsupported-media-type"),
        (CSV, FORM, "", "malformed-multipart"),
        (CSV, "multipart/form-data", "", "malformed-multipart"),
        (form(("name=f; filename=a", CSV))[:-12], FORM, "", "malformed-multipart"),
        (form(("name=label", b"a" * 2**17), ("name=f; filename=a", CSV)), FORM, "", "malformed-multipart"),
        (form(*[("name=ignore", b"a")] * 2000), FORM, "", "malformed-multipart"),
        (form(("name=color", b"a")), FORM, "", "invalid-form"),
        (form(*[("name=f; filename=a.csv", CSV)] * 2), FORM, "", "invalid-form"),
        (form(("name=colour", b"a"), ("name=f; filename=a.csv", CSV)), FORM, "", "unknown-field"),
    ],
)
def test_bad_layers_are_refused(body: bytes, content_type: str, encoding: str, code: str) -> None:
    """Each is a client problem with its code."""
    assert refused(body, content_type, encoding) == code


@pytest.mark.parametrize(("pack", "encoding"), [(gz, "gzip"), (zstd, "zstd")])
def test_bombs_stop_at_the_limit(pack: Any, encoding: str) -> None:
    """No more than the limit and one piece is written, whatever the body announces."""
    bomb = pack(bytes(2**25))
    assert len(bomb) < 2**16
    assert refused(bomb, "text/csv", encoding, cap=2**21) == "inflated-too-large"


def test_zstd_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow the refusal names the extra."""
    monkeypatch.setattr(packing, "has_arrow", lambda: False)
    with pytest.raises(ProblemError) as caught:
        Packing("text/csv", "zstd").check()
    assert (caught.value.problem.status, arrow.REMEDY in caught.value.problem.remedy) == (415, True)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "form"])
def test_mutated_layers_are_content_or_problems(kind: str) -> None:
    """A changed body gives a content within the limit or a client problem, never another error."""
    good = {
        "gzip": (gz(CSV * 99), "text/csv", "gzip"),
        "zstd": (zstd(CSV * 99), "text/csv", "zstd"),
        "form": (form(("name=label", b"kind"), ('name="f"; filename="a.csv.gz"', CSV)), FORM, ""),
    }[kind]
    for seed in range(300):
        chance = random.Random(seed)  # noqa: S311 # for bodies, not for secrets
        body = bytearray(good[0])
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(body))
            body[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        try:
            content, _ = unpacked(bytes(body), *good[1:], cap=2**16)
        except ProblemError as error:
            assert 400 <= error.problem.status < 500  # noqa: PT017 # either outcome is right
        else:
            assert 0 < len(content) <= 2**16


def test_uploads_of_every_packing_are_one_data_set(client: httpx.Client) -> None:
    """Plain, compressed, as a file of a form, with options in the query or in fields: one id."""
    url, query = "/v1/datasets", {"label": "kind"}
    plain = client.post(url, content=CSV, headers={"content-type": "text/csv"}, params=query).json()
    assert plain["columns"] == {"label": ["kind"]}
    coded = {"content-type": "text/csv", "content-encoding": "gzip"}
    twice = {"content-type": "text/csv", "content-encoding": "zstd, gzip"}
    others = [
        client.post(url, content=gz(CSV), headers=coded, params=query),
        client.post(url, content=gz(zstd(CSV)), headers=twice, params=query),
        client.post(url, files={"file": ("a.csv", CSV)}, data={"label": "kind"}),
        client.post(url, files={"file": ("a.tsv.gz", gz(CSV.replace(b",", b"\t")))}, params=query),
    ]
    assert [(answer.status_code, answer.json()["id"]) for answer in others] == [(200, plain["id"])] * 4
    layers = {"content-type": "text/csv", "content-encoding": ", ".join(["gzip"] * 5)}
    body = CSV
    for _ in range(5):
        body = zlib.compress(body, wbits=31)
    assert client.post(url, content=body, headers=layers).status_code == 415


def test_a_preview_is_what_an_upload_stores(client: httpx.Client) -> None:
    """Id, shape, names, notices and the first rows are those of the data set; nothing is stored."""
    body = b",x,y,ok,kind\n0,1,2,True,a\n1,3,4,False,b\n2,5,7,True,\n"
    shown = client.post("/v1/datasets/preview", files={"file": ("a.csv", body)}, data={"label": "kind"}).json()
    assert client.get(f"/v1/datasets/{shown['id']}").status_code == 404
    assert [column["role"] for column in shown["columns"]] == ["id", "feature", "feature", "feature", "label"]
    assert (shown["rows"], shown["labels"]) == ([[1, 2, 1], [3, 4, 0], [5, 7, 1]], ["a", "b", ""])
    assert shown["problem"] is None
    stored = client.post("/v1/datasets", files={"file": ("a.csv", body)}, data={"label": "kind"}).json()
    assert {name: stored[name] for name in ("id", "n", "d", "names", "notices")} == {
        name: shown[name] for name in ("id", "n", "d", "names", "notices")
    }
    assert len(stored["notices"]) == 2
    assert client.get(stored["links"]["data"]).json()["data"] == shown["rows"]


def test_a_preview_of_a_refused_table_has_its_columns(client: httpx.Client) -> None:
    """The problem is that of the upload; a column without a role is marked."""
    answer = client.post("/v1/datasets/preview", content=CSV, headers={"content-type": "text/csv"})
    upload = client.post("/v1/datasets", content=CSV, headers={"content-type": "text/csv"})
    assert (answer.status_code, upload.status_code) == (200, 422)
    shown = answer.json()
    assert shown["problem"] == upload.json()
    assert shown["columns"][2] == {"name": "kind", "role": ""}
    assert shown["problem"]["details"]["options"] == {"ignore": ["kind"], "one_hot": ["kind"], "label": ["kind"]}
    with_numbers = client.post("/v1/datasets/preview", content=CSV, headers={"content-type": "text/html"})
    assert with_numbers.status_code == 415
