"""Settings that are left open: what few rows get, what a run that goes on keeps, and what --settings paper keeps to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert import options, recipe
from osbert.commands.finetune import finetune
from osbert.evaluation.score import Score
from osbert.runs.finetune import defaults
from osbert.runs.finetune.defaults import (
    BATCH,
    CHOOSING,
    EPOCHS,
    NARROW,
    NARROW_RATE,
    PLACE_EPOCHS,
    RATE,
    STEPS,
    advise_on_collapse,
    fill_defaults,
    keep_last_of_few,
    small_data,
)
from osbert.runs.finetune.plan import FinetunePlan, read_plan, schema
from osbert.runs.finetune.rows import HANDFUL, FinetuneRows
from osbert.runs.finetune.settings import FinetuneSettings, ScoreSettings
from osbert.tasks import Prediction, Record, load
from osbert.tasks.kinds.classify import Classify
from refusals import refusal

SMALL = {"batch": 8, "epochs": 10, "learning_rate": 5e-5}
PAPER = {"batch": 32, "epochs": 3, "learning_rate": 3e-5}
PRETRAINED = {
    "settings": {"training": {"steps": 1000}, "objectives": ["mlm"], "data": {"batch": 32, "length": 64}},
    "origin": None,
}


@given(rows=st.integers(1, 10_000), batch=st.sampled_from([8, 16, 32, 48]), epochs=st.integers(1, 12))
def test_there_are_200_steps_where_the_bounds_allow_them(rows: int, batch: int, epochs: int) -> None:
    def steps(batch: int) -> int:
        return -(-rows // batch)

    found, passes = small_data(steps, batch=batch, epochs=epochs)
    assert BATCH <= found <= batch
    assert passes == epochs or epochs < passes <= EPOCHS
    if steps(batch) * epochs >= STEPS:
        assert (found, passes) == (batch, epochs)
    elif steps(found) * passes < STEPS:
        assert found == BATCH and passes >= EPOCHS


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, reviews: Callable[[int], list[tuple[str, str]]]) -> Path:
    """Return a table of which 45 rows learn and 5 are held out: 60 steps of 8 in all epochs that there may be."""
    path = tmp_path_factory.mktemp("few") / "reviews.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in reviews(50)))
    return path


def values(plan: FinetunePlan | Path) -> dict[str, float]:
    """Return batch, epochs and learning rate of a plan, or of a run folder's recipe."""
    table = recipe.read(plan / "recipe.toml") if isinstance(plan, Path) else plan.table()
    assert "defaults" not in table
    found = table["training"] | table["optimizer"]
    return {name: found[name] for name in PAPER}


@pytest.fixture
def plan(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FinetunePlan]:
    """Return a function that makes a plan for an encoder 768 wide, if `be_wide` does not say otherwise."""
    be_wide(768, monkeypatch)

    def made(*settings: str, data: Path = table, out: Path = tmp_path / "none", task: str = "classify") -> FinetunePlan:
        read = read_plan(task, options.parse_settings(settings, schema(task)), model=tmp_path, data=data)
        _, records = load(read.tasks[0], ("train", "dev"))
        return fill_defaults(read, [records["train"]], out, print)

    return made


