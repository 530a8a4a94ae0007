"""What holds files or threads, and gives them back: at the end of a ``with``, or when its beginning fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Protocol, Self


class Closable(ABC):
    """Something that a ``with`` closes at its end.

    >>> class Door(Closable):
    ...     def close(self):
    ...         print("closed")
    >>> with Door():
    ...     print("open")
    open
    closed
    """

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _HasClose(Protocol):
    def close(self) -> object: ...


@contextmanager
def closed_on_error(held: _HasClose) -> Iterator[None]:
    """Close `held` if the block raises, whatever it raises; else leave it open.

    >>> import io
    >>> kept, dropped = io.BytesIO(), io.BytesIO()
    >>> with closed_on_error(kept):
    ...     pass
    >>> try:
    ...     with closed_on_error(dropped):
    ...         raise KeyError
    ... except KeyError:
    ...     kept.closed, dropped.closed
    (False, True)
    """
    with ExitStack() as stack:
        stack.callback(held.close)
        yield
        stack.pop_all()
