"""The one list of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glle_engine.base.errors import InvalidParameterError
from glle_engine.methods import glle
from glle_engine.methods.entropy import alle, drill, meu, mvu
from glle_engine.methods.linear import factor_analysis, kernel_pca, mds, npe, pca, ppca
from glle_engine.methods.lle_variants import (
    auto_k_lle,
    auto_reg_lle,
    incremental_lle,
    isolle,
    pruned_lle,
    robust_lle,
    supervised_lle,
    weighted_lle,
)
from glle_engine.methods.neighbor_embedding import elastic_embedding, sne, symmetric_sne, tsne
from glle_engine.methods.spectral import (
    diffusion_maps,
    hessian_lle,
    isomap,
    laplacian_eigenmaps,
    lle,
    ltsa,
    modified_lle,
)

if TYPE_CHECKING:
    from glle_engine.methods.base import Method

METHODS: dict[str, Method[Any]] = {
    module.METHOD.name: module.METHOD
    for module in (
        pca,
        ppca,
        factor_analysis,
        kernel_pca,
        mds,
        npe,
        lle,
        modified_lle,
        hessian_lle,
        ltsa,
        isomap,
        laplacian_eigenmaps,
        diffusion_maps,
        meu,
        alle,
        drill,
        mvu,
        sne,
        symmetric_sne,
        tsne,
        elastic_embedding,
        isolle,
        weighted_lle,
        pruned_lle,
        robust_lle,
        auto_k_lle,
        auto_reg_lle,
        supervised_lle,
        incremental_lle,
        glle,
    )
}
"""By name, in the order in which they are told."""


def method(name: str) -> Method[Any]:
    """Return a method by its name.

    Raises
    ------
    InvalidParameterError
        With the names there are.

    """
    if name not in METHODS:
        raise InvalidParameterError(f"method={name!r} is not known.", remedy=f"Choose one of {', '.join(METHODS)}.")
    return METHODS[name]
