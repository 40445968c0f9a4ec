"""JSON of the estimate of a posterior."""

from typing import Any

from pydantic import BaseModel, Field

from service.schemas.problems import ProblemOut


class CostOut(BaseModel):
    """Expected cost on one core."""

    seconds: float
    bytes: float = Field(description="Peak of the working memory, without the data.")


class PosteriorEstimateOut(BaseModel):
    """Expected cost of a posterior and of its draws, and whether the limits allow it."""

    dataset: str = Field(description="Id of its data set.")
    spec: dict[str, Any] = Field(description="Every parameter with its value.")
    n: int = Field(description="Points.")
    d: int = Field(description="Features that vary.")
    intrinsic_dimension: float = Field(
        description="Maximum-likelihood estimate from neighbor distances. The cost of factors grows with it."
    )
    fit: CostOut = Field(description="The fit.")
    stages: dict[str, float] = Field(description="Seconds of the fit by stage.")
    draw: CostOut = Field(description="One of many draws, and the memory of the process that draws.")
    single_draw_seconds: float = Field(description="A draw alone, whose lanes have no other draws.")
    posterior_bytes: float = Field(description="The posterior's arrays in the cache.")
    factor_entries: float = Field(description="Stored entries of L and U of one draw.")
    factor_flops: float = Field(description="Floating-point operations of one factorization.")
    analysed_points: list[int] = Field(
        description="Sizes of the analysed graphs: that of all points, or of subsamples, from which the cost is "
        "extrapolated."
    )
    allowed_seconds: float = Field(description="Limit on the expected time: half of GLLE_JOB_TIMEOUT.")
    allowed_bytes: int = Field(description="Limit on the expected memory, GLLE_METHOD_BYTES.")
    most_points: int | None = Field(
        description="Largest number of such points within the limits, at most n; null if there is none."
    )
    problem: ProblemOut | None = Field(
        description="Reason why the limits do not allow it, with remedies; null if they do. POST /v1/posteriors "
        "refuses only a fit that cannot finish even on a machine of twice the speed."
    )
