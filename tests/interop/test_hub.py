"""Models by name: from a hub on localhost, its cache, an installed package or a folder; what fails says what to do."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import huggingface_hub.file_download
import pytest
import torch
from safetensors.torch import load_file, save_file

import osbert
from hub_server import Hub, commit_of, contents, hub_on_localhost
from osbert.interop.hub import DownloadProgress, locate, origin
from osbert.sklearn import TextClassifier, TextEmbedder
from refusals import refusal
from tiny_runs import TASKS, write_run, write_sentences

NAME = "someone/tiny"
COMMIT = commit_of(NAME)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_on_localhost(tmp_path, monkeypatch) as running:
        running.repositories[NAME] = contents(write_run(tmp_path / "made", None))
        yield running


def test_a_model_is_fetched_without_code_and_without_other_formats(hub: Hub) -> None:
    pickled = io.BytesIO()
    torch.save({}, pickled)
    hub.repositories[NAME] = {**hub.repositories[NAME], "pytorch_model.bin": pickled.getvalue()}
    events: list[DownloadProgress] = []
    found = locate(NAME, watch=events.append)
    assert (found.name, found.commit, found.remarks) == (NAME, COMMIT, ())
    assert origin(found.path) == {"name": NAME, "commit": COMMIT}
    fetched = {"config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert {*hub.fetched()} == fetched | {"model.safetensors"}
    assert hub.fetched()[-1] == "model.safetensors"
    size = len(hub.repositories[NAME]["model.safetensors"])
    assert events[-1] == DownloadProgress(NAME, "model.safetensors", size, size)
    assert osbert.load(NAME).embed(["a good film"]).shape == (1, 16)


def open_from_python(watch: Callable[[Any], None]) -> None:
    osbert.load(NAME, watch=watch)


def fit_from_python(watch: Callable[[Any], None]) -> None:
    TextEmbedder(NAME).fit(watch=watch)


@pytest.mark.parametrize("use", [open_from_python, fit_from_python])
def test_python_reports_downloads_and_prints_nothing(
    use: Callable[[Callable[[Any], None]], None], hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    events: list[DownloadProgress] = []
    use(events.append)
    assert {event.file for event in events} >= {"config.json", "model.safetensors"}
    assert events[-1].done == events[-1].total == len(hub.repositories[NAME]["model.safetensors"])
    assert {event.model for event in events} == {NAME}
    assert capfd.readouterr() == ("", "")


def test_a_classifier_reports_the_download_and_the_training(hub: Hub) -> None:
    events: list[Any] = []
    texts, labels = ["a good film", "a bad film"] * 10, ["pos", "neg"] * 10
    TextClassifier(NAME, epochs=1).fit(texts, labels, watch=events.append)
    kinds = {type(event).__name__ for event in events}
    assert kinds >= {"DownloadProgress", "Progress", "Epoch"}


def test_a_sentence_model_comes_with_what_makes_its_vectors(hub: Hub, tmp_path: Path) -> None:
    write_sentences(tmp_path / "sentences")
    hub.repositories["someone/sentences"] = contents(tmp_path / "sentences")
    texts = ["a good film", "the bad actor plays"]
    there, here = osbert.load("someone/sentences").embed(texts), osbert.load(tmp_path / "sentences").embed(texts)
    assert (there == here).all()
    assert "1_Pooling/config.json" in hub.fetched()


def test_a_fine_tuned_run_predicts_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", TASKS["classifier"])
    hub.repositories["someone/run"] = contents(run)
    assert osbert.load("someone/run").predict(["good"]) == osbert.load(run).predict(["good"])


def test_pytorch_files_are_fetched_where_there_is_nothing_better_and_run_no_code(hub: Hub, tmp_path: Path) -> None:
    files = dict(hub.repositories[NAME])
    (tmp_path / "model.safetensors").write_bytes(files.pop("model.safetensors"))
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    hub.repositories["someone/old"] = files | {"pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes()}
    hub.repositories["someone/evil"] = files | {"pytorch_model.bin": b"cos\nsystem\n(S'touch ran'\ntR."}
    text = ["a good film"]
    assert (osbert.load("someone/old").embed(text) == osbert.load(NAME).embed(text)).all()
    with refusal("damaged-file", "pytorch_model.bin"):
        osbert.load("someone/evil")
    assert not Path("ran").exists()


def test_shards_are_fetched_with_their_index(hub: Hub, tmp_path: Path) -> None:
    files = dict(hub.repositories[NAME])
    (tmp_path / "model.safetensors").write_bytes(files.pop("model.safetensors"))
    tensors = load_file(tmp_path / "model.safetensors")
    index = {}
    for number, keys in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), start=1):
        shard = f"model-{number:05}-of-00002.safetensors"
        save_file({key: tensors[key] for key in keys}, tmp_path / shard)
        files[shard] = (tmp_path / shard).read_bytes()
        index |= dict.fromkeys(keys, shard)
    files["model.safetensors.index.json"] = str({"weight_map": index}).replace("'", '"').encode()
    hub.repositories["someone/shards"] = files | {"model.fp16.safetensors": b"never wanted"}
    text = ["a good film"]
    assert (osbert.load("someone/shards").embed(text) == osbert.load(NAME).embed(text)).all()
    assert "model.fp16.safetensors" not in hub.fetched()


def test_a_complete_snapshot_of_a_commit_needs_no_request(hub: Hub) -> None:
    first = locate(f"{NAME}@{COMMIT}")
    hub.requests.clear()
    assert locate(f"{NAME}@{COMMIT}") == first
    assert not hub.asked()
    (first.path / "vocab.txt").unlink()
    (first.path / "tokenizer.json").unlink()
    assert locate(f"{NAME}@{COMMIT}") == first
    assert not hub.fetched()  # the contents are in the cache; only their names are asked for again
    assert (first.path / "vocab.txt").is_file()


def test_a_branch_is_looked_up_and_only_new_files_are_fetched(hub: Hub) -> None:
    locate(NAME)
    hub.requests.clear()
    assert locate(NAME).commit == COMMIT
    assert [method for method, *_ in hub.asked()] == ["GET"]
    hub.branches[NAME] = {"next": commit_of("next")}
    there = locate(f"{NAME}@next")
    assert there.commit == commit_of("next")
    assert not hub.fetched()
    assert osbert.load(f"{NAME}@next").folder == there.path


def test_offline_the_cache_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    online = locate(NAME)
    hub.requests.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert locate(NAME) == online
    assert locate(f"{NAME}@{COMMIT}") == online
    with refusal("not-downloaded", "HF_HUB_OFFLINE"):
        locate("someone/other")
    with refusal("not-downloaded"):
        locate(f"{NAME}@v2")
    assert not hub.asked()


def test_what_another_program_has_cached_is_completed_and_offline_used_with_a_remark(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("config.json", "vocab.txt", "model.safetensors"):
        huggingface_hub.hf_hub_download(NAME, file)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (remark,) = locate(NAME).remarks
    assert "was not made by osbert, and may lack files" in remark
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    assert not locate(f"{NAME}@{COMMIT}").remarks
    assert "tokenizer_config.json" in hub.fetched()


@pytest.mark.parametrize("fault", ["down", "gone", "nonsense"])
def test_without_a_hub_the_cache_answers_with_a_remark(hub: Hub, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    online = locate(NAME)
    told = fail(hub, fault, monkeypatch)
    found = locate(NAME)
    assert (found.path, found.commit) == (online.path, COMMIT)
    assert told in found.remarks[0]
    assert f"The copy in the cache is used, commit {COMMIT}" in found.remarks[0]
    with refusal("not-downloaded", told):
        locate("someone/other")


def fail(hub: Hub, fault: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the hub fail; return a part of what is then said."""
    if fault == "down":
        hub.status = 500
        return "answers with status 500"
    if fault == "nonsense":
        hub.nonsense = b"<html>Please log in to the network</html>"
        return "does not answer as a Hugging Face hub does"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    return "cannot be reached"


