"""The class of each kind of analysis, and the analysis that a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.analyses.audit import AuditSpec
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import EmbeddingSpec, PlacementSpec, Recipe
from worker.analyses.posterior_analyses import (
    CalibrationSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
    WeightsSpec,
)

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisSpec
    from worker.records.job import Job

_SPECS: tuple[type[AnalysisSpec], ...] = (
    SummarySpec, TransformSpec, ReconstructionsSpec, WeightsSpec, CalibrationSpec,
    EmbeddingSpec, PlacementSpec, ComparisonSpec, AuditSpec,
)  # fmt: skip
_BY_KIND: dict[str, type[AnalysisSpec]] = {spec.kind: spec for spec in _SPECS}


def recipes_of(spec: AnalysisSpec | None) -> list[Recipe]:
    """Return the inputs (`Recipe`) of each embedding that an analysis reads, and computes and stores if missing."""
    if isinstance(spec, EmbeddingSpec):
        return [spec.recipe]
    if isinstance(spec, AuditSpec):
        return [] if spec.recipe is None else [Recipe(**spec.recipe)]
    if isinstance(spec, ComparisonSpec):
        return spec.recipes()
    return []


def analysis_of(job: Job) -> AnalysisSpec:
    """Return the analysis that a job runs, made from the kind and the parameters in the job's record."""
    return _BY_KIND[job.kind].from_dict(job.spec)
