"""Table of docs/reference/client.md: names and defaults of the same parameter in Python, commands and HTTP.

`python -m docs.figures.names` writes the table from the signatures of the library, the estimators and the client, the
parsers of the commands, and the models of the API. The docstrings call each of these a surface.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import glle
import glle.cli
from docs.figures.methods.tables import put, table
from glle import types
from glle.library import FittedPosterior
from glle_engine.audit.options import AuditOptions
from glle_engine.base.spec import FitSpec
from glle_engine.estimator import GLLE
from glle_engine.methods.base import OF_METHOD
from glle_engine.reliability.calibration import calibrate
from service.routes.params import SummaryQuery
from service.schemas import analyses, resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE = Path(__file__).parents[1] / "reference" / "client.md"
SURFACES = ("library", "estimator", "client", "command", "HTTP")
REQUIRED = "required"
FILLED = "of the service"  # a default of the client that leaves a parameter out
# Parameters of how one surface is used: data, progress, files and waiting; and columns of tables, listed on the page.
OWN = {
    *("self", "X", "Y", "data", "dataset", "spec", "neighbors", "coordinates", "embedding", "posterior", "missing"),
    *("on_progress", "verbose", "executor", "threads", "halves", "embed_halves", "is_own_map", "names", "ids"),
    *("id_names", "obsm", "timeout", "out", "dtype", "points", "random_state", "index", "scales", "json"),
    *("url", "help", *(types.UploadOptions.__annotations__.keys() - {"labels"})),
}
# What differs on purpose, with the reason that the page has.
DIFFERENT = {
    ("draw", "n_draws"): "a command and an estimator draw a few without being asked",
    ("draw", "scale"): "left out on a service, it is 1 unless scales are given",
    ("draw", "seed"): "the estimator takes `random_state`",
    ("embed", "method"): "the library takes it by position or by name",
    ("embed", "scores"): "a service computes the fast scores unless told otherwise, the library none",
    ("embed", "init"): "only the library takes coordinates; a name of a start is a parameter of the method",
    ("embed", "parameters"): "keywords of a function are members of one object elsewhere",
    ("compare", "align"): "only a service returns aligned embeddings",
}


def of_function(function: Callable[..., Any], *others: type) -> dict[str, Any]:
    """Return the defaults of a function's parameters by name.

    `others` describe the function's `**options`: a dataclass with defaults, or a `TypedDict`, whose options the service
    fills in.
    """
    named = signature(function).parameters.values()
    kinds = {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
    shown = [each for each in named if each.kind not in kinds and each.default is not OF_METHOD]
    defaults = {each.name: each.default for each in shown}
    for other in others:
        if is_dataclass(other):
            defaults |= {each.name: each.default for each in fields(other)}
        else:
            defaults |= dict.fromkeys(get_type_hints(other), FILLED)
    return {name: REQUIRED if value is Parameter.empty else value for name, value in defaults.items()}


def of_model(model: Any) -> dict[str, Any]:
    """Return the defaults of the members of a request body, by name, from its pydantic model."""
    members = model.model_fields.items()
    return {
        name: REQUIRED if each.is_required() else each.get_default(call_default_factory=True) for name, each in members
    }


def of_command(name: str) -> dict[str, Any]:
    """Return the defaults of the options of a `glle` command, by name."""
    _, commands = glle.cli.command_parser([])
    defaults = {}
    for action in commands.choices[name]._actions:  # noqa: SLF001 # argparse has no public list
        default = FILLED if action.default == argparse.SUPPRESS else action.default
        defaults[action.dest] = REQUIRED if action.required else FILLED if default in (None, []) else default
    return defaults


def surfaces() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the defaults of parameters, by operation ("fit"), surface ("HTTP") and name ("n_neighbors")."""
    return {
        "fit": {
            "library": {name: value for name, value in of_function(glle.fit, FitSpec).items() if name != "labels"},
            "estimator": of_function(GLLE.__init__),
            "client": {
                name: value
                for name, value in of_function(glle.Client.fit, types.FitOptions).items()
                if name != "labels"
            },
            "command": {name: value for name, value in of_command("fit").items() if name != "labels"},  # of the data
            "HTTP": of_model(resources.PosteriorIn),
        },
        "draw": {
            "library": of_function(FittedPosterior.draws),
            "estimator": of_function(GLLE.sample),
            "client": of_function(glle.Posterior.draws, types.DrawsOptions),
            "command": of_command("draw"),
            "HTTP": of_model(resources.DrawsIn),
        },
        "summary": {
            "library": of_function(FittedPosterior.summary),
            "client": of_function(glle.Posterior.summary, types.SummaryOptions),
            "command": of_command("summary"),
            "HTTP": {each.name: each.default for each in fields(SummaryQuery)},
        },
        "calibrate": {
            "library": of_function(calibrate),
            "client": of_function(glle.Posterior.calibration, types.CalibrationOptions),
            "HTTP": of_model(analyses.CalibrationIn),
        },
        "embed": {
            "library": of_function(glle.embed),
            "client": {**of_function(glle.Client.embed), "labels": None},
            "command": of_command("embed"),
            "HTTP": of_model(analyses.EmbeddingIn),
        },
        "audit": {
            "library": of_function(AuditOptions),
            "client": of_function(glle.Client.audit, types.AuditOptions) | {"labels": None},
            "command": of_command("audit"),
            "HTTP": of_model(analyses.AuditIn),
        },
        "compare": {
            "library": of_function(glle.compare),
            "client": of_function(glle.Client.compare, types.CompareOptions) | {"labels": None},
            "command": of_command("compare"),
            "HTTP": of_model(analyses.ComparisonIn),
        },
    }


