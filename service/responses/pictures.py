"""A picture on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fastapi.responses import Response

from service.responses.conditional import immutable_headers, is_not_modified

if TYPE_CHECKING:
    from fastapi import Request

    from worker.storage.array_cache import Entry


def picture_response(request: Request, entry: Entry) -> Response:
    """Return the bytes of a picture; 304 to who has them."""
    media = entry.meta["media"]
    headers = {**immutable_headers(entry.meta["sha256"], media, ""), "Content-Disposition": "inline"}
    if is_not_modified(request, headers):
        return Response(status_code=304, headers=headers)
    return Response(np.asarray(entry.arrays["picture"]).tobytes(), 200, headers, media)
