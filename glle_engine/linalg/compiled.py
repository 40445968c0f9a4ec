"""Compile the engine's loops with numba, and cache the compiled code on disk.

A compiled function computes in the order of its source on every processor: there is no fast-math, no fusing of
operations except the explicit calls of `glle_engine.linalg.vectors`, and no call of BLAS, LAPACK or libm. The sums of
`glle_engine.linalg.nearest.tile_kernels` are an exception, because they only bound results. All compiled code is in the
packages `linalg`, `linalg.nearest`, `weights` and `eigen`.

Code is compiled for a kind of processor, so that one compilation serves all machines of that kind. A wheel carries
such code in `glle_engine/compiled`. A machine without it compiles each function once, for all its processes and
environments, and keeps the code in NUMBA_CACHE_DIR if this is set, or else in the user's cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numba
from llvmlite import binding
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.extending import intrinsic, overload
from numba.misc.appdirs import AppDirs

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")
_ENGINE = Path(__file__).parents[1]
_AVX2 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")  # a processor with these runs code for x86-64-v3
_IMPORT = re.compile(r"^from (glle_engine[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_DIGEST_DIGITS = 16  # names of folders have this many hexadecimal digits of a digest: 64 bits, so that none collide
_MAX_UNUSED_DAYS = 30  # compiled code that was not used for this many days is deleted

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and the engine runs only compiled. Unset NUMBA_DISABLE_JIT.")


def _select_processor() -> None:
    """Set numba to compile for every processor with AVX2, or for every aarch64 processor on Linux.

    Nothing is set if the user has set NUMBA_CPU_NAME or NUMBA_CPU_FEATURES, or on other processors, for which numba
    compiles as usual, for this processor alone.
    """
    if numba.config.CPU_NAME is None and numba.config.CPU_FEATURES is None:
        features = binding.get_host_cpu_features()
        if all(features.get(name, False) for name in _AVX2):
            numba.config.CPU_NAME, numba.config.CPU_FEATURES = "x86-64-v3", ""
        elif (sys.platform, platform.machine()) == ("linux", "aarch64"):
            numba.config.CPU_NAME, numba.config.CPU_FEATURES = "generic", ""


@functools.cache
def _source(path: Path) -> tuple[str, frozenset[Path]]:
    """Return the text of a file, and the paths of the engine's files that this file imports directly."""
    text = path.read_text(encoding="utf-8")
    imported = set()
    for module, names in _IMPORT.findall(text):
        for name in (module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))):
            place = _ENGINE.parent.joinpath(*name.split("."))
            imported |= {file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()}
    return text, frozenset(imported)


def _state(path: Path) -> str:
    """Return a digest of a source file and of all engine files that it imports, directly or indirectly.

    The folder for the file's compiled code is named by this digest, so that functions are compiled again if any of
    these files changes. numba alone would look only at the file of the function itself.
    """
    needed, waiting = {path}, [path]
    while waiting:
        further = _source(waiting.pop())[1] - needed
        needed |= further
        waiting += further
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {numba.__version__}".encode())
    for file in sorted(needed):
        digest.update(_source(file)[0].encode())
    return digest.hexdigest()[:_DIGEST_DIGITS]


@functools.cache
def _folder(path: Path) -> str:
    """Return the name of the folder for the compiled code of a source file.

    If the folder exists in the cache, its modification time is set to now, which keeps it from being deleted.
    """
    name = f"{'.'.join(path.relative_to(_ENGINE).with_suffix('').parts)}-{_state(path)}"
    with contextlib.suppress(OSError):
        os.utime(_CACHE / name)
    return name


