"""The commands that write, on small inputs: their command lines, and the files that each must write bit for bit."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import shutil
from pathlib import Path
from typing import Any

from harness import Child, Ended, Site

FILES = {
    "predict": "predict {run} --file {table} --out {out}.jsonl",
    "embed": "embed {run} {table} --text text --out {out}.jsonl",
    "arrays": "embed {run} {table} --text text --out {out}.npy",
    "submit": "submit {rte} --partial --out {out}.zip",
    "plan": "plan {recipe} --corpus {corpus} --minutes 1 --seconds 1 --out {out}",
    "bench": "bench {recipe} --corpus {corpus} --seconds 1 --out {out}",
}
FOLDERS = {
    "pretrain": "pretrain {recipe} --corpus {corpus} --out {out}",
    "finetune": "finetune classify {quick} --data {table} --out {out}",
    "glue": "finetune glue {quick} --data {data} --out {out}",
    "train": "tokenizer train {text} --vocabulary 80 --out {out}",
    "extend": "tokenizer extend {corpus} {text} --pieces 5 --out {out}",
    "build": "corpus build {text} --tokenizer {corpus} --workers 1 --shard-tokens 1000 --out {out}",
    "convert": "convert {run} {out} --to huggingface",
    "export": "export {run} --to onnx --unchecked --out {out}",
    "reproduce": "reproduce table1 --model {encoder} --data {data} --seeds 1 --out {out}",
    "demo": "demo --out {out}",
}
LAB = ("submit", "plan", "bench", "glue", "reproduce", "demo")
"""Verbs that the core has not by itself."""
if importlib.util.find_spec("osbert_lab") is None:
    FILES, FOLDERS = ({verb: table[verb] for verb in table if verb not in LAB} for table in (FILES, FOLDERS))
QUICK = ("predict", "embed", "arrays", "train", "extend", "build")
"""Verbs that take about a second: the short form draws its pairs from these."""
ENDLESS = ("plan", "bench", "reproduce", "demo")
"""Verbs whose results depend on the clock, or that take minutes: the first of a pair is killed and not compared."""
EXACT = ("model.safetensors", "vocab.txt", "*.npy", "*.npz", "*.jsonl", "*.zip", "*.onnx")
"""Names of files that are the same whenever a command is given; metrics.jsonl has times in it."""


def suffixes(verb: str) -> tuple[str, ...]:
    """Return the endings that a verb may give its output; a folder has none."""
    if verb not in FILES:
        return ("",)
    forms = {one: words.rpartition("{out}")[2] for one, words in FILES.items()}
    return (forms[verb],) if forms[verb] else tuple(dict.fromkeys(form for form in forms.values() if form))


class Verbs:
    """Inputs for all verbs, and what each writes when it is alone."""

    def __init__(self, site: Site) -> None:
        """Make the inputs."""
        self.site = site
        self.folder = site.folder / "verbs"
        self.folder.mkdir()
        self.numbers = itertools.count()
        self.paths = {"recipe": site.recipe, "corpus": site.corpus, "encoder": site.undisturbed}
        self.paths |= {"text": self.folder / "text.txt", "table": self.folder / "table.csv"}
        self.paths |= {"data": self.folder / "data"}
        rows = [f"ba{'da' * (n % 3)} ke{n % 7},{'yes' if n % 3 else 'no'}" for n in range(60)]
        self.paths["table"].write_text("\n".join(["text,label", *rows]) + "\n")
        self.paths["text"].write_text("\n\n".join(f"Bada kefe {n % 9} logi. Mida nu." for n in range(300)))
        rte = self.paths["data"] / "RTE"
        rte.mkdir(parents=True)
        for name, labels in (("train", ("entailment", "not_entailment")), ("dev", ("entailment", "not_entailment"))):
            lines = [f"{n}\tbada {n}\tkefe\t{labels[n % 2]}" for n in range(24)]
            (rte / f"{name}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n")
        (rte / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tbada\tkefe\n")

    @functools.cache  # noqa: B019 - lives as long as the tests do
    def tuned(self, name: str) -> Path:
        """Return a model that is fine-tuned when it is first needed: "run", of the table, or "rte"."""
        task, table = {"run": ("classify", ""), "rte": ("rte", "data/RTE")}[name]
        words = self.words("finetune", self.folder / name, table=table)
        self.run([word.replace("classify", task) for word in words])
        return self.folder / name

    def words(self, verb: str, out: Path, suffix: str = "", *, table: str = "") -> list[str]:
        """Return the command line of a verb."""
        form = (FILES | FOLDERS)[verb]
        quick = f"--model {self.paths['encoder']} --epochs 2 --device cpu --precision fp32 --checkpoint-every 2"
        paths = {name: str(path) for name, path in self.paths.items()}
        paths |= {"quick": quick, "out": str(out) + (suffix if "{out}." not in form else "")}
        paths |= {name: str(self.tuned(name)) for name in ("run", "rte") if f"{{{name}}}" in form}
        paths |= {"table": str(self.folder / table)} if table else {}
        return form.format(**paths).split()

    def start(self, words: list[str], **fault: Any) -> Child:
        """Start a command, with a fault."""
        return Child(self.site.zygote, words, output=self.folder / f"{next(self.numbers)}.out", fault=fault)

    def run(self, words: list[str], **fault: Any) -> Ended:
        """Run a command that must succeed, unless it has a fault."""
        ended = self.start(words, **fault).ended()
        assert fault or ended.status == 0, ended
        return ended

    def fresh(self) -> Path:
        """Return a new, empty folder."""
        folder = self.folder / f"place-{next(self.numbers)}"
        folder.mkdir()
        return folder

    @functools.cache  # noqa: B019 - lives as long as the tests do
    def alone(self, verb: str) -> dict[str, bytes]:
        """Return what a verb writes when it is alone."""
        place = self.fresh()
        self.run(self.words(verb, place / "out"))
        return exact(place)


def exact(place: Path) -> dict[str, bytes]:
    """Return the files below a folder that must not differ, by their names, and remove the folder."""
    found = {
        str(path.relative_to(place)): path.read_bytes()
        for pattern in EXACT
        for path in place.rglob(pattern)
        if path.name != "metrics.jsonl"
    }
    shutil.rmtree(place)
    assert found
    return found
