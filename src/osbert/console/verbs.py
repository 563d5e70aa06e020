"""The verbs of the command line: their help, their order and the packages that their modules are in.

Another package adds verbs by an entry point in the group `osbert.verbs`, which leads to a VerbPackage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from osbert.extensions import extensions

ENTRY_POINTS = "osbert.verbs"


@dataclass(frozen=True, kw_only=True)
class VerbPackage:
    """The verbs of one package; the module of each is named for it, and so is the function in it."""

    package: str
    """Full name of the package with the modules, such as "osbert.commands"."""
    verbs: Mapping[str, str]
    """The help of each verb."""
    groups: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    """Groups of verbs, each a folder: their help, and the help of the verbs in them."""
    subverbs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Verbs below a verb that also works by itself; each is a file in the verb's folder."""
    purposes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Purposes in the help, with the verbs listed under each; all other verbs are listed under "Other"."""

    def names(self) -> Iterator[tuple[str, ...]]:
        """Yield the words of each command: ("pretrain",), ("corpus", "build"), ("analyse", "compare")."""
        yield from ((verb,) for verb in self.verbs)
        yield from ((group, verb) for group, (_, verbs) in self.groups.items() for verb in verbs)
        yield from ((verb, name) for verb, subverbs in self.subverbs.items() for name in subverbs)

    def about(self, name: tuple[str, ...]) -> str:
        """Return the help of a command.

        >>> CORE.about(("corpus", "mix"))
        'Mix corpora by weights.'
        """
        *above, verb = name
        if not above:
            return self.verbs[verb]
        return self.subverbs[above[0]][verb] if above[0] in self.subverbs else self.groups[above[0]][1][verb]

    def module(self, name: tuple[str, ...]) -> str:
        """Return the module of a command.

        >>> CORE.module(("corpus", "build"))
        'osbert.commands.corpus.build'
        """
        return ".".join((self.package, *name))


CORE = VerbPackage(
    package="osbert.commands",
    verbs={
        "pretrain": "Pretrain an encoder on a corpus, by a recipe.",
        "finetune": "Fine-tune an encoder on a task of your own, or a published one.",
        "evaluate": "Score a fine-tuned run on a file with labels.",
        "compare": "Compare fine-tuned runs on the same rows: scores, paired tests, and the rows they differ on.",
        "predict": "Predict with a fine-tuned run: one text, or a file.",
        "explain": "Show which words a prediction rests on: of a text, or of every row of a file.",
        "score": "Score texts by a pretrained model: how likely it finds each.",
        "serve": "Answer over HTTP with fine-tuned runs and encoders.",
        "export": "Write a run as others run it: ONNX, in float32 or int8.",
        "embed": "Write the vectors that an encoder gives your texts.",
        "convert": "Convert a model from and to Hugging Face's and TensorFlow's files.",
        "search": "Show which texts of a file of vectors are nearest to your queries.",
    },
    groups={
        "tokenizer": (
            "Train a vocabulary, or look at how a text is cut into pieces.",
            {
                "train": "Train a WordPiece vocabulary on text files.",
                "extend": "Add words of another domain to a vocabulary.",
                "encode": "Show a text's pieces with their offsets.",
            },
        ),
        "corpus": (
            "Turn text files into a corpus that pretraining reads.",
            {
                "build": "Build a corpus from text files.",
                "mix": "Mix corpora by weights.",
                "show": "Show a corpus: its report and a sample.",
            },
        ),
    },
    subverbs={
        "evaluate": {"retrieval": "Measure a search by judged documents, beside BM25."},
        "compare": {"retrieval": "Compare the rankings of search systems, query by query."},
    },
    purposes={
        "Start": (),
        "Get text in": ("tokenizer", "corpus"),
        "Pretrain": ("pretrain",),
        "Fine-tune": ("finetune", "evaluate", "compare"),
        "Use a model": ("predict", "embed", "search", "score", "serve"),
        "Look into a model": ("explain",),
        "Share a model": ("convert", "export"),
    },
)
"""The verbs of osbert itself."""

OLDER = {"neighbours": "search"}
"""Names of verbs in earlier versions, and their new names."""


@cache
def verb_packages() -> tuple[VerbPackage, ...]:
    """Return all packages with verbs, osbert's own first; the others are read from the entry points."""
    return (CORE, *(extension.load() for _, extension in sorted(extensions(ENTRY_POINTS).items())))


def group_by_purpose(packages: Sequence[VerbPackage]) -> dict[str, list[str]]:
    """Return the verbs of packages under each purpose, in the order of the help."""
    purposes: dict[str, list[str]] = {purpose: [] for purpose in CORE.purposes}
    for package in packages:
        for purpose, verbs in package.purposes.items():
            purposes.setdefault(purpose, []).extend(verbs)
    return {purpose: verbs for purpose, verbs in purposes.items() if verbs}