def be_wide(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every model's folder have an encoder of this width, of a family without pooled sentence vectors."""

    def replace(**fields: object) -> None:
        raise TypeError(fields)

    folder = SimpleNamespace(architecture=SimpleNamespace(width=width, replace=replace))
    monkeypatch.setattr(defaults, "open_folder", lambda *given: folder)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), {**SMALL, "epochs": 9}),  # 180 rows learn, 20 are held out
        (("--settings", "paper"), PAPER),
        (("--batch", "16"), {**SMALL, "epochs": 9, "batch": 16}),
        (("--epochs", "1"), {**SMALL, "epochs": 1}),
        (("--epochs", "50"), {**SMALL, "epochs": 50}),
        (("--learning-rate", "1e-3"), {**SMALL, "epochs": 9, "learning_rate": 1e-3}),
        (("--batch", "32", "--epochs", "3"), {**SMALL, "batch": 32, "epochs": 3}),
        pytest.param(("--search", "paper"), PAPER, marks=pytest.mark.lab),
        (("--tuning", "lora"), {**SMALL, "epochs": 9, "learning_rate": 5e-4}),
    ],
    ids=" ".join,
)
def test_few_rows_change_each_setting_that_is_not_given(
    plan: Callable[..., FinetunePlan],
    settings: Sequence[str],
    expected: dict[str, float],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = values(plan(*settings))
    assert found == expected
    said = capsys.readouterr().out
    given = {word[2:].replace("-", "_") for word in settings}
    changed = {name for name in PAPER if found[name] != PAPER[name]} - given - {"learning_rate"}
    assert ("--settings paper" in said) == bool(changed), said
    line, *_ = said.splitlines()
    assert all(name.replace("_", " ") in line for name in changed or PAPER), line


@pytest.mark.parametrize(
    ("settings", "rows", "kept"),
    [
        ((), CHOOSING - 1, "last"),
        ((), CHOOSING, "best"),
        (("--epochs", "1"), 2, "best"),
        (("--epochs", "1", "--evaluate-every", "0.5 epochs"), 2, "last"),
        (("--epochs", "2", "--evaluate-every", "5 epochs"), 2, "best"),
        (("--epochs", "2", "--evaluate-every", "5 steps"), 2, "last"),
        (("--keep", "best"), 2, "best"),
        (("--patience", "3"), 2, "best"),
        (("--settings", "paper"), 2, "best"),
        (("--few-shot", "linear"), 2, "best"),
    ],
)
def test_few_development_rows_choose_no_epoch(
    plan: Callable[..., FinetunePlan], settings: Sequence[str], rows: int, kept: str
) -> None:
    records = [Record(number=0, texts=("x",))] * rows
    found = keep_last_of_few(plan(*settings), [records], Path("none"))
    assert found.scores.keep == kept
    assert found.training == plan(*settings).training


@pytest.mark.parametrize(("width", "rate"), [(NARROW, NARROW_RATE), (768, RATE)])
def test_few_rows_whose_labels_have_places_get_more_steps_than_few_texts(
    plan: Callable[..., FinetunePlan],
    width: int,
    rate: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tagged = tmp_path / "tagged.conll"
    tagged.write_text("Ada B-PER\nsings O\n\n" * 20)  # 18 of them learn: 3 steps an epoch
    be_wide(width, monkeypatch)
    assert values(plan(data=tagged, task="tag")) == {
        "batch": BATCH,
        "epochs": PLACE_EPOCHS["tokens"],
        "learning_rate": rate,
    }
    given = {"batch": 4, "epochs": PLACE_EPOCHS["tokens"], "learning_rate": rate}
    assert values(plan("--batch", "4", data=tagged, task="tag")) == given
    capsys.readouterr()
    assert values(plan("--epochs", "8", data=tagged, task="tag"))["batch"] == BATCH
    _, warning = capsys.readouterr().out.splitlines()
    assert "without --epochs" in warning and "24 steps" in warning
    asked = tmp_path / "asked.jsonl"
    questions = [{"question": "who?", "context": f"Ada sings {n}", "answer": "Ada"} for n in range(20)]
    asked.write_text("".join(json.dumps(row) + "\n" for row in questions))
    assert values(plan(data=asked, task="span")) == {
        "batch": BATCH,
        "epochs": PLACE_EPOCHS["span"],
        "learning_rate": rate,
    }


@pytest.mark.parametrize(
    ("scores", "kept"),
    [({}, "best"), ({"scores": {"data_map": True, "keep": "best"}}, "best"), ({"scores": {"keep": "last"}}, "last")],
)
def test_a_run_that_goes_on_keeps_the_epoch_that_it_began_with(
    plan: Callable[..., FinetunePlan], scores: dict[str, Any], kept: str, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"command": "finetune", "settings": scores}))
    for settings in ((), ("--epochs", "1"), ("--data-map",)):
        found = keep_last_of_few(plan(*settings), [[Record(number=0, texts=("x",))] * 2], tmp_path)
        assert found.scores.keep == kept


def test_contrastive_tuning_of_one_epoch_chooses_between_two_scores() -> None:
    assert ScoreSettings().chooses(FinetuneSettings(epochs=1, few_shot="contrastive"))


