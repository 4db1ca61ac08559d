"""The members of an opened archive, .zip or .tar, with their names checked. Writes nothing and trusts nothing.

An archive may name any path and link anywhere: no name may leave the folder it is unpacked to, and a link counts only
where it leads to a file of the archive.
"""

from __future__ import annotations

import gzip
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from remote.dataset.values import DatasetError

if TYPE_CHECKING:
    from typing import Self

LONGEST_LINK = 4096
CHUNK = 1 << 20
ZIP_HEADER_BYTES = 30
ZIP_EXTRA_BYTES = 256
"""Room for what a member's own header says beyond the directory: times and owners, some 30 bytes as a rule."""
BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
    ValueError,
)  # fmt: skip

Place = Path | str
"""Of an archive: its path, or its URL."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive, its name checked and relative to the target, `/` between folders."""

    name: str
    size: int
    link: str | None = None
    """For a link: the member it leads to."""


@dataclass(frozen=True, slots=True)
class Item:
    """A member and the way to its bytes."""

    member: Member
    open: Callable[[], IO[bytes]]
    span: range
    """Where its bytes lie in the archive, with a header before them."""
    crc: int | None = None
    """CRC-32 of its content, where the archive says so."""


class Header(tarfile.TarInfo):
    """A header that must be whole: tarfile takes a damaged one for the end, and the members behind it would be lost."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """As the base class; raises ReadError for what is neither a header nor zeros nor the end of the file."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise
            raise tarfile.ReadError(f"damaged archive: {error}") from error


@contextmanager
def explained(archive: Place) -> Iterator[None]:
    """Turns faults of an archive into DatasetError."""
    try:
        yield
    except BROKEN as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        hint = "it should be a .zip, .tar or .tar.gz; make or download it again"
        raise DatasetError(f"{archive}: not a readable archive: {reason}", hint) from error
    except OSError as error:
        hint = "check the path, and the space on the disk"
        raise DatasetError(f"{archive}: cannot be unpacked: {error.strerror or error}", hint) from error


def zip_items(archive: Place, opened: zipfile.ZipFile) -> Iterator[Item]:
    """The files of a zip. Raises DatasetError for one that is refused."""
    for info in opened.infolist():
        name = _safe(archive, info.filename)
        if name is None or info.is_dir():
            continue
        if info.flag_bits & 1:
            raise DatasetError(f"{archive}: {info.filename!r} is encrypted", "pack the data set without a password")
        mode = stat.S_IFMT(info.external_attr >> 16)
        link = None
        if mode == stat.S_IFLNK and info.file_size <= LONGEST_LINK:
            link = _inside(archive, name, opened.read(info).decode("utf-8", "surrogateescape"))
        elif mode not in (0, stat.S_IFREG):
            raise refused(archive, info.filename, "neither a file nor a folder")
        yield Item(Member(name, info.file_size, link), lambda info=info: opened.open(info), _span(info), info.CRC)  # type: ignore[misc]


def tar_items(archive: Place, tar: tarfile.TarFile, infos: Iterable[tarfile.TarInfo]) -> Iterator[Item]:
    """The files among these members of a tar. Raises DatasetError for one that is refused."""
    for info in infos:
        name = _safe(archive, info.name)
        if info.isdir() or name is None:
            continue
        link = None
        if info.issym():
            link = _inside(archive, name, info.linkname)
        elif info.islnk():
            link = _safe(archive, info.linkname) or ""
        elif not info.isreg():
            raise refused(archive, info.name, "neither a file nor a folder")
        span = range(info.offset, info.offset_data + info.size)
        yield Item(Member(name, info.size, link), lambda info=info: _opened(tar, info), span)  # type: ignore[misc]


def whole(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All members of a tar opened with `Header`. Raises ReadError for damage, behind its end too."""
    yield from tar
    while tar.fileobj is not None and (rest := tar.fileobj.read(CHUNK)):
        if rest.count(0) != len(rest):
            raise tarfile.ReadError("damaged archive: more follows after its end")


def _span(info: zipfile.ZipInfo) -> range:
    header = ZIP_HEADER_BYTES + len(info.filename.encode("utf-8", "replace")) + ZIP_EXTRA_BYTES
    return range(info.header_offset, info.header_offset + header + info.compress_size)


def _opened(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    opened = tar.extractfile(info)
    if opened is None:
        raise tarfile.ReadError(f"{info.name} has no content")
    return opened


def _safe(archive: Place, written: str) -> str | None:
    """The member's name, relative and clean; None for what only macOS needs. Raises DatasetError where it leaves."""
    plain = written.replace("\\", "/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if plain.startswith("/") or (parts and parts[0][1:2] == ":"):
        raise refused(archive, written, "an absolute path")
    if ".." in parts:
        raise refused(archive, written, "it would land outside the folder it is unpacked into")
    if "\0" in plain:
        raise refused(archive, written, "a zero byte in the name")
    if not parts or "__MACOSX" in parts or parts[-1] == ".DS_Store" or parts[-1].startswith("._"):
        return None
    return "/".join(parts)


def _inside(archive: Place, name: str, link: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link.replace("\\", "/")))
    if target.startswith(("/", "../")) or target == "..":
        raise refused(archive, name, f"a link that leads out of the archive, to {link!r}")
    return target


def target_of(archive: Place, member: Member, files: Mapping[str, Member]) -> Member:
    """The file that a member is, or that its link leads to. Raises DatasetError where that is none of the archive."""
    seen = member
    for _ in range(8):
        if seen.link is None:
            return seen
        if seen.link not in files:
            break
        seen = files[seen.link]
    raise refused(archive, member.name, f"a link to {member.link!r}, which is no file of the archive")


def refused(archive: Place, name: str, reason: str) -> DatasetError:
    """The error for a member that is not taken."""
    return DatasetError(
        f"{archive}: member {name!r} refused: {reason}", "pack plain files and folders, with relative names"
    )
