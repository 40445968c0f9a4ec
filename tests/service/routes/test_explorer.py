"""The explorer's files: served with their headers, complete, light, and without another host."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import glle_engine
from service.explorer.routes import FOLDER, MEDIA, files

if TYPE_CHECKING:
    import httpx

ROOT = Path(__file__).resolve().parents[3]
PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FIRST_LOAD_BYTES = 400_000
# A namespace, and what the libraries say in comments and in a message for browsers without WebGL.
NAMED_ONLY = {"www.w3.org", "get.webgl.org", "github.com", "www.npmjs.com"}
SCRIPTS = sorted(path for path in FOLDER.rglob("*.js") if path.parent.name != "vendor")


def relative(path: Path) -> str:
    """Return the name of a file below the page's folder."""
    return path.relative_to(FOLDER).as_posix()


def test_a_browser_gets_the_page(client: httpx.Client) -> None:
    """/ is the page, to be asked for again each time."""
    answer = client.get("/", headers=PAGE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert '<script type="module" src="/explorer/js/main.js"></script>' in answer.text


def test_a_program_gets_links(client: httpx.Client) -> None:
    """Accept: application/json is answered with where to begin, and what is named there answers."""
    payload = client.get("/", headers={"Accept": "application/json"}).json()
    assert (payload["name"], payload["version"]) == ("glle", glle_engine.__version__)
    assert [client.get(link).status_code for link in payload["links"].values()] == [200] * 4


def test_the_policy_allows_no_other_host_and_no_inline_script(client: httpx.Client) -> None:
    """Every directive names this host alone; what the plotting library needs beyond that is named."""
    directives = dict(part.split(" ", 1) for part in client.get("/").headers["content-security-policy"].split("; "))
    assert directives["default-src"] == "'self'"
    assert directives["script-src"] == "'self' 'unsafe-eval'"
    allowed = {"'self'", "'none'", "'unsafe-eval'", "blob:", "data:"}
    assert {word for value in directives.values() for word in value.split()} == allowed
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|style=", (FOLDER / "index.html").read_text("utf-8"))


@pytest.mark.parametrize("path", ["explorer.css", "js/main.js", "vendor/htm-preact-3.1.1.min.js"])
def test_a_copy_that_is_good_is_not_sent_again(client: httpx.Client, path: str) -> None:
    """The ETag is strong; with it the answer is 304, and compressed it is the same file."""
    answer = client.get(f"/explorer/{path}", headers={"Accept-Encoding": "gzip"})
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert answer.content == (FOLDER / path).read_bytes()
    again = client.get(f"/explorer/{path}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = client.get(f"/explorer/{path}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answer.content


def test_only_files_with_their_version_in_the_name_are_kept_for_good(client: httpx.Client) -> None:
    """The page's own files change under their names, and are asked for each time."""
    for name, file in files().items():
        kept = "immutable" in file.headers["Cache-Control"]
        assert kept == name.startswith("vendor/"), name
        assert not kept or re.search(r"-\d+\.\d+\.\d+\.", name), name


def test_the_page_is_open_where_a_key_is_asked_for(guarded: httpx.Client) -> None:
    """It loads without one; what it asks of the API does not."""
    assert guarded.get("/", headers=PAGE).status_code == 200
    assert guarded.get("/explorer/js/api.js").status_code == 200
    assert guarded.get("/v1/info").status_code == 401


@pytest.mark.parametrize("path", ["nothing.js", "../page.py", "%2e%2e/page.py", "README.md", ""])
def test_nothing_but_the_files_of_the_page_is_sent(client: httpx.Client, path: str) -> None:
    """What is no file of the page is a 404 with its problem, wherever it leads."""
    answer = client.get(f"/explorer/{path}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:glle:problem:no-such-route")


def test_the_page_names_no_other_host() -> None:
    """Neither its own files nor the libraries ask another host for anything."""
    for path in FOLDER.rglob("*"):
        if path.suffix in {".html", ".css", ".js", ".svg"}:
            hosts = set(re.findall(r"(?:https?:)?//([a-z0-9-]+(?:\.[a-z0-9-]+)+)", path.read_text("utf-8")))
            own = {"www.w3.org"} if path.parent.name != "vendor" else NAMED_ONLY
            assert hosts <= own, path


def test_the_first_load_is_light() -> None:
    """All files together, compressed, are under 400 kB; the first load is less."""
    sent = [path for path in FOLDER.rglob("*") if path.suffix in {".html", ".css", ".js", ".svg"}]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in sent) < FIRST_LOAD_BYTES


def test_every_library_has_its_licence() -> None:
    """Beside a vendored file stands the text that allows it."""
    libraries = list((FOLDER / "vendor").glob("*.min.js"))
    assert len(libraries) == 3
    for library in libraries:
        text = library.with_name(library.name.replace(".min.js", ".LICENSE.txt")).read_text("utf-8")
        assert "ermission" in text, library.name


def test_everything_that_is_named_is_there() -> None:
    """What the page, its modules and its sheet name by path exists, so that no request goes astray."""
    named = re.findall(r'(?:href|src)="/explorer/([^"]+)"', (FOLDER / "index.html").read_text("utf-8"))
    assert len(named) >= 4
    assert [name for name in named if name not in files()] == []
    for script in SCRIPTS:
        for target in re.findall(r"(?:from|import\()\s*'(\.[^']+)'", script.read_text("utf-8")):
            assert relative((script.parent / target).resolve()) in files(), (relative(script), target)


def test_every_module_is_used() -> None:
    """From main.js every module is reached."""
    seen, left = set(), [FOLDER / "js" / "main.js"]
    while left:
        script = left.pop()
        if script not in seen:
            seen.add(script)
            targets = re.findall(r"(?:from|import\()\s*'(\.[^']+)'", script.read_text("utf-8"))
            left += [found for t in targets if (found := (script.parent / t).resolve()).parent.name != "vendor"]
    assert [relative(script) for script in SCRIPTS if script not in seen] == []


def test_modules_are_small_and_evaluate_nothing() -> None:
    """One concept a file, under 300 lines; no text becomes code or markup."""
    for script in SCRIPTS:
        text = script.read_text("utf-8")
        assert text.count("\n") < 300, relative(script)
        assert text.startswith("/**"), relative(script)
        assert not re.search(r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)


def test_the_map_of_the_page_is_true() -> None:
    """What the page's README calls a test id is one in the modules."""
    text = (FOLDER / "README.md").read_text("utf-8")
    table = text[text.index("| part |") : text.index("`document.")]
    code = "".join(script.read_text("utf-8") for script in SCRIPTS)
    made = ("form-", "draws-", "synthetic-", "remedy-", "note-", "tab-", "axis-", "shape-", "export-", "show-")
    for name in re.findall(r"`([a-z][a-z0-9_-]+)`", table):
        assert (
            f'"{name}"' in code
            or f"'{name}'" in code
            or name.startswith(made)
            or name in {"webgl", "canvas", "data-kind"}
        ), name


def test_no_file_of_the_page_is_ignored() -> None:
    """Git ignores no file of the page, so that the wheel contains it; tests/deploy checks the wheel."""
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert not {"vendor", "vendor/", "*.min.js", "js/", "*.js"} & set(ignored)
    assert {Path(name).suffix for name in files()} <= set(MEDIA)