@pytest.mark.parametrize("fault", ["down", "unknown", "offline"])
def test_a_mistyped_folder_is_named_before_the_hub(hub: Hub, tmp_path: Path, monkeypatch, fault: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews").mkdir()
    if fault == "down":
        fail(hub, "unreachable", monkeypatch)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", fault == "offline")
    with refusal("unknown-model" if fault == "unknown" else "not-downloaded") as caught:
        locate("reviws")
    message = str(caught.value)
    assert message.startswith("There is no folder reviws here. Did you mean 'reviews'?"), message
    assert "hub" in message


@pytest.mark.parametrize(
    "answer", [b"[]", b"7", b'{"sha": null}', b'{"id": "x", "sha": "../../x", "siblings": []}', b"\xff\x00", b"{}"]
)
def test_a_listing_that_is_none_is_an_error(hub: Hub, answer: bytes) -> None:
    hub.nonsense = answer
    with refusal("not-downloaded"):
        locate(NAME)


def test_a_file_without_its_commit_is_an_error(hub: Hub) -> None:
    hub.without_commit = True
    with refusal("not-downloaded", "config.json"):
        locate(NAME)


def written(folder: Path) -> set[Path]:
    """Return what lies below a folder, but locks and the tag of the cache."""
    return {path for path in folder.rglob("*") if path.is_file() and path.name not in ("CACHEDIR.TAG", ".gitignore")}


@pytest.mark.parametrize(
    "etag", ['"{0}/PWN"', '"../../PWN"', 'W/"{0}/PWN"', '"a/b"', '".."', '"a\\\\b"', '"C:x"', '"a b"', f'"{"a" * 300}"']
)
def test_an_etag_that_is_a_path_writes_nothing(hub: Hub, etag: str, tmp_path: Path) -> None:
    hub.etag = etag.format(tmp_path / "elsewhere")
    before = written(tmp_path)
    with refusal("not-downloaded", "config.json"):
        locate(NAME)
    assert written(tmp_path) == before


@pytest.mark.parametrize("commit", ["../../PWN", "/PWN", "0" * 40])
@pytest.mark.parametrize("missing", [False, True])
def test_a_commit_of_an_answer_that_is_another_writes_nothing(
    hub: Hub, commit: str, missing: bool, tmp_path: Path
) -> None:
    hub.commit = str(tmp_path / "elsewhere/PWN") if commit == "/PWN" else commit
    if missing:
        files = hub.repositories[NAME]

        class Listed(dict[str, bytes]):
            def get(self, *_: object) -> None:  # type: ignore[override]
                return None

        hub.repositories[NAME] = Listed(files)
    before = written(tmp_path)
    with refusal("not-downloaded", "config.json"):
        locate(NAME)
    assert written(tmp_path) == before


def test_a_cache_that_leads_elsewhere_is_an_error(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    repository = tmp_path / "cache/models--someone--tiny"
    repository.mkdir(parents=True)
    (repository / "blobs").symlink_to(tmp_path / "elsewhere")
    with refusal("not-downloaded", "config.json"):
        locate(NAME)


def test_the_cache_stays_the_same_where_the_current_folder_changes(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "cache")
    found = locate(NAME, watch=lambda event: monkeypatch.chdir(tmp_path))
    assert found.path.is_relative_to(tmp_path / "here/cache") and osbert.load(found.path)


@pytest.mark.parametrize("code", ["RepoNotFound", ""])
def test_unknown_names_and_revisions_say_what_to_check(hub: Hub, code: str) -> None:
    hub.unknown = code
    with refusal("unknown-model"):
        locate("someone/tinny")
    with refusal("unknown-model", "v2"):
        locate(f"{NAME}@v2")


def test_a_gated_model_needs_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.gated.add(NAME)
    hub.tokens.add("let-me-in")
    for token in ("", "wrong"):
        monkeypatch.setenv("HF_TOKEN", token)
        with refusal("not-permitted", "HF_TOKEN"):
            locate(NAME)
    monkeypatch.setenv("HF_TOKEN", "expired")
    with refusal("not-permitted", "401"):
        locate(NAME)
    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    assert locate(NAME).commit == COMMIT


@pytest.mark.parametrize(
    "name", ["./missing", "/missing/model", "a/b/c", "a b", "~/x", "-x", "x..y", "a\\b", "x@", "n" * 300]
)
def test_what_cannot_be_a_name_is_not_looked_up(hub: Hub, name: str) -> None:
    with refusal("invalid-value" if name.endswith("@") else "missing-file", name[:80]):
        locate(name)
    assert not hub.asked()


def test_a_path_in_a_folder_that_is_there_is_not_looked_up(hub: Hub) -> None:
    Path("someone").mkdir()
    with refusal("missing-file"):
        locate(NAME)
    assert not hub.asked()
    assert locate(f"{NAME}@main").commit == COMMIT


def test_local_things_come_first(hub: Hub) -> None:
    Path(NAME).mkdir(parents=True)
    Path("ckpt.index").touch()
    assert locate(NAME).path == Path(NAME)
    assert locate("ckpt").path == Path("ckpt")
    assert locate(Path("someone/other")).path == Path("someone/other")  # a Path is no name
    assert not hub.asked()


@pytest.mark.parametrize(
    ("lost", "code"),
    [("config.json", "not-a-model"), ("model.safetensors", "not-a-model"), ("vocab.txt", "unusable-tokenizer")],
)
def test_a_repository_that_is_no_model_is_an_error(hub: Hub, lost: str, code: str) -> None:
    files = dict(hub.repositories[NAME])
    hub.repositories[NAME] = {name: text for name, text in files.items() if name not in (lost, "tokenizer.json")}
    with refusal(code, NAME, lost, *["tf_model.h5"] * (lost == "model.safetensors")):
        locate(NAME)
    assert not hub.fetched()


def test_a_download_that_breaks_off_goes_on_where_it_was(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 100)
    hub.cut["model.safetensors"] = [1000, 500]
    events: list[Any] = []
    found = locate(NAME, watch=events.append)
    assert (found.path / "model.safetensors").read_bytes() == hub.repositories[NAME]["model.safetensors"]
    ranges = [wanted for _, path, wanted in hub.asked("model.safetensors", "GET")]
    assert ranges == ["", "bytes=1000-", "bytes=1500-"]


def test_a_download_that_fails_goes_on_with_the_next_call(hub: Hub) -> None:
    def interrupt(event: DownloadProgress) -> None:
        if event.file == "model.safetensors" and event.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locate(NAME, watch=interrupt)
    hub.requests.clear()
    assert locate(NAME).commit == COMMIT
    assert hub.fetched() == ["model.safetensors"]


def test_a_disk_without_room_is_an_error_before_the_download(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with refusal("not-written", "0", "HF_HOME"):
        locate(NAME)
    assert not hub.fetched()


def test_a_disk_that_fills_up_is_an_error(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(huggingface_hub.file_download, "http_get", full)
    with refusal("not-written", "config.json", "HF_HOME"):
        locate(NAME)


def test_the_environment_is_obeyed_and_nothing_is_printed(hub: Hub, tmp_path: Path) -> None:
    """huggingface_hub reads it when it is imported: a process of its own."""
    hub.gated.add(NAME)
    hub.tokens.add("let-me-in")
    environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "let-me-in"}
    environment = {key: value for key, value in environment.items() if key not in ("HF_HUB_OFFLINE", "HF_HUB_CACHE")}
    code = f"from osbert.interop.hub import locate; locate({NAME!r})"
    fetch = [sys.executable, "-c", code]
    done = subprocess.run(fetch, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "home/hub/models--someone--tiny/snapshots" / COMMIT / "model.safetensors").is_file()
    hub.requests.clear()
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    assert subprocess.run(fetch, env=offline, check=False).returncode == 0
    assert not hub.requests


@pytest.mark.parametrize(
    ("name", "value"),
    [("HF_HUB_ETAG_TIMEOUT", "abc"), ("HF_HUB_DOWNLOAD_TIMEOUT", "x"), ("HF_ENDPOINT", "http://[bad")],
)
def test_a_variable_that_the_hub_s_library_cannot_read_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with refusal("invalid-value", name, value):
        locate(NAME)
    assert locate("/").path == Path("/")  # a folder needs no hub
