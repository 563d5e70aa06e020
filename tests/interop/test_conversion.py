"""A model in one form becomes the same in another: round trips to the bit, and every kind of run in transformers."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from osbert.inference.engine import load
from osbert.interop.conversion import ModelParts, differences, model_of, notes, open_any, write_model_as
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import FIELD, MODULES, SentenceModel, read_sentence_model, write_sentence_model
from osbert.interop.task_files import TaskHint, as_recipe
from osbert.interop.tokenizers import write_tokenizer
from osbert.interop.tuned_files import keep_tuned
from osbert.models.adapting.tuning import Factors
from osbert.models.contract import Learner
from osbert.objectives import mlm, nsp, sentence_order
from osbert.objectives.left_to_right import LeftToRight
from osbert.tasks import Task
from osbert.tasks.kinds.classify import Classify
from osbert.tasks.kinds.multilabel import Multilabel
from osbert.tasks.kinds.regress import Regress
from osbert.tasks.kinds.rerank import Rerank
from osbert.tasks.kinds.span import Span
from osbert.tasks.kinds.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

GOOGLE = pytest.param("google", marks=pytest.mark.lab)
TOLERANCE = 2e-5
TEXT, OTHER = "the film was very good , not bad .", "ann lives in new york !"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
TASKS: dict[str, Task] = {
    "classify": Classify(labels=("bad", "fair", "good"), temperature=1.7, text="text"),
    "multilabel": Multilabel(labels=("art", "long", "war"), thresholds=(0.4, 0.5, 0.6), text="text"),
    "regress": Regress(center=3.0, scale=2.0),
    "tag": Tag(types=("LOC", "PER")),
    "crf": Tag(types=("LOC", "PER"), decoder="crf"),
    "span": Span(unanswerable="yes", threshold=0.3),
    "answering": Span(),
    "rerank": Rerank(loss="bce", highest=3.0),
}

if importlib.util.find_spec("osbert_lab"):
    from osbert_lab.multiple_choice.choose import Choose

    TASKS["choose"] = Choose(counting="1", temperature=1.7)


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, make_learner: Callable[..., Learner], tokenizer: Tokenizer
) -> Callable[[str], Path]:
    """Return a maker of run folders: of a kind of task, or of a pretraining."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            backbone = make_learner([], vocabulary=len(tokenizer)).backbone
            torch.manual_seed(3)
            if task := TASKS.get(kind):
                heads = {task.name: task.head(backbone)}
                (folder / "recipe.toml").write_text(as_recipe(task))
            else:
                objectives = (mlm.MaskedLanguage(), nsp.NextSentence(), sentence_order.SentenceOrder())
                heads = {one.name: one.head(backbone) for one in objectives}
            for head in heads.values():
                for parameter in head.parameters():
                    torch.nn.init.normal_(parameter, std=0.3)
            write_model(Learner(backbone, heads).eval(), folder, **(task.export_metadata() if task else {}))
            write_tokenizer(tokenizer, folder, length=24)
            made[kind] = folder
        return made[kind]

    return make


def equal(first: ModelParts, second: ModelParts) -> bool:
    """Whether weights and pieces are the same to the bit, and the task the same but for its data."""
    states = [model.learner.state_dict() for model in (first, second)]
    assert states[0].keys() == states[1].keys()
    assert first.source.tokenizer == second.source.tokenizer
    assert first.task == second.task
    return all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


@pytest.mark.parametrize("form", ["huggingface", GOOGLE])
@pytest.mark.parametrize("kind", [*TASKS, "pretraining"])
def test_round_trips_lose_nothing(runs: Callable[[str], Path], tmp_path: Path, kind: str, form: Any) -> None:
    source = model_of(open_any(runs(kind)))
    assert source.report.problems == ()
    write_model_as(source, tmp_path / "there", form)
    there = model_of(open_any(tmp_path / "there"))
    assert there.source.form == form and there.report.problems == ()
    assert equal(source, there)
    write_model_as(there, tmp_path / "back", "osbert")
    back = model_of(open_any(tmp_path / "back"))
    assert back.source.form == "osbert" and back.report.problems == ()
    assert equal(source, back)
    for name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "back" / name).read_bytes() == (runs(kind) / name).read_bytes(), name
    weights = [(folder / "model.safetensors").read_bytes() for folder in (runs(kind), tmp_path / "back")]
    assert weights[0] == weights[1]
    compared = differences(source, back)
    assert [one.largest for one in compared if "others" not in one.what] == [0.0] * (2 + len(source.learner.heads))
    assert all(one.small for one in compared) and any("others" in one.what for one in compared) == bool(source.units)


