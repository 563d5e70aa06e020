"""A model in one form becomes the same in another: round trips to the bit, and every kind of run in transformers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

from osbert.errors import UserError
from osbert.interop.conversion import Model, notes, open_model, write_model_as
from osbert.interop.conversion_check import differences, sequences
from osbert.interop.huggingface import write_model
from osbert.interop.task_files import Asked, as_recipe
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.interop.tuned_files import keep_tuned
from osbert.models.heads import Learner
from osbert.models.lora import Factors
from osbert.objectives import mlm, nsp, sentence_order
from osbert.serving.engine import load
from osbert.tasks import Task
from osbert.tasks.choose import Choose
from osbert.tasks.classify import Classify
from osbert.tasks.regress import Regress
from osbert.tasks.span import Span
from osbert.tasks.squad import Squad
from osbert.tasks.tag import Tag
from osbert.text.tokenizer import SPECIALS, Tokenizer

TOLERANCE = 2e-5
SENTENCE = "the a film is was good bad very not it play and long short actor ann lives in new york . , ! ?"
TOKENIZER = Tokenizer(
    [*SPECIALS, *SENTENCE.split(), *(f"##{sign}" for sign in "abcdefghijklmnopqrstuvwxyz"), "b", "w", "s"]
)
TEXT, OTHER = "the film was very good , not bad .", "ann lives in new york !"
TASKS: dict[str, Task] = {
    "classify": Classify(labels=("bad", "fair", "good"), temperature=1.7, text="text"),
    "regress": Regress(center=3.0, scale=2.0),
    "tag": Tag(types=("LOC", "PER")),
    "crf": Tag(types=("LOC", "PER"), decoder="crf"),
    "span": Span(unanswerable="yes", threshold=0.3),
    "squad": Squad(),
    "choose": Choose(counting="1"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_learner: Callable[..., Learner]) -> Callable[[str], Path]:
    """Return a maker of run folders: of a kind of task, or of a pretraining."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            backbone = make_learner([], vocabulary=len(TOKENIZER)).backbone
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
            write_model(Learner(backbone, heads).eval(), folder, **(task.published() if task else {}))
            write_tokenizer(TOKENIZER, folder, length=24)
            made[kind] = folder
        return made[kind]

    return make


def equal(first: Model, second: Model) -> bool:
    """Whether weights and pieces are the same to the bit, and the task the same but for its data."""
    states = [model.learner.state_dict() for model in (first, second)]
    assert states[0].keys() == states[1].keys()
    assert first.tokenizer == second.tokenizer
    assert first.task == second.task
    return all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


@pytest.mark.parametrize("form", ["huggingface", "google"])
@pytest.mark.parametrize("kind", [*TASKS, "pretraining"])
def test_round_trips_lose_nothing(runs: Callable[[str], Path], tmp_path: Path, kind: str, form: Any) -> None:
    source = open_model(runs(kind))
    assert source.report.problems == ()
    write_model_as(source, tmp_path / "there", form)
    there = open_model(tmp_path / "there")
    assert there.form == form and there.report.problems == ()
    assert equal(source, there)
    write_model_as(there, tmp_path / "back", "osbert")
    back = open_model(tmp_path / "back")
    assert back.form == "osbert" and back.report.problems == ()
    assert equal(source, back)
    for name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "back" / name).read_bytes() == (runs(kind) / name).read_bytes(), name
    weights = [(folder / "model.safetensors").read_bytes() for folder in (runs(kind), tmp_path / "back")]
    assert weights[0] == weights[1]
    compared = differences(source, back)
    assert [one.largest for one in compared if "others" not in one.what] == [0.0] * (2 + len(source.learner.heads))
    assert all(one.small for one in compared) and any("others" in one.what for one in compared) == bool(source.units)


def asked_of_theirs(folder: Path, opener: str, *texts: str) -> Any:
    """What transformers says of a text or a pair, from the folder alone."""
    model, report = getattr(transformers, opener).from_pretrained(folder, output_loading_info=True)
    assert not {name for name in report["missing_keys"] if "pooler" not in name} and not report["mismatched_keys"]
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**inputs)


