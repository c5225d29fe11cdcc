"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable

from syncscope.sched_core.errors import FileError

StrPath = str | os.PathLike[str]


def _refuse(path: StrPath, error: OSError) -> FileError:
    reason = error.strerror or str(error) or type(error).__name__
    return FileError(f"cannot write {os.fspath(path)}: {reason}")


def is_special(path: StrPath) -> bool:
    """Whether the path is there and neither a file nor a folder: a pipe, a terminal, a device.

    Asked of the path as given: what ``/dev/stdout`` leads to may have no name to resolve it to.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _open_beside(target: str) -> tuple[int, str]:
    """Make a new file in the folder of `target`, with the target's permissions if it is there."""
    name = os.path.join(os.path.dirname(target), f".syncscope-{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(name, flags, 0o666)
    try:
        if os.path.exists(target):
            os.chmod(name, stat.S_IMODE(os.stat(target).st_mode))
    except OSError:
        os.close(descriptor)
        os.unlink(name)
        raise
    return descriptor, name


def _write_all(descriptor: int, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        view = memoryview(chunk)
        while len(view):
            view = view[os.write(descriptor, view) :]


def _write_in_place(path: StrPath, chunks: Iterable[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        _write_all(descriptor, chunks)
    except BrokenPipeError:
        pass  # the reader has had enough
    finally:
        os.close(descriptor)


def check_writable(path: StrPath) -> None:
    """Refuse a target that cannot be written, before the work that makes its contents.

    Raises
    ------
    FileError
        No such folder, a folder where the file should be, or no permission.
    """
    try:
        special = is_special(path)
        target = os.fspath(path) if special else os.path.realpath(path)
        if os.path.isdir(target):
            raise IsADirectoryError(None, "is a folder: name a file in it")
        if os.path.exists(target) and not os.access(target, os.W_OK):
            raise PermissionError(None, "it is write-protected")
        if special:
            return
        if not os.path.isdir(os.path.dirname(target)):
            raise FileNotFoundError(None, f"there is no folder {os.path.dirname(target)}")
        descriptor, name = _open_beside(target)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise _refuse(path, error) from None


def write_atomic(path: StrPath, chunks: Iterable[bytes]) -> None:
    """Write a file so that it is either complete or what it was before.

    The bytes go to a temporary file beside it, which takes its place once it is on disk.  A
    symbolic link stays one; a pipe or a device is written as it is, a pipe as far as it is read.

    Raises
    ------
    FileError
        The file cannot be written, or the disk is full; the temporary file is gone then.
    """
    check_writable(path)
    try:
        if is_special(path):
            _write_in_place(path, chunks)
            return
        target = os.path.realpath(path)
        descriptor, name = _open_beside(target)
        try:
            try:
                _write_all(descriptor, chunks)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise _refuse(path, error) from None
