"""Files of the explorer: complete, small, with their headers, and without other hosts."""

from __future__ import annotations

import gzip
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import glle_engine
from service.explorer.routes import FOLDER, files
from tests.service.conftest import check_problem

if TYPE_CHECKING:
    import httpx

ROOT = Path(__file__).resolve().parents[3]
PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FIRST_LOAD_BYTES = 400_000
# A namespace, and what the libraries say in comments and in a message for browsers without WebGL.
NAMED_ONLY = {"www.w3.org", "get.webgl.org", "github.com", "www.npmjs.com"}


def relative(path: Path) -> str:
    """Return the name of a file below the page's folder."""
    return path.relative_to(FOLDER).as_posix()


def test_a_browser_gets_the_page(guarded_client: httpx.Client) -> None:
    """The root path is the page, which browsers revalidate, without a key; its API requests need one."""
    assert guarded_client.get("/explorer/js/api.js").status_code == 200
    assert guarded_client.get("/v1/info").status_code == 401
    answer = guarded_client.get("/", headers=PAGE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert '<script type="module" src="explorer/js/main.js"></script>' in answer.text


def test_a_program_gets_links(client: httpx.Client) -> None:
    """With Accept: application/json the root path has links, and each link works."""
    payload = client.get("/", headers={"Accept": "application/json"}).json()
    assert (payload["name"], payload["version"]) == ("glle", glle_engine.__version__)
    assert [client.get(link).status_code for link in payload["links"].values()] == [200] * 4


def test_the_policy_allows_no_other_host_and_no_inline_script(client: httpx.Client) -> None:
    """Every directive names this host alone, except the needs of the plotting library."""
    directives = dict(
        directive.split(" ", 1) for directive in client.get("/").headers["content-security-policy"].split("; ")
    )
    assert directives["default-src"] == "'self'"
    assert directives["script-src"] == "'self' 'unsafe-eval'"
    allowed = {"'self'", "'none'", "'unsafe-eval'", "blob:", "data:"}
    assert {word for value in directives.values() for word in value.split()} == allowed
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|style=", (FOLDER / "index.html").read_text("utf-8"))


def test_a_valid_copy_is_304(client: httpx.Client) -> None:
    """The ETag is strong and gives 304; the compressed file is equal."""
    path = "js/main.js"
    answer = client.get(f"/explorer/{path}", headers={"Accept-Encoding": "gzip"})
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert answer.content == (FOLDER / path).read_bytes()
    again = client.get(f"/explorer/{path}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = client.get(f"/explorer/{path}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answer.content


def test_only_versioned_files_are_immutable(client: httpx.Client) -> None:
    """The page's other files change under their names, so that browsers revalidate them."""
    for name, file in files().items():
        kept = "immutable" in file.headers["Cache-Control"]
        assert kept == name.startswith("vendor/"), name
        assert not kept or re.search(r"-\d+\.\d+\.\d+\.", name), name


def test_the_schemas_of_forms_are_those_of_the_contract(client: httpx.Client) -> None:
    """The page makes forms of two bodies, and loads their schemas without the whole contract."""
    contract = client.get("/openapi.json").json()["components"]["schemas"]
    schemas = client.get("/explorer/forms.json").json()
    assert schemas.keys() == {"DrawsIn", "SyntheticIn"}
    for name, schema in schemas.items():
        assert schema["properties"].keys() == contract[name]["properties"].keys()
        assert schema["required"] == contract[name]["required"]


def test_other_files_are_404(client: httpx.Client) -> None:
    """A path outside of the page's files is a 404 problem."""
    for path in ("nothing.js", "../page.py", "%2e%2e/page.py", "README.md", ""):
        check_problem(client.get(f"/explorer/{path}"), 404, "no-such-route")


def test_the_page_is_small_and_names_no_other_host() -> None:
    """All files together, compressed, have less than 400 kB, and send no request to another host."""
    size = 0
    for path in FOLDER.rglob("*"):
        if path.suffix in {".html", ".css", ".js", ".svg"}:
            size += len(gzip.compress(path.read_bytes(), 9))
            hosts = set(re.findall(r"(?:https?:)?//([a-z0-9-]+(?:\.[a-z0-9-]+)+)", path.read_text("utf-8")))
            allowed = {"www.w3.org"} if path.parent.name != "vendor" else NAMED_ONLY
            assert hosts <= allowed, path
    assert size < FIRST_LOAD_BYTES


def test_every_library_and_every_example_has_its_license(client: httpx.Client) -> None:
    """A vendored file has its license text next to it; a README names author, DOI and license of the examples."""
    libraries = list((FOLDER / "vendor").glob("*.min.js"))
    assert len(libraries) == 3
    for library in libraries:
        text = library.with_name(library.name.replace(".min.js", ".LICENSE.txt")).read_text("utf-8")
        assert "ermission" in text, library.name
    text = (FOLDER / "examples" / "README.md").read_text("utf-8")
    assert "Creative Commons Attribution 4.0" in text
    labels = {"digits": ("digit", 1797, 10), "wine": ("cultivar", 178, 3)}
    assert {path.stem for path in (FOLDER / "examples").glob("*.csv")} == labels.keys()
    for name, (label, n, classes) in labels.items():
        assert re.search(rf"\| `{name}.csv` .*doi:10.24432/", text)
        answer = client.get(f"/explorer/examples/{name}.csv")
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        head, *rows = answer.text.splitlines()
        assert (head.split(",")[0], len(rows)) == (label, n)
        assert len({row.split(",")[0] for row in rows}) == classes


def test_every_named_file_exists_and_every_module_is_used() -> None:
    """Every path in the page and its modules exists, and the imports of main.js reach every module."""
    named = re.findall(r'(?:href|src)="explorer/([^"]+)"', (FOLDER / "index.html").read_text("utf-8"))
    assert len(named) >= 4
    reached, remaining = set(), [FOLDER / name for name in named]
    while remaining:
        script = remaining.pop()
        assert relative(script) in files(), relative(script)
        if script.suffix == ".js" and script.parent.name != "vendor" and script not in reached:
            reached.add(script)
            targets = re.findall(r"(?:from|import\(|new URL\()\s*'(\.[^']+\.js)'", script.read_text("utf-8"))
            remaining += [(script.parent / target).resolve() for target in targets]
    modules = {path for path in FOLDER.rglob("*.js") if path.parent.name != "vendor"}
    assert reached == modules


def test_no_circle_of_modules() -> None:
    """The imports of the page's modules have no circle."""
    imports = {
        path: {
            (path.parent / target).resolve()
            for target in re.findall(r"(?:from|import) '(\.[^']+)'", path.read_text("utf-8"))
        }
        for path in (FOLDER / "js").rglob("*.js")
    }
    assert len(list(TopologicalSorter(imports).static_order())) >= len(imports)