def test_every_kind_of_run_opens_in_transformers(runs: Callable[[str], Path], tmp_path: Path) -> None:
    """From the text to what is said of it: their tokenizer and model against osbert's prediction."""
    for kind in (*TASKS, "pretraining"):
        write_model_as(open_model(runs(kind)), tmp_path / kind, "huggingface")
        names = {path.name for path in (tmp_path / kind).iterdir()}
        assert names == {"config.json", "model.safetensors", "vocab.txt", *TOKENIZER_FILES}

    said = asked_of_theirs(tmp_path / "classify", "AutoModelForSequenceClassification", TEXT).logits.softmax(-1)[0]
    ours = load(runs("classify")).predict([TEXT])[0].probabilities
    assert list(ours.values()) == pytest.approx(said.tolist(), abs=TOLERANCE)
    said = asked_of_theirs(tmp_path / "regress", "AutoModelForSequenceClassification", TEXT, OTHER).logits
    assert load(runs("regress")).predict([(TEXT, OTHER)])[0].value == pytest.approx(said.item(), abs=TOLERANCE)
    for kind, opener in (("tag", "AutoModelForTokenClassification"), ("crf", "AutoModelForTokenClassification")):
        said = asked_of_theirs(tmp_path / kind, opener, TEXT).logits[0]
        close(scores(runs(kind), TEXT)["tag"], said)
    for kind in ("span", "squad"):
        said = asked_of_theirs(tmp_path / kind, "AutoModelForQuestionAnswering", TEXT, OTHER)
        close(scores(runs(kind), TEXT, OTHER)[kind], torch.stack([said.start_logits[0], said.end_logits[0]], dim=1))
    model = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "choose").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "choose")
    inputs = tokenizer([TEXT] * 2, [OTHER, "bad play"], return_tensors="pt", padding=True)
    with torch.no_grad():
        said = model(**{name: column[None] for name, column in inputs.items()}).logits.softmax(-1)[0]
    ours = load(runs("choose")).predict([(TEXT, OTHER, "bad play")])[0].probabilities
    assert list(ours.values()) == pytest.approx(said.tolist(), abs=TOLERANCE)
    said = asked_of_theirs(tmp_path / "pretraining", "AutoModelForPreTraining", TEXT, OTHER)
    close(scores(runs("pretraining"), TEXT, OTHER)["mlm"], said.prediction_logits[0])
    close(scores(runs("pretraining"), TEXT, OTHER)["nsp"], said.seq_relationship_logits)


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def scores(folder: Path, *texts: str) -> dict[str, torch.Tensor]:
    """What osbert's heads say of a text or a pair."""
    from osbert.data.batch import collate
    from osbert.models.predictions import MaskedLanguageHead

    model = open_model(folder)
    batch = collate(load(folder).examples([texts if len(texts) > 1 else texts[0]]))
    with torch.no_grad():
        states = model.learner.backbone(batch)
        return {
            name: head.scores(states.hidden) if isinstance(head, MaskedLanguageHead) else head.outputs(states, batch)
            for name, head in model.learner.heads.items()
        }


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


NAMES = {0: "I-LOC", 1: "B-PER", 2: "O", 3: "B-LOC", 4: "I-PER"}
"""Labels in an order that is not osbert's."""


@pytest.mark.parametrize(
    ("kind", "fields", "task"),
    [
        ("BertModel", {}, None),
        ("BertForPreTraining", {}, None),
        ("BertForMaskedLM", {}, None),
        ("BertForSequenceClassification", {"num_labels": 2}, Classify(labels=("LABEL_0", "LABEL_1"), temperature=1.0)),
        ("BertForSequenceClassification", {"num_labels": 1}, Regress()),
        ("BertForQuestionAnswering", {}, Span()),
        ("BertForTokenClassification", {"id2label": NAMES}, Tag(types=("LOC", "PER"))),
        ("BertForMultipleChoice", {}, Choose()),
    ],
)
def test_models_of_theirs_become_runs(
    tmp_path: Path, sizes: dict[str, Any], kind: str, fields: dict[str, Any], task: Task | None
) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**sizes, "vocab_size": len(TOKENIZER)}, **fields)
    theirs = getattr(transformers, kind)(config).eval()
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="10KB" if kind == "BertForMaskedLM" else "1GB")
    write_tokenizer(TOKENIZER, tmp_path / "theirs", length=24)
    model = open_model(tmp_path / "theirs")
    assert model.report.problems == () and model.form == "huggingface"
    assert model.task == task
    assert model.pooled == any("pooler" in name for name in theirs.state_dict())
    write_model_as(model, tmp_path / "ours", "osbert")
    assert differences(model, open_model(tmp_path / "ours"))[0].largest == 0.0
    texts = (TEXT, OTHER) if kind != "BertForTokenClassification" else (TEXT,)
    engine = load(tmp_path / "ours")
    if task is None:
        again = asked_of_theirs(tmp_path / "theirs", "AutoModel", *texts).last_hidden_state[0]
        close(torch.from_numpy(engine.embed([texts], pooling="tokens")[0]), again)
        return
    if kind == "BertForMultipleChoice":
        assert engine.predict([(TEXT, OTHER, "good")])[0].value in ("0", "1")
        return
    assert engine.predict([texts])
    said = asked_of_theirs(tmp_path / "theirs", kind.replace("Bert", "AutoModel"), *texts)
    ours = scores(tmp_path / "ours", *texts)[engine.fine_tuned.name]
    if kind == "BertForQuestionAnswering":
        close(ours, torch.stack([said.start_logits[0], said.end_logits[0]], dim=1))
    elif kind == "BertForTokenClassification":
        close(ours, said.logits[0][:, [2, 3, 0, 1, 4]])
    else:
        close(ours, said.logits)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("DistilBert", {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 40}),
        ("Electra", {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}),
    ],
)
def test_models_of_other_families_stay_in_them(tmp_path: Path, family: str, fields: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(TOKENIZER), max_position_embeddings=24, initializer_range=0.3, num_labels=2, **fields
    )
    getattr(transformers, f"{family}ForSequenceClassification")(config).save_pretrained(tmp_path / "theirs")
    write_tokenizer(TOKENIZER, tmp_path / "theirs", length=24, segments=0 if family == "DistilBert" else 2)
    source = open_model(tmp_path / "theirs")
    assert source.report.problems == () and source.task == Classify(labels=("LABEL_0", "LABEL_1"), temperature=1.0)
    write_model_as(source, tmp_path / "ours", "osbert")
    write_model_as(open_model(tmp_path / "ours"), tmp_path / "again", "huggingface")
    first, again = (
        asked_of_theirs(tmp_path / name, "AutoModelForSequenceClassification", TEXT).logits
        for name in ("theirs", "again")
    )
    assert torch.equal(first, again)
    shares = load(tmp_path / "ours").predict([TEXT])[0].probabilities
    assert list(shares.values()) == pytest.approx(first.softmax(-1)[0].tolist(), abs=TOLERANCE)
    with pytest.raises(UserError, match=f"a model of the kind {family.lower()}"):
        write_model_as(source, tmp_path / "google", "google")


