"""Output folders on object stores: work goes on in a local folder, of which whole parts are uploaded.

The order of the uploads keeps the store readable at every moment: the file without which nobody takes a folder for
finished comes last, and so does the seal of each checkpoint. A run that lost its machine goes on from the store.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from osbert.errors import UserError
from osbert.remote import FolderForm, OutputFolder, hold, release, with_addresses
from osbert_lab.object_stores.addresses import Listing, ObjectAddress, matches, retry

BEGUN = ".osbert-uploading"
"""The object that stands beside others until the marker is there: a first upload has begun."""
STEP = re.compile(r"step-(\d+)")
"""The name of the folder of a checkpoint."""
UPLOADED = ".uploaded"
"""The file beside a local folder whose marker is in the store: if the store has none, the folder was removed there."""
FETCHED = ".fetched"
"""The folder beside a local folder in which that of the store appears, once it is whole."""
READ_FIRST = "config.json"
"""The file without which no model is opened: of a finished folder it is uploaded after all others but the marker."""
OTHERS = ("begun-with-other-settings", "output-holds-something-else")
"""Codes of the errors that name work which was begun in the folder before."""


def step_of(form: FolderForm, name: str) -> str:
    """Return the folder of the checkpoint that a file belongs to, "" for none."""
    parts = PurePosixPath(name).parts
    inside = len(parts) > 2 and parts[0] == form.checkpoints and STEP.fullmatch(parts[1])
    return "/".join(parts[:2]) if inside else ""


def select_sealed(form: FolderForm, names: Sequence[str]) -> list[str]:
    """Return the folders of whole checkpoints among the names of files, oldest first."""
    steps = [step for name in names if (step := step_of(form, name)) and name == f"{step}/{form.seal}"]
    return sorted(steps, key=_number)


def upload_order(form: FolderForm, name: str) -> tuple[Any, ...]:
    """Return the key by which uploads are sorted.

    The marker comes after all that a finished folder needs, and before the checkpoints, which need it; each of these
    has its seal last.
    """
    if step := step_of(form, name):
        return 3, _number(step), name.endswith(f"/{form.seal}"), name
    base, depth = name.rpartition("/")[2], name.count("/")
    rank = {READ_FIRST: 1, form.marker: 2}.get(base, 0)
    return rank, -depth, False, name  # the markers below the folder come before its own


@dataclass(kw_only=True)
class StoredFolder(OutputFolder):
    """A folder on an object store, of which `path` is the local one. Nobody else may write there meanwhile."""

    address: ObjectAddress
    form: FolderForm
    files: Any
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of change of the files that lie in the store as they are here."""
    steps: set[str] = field(default_factory=set)
    """The whole checkpoints in the store."""
    halves: set[str] = field(default_factory=set)
    """Other checkpoints of which there are objects in the store."""
    noted: bool = False
    """Whether the store has the object `BEGUN`."""
    marked: bool = False
    """Whether the marker is in the store."""
    warn: Callable[[str], object]
    followed: list[str] | None = None
    """The whole checkpoints at the last call of `follow`."""

    def pull(self) -> None:
        """Fetch the folder from the store, unless there is none, or the local one has come at least as far.

        Raises UserError if something else lies there.
        """
        if not self.form.keeps_unfinished:
            shutil.rmtree(self.path, ignore_errors=True)
        listing = self._list_objects()
        self.noted = BEGUN in listing
        if self.form.marker not in listing:
            if self._uploaded.exists():  # and was removed from the store
                shutil.rmtree(self.path, ignore_errors=True)
                self._uploaded.unlink()
            if listing and not self.noted:
                listed = ", ".join(sorted(listing)[:3])
                raise UserError(
                    f"{self.address.url} already holds {listed}, and no {self.form.marker}. Give another --out, or an "
                    "empty one.",
                    code="output-holds-something-else",
                )
            return
        here, self.marked = self._local(), True
        self.steps = {*select_sealed(self.form, [*listing])}
        self.halves = {step for name in listing if (step := step_of(self.form, name))} - self.steps
        newest = [
            _number(steps[-1]) if (steps := select_sealed(self.form, [*names])) else -1 for names in (here, listing)
        ]
        ended = READ_FIRST in listing and READ_FIRST not in here  # another machine has finished the run
        if not here or not self.form.checkpoints or ended or newest[0] < newest[1]:
            self._fetch()
            return
        for step in self.steps & {*select_sealed(self.form, [*here])}:
            seal = f"{step}/{self.form.seal}"
            with self.address.explain_errors("read"):
                same = retry(partial(self.files.cat_file, self._at(seal))) == (self.path / seal).read_bytes()
            if same:  # it holds the hashes of the others
                self.sent |= {name: stamp for name, stamp in here.items() if step_of(self.form, name) == step}

    def push(self) -> None:
        """Upload what has become whole since the last time, and remove checkpoints that are no longer here.

        Raises UserError if that fails; the next call does what is missing.
        """
        here = self._local()
        changed = sorted(
            (name for name, stamp in here.items() if self.sent.get(name) != stamp), key=partial(upload_order, self.form)
        )
        with self._writing():
            if changed and not (self.marked or self.noted):
                retry(partial(self.files.pipe_file, self._at(BEGUN), b"osbert\n"))
                self.noted = True
            for name in changed:
                if step := step_of(self.form, name):
                    if step in self.steps:  # as long as the files differ it is not whole
                        self._unseal(step)
                    self.halves.add(step)
                if self._put(name):
                    self.sent[name] = here[name]
            if self.marked and self.noted:
                self._remove(BEGUN)
                self.noted = False
            for step in sorted((self.steps | self.halves) - {*select_sealed(self.form, [*here])}):
                if step in self.steps:
                    self._unseal(step)
                self._remove(step, recursive=True)
                self.halves.discard(step)

    def follow(self) -> None:
        """Upload if there is another checkpoint than at the last call; a failure is a warning."""
        seals = (self.path / self.form.checkpoints).glob(f"step-*/{self.form.seal}")
        steps = select_sealed(self.form, [path.relative_to(self.path).as_posix() for path in seals])
        if steps != self.followed:
            self.followed = steps
            self.push_or_warn()

    def push_or_warn(self) -> bool:
        """Upload what is whole; return whether that succeeded."""
        try:
            self.push()
        except UserError as error:
            self.warn(str(error))
            return False
        return True

    def leave(self, *, whole: bool) -> None:
        """Remove the local folder if the store has all of it, or it is not kept. `whole`: a push has succeeded.

        Unfinished work that lies beside the folder is not in the store.
        """
        beside = [path for path in self.path.parent.iterdir() if path != self.path and not path.name.startswith(".")]
        sent = {name: self.sent[name] for name in self.sent if (self.path / name).is_file()}
        if whole or not self.form.keeps_unfinished or (not beside and self._local() == sent):
            shutil.rmtree(self.path.parent, ignore_errors=True)

    @property
    def begun(self) -> bool:
        """Whether the local folder has its marker."""
        return (self.path / self.form.marker).is_file()

    def _list_objects(self) -> Listing:
        """Return the objects in the store, also those of half a checkpoint."""
        try:
            listing = self.address.listing(self.files, ())
        except UserError as error:
            if error.code != "missing-file":
                raise
            return {}
        if "" in listing:
            raise UserError(
                f"{self.address.url} is an object, but the output is a folder. Give another --out.",
                code="output-is-file",
            )
        return listing

    def _fetch(self) -> None:
        """Replace the local folder by that of the store."""
        without = [*self.form.left_there, BEGUN, *(f"{step}/*" for step in self.halves)]
        with self.address.explain_disk_errors():
            shutil.rmtree(self.path, ignore_errors=True)
            self._uploaded.unlink(missing_ok=True)
            listing = self.address.listing(self.files, without)
            aside = self.path.with_name(FETCHED)
            shutil.rmtree(aside, ignore_errors=True)
            self.address.fetch_into(self.files, listing, aside, without)
            (aside / self.path.name).replace(self.path)
            aside.rmdir()
            self._uploaded.touch()
        self.sent = self._local()

    @property
    def _uploaded(self) -> Path:
        """The file that stands beside the local folder once the marker is in the store."""
        return self.path.parent / UPLOADED

    def _local(self) -> dict[str, tuple[int, int]]:
        """Return size and time of change of the local files that are whole: no hidden ones, no half checkpoint."""
        stamps = {}
        for path in (
            Path(folder, name) for folder, _, names in os.walk(self.path, onerror=_refuse_unreadable) for name in names
        ):
            name = path.relative_to(self.path).as_posix()
            inside = name.startswith(f"{self.form.checkpoints}/") if self.form.checkpoints else False
            hidden = any(part.startswith(".") for part in name.split("/"))
            if not hidden and not matches(name, self.form.scratch) and not (inside and not step_of(self.form, name)):
                with suppress(FileNotFoundError):  # another thread removes old checkpoints meanwhile
                    facts = path.stat()
                    if stat.S_ISREG(facts.st_mode):
                        stamps[name] = facts.st_size, facts.st_mtime_ns
        whole = {"", *select_sealed(self.form, [*stamps])}
        return {name: stamp for name, stamp in stamps.items() if step_of(self.form, name) in whole}

    def _put(self, name: str) -> bool:
        """Upload a file; return False if it was removed here meanwhile, as an old checkpoint is."""
        try:
            retry(partial(self.files.put_file, str(self.path / name), self._at(name)))
        except FileNotFoundError:
            if (self.path / name).exists():
                raise
            return False
        if name == self.form.marker and not self.marked:
            self.marked = True
            self._uploaded.touch()
        if (step := step_of(self.form, name)) and name == f"{step}/{self.form.seal}":
            self.steps.add(step)
            self.halves.discard(step)
        return True

    def _unseal(self, step: str) -> None:
        """Remove the seal of a checkpoint in the store, before its other files change."""
        self._remove(f"{step}/{self.form.seal}")
        self.steps.discard(step)
        self.halves.add(step)

    def _remove(self, name: str, *, recursive: bool = False) -> None:
        """Remove an object, or all below it, from the store; what is not there was removed by a request before."""
        action = partial(self.files.rm, recursive=True) if recursive else self.files.rm_file
        with suppress(FileNotFoundError):  # the answer to the first request was lost
            retry(partial(action, self._at(name)))

    def _at(self, name: str) -> str:
        return f"{self.address.path}/{name}"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        advice = "Run the same command again; it starts again."
        if self.form.keeps_unfinished:
            advice = f"What is done is kept in {self.path.parent}: give the same command again, and it is uploaded."
        with self.address.explain_errors("written", advice=advice):
            yield


