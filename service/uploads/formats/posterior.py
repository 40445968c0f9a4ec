"""Exported posteriors: check every size, type and index in the sandbox, and write the checked content again."""

from __future__ import annotations

import errno
import json
import math
import re
import zipfile
import zlib
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import glle_engine
from service.uploads.formats.npy import checked_members, read_header
from service.uploads.limits import check_names
from worker.base.problems import ProblemError, refuse
from worker.base.versions import require_numbers
from worker.records.ids import content_sha256
from worker.records.quotas import MAX_RECORD
from worker.storage.posteriors import (
    ARRAYS,
    IMPORTED,
    neighbors_of,
    posterior_sha256,
    recorded_parameters,
    write_posterior,
)

if TYPE_CHECKING:
    from glle_engine.base.results import Diagnostics
    from service.uploads.limits import Limits

    Facts = dict[str, Any]

EXPORT = 1  # version of the format of an exported file
MEDIA = ("application/zip", "application/x-npz")
_ABOUT = "export.json"
_REMEDY = "Send the file of GET /v1/posteriors/{id}/export, `glle export` or Posterior.export, unchanged."
LARGE = "Raise GLLE_MAX_BODY of this service; or draw with glle_engine.load, without a service."
MAX_HEAD = 2**20  # bytes of head.json; closed classes and constant features may be many
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBERS = re.compile(r"[0-9A-Za-z.]{1,40}(\+[0-9a-f]{1,64})?")
_DATASET = re.compile(r"ds_[0-9a-f]{32}")
# The whole file is stored and exported again; the record is stored in the queue's Redis and is part of each list.
MAX_LIST = 100  # numbers of a figure in a record; constant features and closed classes may be more
MAX_TEXT = 2000  # characters; the messages of fits have some hundred
MAX_DEPTH = 10  # of lists and objects; fits have 4, and pydantic writes no JSON of more than 255
_NOT_TEXT = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, and surrogates, which are no UTF-8
_ERRORS = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, KeyError, TypeError, AttributeError,
    OverflowError, RecursionError, OSError,
)  # fmt: skip # a GlleError is a ValueError


def load_engine() -> None:
    """Load the engine and its compiled code, of which each reader would otherwise need half a second."""
    from glle_engine.eigen.pattern import Pattern  # noqa: PLC0415 -- takes half a second, only for posteriors
    from glle_engine.posterior.cost.rates import count_work  # noqa: PLC0415

    ring = (np.arange(100)[:, None] + np.arange(1, 3)) % 100
    count_work(Pattern.of(np.sort(ring, axis=1).astype(np.int32)))
    glle_engine.load  # noqa: B018 # loads its module


def require_media(content_type: str, encoding: str) -> None:
    """Raise ``unsupported-media-type`` for a body that is no npz by its headers."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in MEDIA and encoding.strip().lower() in {"", "identity"}:
        return
    name = f"Content-Encoding {encoding!r}" if kind in MEDIA else f"Content-Type {content_type!r}"
    remedy = f"Send the exported file as it is, with Content-Type {MEDIA[0]}."
    raise refuse("unsupported-media-type", 415, f"{name} is not that of an exported posterior.", remedy)


def read_posterior(file: IO[bytes], out: IO[bytes], limits: Limits, tenant: str, numbers: str) -> Facts:
    """Return the facts of an exported posterior, and write its checked content to an empty file.

    The facts are `sha256`, the digest of head and arrays; `dataset`, the identity of its data set; and `record`, the
    members of a `PosteriorRecord` that do not depend on the service. `numbers` is the numerics version of the service.

    Raises
    ------
    ProblemError
        ``malformed-posterior``, ``other-numbers``, ``inflated-too-large``, and those of a data set's shape.

    """
    try:
        with zipfile.ZipFile(file) as archive:
            about = _about(archive, limits)
        _require_numbers(about["posterior"]["provenance"]["numbers"], numbers)
        posterior = glle_engine.load(f"/dev/fd/{file.fileno()}")
        facts = _facts(posterior, about, limits)
        write_posterior(out, posterior, {"tenant": tenant, "dataset": facts["dataset"]})
    except ProblemError as error:
        problem = error.problem
        if problem.status == 413:
            raise ProblemError(replace(problem, remedy=LARGE)) from None
        if problem.code.startswith(("malformed", "truncated")):
            raise _malformed_posterior(problem.detail) from None
        raise
    except _ERRORS as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL is an offset before the body
            raise
        raise _malformed_posterior(str(error)) from None
    return facts


def _about(archive: zipfile.ZipFile, limits: Limits) -> Facts:
    """Return the description of an export, after a check of the members' names and sizes."""
    members = checked_members(archive, limits)
    if (head := members.get("head.json")) and head.file_size > MAX_HEAD:
        raise ValueError(f"head.json has {head.file_size:,} bytes; {MAX_HEAD:,} are allowed")
    if _ABOUT not in members:
        raise ValueError(f"it has no {_ABOUT}, which the export of a service writes and Posterior.save does not")
    with archive.open(members[_ABOUT]) as stream:
        read_header(stream)
        about: Facts = json.loads(stream.read())
    if about["export"] != EXPORT:
        raise ValueError(f"its format is {str(about['export'])[:20]}; this version reads {EXPORT}")
    return about


