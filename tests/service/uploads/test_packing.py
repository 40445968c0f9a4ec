"""Compressed bodies and forms: unpacked under limits, in reader processes, layer by layer."""

from __future__ import annotations

import gzip
import io
import random
import tempfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from service.uploads import synthetic
from service.uploads.limits import Limits
from service.uploads.reading import Upload
from tests.service.uploads.bodies import FORM, form
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    import httpx

CSV = b"x,y,kind\n1,2,a\n3,4,b\n5,7,a\n"
PREVIEW = "/v1/datasets/preview"


def gz(body: bytes) -> bytes:
    """Return the gzip file of a body, without the time: test processes must collect the same names of cases."""
    return gzip.compress(body, mtime=0)


def unpack(body: bytes, content_type: str, encoding: str = "", cap: int = 2**20) -> tuple[bytes, Upload]:
    """Return the content of the outermost layer, and its upload."""
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.flush()
        out = io.BytesIO()
        return_value = upload(content_type, encoding, cap=cap).unpack(file, out)
    return out.getvalue(), return_value


def upload(content_type: str, encoding: str = "", options: dict[str, Any] | None = None, cap: int = 2**20) -> Upload:
    """Return the upload of headers."""
    return Upload(content_type, encoding, options or {}, Limits(1, 1, body=cap), "")


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "left"),
    [
        (gz(CSV), "text/csv", "gzip", upload("text/csv")),
        (gz(CSV[:9]) + gz(CSV[9:]) + bytes(9), "text/csv", "x-gzip", upload("text/csv")),
        (gz(CSV), "text/csv; header=present", "gzip", upload("text/csv; header=present")),
        (gz(CSV), "text/csv", "x-gzip, gzip", upload("text/csv", "x-gzip")),
        (gz(CSV), "application/gzip", "", upload("text/csv")),
        (gz(CSV), "application/x-gzip", "identity", upload("text/csv", "identity")),
        (form(('name="file"; filename="a.csv"', CSV)), FORM, "", upload("text/csv")),
        (form(('name="file"', CSV)), FORM, "", upload("text/csv")),
        (form(('name="f"; filename="a"\r\nContent-Type: text/csv', CSV)), FORM, "", upload("text/csv")),
        (
            form(("name=labels", b"l"), ("name=ignore", b"x"), ("name=ignore", b"y"), ("name=f; filename=A.TXT", CSV)),
            FORM, "", upload("text/plain", "", {"labels": "l", "ignore": ["x", "y"]}),
        ),
        (
            form(("name=delimiter", b"comma"), ("name=f; filename=a.csv.gz", CSV)),
            FORM, "", upload("text/csv", "gzip", {"delimiter": "comma"}),
        ),
        (b"preface\r\n" + form(("name=f; filename=a.gz", CSV)), FORM, "", upload("application/gzip")),
    ],
)  # fmt: skip
def test_a_layer_is_unpacked(body: bytes, content_type: str, encoding: str, left: Upload) -> None:
    """The content is that of the layer, and what is left says how to go on."""
    assert unpack(body, content_type, encoding) == (CSV, left)


BAD: list[tuple[str, str, str, list[bytes]]] = [
    ("text/csv", "gzip", "malformed-gzip", [gz(CSV)[:-9], gz(CSV) + b"more", CSV]),
    ("text/csv", "gzip", "empty-body", [gz(b"")]),
    ("text/csv", "zstd", "unsupported-media-type", [CSV]),
    ("multipart/form-data", "", "malformed-multipart", [CSV]),
    (FORM, "", "malformed-multipart", [CSV, form(("name=f; filename=a", CSV))[:-12]]),
    (FORM, "", "malformed-multipart", [form(("name=labels", b"a" * 2**17), ("name=f; filename=a", CSV))]),
    (FORM, "", "malformed-multipart", [form(*[("name=ignore", b"a")] * 2000)]),
    (FORM, "", "invalid-form", [form(("name=colors", b"a")), form(*[("name=f; filename=a.csv", CSV)] * 2)]),
    (FORM, "", "unknown-field", [form(("name=colour", b"a"), ("name=f; filename=a.csv", CSV))]),
    ("text/csv", "gzip", "inflated-too-large", [gz(bytes(2**25))]),  # no more than the limit and a piece is written
]


@pytest.mark.parametrize(("content_type", "encoding", "code", "bodies"), BAD)
def test_bad_layers_are_refused(content_type: str, encoding: str, code: str, bodies: list[bytes]) -> None:
    """Each is a client problem with its code; whatever a body announces, it is unpacked up to a limit."""
    for body in bodies:
        assert len(body) < 2**18
        with pytest.raises(ProblemError) as caught:
            unpack(body, content_type, encoding, cap=2**21)
        assert 400 <= caught.value.problem.status < 500
        assert caught.value.problem.remedy.endswith((".", "csv."))
        assert caught.value.problem.code == code


