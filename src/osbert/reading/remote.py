"""Inputs and outputs on object stores, s3://, gs:// and hf://, by fsspec, through a bounded cache of local copies.

An address is used only where the user typed it: no file of a model, a run or a corpus can name one. Copies are whole
files under a key of their content's tag, so that a changed object is fetched again and half a download is never used.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osbert.errors import UserError, nearest
from osbert.files import disk_full, whole_folder
from osbert.reading.remote_cache import CACHE, cache_folder, hold, make_room

SCHEMES = {
    "s3": ("s3fs", 'pip install "osbert[remote]"'),
    "gs": ("gcsfs", "pip install gcsfs"),
    "hf": ("huggingface_hub", "pip install huggingface_hub"),
}
"""The object stores: the library that fsspec reads each with, and how it is installed."""
TRIES = 3
BLOCK = 2**24
"""Bytes of one request, which is repeated alone if the connection is lost."""
TAGS = ("ETag", "etag", "md5Hash", "blob_id", "oid", "LastModified", "updated", "mtime")
"""Names under which object stores give what changes with an object's content."""
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}([^/].*)")  # a Path has one slash of two

Listing = dict[str, tuple[int, str]]
"""The objects below an address, "" for the one at it: size and tag by relative name."""


def local_copy(given: Path | str, *, without: Sequence[str] = ()) -> Path:
    """Return the path of a user's input: as it is, or for an address that of a copy in the cache.

    `without`: folders below the address that are not fetched. Raises UserError if the address cannot be read.
    """
    address = ObjectAddress.of(given)
    return Path(given) if address is None else address.fetched(without)


