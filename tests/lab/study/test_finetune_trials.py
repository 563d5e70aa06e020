"""Several runs compared: seeds, grids and searches; each trial once, collapsed ones named, the best one the model."""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from osbert import recipe
from osbert.commands.finetune import finetune
from osbert.console.training_consoles import ProgressLine
from osbert.evaluation.score import constant_answer
from osbert.files import read_sealed, write_sealed
from osbert.inference.engine import load
from osbert.options import parse_settings
from osbert.runs.finetune import finetune as steps
from osbert.runs.finetune import rows
from osbert.runs.finetune.plan import read_plan, schema
from osbert.tasks.kinds.classify import Classify
from osbert.training.progress import Progress
from osbert.training.run_folder import RunFolder
from osbert.training.trainer import Trainer
from osbert_lab.study.runner import StudyTrial, TrialResult
from osbert_lab.study.search import GRIDS, Grid, Optuna, SettingsScore, TrialSettings
from osbert_lab.study.trials import choose_best
from refusals import refusal

QUICK = ("--epochs", "3", "--batch", "8", "--learning-rate", "2e-2", "--precision", "fp32", "--device", "cpu")


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


def best(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())["finished"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, encoder: Path, table: Path) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "run"
    finetune("classify", *QUICK, "--seeds", "3", model=encoder, data=table, out=folder)
    return folder


def test_every_seed_is_a_run_and_the_best_is_the_model(compared: Path) -> None:
    trials = {path.name: best(path)["best"] for path in (compared / "trials").iterdir()}
    assert set(trials) == {"seed-0", "seed-1", "seed-2"}
    assert len({json.dumps(one["metrics"]) + str(one["loss"]) for one in trials.values()}) == 3
    found = best(compared)
    highest = max(one["metrics"]["accuracy"] for one in trials.values())
    assert found["best"]["metrics"]["accuracy"] == highest and found["best"] == trials[found["trial"]]
    chosen = compared / "trials" / found["trial"]
    for name in ("model.safetensors", "config.json", "vocab.txt", "metrics.jsonl"):
        assert (compared / name).read_bytes() == (chosen / name).read_bytes()
    texts = ["the good film", "a bad film"]
    assert load(compared).predict(texts) == load(chosen).predict(texts)
    settings = recipe.read(compared / "recipe.toml")
    assert settings["comparison"]["seeds"] == 3 and f"seed-{settings['training']['seed']}" == found["trial"]
    assert not list(compared.rglob("checkpoints")) and not list(compared.rglob("best-epoch-*"))


def test_the_report_has_every_seed_and_the_numbers_over_them(compared: Path) -> None:
    page = (compared / "report.html").read_text()
    scores = [best(compared / "trials" / f"seed-{seed}")["best"]["metrics"]["accuracy"] for seed in range(3)]
    for seed in range(3):
        assert f'<a href="trials/seed-{seed}/report.html">seed {seed}</a>' in page
    assert f"<td>{sum(scores) / 3:.4f}</td>" in page and f"<td>{sorted(scores)[1]:.4f}</td>" in page
    assert page.count("<circle") >= 3 and "flatter" in page and "95% interval" in page


def test_sigterm_in_the_last_step_of_a_run_begins_no_other(
    compared: Path, encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, out = ProgressLine.step, tmp_path / "run"

    def interrupt(self: ProgressLine, progress: Progress, line: object) -> None:
        shown(self, progress, line)  # type: ignore[arg-type]
        if progress.step == progress.steps:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressLine, "step", interrupt)
        with pytest.raises(SystemExit) as ended:
            finetune("classify", *QUICK, "--seeds", "3", model=encoder, data=table, out=out)
    assert ended.value.code == 143 and not RunFolder(out).finished
    assert [path.name for path in (out / "trials").glob("seed-*")] == ["seed-0"]
    finetune("classify", *QUICK, "--seeds", "3", model=encoder, data=table, out=out)
    assert (out / "model.safetensors").read_bytes() == (compared / "model.safetensors").read_bytes()


