"""JSON of names and tags: the merge patch that sets them, and the filters of lists."""

from typing import Annotated, Any, Self

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MERGE_PATCH = "application/merge-patch+json"
MAX_NAME, MAX_TAGS, MAX_TAG = 200, 20, 50
# One line without control characters or surrounding blanks; as code points, because regex dialects differ on blanks.
_LINE = r"^[^\x00-\x20\x7f-\xa0]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0])?$"

Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=_LINE)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG, pattern=_LINE)]
NameFilter = Annotated[str | None, Query(description="Only those with this name.")]
TagFilter = Annotated[
    list[str], Query(default_factory=list, description="Only those with this tag; if repeated, with all of them.")
]


class NamingIn(BaseModel):
    """JSON merge patch (RFC 7396): null removes a member, and absent members stay."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name | None = Field(default=None, description=f"At most {MAX_NAME} characters on one line.")
    tags: list[Tag] | None = Field(
        default=None,
        max_length=MAX_TAGS,
        description=f"At most {MAX_TAGS}, of at most {MAX_TAG} characters each.",
        json_schema_extra={"uniqueItems": True},
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.tags is not None and len(set(self.tags)) < len(self.tags):
            raise ValueError("a tag is given twice")
        return self

    def changes(self) -> dict[str, Any]:
        """Return the members in the request."""
        return self.model_dump(include=self.model_fields_set)


PATCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            media: {"schema": {"$ref": "#/components/schemas/NamingIn"}} for media in (MERGE_PATCH, "application/json")
        },
    }
}