@contextmanager
def local_output(given: Path | str) -> Iterator[Path]:
    """Yield the path to write for a user's output; for an address it is uploaded when the block ends.

    Until then it lies in the cache, so that a stopped command goes on. Raises UserError if it cannot be uploaded.
    """
    address = ObjectAddress.of(given)
    if address is None:
        yield Path(given)
        return
    files = address.opened()
    if address.scheme != "hf":  # its first part is an owner, no bucket
        with address.explained("written"):
            files.info(address.path.partition("/")[0])
    folder = cache_folder() / "outputs" / hashlib.sha256(address.url.encode()).hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    yield folder / address.name
    with address.explained("written"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                files.put_file(str(path), f"{address.parent}/{path.relative_to(folder).as_posix()}")
    shutil.rmtree(folder)


@dataclass(frozen=True)
class ObjectAddress:
    """The address of an object, or of a folder of objects: `path` is BUCKET/KEY."""

    scheme: str
    path: str

    @classmethod
    def of(cls, given: Path | str) -> ObjectAddress | None:
        """Return the address that a text or path is; None for a local one. Raises UserError for an unknown scheme.

        >>> ObjectAddress.of("s3://bucket/a.csv"), ObjectAddress.of(Path("s3://bucket/a.csv")).url
        (ObjectAddress(scheme='s3', path='bucket/a.csv'), 's3://bucket/a.csv')
        >>> ObjectAddress.of("runs/a.csv")
        """
        found = _ADDRESS.fullmatch(str(given))
        if found is None or os.path.lexists(given):
            return None
        scheme, path = found.groups()
        if scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise UserError(
                f"{given}: addresses with {scheme}:// are not read, only {known}, and local paths."
                f"{nearest(scheme, SCHEMES)}",
                code="unknown-scheme",
            )
        return cls(scheme, path.rstrip("/"))

    @property
    def url(self) -> str:
        """The address as a text."""
        return f"{self.scheme}://{self.path}"

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> str:
        """The address without its last part, as BUCKET/KEY."""
        return self.path.rpartition("/")[0]

    def opened(self) -> Any:
        """Return fsspec's file system. Raises UserError if its library is missing, or no object is named."""
        if not self.parent:
            raise UserError(f"{self.url} names a bucket: name an object or a folder in it.", code="invalid-value")
        library, install = SCHEMES[self.scheme]
        try:
            importlib.import_module(library)
            fsspec = importlib.import_module("fsspec")
        except ImportError as error:
            raise UserError(
                f"{self.url}: {self.scheme}:// needs the library {library}: {install}", code="missing-library"
            ) from error
        with self.explained("read"):
            return fsspec.filesystem(self.scheme, use_listings_cache=False)

    def fetched(self, without: Sequence[str] = ()) -> Path:
        """Return the copy in the cache, fetched if it is not there, or not of the content that the address has now."""
        files = self.opened()
        listing = self._listing(files, without)
        size = sum(size for size, _ in listing.values())
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        key = json.dumps([endpoint, self.url, sorted(listing.items())])
        entry = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:24]
        if not entry.is_dir():
            make_room(size, self.url)
            self._fetch(files, listing, entry)
            if self._listing(files, without) != listing:
                shutil.rmtree(entry)
                raise UserError(
                    f"{self.url} changed while it was fetched. Give the command again.", code="file-changed"
                )
        hold(entry)
        os.utime(entry)
        return entry / self.name

    def _listing(self, files: Any, without: Sequence[str]) -> Listing:
        with self.explained("read"):
            files.invalidate_cache()
            info = files.info(self.path)
            if info["type"] == "file":
                return {"": (info["size"], _tag(info))}
            found = files.find(self.path, detail=True)
            # Stores without folders may give their own path other prefixes, such as a revision: names come after it.
            top = str(info["name"]).rstrip("/")
            listing = {name.removeprefix(top).strip("/"): one for name, one in found.items()}
        kept = {name: one for name, one in listing.items() if name and name.partition("/")[0] not in without}
        if not kept:
            raise UserError(f"{self.url}: there is no such object, or nothing below it.", code="missing-file")
        for name in kept:
            # Names come from the store, and must not lead out of the folder of the copy.
            if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or "\0" in name:
                raise UserError(f"{self.url}: the object {name!r} cannot be the name of a file.", code="wrong-format")
        return {name: (one["size"], _tag(one)) for name, one in kept.items()}

    def _fetch(self, files: Any, listing: Listing, entry: Path) -> None:
        """Fetch objects into a folder, which appears when all are there."""
        try:
            with self.explained("read"), whole_folder(entry) as aside:
                for name, (size, _) in listing.items():
                    target = aside / self.name / name if name else aside / self.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source = f"{self.path}/{name}" if name else self.path
                    with target.open("wb") as file:
                        for start in range(0, size, BLOCK):
                            file.write(_block(files, source, start, min(start + BLOCK, size)))
        except OSError:
            if not entry.is_dir():  # another process has fetched the same meanwhile
                raise

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Raise UserError for the errors of object stores in the block. `what`: "read" or "written"."""
        try:
            yield
        except UserError:
            raise
        except FileNotFoundError as error:
            raise UserError(
                f"{self.url}: there is no such bucket or object (or it may not be seen). Check the spelling.",
                code="missing-file",
            ) from error
        except Exception as error:  # the libraries of object stores have no common class of errors
            raise self._problem(error, what) from error

    def _problem(self, error: Exception, what: str) -> UserError:
        kind, line = type(error).__name__, str(error).strip().partition("\n")[0][:200]
        if isinstance(error, PermissionError) or "Credential" in kind or "Credential" in line:
            return UserError(
                f"{self.url} cannot be {what}: the store refuses the credentials, or there are none ({kind}: {line}). "
                "Set those of its own tools, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile.",
                code="not-permitted",
            )
        if isinstance(error, OSError) and disk_full(error):
            return UserError(
                f"{self.url}: the disk of the cache {cache_folder()} is full. Free some room, or set {CACHE}.",
                code="not-written",
            )
        text = (
            f"{self.url} cannot be {what} ({kind}: {line}). Check the network, and AWS_ENDPOINT_URL if it is set, and "
            "give the same command again."
        )
        if what == "written":
            return UserError(text, code="not-uploaded")
        return UserError(text, code="not-downloaded")


def _tag(info: Mapping[str, Any]) -> str:
    return next((str(info[name]) for name in TAGS if info.get(name)), "")


def _block(files: Any, path: str, start: int, end: int) -> bytes:
    """Return the bytes [start, end) of an object; a request that fails is repeated. Raises the last error."""
    for attempt in range(1, TRIES + 1):
        try:
            data = bytes(files.cat_file(path, start=start, end=end))
            if len(data) == end - start:
                return data
            problem: Exception = OSError(f"{len(data):,} of {end - start:,} bytes came, from byte {start:,} on")
        except (FileNotFoundError, PermissionError):
            raise
        except Exception as error:  # see `explained`
            problem = error
        if attempt < TRIES:
            time.sleep(0.2 * 2**attempt)
    raise problem