_select_processor()
_DELIVERED = _ENGINE / "compiled"
_CACHE = Path(numba.config.CACHE_DIR or AppDirs("glle", appauthor=False).user_cache_dir)


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells numba in which folder of the engine's cache the compiled code of a function is."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self.folder = _folder(Path(path))
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        """Return the object that tells numba in which folder, and by which name, it caches a function's compiled code.

        numba calls this with the function and the path of its file.
        """
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        """Return the path of the folder for code that this machine compiles."""
        return str(_CACHE / self.folder)

    def get_source_stamp(self) -> str:
        """Return the stamp that numba saves with cached code; the code is used only as long as the stamp is the same.

        The stamp is the name of the function's cache folder, which has a digest of the function's file and of all
        engine files that this file imports, directly or indirectly.
        """
        return self.folder

    def get_disambiguator(self) -> str:
        """Return the line where the function begins, which tells functions of the same name in a file apart."""
        return str(self._line)


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """Cache of the compiled code of one function, as numba expects it.

    The code is read from the installed package or from a folder of this machine. If neither has it, one process
    compiles the function and saves the code for all processes.
    """

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        folder, name = self._impl.locator.folder, self._impl.filename_base
        self._delivered = IndexDataCacheFile(str(_DELIVERED / folder), name, folder)
        # The byte of the lock file that serves as the lock of this function.
        self._place = int(hashlib.sha256(f"{folder} {name}".encode()).hexdigest()[:7], 16)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for a signature, or None if this process has to compile it.

        If another process is compiling the function, this call waits for the code.
        """
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())
        if (code := self._read(key)) is None:
            self._lock(wait=True)
            if (code := self._read(key)) is None:  # no other process has compiled it meanwhile
                _announce()
                return None
            self._lock(wait=False)
        return self._impl.rebuild(target_context, code)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code if there is a folder to write to, and let waiting processes read it."""
        try:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)
        finally:
            self._lock(wait=False)

    def _read(self, key: Any) -> Any:
        for file in (self._delivered, self._cache_file):
            with contextlib.suppress(OSError):
                if (code := file.load(key)) is not None:
                    return code
        return None

    def _lock(self, *, wait: bool) -> None:
        """Take this function's lock, after waiting until no other process has it, or release the lock if not `wait`.

        Only the process that has the lock compiles the function. Compiling a function also compiles the functions that
        it calls. Calls are never circular, so no two processes wait for each other forever. The lock also ensures that
        the index of a function's signatures, which numba rewrites without a lock, has one writer at a time.
        """
        with contextlib.suppress(OSError):  # there is no folder to write to, or the file system has no locks
            fcntl.lockf(_locks(), fcntl.LOCK_EX if wait else fcntl.LOCK_UN, 1, self._place)


@functools.cache
def _locks() -> int:
    """Return the descriptor of the open file whose bytes serve as locks, one for each function.

    This runs once in a process, and also deletes compiled code in the cache that was not used for 30 days.
    """
    _CACHE.mkdir(parents=True, exist_ok=True)
    for folder in _CACHE.glob("*-" + "[0-9a-f]" * _DIGEST_DIGITS):
        if folder.stat().st_mtime < time.time() - _MAX_UNUSED_DAYS * 86400:
            shutil.rmtree(folder, ignore_errors=True)
    return os.open(_CACHE / "locks", os.O_CREAT | os.O_WRONLY, 0o666)


@functools.cache
def _announce() -> None:
    """Warn, once per process, that compilation takes a while."""
    logging.getLogger("glle").warning(
        "Compiling the engine, once on this machine: half a minute to two minutes before the first results."
    )


def instruction(code: Callable[..., Any]) -> Any:
    """Decorate a function that returns a type signature and an emitter of LLVM instructions (numba's `intrinsic`).

    Compiled code can then call the function, and the emitted instructions take the place of the call.
    """
    return intrinsic(code)


def operation(symbol: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that defines an operator, such as `operator.add`, for types of compiled code (`overload`).

    The decorated function returns, for the types of the operands, the function that does the operation.
    """
    return cast("Callable[[Callable[..., Any]], Any]", overload(symbol, strict=False))


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: numba compiles it at the first call, without fast-math, and its calls release the GIL."""
    dispatcher = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(function)
    dispatcher.get_call_template = functools.partial(_call_template, dispatcher.get_call_template)
    dispatcher._cache = _Cache(function)  # noqa: SLF001 -- numba has no public way to set another cache
    return cast("Callable[P, R]", dispatcher)


def _call_template(call_template: Callable[..., Any], args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
    """Select the variant of a compiled function that another compiled function calls.

    Arguments that are literals or short integers count as int64. Otherwise, numba would compile one more variant for
    each literal and each width of integers.
    """
    return call_template(tuple(_wide_type(arg) for arg in args), kws)


def _wide_type(argument: Any) -> Any:
    plain = types.unliteral(argument)
    is_short = isinstance(plain, types.Integer) and plain.signed and plain.bitwidth < types.intp.bitwidth
    return types.intp if is_short else plain