def test_a_handful_of_development_rows_show_no_collapse(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, said in ((HANDFUL - 1, ""), (HANDFUL, "'a'")):
        records = [Record(number=place, texts=("x",), label="ab"[place % 2]) for place in range(count)]
        task = Classify(labels=("a", "b"))
        task_rows: Any = SimpleNamespace(
            task=task, development=records, packer=None, encoded_development=(), cross_validation=None
        )
        scored = Score(metrics={}, predictions=[Prediction(value="a")] * count)
        monkeypatch.setattr("osbert.runs.finetune.rows.score", lambda *given, scored=scored: scored)
        rows = FinetuneRows(tasks=[task_rows])
        assert rows.score(Any).collapsed == said


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "contrastive"),
        (("--few-shot", "auto"), "contrastive"),
        (("--few-shot", "linear"), "linear"),
        (("--few-shot", "none"), "none"),
        (("--settings", "paper"), "none"),
        (("--settings", "paper", "--few-shot", "auto"), "none"),
        (("--epochs", "3"), "contrastive"),
        (("--learning-rate", "1e-4"), "contrastive"),
        (("--batch", "8", "--epochs", "3", "--learning-rate", "1e-4"), "contrastive"),
        (("--tuning", "lora"), "none"),
        (("--recurrent", "1"), "none"),
        (("--pair", "more"), "none"),
        (("--few-shot", "contrastive", "--epochs", "3"), "contrastive"),
    ],
    ids=" ".join,
)
def test_under_100_texts_are_learnt_by_few_shot_learning_unless_another_way_is_given(
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    settings: Sequence[str],
    expected: str,
) -> None:
    path = tmp_path / "few.csv"
    path.write_text("text,more,label\n" + "good film,a,pos\nbad film,b,neg\n" * 20)
    text = () if "--pair" in settings else ("--text", "text")
    words = options.parse_settings((*settings, *text), schema("classify"))
    read = read_plan("classify", words, model=encoder, data=path)
    _, records = load(read.tasks[0], ("train", "dev"))
    plan = fill_defaults(read, [records["train"]], tmp_path / "none", print)
    assert plan.training.few_shot == expected
    said, *warnings = capsys.readouterr().out.splitlines()
    assert ("--few-shot none" in said) == (expected == "contrastive" and settings[:2] != ("--few-shot", "contrastive"))
    ruled_out = {"--tuning", "--recurrent"} & {*settings}
    assert [flag in warning for flag in ruled_out for warning in warnings] == [True] * len(ruled_out)
    assert (f"few shot {expected}" in said) == (expected != "none"), said
    assert plan.training.epochs == 3 or "--epochs" not in settings


@pytest.mark.parametrize(("words", "batch"), [(250, 16), (500, 8)])
def test_a_step_of_contrastive_tuning_has_fewer_long_texts(
    encoder: Path, tmp_path: Path, words: int, batch: int
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("text,label\n" + f"{'good ' * words},pos\n{'bad ' * words},neg\n" * 10)
    for few_shot in ((), ("--few-shot", "contrastive")):
        read = read_plan("classify", options.parse_settings(few_shot, schema("classify")), model=encoder, data=path)
        _, records = load(read.tasks[0], ("train", "dev"))
        assert fill_defaults(read, [records["train"]], tmp_path / "none").training.batch == batch


@pytest.mark.parametrize(("width", "rate"), [(NARROW, NARROW_RATE), (768, PAPER["learning_rate"])])
def test_many_rows_have_the_papers_settings_and_a_line_says_so(
    plan: Callable[..., FinetunePlan],
    reviews: Callable[[int], list[tuple[str, str]]],
    width: int,
    rate: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    be_wide(width, monkeypatch)
    path = tmp_path / "many.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in reviews(2400)))
    assert values(plan(data=path)) == {**PAPER, "learning_rate": rate}
    said = capsys.readouterr().out
    assert f"batch 32, epochs 3, learning rate {rate:g}" in said and "204 steps" in said
    assert ("512 wide" in said) == (width == NARROW)
    assert values(plan("--epochs", "3", data=path)) == {**PAPER, "learning_rate": rate}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), {"batch": 8, "epochs": 20, "learning_rate": 1e-3}),
        (("--learning-rate", "3e-4"), {"batch": 8, "epochs": 20, "learning_rate": 3e-4}),
        (("--epochs", "2"), {"batch": 8, "epochs": 2, "learning_rate": 1e-3}),
        (("--epochs", "2", "--learning-rate", "3e-4"), {"batch": 8, "epochs": 2, "learning_rate": 3e-4}),
        (("--tuning", "lora"), {"batch": 8, "epochs": 20, "learning_rate": 5e-4}),
        (("--settings", "paper"), PAPER),
    ],
    ids=" ".join,
)
def test_an_encoder_that_was_pretrained_for_minutes_learns_longer_and_faster(
    plan: Callable[..., FinetunePlan],
    settings: Sequence[str],
    expected: dict[str, float],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "run.json").write_text(json.dumps(PRETRAINED))
    assert values(plan(*settings)) == expected
    said, *warnings = capsys.readouterr().out.splitlines()
    assert ("2 million tokens" in said) == (expected != PAPER), said
    assert ["--epochs" in warning for warning in warnings] == [True] * ("--epochs" in settings)


