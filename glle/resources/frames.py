"""Embeddings as pandas frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def frame_of(array: Any, index: Any = None, *, first: int = 0) -> pd.DataFrame:
    """Return an embedding (n, p), or several (count, n, p), as a frame with columns y1, ..., yp.

    Parameters
    ----------
    index
        Of the n points; 0, 1, ... unless told.
    first
        The number of the first of several draws: the level `draw` of their index.

    """
    try:
        import pandas as pd  # noqa: PLC0415 # the client needs it for frames alone
    except ImportError as error:
        raise ImportError("Frames need pandas: pip install pandas.") from error
    values = np.asarray(array)
    if values.ndim not in {2, 3}:
        raise ValueError(f"A frame is of (n, p) or (count, n, p) values, not of shape {values.shape}.")
    columns = [f"y{i + 1}" for i in range(values.shape[-1])]
    points = pd.RangeIndex(values.shape[-2], name="point") if index is None else pd.Index(index)
    if values.ndim == 2:
        return pd.DataFrame(values, index=points, columns=columns)
    draws = range(first, first + len(values))
    each = [pd.DataFrame(value, index=points, columns=columns) for value in values]
    return pd.concat(each, keys=draws, names=["draw"]) if each else pd.DataFrame(columns=columns)