def test_every_kind_of_run_opens_in_transformers(
    runs: Callable[[str], Path], tmp_path: Path, theirs_say: Callable[..., Any], ours_say: Callable[..., Any]
) -> None:
    """From the text to what is said of it: their tokenizer and model against osbert's prediction."""
    for kind in (*TASKS, "pretraining"):
        write_model_as(model_of(open_any(runs(kind))), tmp_path / kind, "huggingface")
        names = {path.name for path in (tmp_path / kind).iterdir()}
        assert names == {"config.json", "model.safetensors", "vocab.txt", *TOKENIZER_FILES}

    said = theirs_say(tmp_path / "classify", "AutoModelForSequenceClassification", TEXT).logits.softmax(-1)[0]
    ours = load(runs("classify")).predict([TEXT])[0].probabilities
    assert list(ours.values()) == pytest.approx(said.tolist(), abs=TOLERANCE)
    theirs = transformers.pipeline("text-classification", str(tmp_path / "multilabel"), top_k=None)
    assert theirs.model.config.problem_type == "multi_label_classification"
    ours = load(runs("multilabel")).predict([TEXT])[0].probabilities
    assert {one["label"]: one["score"] for one in theirs([TEXT])[0]} == pytest.approx(dict(ours), abs=TOLERANCE)
    said = theirs_say(tmp_path / "regress", "AutoModelForSequenceClassification", TEXT, OTHER).logits
    assert load(runs("regress")).predict([(TEXT, OTHER)])[0].value == pytest.approx(said.item(), abs=TOLERANCE)
    said = theirs_say(tmp_path / "rerank", "AutoModelForSequenceClassification", TEXT, OTHER).logits
    assert load(runs("rerank")).predict([(TEXT, OTHER)])[0].value == pytest.approx((said.item(),), abs=TOLERANCE)
    for kind, opener in (("tag", "AutoModelForTokenClassification"), ("crf", "AutoModelForTokenClassification")):
        said = theirs_say(tmp_path / kind, opener, TEXT).logits[0]
        close(ours_say(runs(kind), TEXT)["tag"], said)
    for kind in ("span", "answering"):
        said = theirs_say(tmp_path / kind, "AutoModelForQuestionAnswering", TEXT, OTHER)
        close(ours_say(runs(kind), TEXT, OTHER)["span"], torch.stack([said.start_logits[0], said.end_logits[0]], dim=1))
    said = theirs_say(tmp_path / "pretraining", "AutoModelForPreTraining", TEXT, OTHER)
    close(ours_say(runs("pretraining"), TEXT, OTHER)["mlm"], said.prediction_logits[0])
    close(ours_say(runs("pretraining"), TEXT, OTHER)["nsp"], said.seq_relationship_logits)


@pytest.mark.lab
def test_a_run_that_chooses_opens_in_transformers(runs: Callable[[str], Path], tmp_path: Path) -> None:
    write_model_as(model_of(open_any(runs("choose"))), tmp_path / "choose", "huggingface")
    model = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "choose").eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "choose")(
        [TEXT] * 2, [OTHER, "bad play"], return_tensors="pt", padding=True
    )
    with torch.no_grad():
        said = model(**{name: column[None] for name, column in inputs.items()}).logits.softmax(-1)[0]
    ours = load(runs("choose")).predict([(TEXT, OTHER, "bad play")])[0].probabilities
    assert list(ours.values()) == pytest.approx(said.tolist(), abs=TOLERANCE)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


def test_a_folder_that_holds_only_what_was_tuned_becomes_a_whole_model(
    runs: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(runs("classify"), tmp_path / "tuned")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        width = 16
        factors = Factors(up=torch.randn(width, 2), down=torch.randn(2, width))
    changed = "encoder.layer.0.attention.self.query.weight"
    keep_tuned(tmp_path / "tuned", runs("pretraining"), {changed: factors})
    model = model_of(open_any(tmp_path / "tuned"))
    write_model_as(model, tmp_path / "whole", "osbert")
    assert not (tmp_path / "whole" / "tuned.safetensors").exists()
    whole = model_of(open_any(tmp_path / "whole"))
    assert equal(model, whole)
    before, after = (
        each.learner.backbone.blocks[0].attention for each in (model_of(open_any(runs("pretraining"))), whole)
    )
    moved = after.inward.weight[:width] - before.inward.weight[:width]  # type: ignore[union-attr, index]
    assert moved.abs().max() > 1e-3


def test_what_others_do_not_see_is_told(runs: Callable[[str], Path], make_learner: Callable[..., Learner]) -> None:
    assert list(notes(model_of(open_any(runs("classify"))), "huggingface")) == []
    (told,) = notes(model_of(open_any(runs("crf"))), "huggingface")
    assert told.startswith("Only osbert reads the head 'tag' (crf.")
    (told,) = notes(model_of(open_any(runs("pretraining"))), "huggingface")
    assert told == (
        "Only osbert reads the head 'sentence_order': one that others make in its place has random weights."
    )
    assert list(notes(model_of(open_any(runs("pretraining"))), "osbert")) == []
    (told,) = notes(model_of(open_any(runs("pretraining"))), "onnx")
    assert told == "Not in the ONNX file: mlm, nsp, sentence_order (pretraining's heads)."


def test_a_left_to_right_pretraining_comes_back(
    tmp_path: Path, make_learner: Callable[..., Learner], tokenizer: Tokenizer
) -> None:
    learner = make_learner([], vocabulary=len(tokenizer), direction="left_to_right")
    write_model(Learner(learner.backbone, {"left_to_right": LeftToRight().head(learner.backbone)}), tmp_path / "run")
    write_tokenizer(tokenizer, tmp_path / "run", length=24)
    source = model_of(open_any(tmp_path / "run"))
    write_model_as(source, tmp_path / "there", "huggingface")
    assert type(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "there")).__name__ == "BertLMHeadModel"
    assert equal(source, model_of(open_any(tmp_path / "there")))