def test_an_encoder_that_was_pretrained_for_long_has_the_choices_of_a_published_one(
    plan: Callable[..., FinetunePlan], tmp_path: Path
) -> None:
    long = {"training": {"steps": 100_000}, "objectives": ["mlm"], "data": {"batch": 32, "length": 64}}
    for facts in ({"settings": long}, {**PRETRAINED, "origin": "published"}, {"command": "convert", "settings": {}}):
        (tmp_path / "run.json").write_text(json.dumps(facts))
        assert values(plan()) == {**SMALL, "epochs": 9}
    (tmp_path / "run.json").write_text(json.dumps({**PRETRAINED, "origin": "one of ours", "origin_tokens": 10**6}))
    assert values(plan())["learning_rate"] == 1e-3


def test_the_negatives_of_a_step_stay_as_many(plan: Callable[..., FinetunePlan], table: Path) -> None:
    assert values(plan("--text", "text", task="contrastive")) == PAPER


def test_a_run_has_the_numbers_in_its_recipe_and_goes_on_with_them(
    encoder: Path, few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = ("--learning-rate", "1e-2", "--few-shot", "none"), tmp_path / "run"
    finetune("classify", *words, model=encoder, data=few, out=out)
    assert values(out) == {"batch": 8, "epochs": 10, "learning_rate": 1e-2}
    before = (out / "model.safetensors").read_bytes()
    finetune("classify", *words, model=encoder, data=few, out=out)
    assert (out / "model.safetensors").read_bytes() == before
    with refusal("begun-with-other-settings", "training.batch", "8", "32"):
        finetune("classify", *words, "--settings", "paper", model=encoder, data=few, out=out)


def test_a_run_that_was_begun_with_other_defaults_goes_on_with_those(
    plan: Callable[..., FinetunePlan], encoder: Path, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    old = ("--batch", "32", "--epochs", "3", "--learning-rate", "3e-5")
    finetune("classify", *old, model=encoder, data=table, out=out)
    facts = json.loads((out / "run.json").read_text())
    del facts["finished"]
    (out / "run.json").write_text(json.dumps(facts))
    finetune("classify", model=encoder, data=table, out=out)
    assert values(out) == PAPER
    # A rate with which the run failed is not taken again.
    (out / "run.json").write_text(json.dumps({**facts, "failed": {"step": 3}}))
    assert values(plan(out=out)) == PAPER
    facts["settings"]["optimizer"]["learning_rate"] = 1.0
    (out / "run.json").write_text(json.dumps({**facts, "failed": {"step": 3}}))
    assert values(plan(out=out)) == PAPER
    facts["settings"]["training"]["batch"] = "many"
    (out / "run.json").write_text(json.dumps(facts))
    with refusal("invalid-value", "batch"):
        plan(out=out)


@pytest.mark.lab
def test_every_run_of_a_comparison_and_all_tasks_of_one_have_the_same(encoder: Path, few: Path, tmp_path: Path) -> None:
    words = ("--learning-rate", "1e-2", "--few-shot", "none")
    out = tmp_path / "compared"
    finetune("classify", *words, "--seeds", "2", model=encoder, data=few, out=out)
    assert {values(folder)["batch"] for folder in (out, *(out / "trials").glob("seed-*"))} == {8}
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("text,score\n" + "good film,3\nbad,1\npoor,2\n" * 20)
    together, own = tmp_path / "together", ("--classify.data", str(few), "--regress.data", str(numbers))
    finetune("classify", "regress", *words, *own, model=encoder, data=tmp_path, out=together)
    assert {values(folder)["batch"] for folder in (together, together / "classify", together / "regress")} == {8}


@pytest.mark.parametrize(
    ("steps", "rate", "tuning", "wanted", "unwanted"),
    [
        (18, 3e-5, "full", "--epochs", "--learning-rate"),
        (18, 1e-3, "full", "--batch", "--learning-rate"),
        (2000, 1e-4, "full", "--learning-rate 5e-05", "--epochs"),
        (2000, 2e-5, "full", "--seed", "--learning-rate"),
        (2000, 5e-4, "lora", "--seed", "--learning-rate"),
        (2000, 1e-2, "adapters", "--learning-rate 0.005", "--batch"),
    ],
)
def test_the_advice_after_a_collapse_is_for_this_run(
    steps: int, rate: float, tuning: str, wanted: str, unwanted: str
) -> None:
    table = {"training": {"epochs": 3, "batch": 32, "tuning": tuning}, "optimizer": {"learning_rate": rate}}
    said = advise_on_collapse(table, steps=steps)
    assert wanted in said and unwanted not in said and f"{steps:,} steps" in said
    if steps < STEPS:
        assert "Remove --batch and --epochs" in advise_on_collapse(table, steps=steps, flags=["--batch", "--epochs"])
