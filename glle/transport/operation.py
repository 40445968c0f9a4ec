"""Decorators for methods that are written once, as coroutines over `Session`, and blocked on or awaited.

On a `Blocking` object the method is an ordinary one, on an `Async` object a coroutine, also for type checkers.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

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

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return instance._session.run(self.method(instance, *args, **kwargs))  # noqa: SLF001 # a mixin of the instance

        return update_wrapper(call, self.method)


class listing(Generic[P, T]):  # noqa: N801 # a decorator
    """Method that iterates over items, and makes one call for each page of them."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Async, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return instance._session.iterate(self.method(instance, *args, **kwargs))  # noqa: SLF001 # as above

        return update_wrapper(call, self.method)