def parameters(of: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of an operation's parameters in all surfaces, without those that only one surface needs."""
    names = dict.fromkeys(name for defaults in of.values() for name in defaults)
    return [name for name in names if name not in OWN]


def is_one(values: Iterable[Any]) -> bool:
    """Return whether all surfaces have the same default, apart from those that leave it to the service."""
    return len({_text(value) for value in values if value is not FILLED}) <= 1


def differences() -> list[tuple[str, str]]:
    """Return (operation, parameter) where the default differs between surfaces, or a surface lacks the parameter."""
    differing = []
    for operation, of in surfaces().items():
        for name in parameters(of):
            values = [defaults.get(name) for defaults in of.values() if name in defaults]
            if len(values) < len(of) or not is_one(values):
                differing.append((operation, name))
    return differing


def listing() -> str:
    """Return two Markdown tables: the defaults that all surfaces share, and the parameters that differ on purpose."""
    same, other = [], []
    for operation, of in surfaces().items():
        common = []
        for name in parameters(of):
            by_surface = {surface: defaults.get(name, "absent") for surface, defaults in of.items()}
            if (operation, name) in DIFFERENT:
                cells = [_text(by_surface[surface]) if surface in by_surface else "" for surface in SURFACES]
                other.append([operation, f"`{name}`", *cells, DIFFERENT[operation, name]])
            else:
                common.append(f"`{name}` {_text(next(value for value in by_surface.values() if value is not FILLED))}")
        same.append([operation, ", ".join(common)])
    head = ["operation", "parameter", *SURFACES, "why it differs"]
    return f"{table(['operation', 'parameters and defaults'], same)}\n\n{table(head, other)}"


def _text(default: Any) -> str:
    """Return a default as a text that is the same for the values of Python, commands and JSON."""
    if default is None or default == {}:
        return "none"
    if isinstance(default, tuple | list):
        return ", ".join(map(str, default)) or "empty"
    return f"{default:g}" if isinstance(default, float) else str(default)


if __name__ == "__main__":
    put(PAGE, "names", listing())
