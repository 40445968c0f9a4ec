"""Check the names of functions, classes and constants in the product, `qa` and the tests: `python -m qa.names`.

A function is a verb phrase or the noun of its result, never a bare participle. A property may be an adjective of its
object. A public class of the distributed packages has a name that no other module of them uses. A limit is `MAX_...`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict

from qa.frame import say, tracked_files

DISTRIBUTED = ("glle/", "glle_engine/", "service/", "worker/")
CHECKED = (*DISTRIBUTED, "bench/", "demo/", "docs/", "openapi/", "qa/", "tests/")
IRREGULAR = "bound|built|chosen|cut|drawn|found|frozen|given|held|hidden|kept|known|made|sent|shown|spent|taken|written"
PARTICIPLE = re.compile(rf"_*(?:[a-z]*[^e_]ed|{IRREGULAR})")
ALLOWED = {
    "compiled": "a decorator, as functools.cached_property",
    "cut": "a verb",
    "embed": "a verb",
}
SHARED = {"Dataset", "Embedding", "Job", "Posterior"}  # the client's resources have the names of what they stand for
SCRIPT_FUNCTION = re.compile(r"(?:function|const) (\w+)(?:\(| = (?:async )?(?:\(|\w+ =>))")


def names_of_functions(path: str, source: str) -> list[tuple[int, str]]:
    """Return (line, name) of the functions in Python, JavaScript or TypeScript, without properties."""
    if not path.endswith(".py"):
        lines = enumerate(source.splitlines(), start=1)
        return [(number, name) for number, line in lines for name in SCRIPT_FUNCTION.findall(line)]
    return [
        (node.lineno, node.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)
    ]


def findings(sources: dict[str, str]) -> list[str]:
    """Return `path:line: name: reason` of every bad name in sources by path."""
    found, classes = [], defaultdict(list)
    for path, source in sources.items():
        for number, name in names_of_functions(path, source):
            if PARTICIPLE.fullmatch(name) and name.strip("_") not in ALLOWED:
                found.append(f"{path}:{number}: {name}: name the action or the result")
        for number, line in enumerate(source.splitlines(), start=1):
            found += [f"{path}:{number}: {name}: write MAX_" for name in re.findall(r"^\s*(_?MOST_\w+)", line)]
            if path.startswith(DISTRIBUTED) and (match := re.match(r"class ([A-Z]\w*)", line)):
                classes[match[1]].append(f"{path}:{number}: {match[1]}: another module has a class of this name")
    repeated = [places for name, places in classes.items() if len(places) > 1 and name not in SHARED]
    return [*found, *(place for places in repeated for place in places)]


def main() -> int:
    """Print each finding; return 1 if there is one."""
    checked = tracked_files(*CHECKED).items()
    found = findings({name: text for name, text in checked if name.endswith((".py", ".js", ".ts"))})
    say(*found)
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
