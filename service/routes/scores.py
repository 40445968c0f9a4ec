"""`/v1/scores`: by what embeddings can be judged."""

from fastapi import APIRouter

from glle_engine.metrics.registry import SCORES
from service.schemas.embeddings import ScoreList, ScoreOut
from service.schemas.problems import documented

router = APIRouter(prefix="/v1/scores", tags=["methods"])


@router.get("", summary="List scores", responses=documented())
def list_scores() -> ScoreList:
    """List the scores of embeddings: what they need, which way is better, and of how many points they are made."""
    members = ScoreOut.model_fields
    return ScoreList(items=[ScoreOut(**{name: getattr(one, name) for name in members}) for one in SCORES.values()])