def test_the_head_that_electra_was_trained_with_is_no_problem(tmp_path: Path) -> None:
    config = transformers.ElectraConfig(
        vocab_size=len(TOKENIZER), embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.ElectraForPreTraining(config).save_pretrained(tmp_path)
    write_tokenizer(TOKENIZER, tmp_path)
    report = open_model(tmp_path).report
    assert report.problems == () and len([row for row in report.rows if "ELECTRA" in row.remark]) == 4


def theirs(folder: Path, sizes: dict[str, Any], **fields: Any) -> Path:
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**sizes, "vocab_size": len(TOKENIZER), **fields})
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(TOKENIZER, folder, length=24)
    return folder


def test_a_layer_whose_purpose_is_unknown_is_a_problem_until_it_is_told(tmp_path: Path, sizes: dict[str, Any]) -> None:
    folder = theirs(tmp_path, sizes, num_labels=2)
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    model = open_model(folder)
    assert {row.name for row in model.report.problems} == {"classifier.weight", "classifier.bias"}
    assert "--task classify --labels no,yes" in model.report.problems[0].remark
    told = open_model(folder, Asked(kind="classify", labels=("no", "yes")))
    assert told.report.problems == () and told.task == Classify(labels=("no", "yes"), temperature=1.0)
    with pytest.raises(UserError, match=r"--labels has 3 names, but the model .* has 2 outputs"):
        open_model(folder, Asked(kind="classify", labels=("no", "yes", "maybe")))
    with pytest.raises(UserError, match=r"two outputs have the name 'no'"):
        open_model(folder, Asked(kind="classify", labels=("no", "no")))
    assert (
        "choose has 1 outputs, this layer has 2" in open_model(folder, Asked(kind="choose")).report.problems[0].remark
    )
    remark = open_model(folder, Asked(kind="tag", labels=("B-X", "I-X"))).report.problems[0].remark
    assert "no scheme of tags has the labels B-X, I-X (is there an O?)" in remark


def test_several_labels_at_once_are_a_problem(tmp_path: Path, sizes: dict[str, Any]) -> None:
    folder = theirs(tmp_path, sizes, num_labels=2, problem_type="multi_label_classification")
    assert {row.remark for row in open_model(folder).report.problems} == {
        "it gives several labels at once, for which osbert has no task"
    }


