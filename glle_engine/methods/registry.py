"""The registry of all embedding methods by name, and the spellings of names that are accepted."""

from __future__ import annotations

import re
from dataclasses import fields
from difflib import get_close_matches
from inspect import Parameter
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Way
from glle_engine.methods import glle
from glle_engine.methods.base import OF_METHOD
from glle_engine.methods.entropy import alle, drill, meu, mvu
from glle_engine.methods.linear import npe, pca, scaling
from glle_engine.methods.lle_variants import (
    adjusted_lle,
    extensions,
    metric_lle,
    pruned_lle,
    rewired_lle,
)
from glle_engine.methods.neighbor_embedding import pacmap, pairwise, tsne, umap
from glle_engine.methods.spectral import (
    diffusion_maps,
    isomap,
    laplacian,
    lle,
    local_alignment,
    modified_lle,
)

if TYPE_CHECKING:
    from glle_engine.methods.base import Method

METHODS: dict[str, Method[Any]] = {
    method.name: method
    for method in (
        pca.pca,
        pca.ppca,
        pca.factor_analysis,
        scaling.kernel_pca,
        scaling.mds,
        npe.npe,
        lle.lle,
        modified_lle.modified_lle,
        local_alignment.hessian_lle,
        local_alignment.ltsa,
        isomap.isomap,
        laplacian.laplacian_eigenmaps,
        diffusion_maps.diffusion_maps,
        meu.meu,
        alle.alle,
        drill.drill,
        mvu.mvu,
        pairwise.sne,
        pairwise.symmetric_sne,
        tsne.t_sne,
        pairwise.elastic_embedding,
        umap.umap,
        umap.densmap,
        pacmap.pacmap,
        rewired_lle.isolle,
        rewired_lle.weighted_lle,
        extensions.relative_lle,
        extensions.smoothed_lle,
        extensions.virtual_lle,
        metric_lle.distance_lle,
        metric_lle.landmark_mvu,
        pruned_lle.pruned_lle,
        adjusted_lle.robust_lle,
        adjusted_lle.auto_k_lle,
        adjusted_lle.auto_reg_lle,
        rewired_lle.supervised_lle,
        adjusted_lle.incremental_lle,
        glle.glle,
    )
}
"""The methods by name, in display order."""

MAPPED = tuple(name for name, method in METHODS.items() if method.restore is not None)
"""The names of the methods that can place new points."""

ABBREVIATIONS = {
    "kpca": "kernel-pca",
    "fa": "factor-analysis",
    "cmds": "mds",
    "classical-mds": "mds",
    "mlle": "modified-lle",
    "hlle": "hessian-lle",
    "spectral-embedding": "laplacian-eigenmaps",
    "le": "laplacian-eigenmaps",
    "ssne": "symmetric-sne",
    "slle": "supervised-lle",
}
"""Further common names of methods. Names and titles in the registry are accepted anyway, in any case or hyphenation."""

_MAX_NAME_LETTERS = 100  # longer names are not compared with the known ones


def plain(name: str) -> str:
    """Return the letters and digits of a method's name in lower case: "tsne" for both "t-SNE" and "t_sne"."""
    return re.sub(r"[^a-z0-9]", "", name[: _MAX_NAME_LETTERS + 1].lower())


_SPELLINGS = {
    **{plain(abbreviation): name for abbreviation, name in ABBREVIATIONS.items()},
    **{plain(item.title): name for name, item in METHODS.items()},
    **{plain(name): name for name in METHODS},
}


def canonical(name: str) -> str:
    """Return a method's name in the registry for any usual spelling of the name; return an unknown name unchanged."""
    return _SPELLINGS.get(plain(name), name)


def suggestion(name: str) -> str:
    """Return a question such as "Did you mean isomap? " if the name resembles a method's, or else an empty string."""
    close = get_close_matches(plain(name), _SPELLINGS, 1) if len(name) <= _MAX_NAME_LETTERS else []
    return "".join(f"Did you mean {_SPELLINGS[match]}? " for match in close)


def method(name: str) -> Method[Any]:
    """Return a method by its name in any usual spelling, or raise `InvalidParameterError` with the known names."""
    known = METHODS.get(canonical(name := str(name)))
    if known is None:
        raise InvalidParameterError(
            f"{Way('method', name[:_MAX_NAME_LETTERS])} is not known.",
            remedy=f"{suggestion(name)}Choose one of {', '.join(METHODS)}.",
        )
    return known


def method_keywords() -> list[Parameter]:
    """Return the parameters of all methods as keyword-only parameters of a function's signature, each name once.

    Every default is the placeholder `OF_METHOD`, because the real default depends on the method.
    """
    types: dict[str, dict[str, None]] = {}
    for each in METHODS.values():
        for field in fields(each.spec):
            types.setdefault(field.name, {}).update(dict.fromkeys(str(field.type).split(" | ")))
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=OF_METHOD, annotation=" | ".join(kinds))
        for name, kinds in types.items()
    ]


def describe_keywords() -> str:
    """Return a docstring section with the parameters of all methods: type, meaning, and default by method."""
    lines = ["Other Parameters", "----------------"]
    for keyword in method_keywords():
        lines.append(f"{keyword.name} : {keyword.annotation}")
        texts: dict[str, dict[str, list[str]]] = {}
        for name, each in METHODS.items():
            if (parameter := each.spec.parameters().get(keyword.name)) is not None:
                default = getattr(each.spec, keyword.name)
                text = f"{parameter.doc} It is {parameter.domain()}."
                texts.setdefault(text, {}).setdefault(f"{default}", []).append(name)
        for text, defaults in texts.items():
            of = {default: names if len(names) < len(METHODS) else ["all"] for default, names in defaults.items()}
            by_method = "; ".join(f"{default} for {', '.join(names)}" for default, names in of.items())
            lines.append(indent(fill(f"{text} Default: {by_method}.", 112, break_on_hyphens=False), "    "))
    return "\n".join(lines)


def no_map(subject: str) -> InvalidParameterError:
    """Return the error to raise if a user wants to place new points in an embedding whose method cannot do this.

    `subject` names the method in the message.
    """
    return InvalidParameterError(
        f"{subject} has no map to new points.",
        remedy=f"Embed by {', '.join(MAPPED[:-1])} or {MAPPED[-1]}; or fit a posterior, which places new points.",
        details={"methods": list(MAPPED)},
    )