@contextmanager
def write_folder(
    given: Path | str, form: FolderForm, inputs: Sequence[Path | str], warn: Callable[[str], object]
) -> Iterator[OutputFolder]:
    """Yield the local folder of an output folder at an address, uploaded when the block ends; see `output_folder`."""
    address = ObjectAddress.of(given)
    assert address is not None
    with address.growing(inputs) as (files, folder):
        stored = StoredFolder(path=folder / address.name, address=address, form=form, files=files, warn=warn)
        stored.pull()
        ended = False
        try:
            hold(folder, address.url)  # messages name the address of what lies in it
            yield stored
            ended = True
            if stored.begun:
                stored.push()
                stored.leave(whole=True)
        except BaseException as error:
            stored.leave(whole=not ended and bool(form.checkpoints) and stored.begun and stored.push_or_warn())
            if isinstance(error, UserError) and (text := with_addresses(str(error))) != str(error):
                if error.code in OTHERS and stored.path.exists():
                    text += f" Unfinished work for it is in {folder}: remove it to start again."
                raise UserError(text, code=error.code, codes=error.codes) from error
            raise
        finally:
            release(folder)


def _number(step: str) -> int:
    match = STEP.search(step)
    return int(match[1]) if match else -1


def _refuse_unreadable(error: OSError) -> None:
    """Raise the error of a folder that cannot be read, for `os.walk`, which would skip it silently."""
    if not isinstance(error, FileNotFoundError):  # another thread removes old checkpoints meanwhile
        raise error
