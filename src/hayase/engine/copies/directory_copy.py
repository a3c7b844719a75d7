"""A copy in a directory: a home, with an index of its files.

It is written beside its place and gets its name in the last step: a place has the old copy, or none, until it has the new one. A
copy that is interrupted is continued by the next: files that are there already are not written again. Files that an older copy at
the place has too are linked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from hayase.core.errors import HayaseError
from hayase.engine.copies.copy_index import (
    PORTION,
    CopiedFile,
    CopyIndex,
    Progress,
    SourceFile,
    receive,
)
from hayase.engine.copies.home_snapshot import INDEX, is_of_one_run
from hayase.streams import durable
from hayase.streams.home_format import PRIVATE

__all__ = ["index_in", "write_directory_copy"]


def write_directory_copy(
    target: Path, files: Sequence[SourceFile], made_at: int, writer: str, progress: Progress
) -> CopyIndex:
    """Write a copy, or continue one, and give it its name; return its index. HayaseError if something else is at the place."""
    target = target.absolute()
    draft, previous = target.with_name(f".{target.name}.copying"), target.with_name(f".{target.name}.previous")
    _put_back(target, previous)
    old = _older_copy(target)
    durable.make_directory(target.parent, 0o777)
    with _alone(draft):
        durable.make_directory(draft, PRIVATE)
        _remove_others(draft, {file.name for file in files})
        copied = {}
        for file in files:
            copied[file.name] = _copied(file, draft, target, old, progress)
        for stream in {name.split("/")[1] for name in copied if name.startswith("streams/")}:
            durable.make_directory(draft / "streams" / stream / "staging")  # writers of a log expect it
        for place, _, _ in os.walk(draft, topdown=False):
            durable.fsync_directory(Path(place))
        index = CopyIndex((old.number if old else 0) + 1, made_at, writer, copied)
        durable.write_atomic(draft / INDEX, index.as_bytes())
        if old is None:
            _clear_empty(target)
            durable.rename(draft, target)
        else:
            _take_over(draft, target, previous)
    return index


def index_in(directory: Path) -> CopyIndex | None:
    """Return the index of a copy in a directory; None if there is none."""
    try:
        data = (directory / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return CopyIndex.from_bytes(data, str(directory / INDEX))


@contextlib.contextmanager
def _alone(draft: Path) -> Iterator[None]:
    """Keep others from writing the same copy: the lock of a file beside it, which goes with the copy."""
    import fcntl

    lock = draft.with_name(f"{draft.name}.lock")
    descriptor = durable.open_file(lock, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HayaseError(f"another process is writing a copy to {draft}", "wait until it is done") from None
        yield
        durable.remove(lock)
    finally:
        os.close(descriptor)


def _older_copy(target: Path) -> CopyIndex | None:
    """Return the index of the copy at the place; HayaseError if there is something else, or a copy that was used since."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    index = index_in(target)
    if index is None:
        raise HayaseError(
            f"{target} is there already, and is not a copy of a home", "name another directory, or remove it"
        )
    for place, _, names in os.walk(target):
        relative = Path(place).relative_to(target).as_posix()
        for name in names:
            full = name if relative == "." else f"{relative}/{name}"
            in_store = relative.startswith("tables/") and not name.endswith(".sst")  # readers leave files there
            if full not in index.files and full != INDEX and not in_store and not _is_passing(full):
                raise HayaseError(
                    f"{target} is a copy that was used since: it has {full}, which was not copied",
                    "name another directory, or remove it",
                )
    return index


def _is_passing(name: str) -> bool:
    """Return whether a file does not say that a copy was used: whoever copies it again takes the lock of commits, too."""
    return is_of_one_run(name) and not name.endswith("lock")


def _clear_empty(target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        target.rmdir()  # an empty one


def _remove_others(draft: Path, names: set[str]) -> None:
    """Remove what an interrupted copy has of an earlier instant."""
    for place, _, files in os.walk(draft):
        for file in files:
            path = Path(place) / file
            if path.relative_to(draft).as_posix() not in names:
                durable.remove(path)


def _copied(file: SourceFile, draft: Path, target: Path, old: CopyIndex | None, progress: Progress) -> CopiedFile:
    """See to it that a file is in the draft, and return its entry."""
    if ".." in Path(file.name).parts or Path(file.name).is_absolute():
        raise HayaseError(f'a copy has a file of the name "{file.name}"', "use another copy")
    path, before = draft / file.name, old.files.get(file.name) if old else None
    if before is not None and _is_same(file, before) and _linked(target / file.name, path, before):
        progress(file.name, 0)
        return CopiedFile(file.name, file.size, before.checksum, file.mark, modified=file.modified)
    if path.is_file() and path.stat().st_size == file.size:  # an interrupted copy wrote it
        checksum = file.checksum or receive(file)
        if receive(_local(path, file)) == checksum:
            progress(file.name, 0)
            return CopiedFile(file.name, file.size, checksum, file.mark, modified=file.modified)
    durable.make_directory(path.parent)
    with durable.temporary(path.parent, path.name) as (part, descriptor):
        checksum = receive(file, lambda portion: durable.write(descriptor, portion))
        os.utime(descriptor, ns=(file.modified, file.modified))  # the history of operations tells it
        durable.fsync_file(descriptor)
        durable.rename(part, path, confirm=False)  # all directories are synced before the index is written
    progress(file.name, file.size)
    return CopiedFile(file.name, path.stat().st_size, checksum, file.mark, modified=file.modified)


def _is_same(file: SourceFile, before: CopiedFile) -> bool:
    """Return whether a file of the older copy has the same content; that is read if need be."""
    known = file.same_as(before) or file.checksum is not None or file.size != before.size
    return file.same_as(before) if known else receive(file) == before.checksum


def _local(path: Path, file: SourceFile) -> SourceFile:
    def portions() -> Iterator[bytes]:
        with path.open("rb") as opened:
            while portion := opened.read(PORTION):
                yield portion

    return SourceFile(file.name, file.size, "", 0, None, path, portions)


def _linked(source: Path, path: Path, copied: CopiedFile) -> bool:
    """Let the draft have a file of the older copy; whether it could."""
    durable.make_directory(path.parent)
    try:
        if source.stat().st_size != copied.size:
            return False
        if path.exists():
            if path.samefile(source):
                return True
            durable.remove(path)
        os.link(source, path)
    except OSError:
        return False
    return True


def _take_over(draft: Path, target: Path, previous: Path) -> None:
    """Let the draft take the place of the older copy."""
    if not durable.exchange(draft, target):
        durable.rename(target, previous)  # `_put_back` undoes this, if the next step does not come
        durable.rename(draft, target)
    shutil.rmtree(previous, ignore_errors=True)
    shutil.rmtree(draft, ignore_errors=True)


def _put_back(target: Path, previous: Path) -> None:
    """Undo the first half of taking a place over, where a file system needs two steps; or complete the second."""
    if previous.is_dir():
        if target.exists():
            shutil.rmtree(previous, ignore_errors=True)
        else:
            durable.rename(previous, target)