def _require_numbers(numbers: object, own: str) -> None:
    """Raise ``other-numbers`` for a posterior whose draws have other bits here."""
    if not isinstance(numbers, str) or not _NUMBERS.fullmatch(numbers):
        raise ValueError("its numerics version is none")
    remedy = "Import it into a service with its numbers, or fit the data here: the posterior gets another id."
    require_numbers("The posterior", numbers, own, remedy)


def _facts(posterior: glle_engine.Posterior, about: Facts, limits: Limits) -> Facts:
    """Return the facts of a posterior; raise ValueError or a problem unless they belong together."""
    from glle_engine.posterior.cost.estimate import draw_cost, refit_seconds  # noqa: PLC0415 -- see `load_engine`

    arrays, dataset, saved = posterior.arrays(), about["dataset"], about["posterior"]
    n, d = posterior.n_points, dataset["d"]
    _require(type(d) is int and d > 0, "the number of features is none")
    limits.check((n, d))
    _require(posterior.center is None or posterior.center.size == d, "its features are not those of its data set")
    _require(dataset["n"] == n and dataset["dtype"] in {"float64", "float32"}, "its points are not those of its data")
    _require(_is(_SHA256, dataset["sha256"]) and _is(_SHA256, posterior.data_sha256), "its data have no digest")
    names = dataset["names"]
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    _require(names is None or is_list, "the names of its features are no texts")
    check_names(names, d)
    sha256 = content_sha256({}, arrays)
    _require(about["arrays_sha256"] == sha256, "its arrays do not have the digest that it names")
    neighbors = neighbors_of(saved["spec"]) if posterior.diagnostics.figures.get("given_neighbors") else None
    _require(neighbors is None or _is(_DATASET, neighbors), "its neighbors have no id")
    provenance = {name: value for name, value in saved["provenance"].items() if name not in {ARRAYS, IMPORTED}}
    texts = [posterior.version, saved["job"], *provenance.values()]
    _require(all(isinstance(text, str) for text in texts), "its version, its job or its provenance is no text")
    _require_plain([texts, provenance])
    content = posterior_sha256(posterior)
    record = {
        "n": n,
        "d": d,
        "spec": recorded_parameters(posterior.spec, neighbors),
        "diagnostics": _checked_diagnostics(posterior.diagnostics),
        "eigenvalues": [float(value) for value in posterior.eigenvalues],
        "seconds": float(f"{refit_seconds(posterior, d):.3g}"),  # not that of the file, which plans work here
        "arrays": {name: {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in arrays.items()},
        "nbytes": sum(array.nbytes for array in arrays.values()),
        "draw_cost": draw_cost(posterior).to_dict(),
        "provenance": {**provenance, ARRAYS: sha256, IMPORTED: content},
        "job": saved["job"],
    }
    size = len(json.dumps(record, allow_nan=False))
    _require(size <= MAX_RECORD, f"its record has {size:,} bytes; {MAX_RECORD:,} are allowed")
    return {
        "sha256": content,
        "dataset": {name: dataset[name] for name in ("sha256", "n", "d", "dtype", "names")},
        "record": record,
    }


def _require(condition: object, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _malformed_posterior(reason: str) -> ProblemError:
    return refuse(
        "malformed-posterior", 422, f"The body is not an exported posterior: {reason[:300].rstrip('.')}.", _REMEDY
    )


def _checked_diagnostics(diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the figures and notes for a record, without long lists; raise ValueError unless they are plain."""
    notes = [{"code": note.code, "message": note.message} for note in diagnostics.notes]
    _require(all(isinstance(text, str) for note in notes for text in note.values()), "a note is no text")
    _require_plain([diagnostics.figures, notes])
    return {
        "figures": {name: value for name, value in diagnostics.figures.items() if not _is_long(value)},
        "notes": notes,
    }


def _require_plain(value: object, depth: int = MAX_DEPTH) -> None:
    """Raise ValueError unless a value of a file consists of finite numbers and lines of text, `depth` deep at most."""
    if isinstance(value, list | dict):
        _require(depth, f"its figures are nested more than {MAX_DEPTH} times")
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _require_plain(part, depth - 1)
        return
    is_line = isinstance(value, str) and len(value) <= MAX_TEXT and _NOT_TEXT.search(value) is None
    is_number = value is None or (isinstance(value, int | float) and math.isfinite(value))
    _require(is_line or is_number, f"{str(value)[:50]!r} is no finite number, and no line of {MAX_TEXT:,} characters")


def _is_long(value: object) -> bool:
    """Return whether a figure has a list, or an object, that is too long for a record."""
    if not isinstance(value, list | dict):
        return False
    return len(value) > MAX_LIST or any(map(_is_long, value.values() if isinstance(value, dict) else value))
