"""Builds a corpus: reads and encodes on all cores, writes shards in order, removes duplicates, reports.

Finished shards are kept: a build that was stopped at any moment continues after the last one. The result has the same
bytes for any number of workers and any number of interruptions.

Its report has counts, rates, duplicates, repairs, and warnings about their consequences.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from osbert.corpus.encode import PORTION, Portion, encode_in_order
from osbert.corpus.integrity import write_array, write_arrays, wrong_content
from osbert.corpus.shards import COUNTS, FORMAT, MANIFEST, Shard, read_manifest
from osbert.corpus.state import STATE, BuildSettings, BuildState, Position, identity, refuse_other
from osbert.corpus.writer import (
    LineRemoval,
    Lines,
    ShardWriter,
    document_hashes,
    first_occurrences,
    lines_folder,
    read_lines,
    shard_name,
)
from osbert.errors import Problems, UserError
from osbert.files import disk_needed, foreign, refuse_foreign, write_json
from osbert.lock import hold_lock
from osbert.reading.documents import probe, read_input
from osbert.reading.inputs import Input, OpenInput, Repairs, find_inputs
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.words import check_words

UNKNOWN_LIMIT = 0.05
"""Fraction of [UNK] among the tokens above which the vocabulary hardly fits the text."""


def make_report(
    shards: Sequence[Mapping[str, Any]], *, unknown: int, repairs: Repairs, rest: dict[str, Any]
) -> dict[str, Any]:
    """Return the report of a corpus as in corpus.json.

    `shards`: the entries of the manifest. `unknown`: the number of unknown pieces. `rest`: facts of the build: inputs,
    text_bytes, lines, duplicate_lines, duplicate_documents, deduplicated, sentence_ends, seconds; with filters also
    left_out, the number of documents that each filter dropped.
    """
    counted = ("documents", "sentences", "tokens", "words")  # words by word starts: segmented ones are longer
    totals = {name: sum(shard[name] for shard in shards) for name in counted}
    words, tokens = totals["words"], totals["tokens"]
    report: dict[str, Any] = {
        **totals,
        "tokens_per_word": round(tokens / words, 4) if words else 0.0,
        "unknown": unknown,
        "unknown_rate": round(unknown / tokens, 6) if tokens else 0.0,
        **rest,
        "bytes_on_disk": sum(file["bytes"] for shard in shards for file in shard["files"].values()),
        "megabytes_per_second": round(rest["text_bytes"] / 1e6 / max(rest["seconds"], 1e-9), 2),
        "repairs": asdict(repairs),
    }
    report["warnings"] = _warnings(report)
    return report


def describe_unknown(report: Mapping[str, Any]) -> str:
    """Return a warning if many pieces of a corpus are unknown, "" otherwise."""
    if report["unknown_rate"] <= UNKNOWN_LIMIT:
        return ""
    return (
        f"{report['unknown_rate']:.1%} of the tokens are [UNK]: text that the vocabulary lacks. Train one on this "
        "text (osbert tokenizer train), and if it is of whole words (--kind words), a larger one: --vocabulary, "
        "--minimum."
    )


def _warnings(report: Mapping[str, Any]) -> list[str]:
    warnings = []
    if report["documents"] == 1:
        warnings.append(
            "There is one document only: next-sentence prediction takes its wrong sentences from other documents, so "
            "it is impossible. Pretrain with mlm alone, or tell documents apart (--documents blank-line or line)."
        )
    if not report["sentence_ends"]:
        warnings.append(
            "No sentence ends (. ! ? 。 ।) were found: each line counts as one sentence, and sentence objectives then "
            "work on lines."
        )
    if unknown := describe_unknown(report):
        warnings.append(unknown)
    repairs = {
        "empty": "file(s) without any text",
        "boms": "byte-order mark(s) removed",
        "replaced": "run(s) of undecodable bytes replaced by U+FFFD",
        "records": "record(s) without a usable text left out",
        "skipped": "file(s) in archives left out, their ending is not known",
    }
    counts = report["repairs"]
    return warnings + [f"{counts[name]:,} {what}." for name, what in repairs.items() if counts[name]]


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """Progress of a build: bytes of input read and in total, and the pieces encoded in this run."""

    phase: Literal["encoding", "duplicates", "rewriting"]
    done: int
    total: int
    text_bytes: int = 0
    tokens: int = 0

    def __str__(self) -> str:
        """Return the phase and the percentage, for `watch=print`."""
        return f"{self.phase}: {self.done / max(1, self.total):.0%}"


BLOCK = 1 << 20
"""Number of pieces counted at a time."""

Watcher = Callable[[BuildProgress], None]


class Build:
    """A corpus being built into a folder. `prepare` checks everything that can be checked before the work begins."""

    def __init__(self, folder: Path, inputs: Sequence[Input], tokenizer: AnyTokenizer, settings: BuildSettings) -> None:
        """Use `prepare` instead."""
        self.folder = folder
        self.building = folder / "building"
        self.inputs = inputs
        self.tokenizer = tokenizer
        self.settings = settings
        self.identity = identity(inputs, settings, tokenizer.fingerprint)
        self.state = BuildState(identity=self.identity)
        self.report: dict[str, Any] | None = None
        """The report, once the corpus is finished."""
        self._repairs = Repairs()
        self._read = 0
        # Shards that will be thinned out are kept apart, so that the corpus folder only ever holds final ones.
        self._shards = self.building if settings.deduplicate else folder

    @classmethod
    def prepare(
        cls, files: Sequence[Path | str], *, tokenizer: AnyTokenizer, folder: Path, settings: BuildSettings
    ) -> Build:
        """Find and probe the inputs, and detect what the folder holds: nothing, a part of this corpus, or all of it.

        Nothing is written, since another build may be running in the folder; only `run` can detect that. Raises
        UserError with all inputs that cannot be used, or if the folder holds something else.
        """
        check_words(settings.words, tokenizer)
        build = cls(Path(folder), find_inputs(files, without=Path(folder)), tokenizer, settings)
        build._look()
        if build.report is None:
            probe(inputs=build.inputs, reading=settings.reading)
        return build

    def run(
        self,
        *,
        workers: int = 1,
        watch: Watcher = lambda progress: None,
        begin: Callable[[], None] = lambda: None,
        encode: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Build what is missing and return the report; `watch` receives the progress.

        `begin` is called before the first text is read, once the folder is locked; it is not called if the corpus is
        finished. `encode` replaces reading and encoding and ends with `take`. Raises UserError for unreadable input, a
        full disk, a killed worker or another build in the folder. Finished shards are kept.
        """
        if self.report is not None:
            return self.report

        def describe_kept() -> str:
            return f"after {len(self.state.shards)} finished shards"

        with hold_lock(self.folder, file=self.building / "lock"), disk_needed(self.folder, goes_on=describe_kept):
            self._look()  # again: another build may have been at work since `prepare`
            if self.report is not None:
                return self.report
            self.state.save(self.folder)
            begin()
            began = time.monotonic() - self.state.seconds
            if not self.state.complete and encode is not None:
                encode()
                began = min(began, time.monotonic() - self.state.seconds)
            elif not self.state.complete:
                self._remove_unfinished()
                self._verify()
                self._encode(workers, watch, began)
            if not self.state.shards:
                raise UserError(self._no_text(), code="no-data")
            self.report = self._finish(watch, began)
            self._remove_temporary()
        return self.report

    def shard_folder(self, number: int) -> Path:
        """Return the folder of a shard before duplicates are removed."""
        return self._shards / shard_name(number)

    def take(
        self, shards: list[dict[str, Any]], position: Position, *, left_out: Mapping[str, int], seconds: float
    ) -> None:
        """Register finished shards as the whole corpus. `position`: the end of the input, with all repairs.

        `left_out`: the number of documents that each filter dropped. `seconds`: the total time of the work, over all
        processes and commands.
        """
        self.state.shards = shards
        self.state.left_out = dict(left_out)
        self.state.seconds = seconds
        self.state.position = position
        self.state.complete = True
        self.state.save(self.folder)
        self._remove_unfinished()

    def _no_text(self) -> str:
        if left_out := self.state.left_out:
            reasons = ", ".join(f"{count:,} by {name.replace('_', ' ')}" for name, count in left_out.items())
            return f"The filters have left out every document with text ({reasons}): nothing to build from."
        return f"There is no text in the input ({len(self.inputs):,} files): nothing to build from."

    def _look(self) -> None:
        """Load the state of the folder. Raises UserError if it holds anything but this corpus or a part of it."""
        if (self.folder / MANIFEST).is_file():
            manifest = read_manifest(self.folder)
            self._remove_temporary()  # nobody's any more, now that the manifest is there
            refuse_other(self.folder, manifest["identity"], self.identity)
            self.report = manifest["report"]
            return
        self.state = BuildState(identity=self.identity)
        state = BuildState.load(self.folder)
        if state is not None and state.shards:
            read = None if state.complete else state.position.input + 1
            # Inputs that were not begun yet may have changed since.
            refuse_other(self.folder, state.identity, self.identity, inputs_read=read)
            self.state = replace(state, identity=self.identity)
        elif state is None:
            # A build that was killed before it saved its state leaves building/ with a lock.
            refuse_foreign(self.folder, "a corpus", () if foreign(self.building, ("lock",)) else (self.building.name,))

    def _encode(self, workers: int, watch: Watcher, began: float) -> None:
        writer = ShardWriter(
            shards=self._shards,
            building=self.building,
            id_type=self.tokenizer.id_type,
            opened=self.state.opened,
        )
        total = sum(source.size for source in self.inputs)
        text_bytes = tokens = 0
        position = self.state.position
        coming = encode_in_order(self._portions(), self.tokenizer, self.settings, workers=workers)
        for parts, after in coming:
            portion_tokens = sum(part.tokens for part in parts)
            # A portion is never split: the shard is written before it if both together would be too long.
            if writer.tokens and writer.tokens + portion_tokens > self.settings.shard_tokens:
                self._write_shard(writer, position, began)
            for part in parts:
                writer.add(part)
            position = after
            text_bytes += sum(part.text_bytes for part in parts)
            tokens += portion_tokens
            watch(BuildProgress(phase="encoding", done=self._read, total=total, text_bytes=text_bytes, tokens=tokens))
        self.state.complete = True
        position = Position(input=len(self.inputs), repairs=asdict(self._repairs))
        if writer.tokens:
            self._write_shard(writer, position, began)
        else:
            self.state.position = position
            self.state.save(self.folder)

    def _portions(self) -> Iterator[tuple[Portion, Position]]:
        """Yield the text after the saved position in portions, each with the position after it."""
        begin = self.state.position
        self._repairs = Repairs(**begin.repairs)
        portion: list[tuple[str, bool]] = []
        size = 0
        position = begin
        # Bytes before each input, for the progress.
        sizes = np.cumsum([0, *(source.size for source in self.inputs)])
        for number in range(begin.input, len(self.inputs)):
            before = asdict(self._repairs)
            source = OpenInput(self.inputs[number], repairs=self._repairs)
            # Chunks of the first input that are in finished shards already: read again, but not encoded.
            skipped = begin.chunks if number == begin.input else 0
            for chunks, chunk in enumerate(read_input(source, self.settings.reading), 1):
                if chunks <= skipped:
                    continue
                portion.append((chunk.text, chunk.opens))
                size += len(chunk.text)
                position = Position(input=number, chunks=chunks, repairs=before)
                if size >= PORTION:
                    self._read = int(sizes[number]) + source.position()
                    yield portion, position
                    portion, size = [], 0
        self._read = int(sizes[-1])
        if portion:
            yield portion, position

    def _write_shard(self, writer: ShardWriter, position: Position, began: float) -> None:
        self.state.shards.append(writer.write(len(self.state.shards)))
        self.state.opened = writer.opened
        self.state.position = position
        self.state.seconds = time.monotonic() - began
        self.state.save(self.folder)

    def _finish(self, watch: Watcher, began: float) -> dict[str, Any]:
        """Find duplicates, drop them if so set, and write the counts and the manifest."""
        self._verify()
        entries = self.state.shards
        watch(BuildProgress(phase="duplicates", done=0, total=2))
        totals = {name: sum(entry[name] for entry in entries) for name in ("lines", "documents", "text_bytes")}
        lines, documents = totals["lines"], totals["documents"]
        settling = self.building / "settling"
        shutil.rmtree(settling, ignore_errors=True)
        keep = first_occurrences((part.hashes for part in self._lines()), lines, settling / "lines")
        watch(BuildProgress(phase="duplicates", done=1, total=2))
        first_documents = first_occurrences(document_hashes(self._lines()), documents, settling / "documents")
        watch(BuildProgress(phase="duplicates", done=2, total=2))
        rest = {
            "inputs": len(self.inputs),
            "text_bytes": totals["text_bytes"],
            "lines": lines,
            "duplicate_lines": lines - int(np.count_nonzero(keep)),
            "duplicate_documents": documents - int(np.count_nonzero(first_documents)),
            "deduplicated": self.settings.deduplicate,
            "sentence_ends": any(entry["sentence_ends"] for entry in entries),
        }
        if self.settings.filters is not None:
            rest["left_out"] = dict(self.state.left_out)
        if self.settings.deduplicate:
            shards, counts = self._without_duplicates(keep, watch)
        else:
            names = ("name", "documents", "sentences", "tokens", "words", "files")
            shards = [{name: entry[name] for name in names} for entry in entries]
            counts = np.zeros(len(self.tokenizer), np.int64)
            for number in range(len(entries)):
                counts += np.load(lines_folder(self.building, number) / "counts.npy")
        rest["seconds"] = round(time.monotonic() - began, 3)
        repairs = Repairs(**self.state.position.repairs)
        report = make_report(shards, unknown=int(counts[self.tokenizer.unknown]), repairs=repairs, rest=rest)
        written = write_array(self.folder / COUNTS, counts)
        manifest = {
            "format": FORMAT,
            "vocabulary": len(self.tokenizer),
            "identity": self.identity,
            "shards": shards,
            "counts": written,
            "report": report,
        }
        write_json(self.folder / MANIFEST, manifest)
        return report

    def _verify(self) -> None:
        """Compare all that was written so far with its hashes; UserError that names each file with another content.

        What comes of the shards has hashes of its own, which a bit that has changed here would not contradict.
        """
        again = f"remove {self.folder} and give the same command again"
        problems = Problems(heading=f"{self.folder}: the unfinished corpus is damaged; {again}")
        for number, entry in enumerate(self.state.shards):
            lines = lines_folder(self.building, number)
            for folder, files in ((self._shards / entry["name"], "files"), (lines, "line_files")):
                for name, written in entry[files].items():
                    if wrong := wrong_content(folder / name, written["sha256"]):
                        problems.add(wrong, code="damaged-file")
        problems.stop_if_any()

    def _without_duplicates(self, keep: np.ndarray, watch: Watcher) -> tuple[list[dict[str, Any]], np.ndarray]:
        """Write the final shards without lines whose `keep` is False; return their entries and counts (V,)."""
        counts = np.zeros(len(self.tokenizer), np.int64)
        shards: list[dict[str, Any]] = []
        thinning = LineRemoval()
        line_start = 0
        for number, lines in enumerate(self._lines()):
            watch(BuildProgress(phase="rewriting", done=number + 1, total=len(self.state.shards)))
            shard = Shard.open(self._shards / shard_name(number))
            arrays = thinning.apply(shard, lines, keep[line_start : line_start + len(lines.hashes)])
            line_start += len(lines.hashes)
            if not len(arrays["ids"]):
                continue
            for start in range(0, len(arrays["ids"]), BLOCK):  # bincount makes 64-bit numbers of all it is given
                counts += np.bincount(arrays["ids"][start : start + BLOCK], minlength=len(counts))
            name = shard_name(len(shards))
            sizes = {
                "documents": len(arrays["documents"]),
                "sentences": len(arrays["sentences"]) - 1,
                "tokens": len(arrays["ids"]),
                "words": int(np.count_nonzero(np.unpackbits(arrays["words"]))),
            }
            shards.append({"name": name, **sizes, "files": write_arrays(self.folder / name, arrays)})
        return shards, counts

    def _lines(self) -> Iterator[Lines]:
        for number in range(len(self.state.shards)):
            shard = Shard.open(self._shards / shard_name(number))
            yield read_lines(self.building, number, shard.documents)

    def _remove_unfinished(self) -> None:
        """Remove shards that are not in the state: the build was stopped while it wrote them."""
        known = {entry["name"] for entry in self.state.shards}
        for path in [*self.folder.glob("shard-*"), *self.folder.glob(".*.part"), *self._shards.glob("shard-*")]:
            if path.name not in known and path.is_dir():
                shutil.rmtree(path)

    def _remove_temporary(self) -> None:
        (self.folder / STATE).unlink(missing_ok=True)
        shutil.rmtree(self.building, ignore_errors=True)
