"""What every command's body has in common."""

from pydantic import BaseModel, ConfigDict


class CommandIn(BaseModel):
    """Requests: unknown members, numbers in quotes and NaN are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
