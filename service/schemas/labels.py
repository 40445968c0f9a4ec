"""Names and tags on the wire: the merge patch that gives them, and the filters of lists."""

from typing import Annotated, Any, Self

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MERGE_PATCH = "application/merge-patch+json"
MOST_NAME, MOST_TAGS, MOST_TAG = 200, 20, 50
# One line without control characters or blanks around it. Code points, because dialects differ in what a blank is.
_SHOWN = r"^[^\x00-\x20\x7f-\xa0]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0])?$"

Name = Annotated[str, StringConstraints(min_length=1, max_length=MOST_NAME, pattern=_SHOWN)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=MOST_TAG, pattern=_SHOWN)]
NameFilter = Annotated[str | None, Query(description="Only those of this name.")]
TagFilter = Annotated[
    list[str], Query(default_factory=list, description="Only those with this tag; repeated: with all of them.")
]


class NamingIn(BaseModel):
    """A JSON merge patch (RFC 7396): null takes away, what is absent stays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name | None = Field(default=None, description=f"At most {MOST_NAME} characters on one line.")
    tags: list[Tag] | None = Field(
        default=None,
        max_length=MOST_TAGS,
        description=f"At most {MOST_TAGS}, of at most {MOST_TAG} characters each.",
        json_schema_extra={"uniqueItems": True},
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.tags is not None and len(set(self.tags)) < len(self.tags):
            raise ValueError("a tag is given twice")
        return self

    def changes(self) -> dict[str, Any]:
        """Return the members that were given."""
        return self.model_dump(include=self.model_fields_set)


PATCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            media: {"schema": {"$ref": "#/components/schemas/NamingIn"}} for media in (MERGE_PATCH, "application/json")
        },
    }
}
