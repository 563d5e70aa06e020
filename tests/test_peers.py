"""Others' names of settings: which are understood, and what is said of the others."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from osbert import peers, recipe
from osbert.options import parse_settings
from osbert.runs.finetune.plan import call_schema, name_of
from osbert.runs.pretrain.settings import schema
from refusals import refusal


@cache
def schemas(verb: str) -> list[type]:
    if verb == "pretrain":
        return [schema(["mlm", "nsp"])]
    return [call_schema(task) for task in ("classify", "contrastive")]


def read(verb: str, *words: str) -> dict[str, object]:
    """Return settings by their dotted names, as a command line and as keywords in Python give them."""
    (kind, *_) = schemas(verb)
    table = recipe.override({}, parse_settings(words, kind), schema=kind)
    pairs = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2]))
    named = {name.replace("-", "_"): recipe.Word(value) for name, value in pairs.items()}
    if len(words) % 2 == 0:
        assert recipe.override({}, named, schema=kind) == table
    return {f"{part}.{name}": value for part, own in table.items() for name, value in own.items()}


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        (("--lr", "1e-4"), "optimizer.learning_rate", 1e-4),
        (("--batch-size", "8"), "training.batch", 8),
        (("--per-device-train-batch-size", "8"), "training.batch", 8),
        (("--num-train-epochs", "4"), "training.epochs", 4),
        (("--max-length", "64"), "classify.length", 64),
        (("--weight-decay", "0.1"), "optimizer.weight_decay", 0.1),
        (("--warmup-ratio", "0.2"), "optimizer.warmup", 0.2),
        (("--max-grad-norm", "5"), "optimizer.clip", 5.0),
        (("--label-smoothing-factor", "0.1"), "classify.label_smoothing", 0.1),
        (("--bf16", "true"), "training.precision", "bf16"),
        (("--bf16",), "training.precision", "bf16"),
        (("--bf16=False",), "training.precision", "fp32"),
        (("--no-cuda",), "training.device", "cpu"),
        (("--fp32",), "training.precision", "fp32"),
        (("--optimizer", "muon"), "optimizer.method", "muon"),
        (("--keep-best",), "scores.keep", "best"),
        (("--keep-last", "true"), "scores.keep", "last"),
        (("--load-best-model-at-end", "true"), "scores.keep", "best"),
        (("--lora",), "training.tuning", "lora"),
        (("--n-splits", "5"), "comparison.folds", 5),
    ],
)
def test_names_of_the_same_thing_are_understood(words: tuple[str, ...], setting: str, value: object) -> None:
    assert read("finetune", *words) == {setting: value}


@pytest.mark.parametrize(
    ("word", "setting"),
    [("hidden-size", "model.width"), ("num-hidden-layers", "model.layers"), ("max-length", "data.length"),
     ("max-position-embeddings", "model.length"), ("mlm-probability", "mlm.rate"), ("max-steps", "training.steps"),
     ("batch-size", "data.batch"), ("eval-steps", "training.evaluate_every")],
)  # fmt: skip
def test_in_pretraining_too(word: str, setting: str) -> None:
    assert [*read("pretrain", f"--{word}", "7")] == [setting]


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        ("finetune", ("--warmup-steps", "500"), ("--warmup 0.05",)),
        ("pretrain", ("--warmup-steps", "500", "--max-steps", "2000"), ("--warmup 0.25", "2,000")),
        ("pretrain", ("--warmup-steps", "10", "--max-steps", "5"), ("--warmup 0.1", "10 are more than the 5")),
        ("finetune", ("--early-stopping", "true"), ("--patience",)),
        ("finetune", ("--per-device-eval-batch-size", "8"), ("Leave it out",)),
        ("pretrain", ("--logging-dir", "logs"), ("--track",)),
        ("finetune", ("--cache-dir", "cache"), ("HF_HUB_CACHE",)),
        ("finetune", ("--gradient-accumulation", "4"), ("--batch", "4 times")),
        ("finetune", ("--gradient-accumulation-steps", "4", "--batch-size", "8"), ("--batch 32",)),
        ("finetune", ("--fp16",), ("--precision bf16",)),
        ("finetune", ("--mixed-precision", "no"), ("--precision fp32",)),
        ("finetune", ("--gpu-id", "1"), ("--device cuda:1",)),
        ("finetune", ("--max-steps", "100"), ("--epochs",)),
        ("pretrain", ("--num-train-epochs", "3"), ("--steps", "--minutes")),
        ("finetune", ("--hidden-size", "256"), ("--width",)),
        ("finetune", ("--output-dir", "run"), ("--out",)),
        ("finetune", ("--evaluation-strategy", "epoch"), ("every epoch",)),
        ("finetune", ("--eval-steps", "50"), ("--evaluate-every", "50 steps")),
        ("finetune", ("--metric-for-best-model", "f1"), ("--keep best",)),
        ("finetune", ("--save-total-limit", "1"), ("Leave it out",)),
        ("finetune", ("--freeze",), ("--frozen",)),
        ("finetune", ("--ema",), ("did not pay",)),
    ],
)
def test_others_are_answered(verb: str, words: tuple[str, ...], said: tuple[str, ...]) -> None:
    with refusal("unknown-setting", words[0], *said):
        parse_settings(words, *schemas(verb))
    pairs = [*words, "true"][: len(words) + len(words) % 2]
    with refusal("unknown-setting", *said):
        named = {name.strip("-").replace("-", "_"): value for name, value in zip(pairs[::2], pairs[1::2])}
        recipe.resolve_names(named, schema=schemas(verb)[0])


def test_every_entry_names_a_setting_and_no_name_has_two_meanings() -> None:
    kinds = [kind for verb in ("finetune", "pretrain") for kind in schemas(verb)]
    ours = {name for kind in kinds for path, *_ in recipe.fields(kind) for name in (path, *recipe.short_names(path))}
    for candidates in [*peers.SAME, *((setting,) for setting, *_ in peers.FLAGS.values())]:
        assert [name for name in candidates if name in ours or name.startswith("--")] == [*candidates], candidates
    names = [name for several in peers.SAME.values() for name in several.split()] + [*peers.FLAGS]
    assert len({name.replace("_", "") for name in names}) == len(names)
    assert not ours & {*names}, "a setting's own name comes first: the entry is dead"


def test_one_setting_under_two_names_is_refused() -> None:
    with refusal("duplicate-name", "lr", "learning_rate"):
        recipe.override({}, {"lr": 1e-3, "learning_rate": 1e-3}, schema=schemas("finetune")[0])


def test_a_recipe_that_says_it_in_others_words_gets_ours() -> None:
    with refusal("unknown-setting", "'training.batch_size'", "'batch'"):
        recipe.build(schemas("finetune")[0], {"training": {"batch_size": 3}}, where="a.toml")


def test_a_flag_is_not_given_a_number() -> None:
    for name, value in (("lora", 16), ("keep_last", 3)):
        with refusal("unknown-setting", name.replace("_", "-"), value):
            recipe.resolve_names({name: value}, schema=schemas("finetune")[0])


def test_verbs_that_read_rows_answer_others_names_of_options() -> None:
    for word in ("--data", "--input", "--test_file"):
        assert "--file" in peers.option_advice(word, ["--file", "--abstain", "--out"])
    assert "--length" in peers.option_advice("--max-length", ["--length"])
    assert "--most" in peers.option_advice("--max-length", ["--most"])
    assert "Leave it out" in peers.option_advice("--batch-size", ["--file", "--verify"])
    assert not peers.option_advice("--batch-size", ["--file"])
    assert "--file" in peers.option_advice("--fiel", ["--file", "--text"])
    assert not peers.option_advice("--sharpness", ["--file", "--text"])


def test_wrong_neighbours_are_not_suggested() -> None:
    for word in ("--quality", "--sharpness"):
        with refusal("unknown-setting", word) as raised:
            parse_settings([word, "3"], *schemas("finetune"))
        assert "Did you mean" not in str(raised.value)


def test_others_names_of_kinds() -> None:
    from osbert.tasks import COMPONENTS, SYNONYMS

    assert COMPONENTS and name_of("ner") == "tag" and name_of("text-classification") == "classify"
    assert {field.name for field in dataclasses.fields(call_schema("ner"))} >= {"tag", "training"}
    assert {name_of(kind) for kind in SYNONYMS.values()} == {*SYNONYMS.values()}