@pytest.mark.parametrize(("rows", "expected"), [(0, True), (2, False), (8, True)])
def test_rows_that_belong_to_no_piece_are_a_problem_unless_they_make_a_round_number(
    tmp_path: Path, sizes: dict[str, Any], rows: int, expected: bool
) -> None:
    size = -(-len(TOKENIZER) // 8) * 8 if rows == 8 else len(TOKENIZER) + rows
    model = open_model(theirs(tmp_path, sizes, vocab_size=size))
    (row,) = [row for row in model.report.rows if row.name == "embeddings.word_embeddings.weight"]
    assert row.expected == expected and bool(row.remark) == (size > len(TOKENIZER))
    assert len(sequences(model)[5].ids) == 24


def test_an_encoder_without_pooler_stays_so(tmp_path: Path, sizes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**sizes, "vocab_size": len(TOKENIZER)})
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "theirs")
    write_tokenizer(TOKENIZER, tmp_path / "theirs")
    model = open_model(tmp_path / "theirs")
    assert not model.pooled and model.report.problems == ()
    for form in ("osbert", "google"):
        write_model_as(model, tmp_path / form, form)  # type: ignore[arg-type]
        assert not open_model(tmp_path / form).pooled


def test_a_folder_that_holds_only_what_was_tuned_becomes_a_whole_model(
    runs: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(runs("choose"), tmp_path / "tuned")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        width = 16
        factors = Factors(up=torch.randn(width, 2), down=torch.randn(2, width))
    changed = "encoder.layer.0.attention.self.query.weight"
    keep_tuned(tmp_path / "tuned", runs("pretraining"), {changed: factors})
    model = open_model(tmp_path / "tuned")
    write_model_as(model, tmp_path / "whole", "osbert")
    assert not (tmp_path / "whole" / "tuned.safetensors").exists()
    whole = open_model(tmp_path / "whole")
    assert equal(model, whole)
    before, after = (each.learner.backbone.blocks[0].attention for each in (open_model(runs("pretraining")), whole))
    moved = after.inward.weight[:width] - before.inward.weight[:width]  # type: ignore[union-attr, index]
    assert moved.abs().max() > 1e-3


def test_a_checkpoint_beside_a_config_json_is_taken_for_what_it_is(tmp_path: Path) -> None:
    """As google-research/bert's models were put up for Hugging Face's readers."""
    for path in (Path(__file__).parent / "tensorflow" / "bert").iterdir():
        shutil.copy(path, tmp_path / path.name.replace("bert_config", "config"))
    assert open_model(tmp_path).form == "google"


def test_what_others_do_not_see_is_told(runs: Callable[[str], Path], make_learner: Callable[..., Learner]) -> None:
    assert list(notes(open_model(runs("classify")), "huggingface")) == []
    (told,) = notes(open_model(runs("crf")), "huggingface")
    assert told.startswith("Only osbert reads the head 'tag' (crf.")
    (told,) = notes(open_model(runs("pretraining")), "google")
    assert told == "Only osbert reads the head 'sentence_order': others have none like it."
    assert list(notes(open_model(runs("pretraining")), "osbert")) == []


def test_a_task_of_a_file_from_elsewhere_imports_nothing(runs: Callable[[str], Path], tmp_path: Path) -> None:
    write_model_as(open_model(runs("classify")), tmp_path / "there", "huggingface")
    path = tmp_path / "there" / "config.json"
    config = json.loads(path.read_text())
    for name, message in (("os.path", "names os.path, which is no task"), ("clasify", "Did you mean 'classify'")):
        path.write_text(json.dumps({**config, "osbert_task": {"name": name, "settings": {}}}))
        with pytest.raises(UserError, match=message):
            open_model(tmp_path / "there")


def test_what_they_have_no_model_for_is_refused(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    write_model(make_learner([], normalization="pre"), tmp_path)
    write_tokenizer(Tokenizer([*SPECIALS, *(f"w{n}" for n in range(55))]), tmp_path)
    model = open_model(tmp_path)
    with pytest.raises(UserError, match=r"Only osbert opens this model: .* normalization = pre"):
        write_model_as(model, tmp_path / "there", "huggingface")
    with pytest.raises(UserError, match=r"(?s)google-research/bert has no such model:.*normalization = pre"):
        write_model_as(model, tmp_path / "there", "google")
    assert not (tmp_path / "there").exists()


def test_other_heads_or_pieces_are_no_small_difference(runs: Callable[[str], Path]) -> None:
    tag, choose, other = (open_model(runs(kind)) for kind in ("tag", "choose", "tag"))
    torch.nn.init.zeros_(other.learner.heads["tag"].linear.bias)
    assert [one.what for one in differences(tag, other) if not one.small] == ["scores of tag"]
    regress = open_model(runs("regress"))
    assert [one.what for one in differences(regress, regress)][-1] == "scores of regress as others read them"
    regress.units["bias"].add_(0.01)
    assert [one.small for one in differences(regress, regress)] == [True, True, True, False]
    with pytest.raises(ValueError, match="the heads are tag and choose"):
        differences(tag, choose)
    with pytest.raises(ValueError, match="cut texts differently"):
        differences(tag, replace(tag, tokenizer=Tokenizer(SPECIALS)))
