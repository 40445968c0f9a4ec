"""What many methods refuse before they compute anything."""

from __future__ import annotations

from importlib.util import find_spec

from glle_engine.base.errors import InvalidParameterError, MissingLibraryError, TooFewPointsError


def require_rank(n: int, d: int, n_components: int) -> None:
    """Raise `InvalidParameterError` unless centred data of n points and d features can have p components."""
    most = min(n - 1, d)
    if n_components > most:
        raise InvalidParameterError(
            f"n_components={n_components} is more than the {most} dimensions that {n} points of {d} features span.",
            remedy=f"Give n_components of at most {most}." if most else "Give at least two points.",
            details={"n_components": n_components, "most": most},
        )


def require_points(n: int, least: int, reason: str) -> None:
    """Raise `TooFewPointsError` unless there are `least` points; `reason` says what needs them."""
    if n < least:
        raise TooFewPointsError(
            f"{reason} needs at least {least} points, not {n}.",
            remedy=f"Give at least {least} points, or ask for less.",
            details={"n_points": n, "least": least},
        )


def require_size(n: int, most: int, title: str, instead: str) -> None:
    """Raise `InvalidParameterError` for more points than a method can do; `instead` names what can."""
    if n > most:
        raise InvalidParameterError(
            f"{title} does at most {most:,} points, not {n:,}.",
            remedy=f"Give at most {most:,} points, or take {instead}.",
            details={"n_points": n, "most": most},
        )


def require_noise_dimension(n: int, d: int, n_components: int, title: str) -> None:
    """Raise `InvalidParameterError` unless p components leave a dimension of centred data to the noise."""
    most = min(n - 1, d) - 1
    if n_components > most:
        raise InvalidParameterError(
            f"{title} needs a dimension beside n_components={n_components} for its noise, but {n} points of {d} "
            f"features span {most + 1}.",
            remedy=f"Give n_components of at most {most}."
            if most > 0
            else "Give more points or features, or take PCA.",
            details={"n_components": n_components, "most": most},
        )


def require_libraries(title: str, libraries: tuple[str, ...], extra: str) -> None:
    """Raise `MissingLibraryError` unless the libraries are installed."""
    for library in libraries:
        if find_spec(library) is None:
            raise MissingLibraryError(
                f"{title} needs {library}, which is not installed.",
                remedy=f'Install it: pip install "glle[{extra}]".',
                details={"library": library, "extra": extra},
            )
