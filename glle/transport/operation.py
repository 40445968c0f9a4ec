"""Decorators for methods that are written once, as generators of calls (`calls`), and blocked on or awaited.

On a `Blocking` object the method is an ordinary one, on an `Async` object a coroutine, also for type checkers.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from glle.transport.calls import Steps
    from glle.transport.session import Session

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Object of a `Client`."""

    _session: Session


class Async:
    """Object of an `AsyncClient`."""

    _session: Session


class operation(Generic[P, T]):  # noqa: N801 # a decorator
    """Method that makes calls and returns one value."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.steps

        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return instance._session.run(self.steps(instance, *args, **kwargs))  # noqa: SLF001 # a mixin of the instance

        return update_wrapper(bound, self.steps)


class listing(Generic[P, T]):  # noqa: N801 # a decorator
    """Method that makes one call per page and iterates over the items of all pages.

    The decorated generator returns the items of the page at a cursor, and the cursor of the next page.
    """

    def __init__(self, page: Callable[Concatenate[Any, str | None, P], Steps[tuple[list[T], str | None]]]) -> None:
        self.page = page
        self.__doc__ = page.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.page

        def bound(*args: P.args, **kwargs: P.kwargs) -> Any:
            return instance._session.iterate(lambda cursor: self.page(instance, cursor, *args, **kwargs))  # noqa: SLF001

        return update_wrapper(bound, self.page)
