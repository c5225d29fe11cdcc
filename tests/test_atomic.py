"""A file is written whole or stays what it was."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncscope.app.report import atomic
from syncscope.app.report.atomic import check_writable, write_atomic
from syncscope.sched_core.errors import FileError


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def one_line(error: pytest.ExceptionInfo[FileError]) -> str:
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 3
    return str(error.value)


def test_chunks_are_joined_in_order(tmp_path):
    write_atomic(tmp_path / "out.json", [b"one", b"", b"two"])
    assert contents(tmp_path) == {"out.json": b"onetwo"}


def test_an_older_file_is_replaced_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old and longer")
    path.chmod(0o640)
    write_atomic(path, [b"new"])
    assert contents(tmp_path) == {"out.json": b"new"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_permissions(tmp_path):
    write_atomic(tmp_path / "out.json", [b"x"])
    (tmp_path / "plain").write_bytes(b"x")
    modes = {each.stat().st_mode for each in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_relative_path_is_beside_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_atomic("out.json", [b"x"])
    assert contents(tmp_path) == {"out.json": b"x"}


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(atomic.os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    write_atomic(tmp_path / "out", [b"0123456789"])
    assert contents(tmp_path) == {"out": b"0123456789"}


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    (tmp_path / "out.json").write_bytes(b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, call, full)
    with pytest.raises(FileError) as error:
        write_atomic(tmp_path / "out.json", [b"new"])
    assert "No space left on device" in one_line(error)
    assert str(tmp_path / "out.json") in str(error.value)
    monkeypatch.undo()
    assert contents(tmp_path) == {"out.json": b"old"}


def test_a_pipe_is_written_in_place_by_any_of_its_names(tmp_path):
    (tmp_path / "link").symlink_to("/dev/fd")
    for folder in ("/dev/fd", "/proc/self/fd", tmp_path / "link"):
        reader, writer = os.pipe()
        path = f"{folder}/{writer}"
        check_writable(path)
        write_atomic(path, [b"one", b"two"])
        assert os.read(reader, 100) == b"onetwo"
        os.close(reader)
        os.close(writer)


def test_a_named_pipe_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(path, [b"x"])
    assert os.read(reader, 100) == b"x"
    os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_reader_may_go_before_the_end():
    reader, writer = os.pipe()
    os.close(reader)
    write_atomic(f"/dev/fd/{writer}", [b"x" * 1000] * 1000)
    os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_full_is_one_line():
    with pytest.raises(FileError) as error:
        write_atomic("/dev/full", [b"new"])
    assert "No space left on device" in one_line(error)
    assert not stat.S_ISREG(os.stat("/dev/full").st_mode)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_contents_that_break_off_leave_the_old_file(tmp_path, failure):
    (tmp_path / "out.json").write_bytes(b"old")

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise failure

    with pytest.raises(failure):
        write_atomic(tmp_path / "out.json", broken())
    assert contents(tmp_path) == {"out.json": b"old"}


@pytest.mark.parametrize("function", [check_writable, lambda path: write_atomic(path, [b"x"])])
def test_targets_that_cannot_be_files_are_refused(tmp_path, function):
    (tmp_path / "file").write_bytes(b"x")
    for path, reason in {
        tmp_path: "is a folder",
        tmp_path / "missing" / "out.json": "there is no folder",
        tmp_path / "file" / "out.json": "cannot write",
        tmp_path / ("n" * 300): "File name too long",
        "": "is a folder",
    }.items():
        with pytest.raises(FileError, match=reason) as error:
            function(path)
        one_line(error)
    assert contents(tmp_path) == {"file": b"x"}


def test_a_folder_without_permission_is_refused_before_the_run(tmp_path, monkeypatch):
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(atomic.os, "open", denied)
    with pytest.raises(FileError, match="Permission denied"):
        check_writable(tmp_path / "out.json")


def test_a_write_protected_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(atomic.os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(FileError, match="write-protected"):
        check_writable(path)
    assert contents(tmp_path) == {"out.json": b"old"}


def test_the_check_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "out.json")
    assert contents(tmp_path) == {}
