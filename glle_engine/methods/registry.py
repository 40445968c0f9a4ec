"""Registry of the methods of embedding."""

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
from glle_engine.methods.neighbor_embedding import elastic_embedding, sne, tsne
from glle_engine.methods.spectral import (
    diffusion_maps,
    isomap,
    laplacian_eigenmaps,
    lle,
    local_alignment,
    modified_lle,
)

if TYPE_CHECKING:
    from glle_engine.methods.base import Method

METHODS: dict[str, Method[Any]] = {
    method.name: method
    for method in (
        pca.METHOD,
        ppca.METHOD,
        factor_analysis.METHOD,
        kernel_pca.METHOD,
        mds.METHOD,
        npe.METHOD,
        lle.METHOD,
        modified_lle.METHOD,
        local_alignment.HESSIAN_LLE,
        local_alignment.LTSA,
        isomap.METHOD,
        laplacian_eigenmaps.METHOD,
        diffusion_maps.METHOD,
        meu.METHOD,
        alle.METHOD,
        drill.METHOD,
        mvu.METHOD,
        sne.SNE,
        sne.SYMMETRIC_SNE,
        tsne.METHOD,
        elastic_embedding.METHOD,
        isolle.METHOD,
        weighted_lle.METHOD,
        pruned_lle.METHOD,
        robust_lle.METHOD,
        auto_k_lle.METHOD,
        auto_reg_lle.METHOD,
        supervised_lle.METHOD,
        incremental_lle.METHOD,
        glle.METHOD,
    )
}
"""By name, in display order."""


def method(name: str) -> Method[Any]:
    """Return a method by its name, or raise `InvalidParameterError` with the known names."""
    if name not in METHODS:
        raise InvalidParameterError(f"method={name!r} is not known.", remedy=f"Choose one of {', '.join(METHODS)}.")
    return METHODS[name]