def test_more_seeds_are_added_and_finished_ones_not_repeated(
    compared: Path,
    encoder: Path,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, ran = tmp_path / "run", []
    real = steps.train

    def counted(plan: Any, *rest: Any) -> Any:
        ran.append(plan.training.seed)
        if plan.training.seed == 1 and ran.count(1) == 1:
            monkeypatch.setattr(Trainer, "save", lambda self, **how: kill())  # at the end of its training
        return real(plan, *rest)

    def kill() -> None:
        monkeypatch.undo()
        monkeypatch.setattr(steps, "train", counted)
        raise Killed

    monkeypatch.setattr(steps, "train", counted)
    with pytest.raises(Killed):
        finetune("classify", *QUICK, "--seeds", "2", model=encoder, data=table, out=out)
    assert ran == [0, 1] and not RunFolder(out).finished
    finetune("classify", *QUICK, "--seeds", "2", model=encoder, data=table, out=out)
    assert ran == [0, 1, 1]
    finetune("classify", *QUICK, "--seeds", "3", model=encoder, data=table, out=out)
    assert ran == [0, 1, 1, 2]
    said = capsys.readouterr().out
    assert "already finished" in said and "accuracy: median" in said and "over the seeds, 3 runs" in said
    assert (out / "model.safetensors").read_bytes() == (compared / "model.safetensors").read_bytes()
    shutil.rmtree(out / "trials")
    finetune("classify", *QUICK, "--seeds", "3", model=encoder, data=table, out=out)
    assert ran == [0, 1, 1, 2] and f"best of all: {best(out)['trial']}" in capsys.readouterr().out
    with refusal("begun-with-other-settings", "training.epochs", "3", "4"):
        finetune("classify", *QUICK, "--epochs", "4", "--seeds", "3", model=encoder, data=table, out=out)


def test_a_trial_that_is_older_than_a_setting_is_not_repeated(
    compared: Path, encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, ran = tmp_path / "run", []
    shutil.copytree(compared, out)
    for path in (out / "run.json", *(out / "trials").glob("*/run.json")):
        facts = json.loads(path.read_text())
        assert facts["settings"]["classify"].pop("skip_unlabelled") is False
        path.write_text(json.dumps(facts))
    before = {path: path.read_bytes() for path in (out / "trials").glob("*/*") if path.is_file()}

    def train(plan: Any, *rest: Any) -> Any:
        ran.append(plan.training.seed)
        raise Killed

    monkeypatch.setattr(steps, "train", train)
    with pytest.raises(Killed):
        finetune("classify", *QUICK, "--seeds", "4", model=encoder, data=table, out=out)
    assert ran == [3]
    assert before == {path: path.read_bytes() for path in before if path.is_file()}


def test_a_collapsed_run_is_named_and_restarted_once(
    encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate so low that nothing is learnt leaves one answer for all, whatever the seed."""
    still = (*QUICK, "--learning-rate", "1e-12", "--seeds", "2")
    monkeypatch.setattr(rows, "constant_answer", lambda *given: "'neg'" if not ran else constant_answer(*given))
    ran: list[int] = []
    finish = RunFolder.finish

    def counted(self: RunFolder, results: Mapping[str, Any]) -> None:
        ran.append(1)
        finish(self, results)

    monkeypatch.setattr(RunFolder, "finish", counted)
    monkeypatch.setattr(Classify, "metrics", lambda self, said, records: {"accuracy": 0.5})
    finetune("classify", *still, model=encoder, data=table, out=tmp_path / "run")
    said = capsys.readouterr().out
    assert "seed 0 has collapsed and is not counted; in its place: seed 1000" in said
    assert "collapsed: every development row is 'neg'; not counted" in said
    folders = {path.name for path in (tmp_path / "run" / "trials").iterdir()}
    assert {"seed-0", "seed-1", "seed-1000"} <= folders <= {"seed-0", "seed-1", "seed-1000", "seed-1001"}
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'class="hollow' in page and "replaces seed-0" in page
    assert best(tmp_path / "run")["trial"] != "seed-0"


def test_a_collapsed_run_is_the_model_only_where_all_have_collapsed() -> None:
    def ended(seed: int, score: float, collapsed: str) -> TrialResult:
        trial = StudyTrial(name=f"seed {seed}", folder=Path(f"seed-{seed}"), settings=TrialSettings(name=""), seed=seed)
        return TrialResult(trial=trial, finished=True, best={"metrics": {"f1": score}, "collapsed": collapsed})

    one, other, fair = ended(0, 0.6, "'a'"), ended(1, 0.7, "'a'"), ended(2, 0.5, "")
    assert choose_best([one, other, fair], "f1") == fair
    assert choose_best([one, other], "f1") == other


def test_a_kill_while_the_best_run_is_put_in_place_leaves_no_model(
    compared: Path, encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, given = tmp_path / "run", {"model": encoder, "data": table, "out": tmp_path / "run"}
    shutil.copytree(compared, out)
    copied: list[Path] = []

    def copy(path: Path, aside: Path) -> None:
        copied.append(path)
        if len(copied) == 3:
            raise Killed
        aside.write_bytes(path.read_bytes())

    monkeypatch.setattr("osbert_lab.study.trials.shutil.copyfile", copy)
    with pytest.raises(Killed):
        finetune("classify", *QUICK, "--seeds", "4", **given)
    assert not RunFolder(out).finished
    with refusal("unfinished-run"):
        load(out)
    monkeypatch.undo()
    finetune("classify", *QUICK, "--seeds", "3", **given)  # the command before, which had been finished
    texts = ["the good film", "a bad film"]
    assert load(out).predict(texts) == load(compared).predict(texts)
    assert (out / "recipe.toml").read_bytes() == (compared / "recipe.toml").read_bytes()


def test_a_comparison_of_which_every_run_broke_goes_on_with_another_rate(
    encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from osbert.training import trainer

    given = {"model": encoder, "data": table, "out": tmp_path / "run"}
    real, steps = trainer.limit, []

    def broken(weights: Any, clip: float) -> Any:
        steps.append(1)
        return real(weights, clip) * math.nan

    monkeypatch.setattr(trainer, "limit", broken)
    with refusal("training-diverged", "--learning-rate"):
        finetune("classify", *QUICK, "--seeds", "2", **given)
    count = len(steps)
    with refusal("training-diverged"):
        finetune("classify", *QUICK, "--seeds", "2", **given)
    assert len(steps) == count  # the same again would end the same way
    path = tmp_path / "run" / "trials" / "seed-0" / "run.json"  # as if it had collapsed, and that in its place failed
    path.write_text(json.dumps(json.loads(path.read_text()) | {"finished": {"best": {}}}))
    monkeypatch.setattr(trainer, "limit", real)
    capsys.readouterr()
    finetune("classify", *QUICK, "--seeds", "2", "--learning-rate", "5e-3", **given)
    said = capsys.readouterr().out
    assert said.count("it failed before and begins anew: optimizer.learning_rate: 0.02 -> 0.005") == 2
    assert RunFolder(tmp_path / "run").finished and load(tmp_path / "run").predict(["good film"])
    assert recipe.read(tmp_path / "run" / "recipe.toml")["optimizer"]["learning_rate"] == 5e-3


def test_a_run_that_breaks_is_kept_and_the_others_go_on(
    encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from osbert.training import trainer

    real, steps = trainer.limit, []

    def broken(weights: Any, clip: float) -> Any:
        steps.append(1)
        return real(weights, clip) * (math.nan if 30 < len(steps) <= 33 else 1)

    monkeypatch.setattr(trainer, "limit", broken)
    often = (*QUICK, "--checkpoint-every", "5")
    finetune("classify", *often, "--seeds", "2", model=encoder, data=table, out=tmp_path / "run")
    said = capsys.readouterr().out
    assert "not finite in 3 steps" in said and "the others go on" in said
    assert best(tmp_path / "run")["trial"] == "seed-1"
    assert "losses became infinite" in (tmp_path / "run" / "report.html").read_text()
    assert not list(tmp_path.rglob("checkpoints")) and not list(tmp_path.rglob("best-epoch-*"))
    count = len(steps)
    finetune("classify", *often, "--seeds", "2", model=encoder, data=table, out=tmp_path / "run")
    assert len(steps) == count


def test_the_papers_grids() -> None:
    paper, glue = ([one.settings for one in Grid(GRIDS[name]).after([])] for name in ("paper", "glue"))
    assert len(paper) == 18 and len(glue) == 4
    assert {one["training.batch"] for one in paper} == {16, 32}
    assert {one["training.epochs"] for one in paper} == {2, 3, 4}
    assert {one["optimizer.learning_rate"] for one in paper} == {5e-5, 3e-5, 2e-5}
    assert [one["optimizer.learning_rate"] for one in glue] == [5e-5, 4e-5, 3e-5, 2e-5]
    assert {(one["training.batch"], one["training.epochs"]) for one in glue} == {(32, 3)}
    names = [one.name for one in Grid(GRIDS["paper"]).after([])]
    assert len(set(names)) == 18 and names[0] == "batch-16-learning_rate-5e-05-epochs-2"
    (alone,) = Grid({}).after([])
    assert alone == TrialSettings(name="") and alone.describe() == ""


def test_a_search_chooses_settings_by_their_mean_and_shares_the_rows(
    encoder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"training.batch": (16, 32), "optimizer.learning_rate": (1e-2, 1e-9)}
    monkeypatch.setitem(GRIDS, "glue", grid)  # type: ignore[index]
    encoded = []
    monkeypatch.setattr(Classify, "encode", counting(Classify.encode, encoded))
    few = ("--epochs", "1", "--precision", "fp32", "--log-every", "50", "--search", "glue", "--seeds", "2")
    with refusal("options-exclude-each-other", "--training.epochs"):
        finetune("classify", *few, model=encoder, data=table, out=tmp_path / "run")
    finetune("classify", *few[2:], model=encoder, data=table, out=tmp_path / "run")
    settings = recipe.read(tmp_path / "run" / "recipe.toml")
    assert settings["optimizer"]["learning_rate"] == 1e-2
    assert len(list((tmp_path / "run" / "trials").glob("*-seed-*"))) >= 8
    assert encoded.count(True) == 180 and encoded.count(False) == 20  # each row once: development without its labels
    assert best(tmp_path / "run")["trial"].startswith("batch-16-learning_rate-0.01-seed-")


def counting(encode: Any, seen: list[bool]) -> Any:
    def counted(self: Classify, record: Any, packer: Any) -> Any:
        seen.append(record.label is not None)
        return encode(self, record, packer)

    return counted


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (("--search", "optuna"), ("invalid-setting", "optuna", "--trials")),
        (("--trials", "3"), ("invalid-setting", "--search optuna")),
        (("--seeds", "-1"), ("invalid-setting", "seeds", "0")),
        (("--search", "papers"), ("invalid-value", "papers", "'paper'")),
        (
            ("--search", "paper", "--batch", "8", "--epochs", "1"),
            ("options-exclude-each-other", "--training.batch", "training.epochs"),
        ),
    ],
)
def test_what_makes_no_comparison_is_told(
    table: Path, tmp_path: Path, settings: Sequence[str], refused: tuple[str, ...]
) -> None:
    with refusal(*refused):
        read_plan("classify", parse_settings(settings, schema("classify")), model=tmp_path, data=table)


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with refusal("missing-library"):
        Optuna(trials=3, rates=(1e-5, 1e-4), seed=0, folder=tmp_path)


def proposed(folder: Path, *, trials: int, seed: int = 0) -> list[TrialSettings]:
    """Return proposals where the score is the better, the nearer the learning rate is to 3e-5."""
    tried: list[SettingsScore] = []
    for candidate in Optuna(trials=trials, rates=(1e-5, 1e-3), seed=seed, folder=folder).after(tried):
        rate = candidate.settings["optimizer.learning_rate"]
        tried.append(SettingsScore(settings=candidate, score=-abs(math.log(rate / 3e-5))))
    return [one.settings for one in tried]


def test_optuna_learns_and_goes_on_with_what_it_has_proposed(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra search")
    folders = [tmp_path / name for name in ("one", "two", "other")]
    for folder in folders:
        folder.mkdir()
    whole = proposed(folders[0], trials=24)
    proposed(folders[1], trials=24)
    write_sealed(path := folders[1] / "proposals.json", {"proposals": read_sealed(path)["proposals"][:9]})
    assert proposed(folders[1], trials=24) == whole
    assert proposed(folders[2], trials=24, seed=5) != whole
    away = [abs(math.log(one.settings["optimizer.learning_rate"] / 3e-5)) for one in whole]
    assert sum(away[12:]) < sum(away[:12])
    assert all(8 <= one.settings["training.batch"] <= 32 and 2 <= one.settings["training.epochs"] <= 4 for one in whole)
    assert whole[0].name.startswith("000-batch-")


def test_optuna_searches_in_a_comparison(encoder: Path, table: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra search")
    few = ("--precision", "fp32", "--log-every", "50", "--search", "optuna", "--trials", "2")
    (rows := tmp_path / "rows.csv").write_text("\n".join(table.read_text().splitlines()[:41]))
    finetune("classify", *few, model=encoder, data=rows, out=tmp_path / "run")
    path = tmp_path / "run" / "trials" / "proposals.json"
    assert len(read_sealed(path)["proposals"]) == 2
    path.write_text(path.read_text().replace("batch", "bitch"))
    with refusal("damaged-file", "proposals.json"):
        list(Optuna(trials=2, rates=(1e-5, 1e-3), seed=0, folder=path.parent).after([]))
    load(tmp_path / "run").predict(["good"])