def test_a_folder_without_a_model_is_refused_as_on_opening(tmp_path: Path) -> None:
    with refusal("not-a-model", "config.json"):
        open_any(tmp_path)
    (tmp_path / "run.json").write_text('{"settings": {}}')
    with refusal("unfinished-run"):
        open_any(tmp_path)


def test_a_task_of_a_file_from_elsewhere_imports_nothing(runs: Callable[[str], Path], tmp_path: Path) -> None:
    write_model_as(model_of(open_any(runs("classify"))), tmp_path / "there", "huggingface")
    path = tmp_path / "there" / "config.json"
    config = json.loads(path.read_text())
    for name, refused in (
        ("os.path", ("untrusted-code", "os.path")),
        ("clasify", ("unknown-component", "clasify", "classify")),
    ):
        path.write_text(json.dumps({**config, "osbert_task": {"name": name, "settings": {}}}))
        with refusal(*refused):
            model_of(open_any(tmp_path / "there"))
    path.write_text(json.dumps(config))
    for folder, told in (("there", "already has the task classify"), ("run", "is a run of the task classify")):
        with refusal("options-exclude-each-other", told, "--task", "--labels"):
            model_of(
                open_any(tmp_path / "there" if folder == "there" else runs("classify")),
                TaskHint(labels=("a", "b", "c")),
            )


def test_what_they_have_no_model_for_is_refused(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    write_model(make_learner([], normalization="pre"), tmp_path)
    write_tokenizer(Tokenizer([*SPECIALS, *(f"w{n}" for n in range(55))]), tmp_path)
    model = model_of(open_any(tmp_path))
    with refusal("not-convertible"):
        write_model_as(model, tmp_path / "there", "huggingface")
    assert not (tmp_path / "there").exists()


def test_other_heads_or_pieces_are_no_small_difference(runs: Callable[[str], Path]) -> None:
    tag, rerank, other = (model_of(open_any(runs(kind))) for kind in ("tag", "rerank", "tag"))
    torch.nn.init.zeros_(other.learner.heads["tag"].linear.bias)
    assert [one.what for one in differences(tag, other) if not one.small] == ["scores of tag"]
    regress = model_of(open_any(runs("regress")))
    assert [one.what for one in differences(regress, regress)][-1] == "scores of regress as others read them"
    regress.units["bias"].add_(0.01)
    assert [one.small for one in differences(regress, regress)] == [True, True, True, False]
    with pytest.raises(ValueError, match="the heads are tag and rerank"):
        differences(tag, rerank)
    other.source.tokenizer = Tokenizer(SPECIALS)
    with pytest.raises(ValueError, match="cut texts differently"):
        differences(tag, other)


@pytest.mark.parametrize("form", ["osbert", "huggingface", GOOGLE])
def test_how_a_text_gets_its_vector_goes_along(runs: Callable[[str], Path], tmp_path: Path, form: Any) -> None:
    folder = shutil.copytree(runs("pretraining"), tmp_path / "run")
    kept = SentenceModel(pooling="weighted", normalize=True, length=12)
    write_sentence_model(folder, kept, width=16)
    source = model_of(open_any(folder))
    write_model_as(source, tmp_path / "there", form)
    there = model_of(open_any(tmp_path / "there"))
    assert there.sentences == kept and all(one.small for one in differences(source, there))
    write_model_as(there, tmp_path / "back", "osbert")
    assert read_sentence_model(tmp_path / "back") == kept
    (folder / MODULES).unlink()
    with pytest.raises(
        ValueError, match=r"the vectors of texts are computed differently: SentenceModel.*weighted.* and None"
    ):
        differences(there, model_of(open_any(folder)))


@pytest.mark.lab
def test_a_damaged_word_on_vectors_is_told(runs: Callable[[str], Path], tmp_path: Path) -> None:
    write_model_as(model_of(open_any(runs("pretraining"))), tmp_path, "google")
    config = json.loads((tmp_path / "bert_config.json").read_text())
    for damaged in ([], {"pooling": "sum", "normalize": True, "length": 0}, {"pooling": "cls"}):
        (tmp_path / "bert_config.json").write_text(json.dumps({**config, FIELD: damaged}))
        with refusal("damaged-file", "osbert_sentences"):
            model_of(open_any(tmp_path))
