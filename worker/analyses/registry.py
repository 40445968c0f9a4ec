"""The list of analyses: by the kind of a job, what it is to make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import EmbeddingSpec
from worker.analyses.plots.picture import PictureSpec
from worker.analyses.posterior_analyses import (
    AdviceSpec,
    CalibrationSpec,
    ReconstructionsSpec,
    SummarySpec,
    TransformSpec,
)

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisSpec
    from worker.jobs.store import Job

_SPECS: dict[str, type[AnalysisSpec]] = {
    spec.kind: spec
    for spec in (
        SummarySpec,
        TransformSpec,
        ReconstructionsSpec,
        CalibrationSpec,
        AdviceSpec,
        EmbeddingSpec,
        ComparisonSpec,
        PictureSpec,
    )
}


def analysis_of(job: Job) -> AnalysisSpec:
    """Return the analysis that a job is to make."""
    return _SPECS[job.kind].from_dict(job.spec)
