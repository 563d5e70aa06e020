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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from osbert.errors import UserError
from osbert.files import disk_full, sync, whole_folder
from osbert.lock import hold_lock
from osbert.remote import hold, split_address
from osbert_lab.object_stores.cache import CACHE, cache_folder, make_room

SCHEMES = {
    "s3": ("s3fs", 'pip install "osbert[remote]"'),
    "gs": ("gcsfs", "pip install gcsfs"),
    "hf": ("huggingface_hub", "pip install huggingface_hub"),
}
"""The object stores: the library that fsspec reads each with, and how it is installed."""
TRIES, REQUESTS = 3, 8
"""Most tries of a request; requests at a time."""
BLOCK = 2**24
"""Bytes of one request, which is repeated alone if the connection is lost."""
TIMES = ("LastModified", "updated", "mtime")
"""Names under which object stores give the time of change."""
TAGS = ("ETag", "etag", "md5Hash", "blob_id", "oid", "LastModified", "updated", "mtime")
"""Names under which object stores give what changes with an object's content."""

Returned = TypeVar("Returned")
Listing = dict[str, "StoredObject"]
"""The objects below an address by relative name, "" for the one at it."""


@dataclass(frozen=True)
class StoredObject:
    """An object of a store: its size in bytes, a tag that changes with its content, and its time of change in ns."""

    size: int
    tag: str
    modified: int

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> StoredObject:
        """Return what the store says of an object.

        Without a time of change the number comes from the tag: it then differs whenever the content does.
        """
        tag = next((str(info[name]) for name in TAGS if info.get(name)), "")
        timestamp = next((info[name] for name in TIMES if info.get(name)), None)
        try:
            changed = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(str(timestamp))
            seconds = int(changed.timestamp())
        except ValueError:
            seconds = int(hashlib.sha256(tag.encode()).hexdigest()[:7], 16)
        return cls(info["size"], tag, seconds * 10**9)


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
        parts = split_address(given)
        return None if parts is None else cls(*parts)

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

    def open_store(self) -> Any:
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
        with self.explain_errors("read"):
            return fsspec.filesystem(self.scheme, use_listings_cache=False)

    @contextmanager
    def growing(self, inputs: Sequence[Path | str]) -> Iterator[tuple[Any, Path]]:
        """Yield fsspec's file system and the folder of the cache in which an output grows under its name, locked.

        Raises UserError if the output would replace one of the `inputs`, if the store cannot be opened or has no such
        bucket, and if another process writes the output.
        """
        for user_input in inputs:
            self.refuse_input(ObjectAddress.of(user_input))
        files = self.open_store()
        if self.scheme != "hf":  # its first part is an owner, no bucket
            with self.explain_errors("written"):
                files.info(self.path.partition("/")[0])
        folder = cache_folder() / "outputs" / hashlib.sha256(self.url.encode()).hexdigest()[:24]
        with self.explain_disk_errors():
            folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder, file=folder.with_name(f"{folder.name}.lock")):
            try:
                yield files, folder
            finally:
                with suppress(OSError):  # nothing was begun
                    folder.rmdir()

    @contextmanager
    def naming(self, local_path: Path) -> Iterator[None]:
        """Name this address in the errors of the block, in place of the local path of its output."""
        try:
            yield
        except UserError as error:
            # Paths of unfinished work stay: the user may have to remove them.
            text = re.sub(rf"{re.escape(str(local_path))}(?![./\w])", lambda _: self.url, str(error))
            if text == str(error):
                raise
            raise UserError(text, code=error.code, codes=error.codes) from error

    def refuse_input(self, given: ObjectAddress | None) -> None:
        """Raise UserError if an output at this address would replace an input, itself or a file in the output."""
        if given is not None and given.scheme == self.scheme and self.path in (given.path, given.parent):
            raise UserError(
                f"{self.url} would replace {given.url}, an input of this command. Give another --out.",
                code="output-is-input",
            )

    def fetch(self, without: Sequence[str] = ()) -> Path:
        """Return the copy in the cache, fetched if it is not there, or not of the content that the address has now."""
        files = self.open_store()
        listing = self.listing(files, without)
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        facts = [(name, (stored_object.size, stored_object.tag)) for name, stored_object in sorted(listing.items())]
        key = hashlib.sha256(json.dumps([endpoint, self.url, facts]).encode()).hexdigest()
        entry = cache_folder() / key[:24]
        with self.explain_disk_errors():
            while not hold(entry, self.url):
                make_room(sum(stored_object.size for stored_object in listing.values()), self.url)
                self.fetch_into(files, listing, entry, without)
        with suppress(OSError):  # the copy may be another user's
            os.utime(entry)
        return entry / self.name

    def listing(self, files: Any, without: Sequence[str]) -> Listing:
        """Return the objects at the address, or below it. Raises UserError if there are none, or none can be read."""
        with self.explain_errors("read"):
            files.invalidate_cache()
            info = files.info(self.path)
            object_infos = {} if info["type"] == "file" and info["size"] else files.find(self.path, detail=True)
        # Stores without folders may give their own path other prefixes, such as a revision: names come after it.
        top = str(info["name"]).rstrip("/")
        listing = {name.removeprefix(top).lstrip("/"): object_info for name, object_info in object_infos.items()}
        # An empty object may stand for a folder: with a slash at its end, or with the name of a folder of others.
        folders = {name[:index] for name in listing for index, letter in enumerate(name) if letter == "/"}
        objects = {
            name: StoredObject.of(object_info)
            for name, object_info in listing.items()
            if name and not matches(name, without) and (object_info["size"] or name.rstrip("/") not in folders)
        }
        if not objects and info["type"] == "file":
            return {"": StoredObject.of(info)}
        if not objects:
            raise UserError(f"{self.url}: no such object, and nothing below it.", code="missing-file")
        for name in objects:
            # Names come from the store, and must not lead out of the folder of the copy.
            if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or "\0" in name:
                raise UserError(f"{self.url}: the object {name!r} cannot be the name of a file.", code="wrong-format")
            if name in folders:
                raise UserError(
                    f"{self.url}: {name!r} is an object and a folder of others; files cannot be both. Rename it.",
                    code="wrong-format",
                )
        return objects

    def fetch_into(self, files: Any, listing: Listing, entry: Path, without: Sequence[str]) -> None:
        """Fetch objects into a folder, which appears when all are there."""
        try:
            with whole_folder(entry) as aside:
                # Small objects take as long to ask for as to fetch: several at a time.
                with ThreadPoolExecutor(REQUESTS) as pool:
                    for _ in pool.map(partial(self._fetch_one, files, aside), *zip(*listing.items(), strict=True)):
                        pass
                if self.listing(files, without) != listing:
                    raise UserError(
                        f"{self.url} changed while it was downloaded. Run the command again.", code="file-changed"
                    )
        except OSError:
            if not entry.is_dir():  # another process has fetched the same meanwhile
                raise

    def _fetch_one(self, files: Any, folder: Path, name: str, stored_object: StoredObject) -> None:
        target = folder / self.name / name if name else folder / self.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            for start in range(0, stored_object.size, BLOCK):
                file.write(self.part(files, name, start, min(start + BLOCK, stored_object.size)))
        sync(target)
        os.utime(target, ns=(stored_object.modified, stored_object.modified))

    def part(self, files: Any, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object below the address, of the one at it for ""."""
        with self.explain_errors("read"):
            return _block(files, f"{self.path}/{name}" if name else self.path, start, end)

    @contextmanager
    def explain_disk_errors(self) -> Iterator[None]:
        """Raise UserError for the errors of the cache's own folder in the block."""
        try:
            yield
        except OSError as error:
            if disk_full(error):
                raise UserError(
                    f"{self.url}: the disk of the cache {cache_folder()} is full. Free some room, or set {CACHE}.",
                    code="not-written",
                ) from error
            raise UserError(
                f"{self.url}: the cache cannot be written ({error.strerror}: {error.filename or cache_folder()}). Set "
                f"{CACHE} to another folder, or see to the permissions of this one.",
                code="not-written",
            ) from error

    def upload(self, files: Any, folder: Path) -> None:
        """Write the files below a folder beside this address. Raises UserError, in which the folder is named."""
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in inside.parts):
                with self.explain_disk_errors():
                    path.open("rb").close()  # what cannot be read is no matter of the store
                advice = (
                    f"The finished output is kept in {folder}: upload it from there with the store's own tools, since "
                    "the same command would compute it again."
                )
                with self.explain_errors("written", advice=advice):
                    retry(partial(files.put_file, str(path), f"{self.parent}/{inside.as_posix()}"))

    @contextmanager
    def explain_errors(self, what: str, *, advice: str = "") -> Iterator[None]:
        """Raise UserError for the errors of object stores in the block. `what`: "read" or "written"."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # the libraries of object stores have no common class of errors
            problem = self._problem(error, what)
            raise UserError(f"{problem} {advice}".rstrip(), code=problem.code) from error

    def _problem(self, error: Exception, what: str) -> UserError:
        kind, line = type(error).__name__, str(error).strip().partition("\n")[0][:200]
        if isinstance(error, FileNotFoundError):
            return UserError(
                f"{self.url}: no such bucket or object, or no permission to see it. Check the spelling.",
                code="missing-file",
            )
        if isinstance(error, PermissionError) or "Credential" in kind or "Credential" in line:
            return UserError(
                f"{self.url} cannot be {what}: the store refuses the credentials, or there are none ({kind}: {line}). "
                "Set those of its own tools, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile.",
                code="not-permitted",
            )
        text = f"{self.url} cannot be {what} ({kind}: {line}). Check the network, and AWS_ENDPOINT_URL if it is set."
        if what == "written":
            return UserError(text, code="not-uploaded")
        return UserError(f"{text} Then give the same command again.", code="not-downloaded")


def _block(files: Any, path: str, start: int, end: int) -> bytes:
    """Return the bytes [start, end) of an object."""

    def read() -> bytes:
        data = bytes(files.cat_file(path, start=start, end=end))
        if len(data) != end - start:
            raise OSError(f"{len(data):,} of {end - start:,} bytes came, from byte {start:,} on")
        return data

    return retry(read)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name below an address, or its first part, matches one of the patterns."""
    return any(fnmatchcase(part, pattern) for part in (name, name.partition("/")[0]) for pattern in patterns)


def retry(action: Callable[[], Returned]) -> Returned:
    """Call a request to a store, and again if it fails. Raises the last error."""
    for attempt in range(1, TRIES):
        try:
            return action()
        except (FileNotFoundError, PermissionError):
            raise
        except Exception:  # see `explain_errors`
            time.sleep(0.2 * 2**attempt)
    return action()