@pytest.mark.parametrize("kind", ["gzip", "form"])
def test_mutated_layers_are_content_or_problems(kind: str) -> None:
    """A changed body gives a content within the limit or a client problem, never another error."""
    good = {
        "gzip": (gz(CSV * 99), "text/csv", "gzip"),
        "form": (form(("name=labels", b"kind"), ('name="f"; filename="a.csv.gz"', CSV)), FORM, ""),
    }[kind]
    for seed in range(100):
        chance = random.Random(seed)  # noqa: S311 # for bodies, not for secrets
        body = bytearray(good[0])
        for _ in range(chance.randint(1, 4)):
            position = chance.randrange(len(body))
            body[position : position + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        try:
            content, _ = unpack(bytes(body), *good[1:], cap=2**16)
        except ProblemError as error:
            assert 400 <= error.problem.status < 500  # noqa: PT017 # either outcome is right
        else:
            assert 0 < len(content) <= 2**16


def test_uploads_of_every_packing_are_one_data_set(client: httpx.Client) -> None:
    """Plain, compressed, in a form, with options in the query or in fields: each upload has the same id."""
    url, query = "/v1/datasets", {"labels": "kind"}
    plain = client.post(url, content=CSV, headers={"content-type": "text/csv"}, params=query).json()
    assert plain["columns"] == {"labels": ["kind"]}
    coded = {"content-type": "text/csv", "content-encoding": "gzip"}
    twice = {"content-type": "text/csv", "content-encoding": "gzip, gzip"}
    others = [
        client.post(url, content=gz(CSV), headers=coded, params=query),
        client.post(url, content=gz(gz(CSV)), headers=twice, params=query),
        client.post(url, files={"file": ("a.csv", CSV)}, data={"labels": "kind"}),
        client.post(url, files={"file": ("a.tsv.gz", gz(CSV.replace(b",", b"\t")))}, params=query),
    ]
    assert [(answer.status_code, answer.json()["id"]) for answer in others] == [(200, plain["id"])] * 4
    layers = {"content-type": "text/csv", "content-encoding": ", ".join(["gzip"] * 5)}
    body = CSV
    for _ in range(5):
        body = zlib.compress(body, wbits=31)
    assert client.post(url, content=body, headers=layers).status_code == 415


def test_a_preview_is_what_an_upload_stores(client: httpx.Client) -> None:
    """Id, shape, names, notices and the first rows are those of the data set, and problems those of the upload."""
    body = b",x,y,ok,kind\n0,1,2,True,a\n1,3,4,False,b\n2,5,7,True,\n"
    shown = client.post("/v1/datasets/preview", files={"file": ("a.csv", body)}, data={"labels": "kind"}).json()
    assert client.get(f"/v1/datasets/{shown['id']}").status_code == 404
    assert [column["role"] for column in shown["columns"]] == ["id", "feature", "feature", "feature", "labels"]
    assert (shown["rows"], shown["labels"]) == ([[1, 2, 1], [3, 4, 0], [5, 7, 1]], ["a", "b", ""])
    assert shown["problem"] is None
    stored = client.post("/v1/datasets", files={"file": ("a.csv", body)}, data={"labels": "kind"}).json()
    assert all(stored[name] == shown[name] for name in ("id", "n", "n_features", "names", "notices"))
    assert len(stored["notices"]) == 2
    assert client.get(stored["links"]["data"]).json()["data"] == shown["rows"]
    answers = [client.post(url, content=CSV, headers={"content-type": "text/csv"}) for url in (PREVIEW, "/v1/datasets")]
    assert [answer.status_code for answer in answers] == [200, 422]
    refused = answers[0].json()
    assert refused["problem"] == answers[1].json()
    assert refused["columns"][2] == {"name": "kind", "role": ""}
    assert refused["problem"]["details"]["options"] == {"ignore": ["kind"], "one_hot": ["kind"], "labels": ["kind"]}
    assert client.post(PREVIEW, content=CSV, headers={"content-type": "text/html"}).status_code == 415


@pytest.mark.parametrize(
    ("row", "kind"), [(b"0\n", "text/csv"), (b"0," * 199 + b"0\n", "text/csv"), (b"%07d" + b"w" * 990 + b",0\n", "ids")]
)
def test_the_points_of_a_preview_are_bounded(client: httpx.Client, row: bytes, kind: str) -> None:
    """However many rows are asked for, the answer has a few MiB; a small table is shown whole."""
    rows = 2_000_000 // len(row)
    body = b"".join(row % number if b"%" in row else row for number in range(rows))
    path = f"{PREVIEW}?rows=1000000&header=absent" + ("&id=0" if kind == "ids" else "")
    headers = {"content-type": "text/csv", "content-encoding": "gzip"}
    answer = client.post(path, content=gz(body), headers=headers)
    assert (answer.status_code, answer.json()["n"]) == (200, rows)
    assert 1 <= len(answer.json()["rows"]) < rows
    assert len(answer.content) < 2**23
    few = client.post(path, content=gz(b"".join(body.splitlines(keepends=True)[:50])), headers=headers).json()
    assert (few["n"], len(few["rows"])) == (50, 50)


def test_the_api_samples_only_small_manifolds(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large manifold is sampled by a reader process, like an upload."""
    monkeypatch.setattr("glle_engine.manifolds.make", None)  # of this process
    asked = {"name": "s_curve", "n": synthetic.MAX_SAFE_POINTS + 1, "noise": 0.0, "seed": 0}
    answer = client.post("/v1/datasets/synthetic", json=asked)
    assert (answer.status_code, answer.json()["n"]) == (201, asked["n"])
    assert answer.json()["source"] == {"kind": "synthetic", **asked}


@pytest.mark.parametrize(
    "media", [b"text/csv\xff", b"\xc3\xa4/\xff", b"text/csv; charset=\xff", b'text/csv; header="\xe9"']
)
def test_a_part_with_a_strange_type_is_no_internal_error(client: httpx.Client, media: bytes) -> None:
    """Bytes above 127 in the Content-Type of a form's part are a media type that is refused, or a parameter."""
    head = b'--b0\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\nContent-Type: ' + media
    body = head + b"\r\n\r\n1,2\n3,4\n\r\n--b0--\r\n"
    answer = client.post("/v1/datasets", content=body, headers={"content-type": FORM})
    assert answer.status_code == 415
    assert answer.json()["remedy"]
