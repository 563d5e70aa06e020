"""The reports of families and figure5: what is said of scores follows from intervals, and only from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ended_tables import plan
from osbert import recipe
from osbert_lab.papers.data import TableColumn
from osbert_lab.papers.encoders import PretrainedEncoders, run_folder
from osbert_lab.papers.families import write_families_report
from osbert_lab.papers.figure import write_figure_report
from osbert_lab.papers.plan import TablePlan
from osbert_lab.papers.tables import RecipeClaim, TableRow, read_table
from osbert_lab.papers.verdicts import (
    TOO_FEW,
    claim_sentence,
    compare_all_rows,
    compare_rows,
    describe_intervals,
    format_mean,
    select_significant,
)
from refusals import refusal

CLAIM = RecipeClaim(says="A is better than B (somebody)", above="A", below="B")


def test_rows_are_told_apart_where_the_interval_of_the_difference_excludes_0() -> None:
    scores = {
        "A": {"one": [0.70, 0.72, 0.71], "two": [0.50, 0.60, 0.70], "three": [0.2, 0.21, 0.2]},
        "B": {"one": [0.60, 0.61, 0.61], "two": [0.52, 0.58, 0.71], "three": [0.3, 0.31, 0.31]},
    }
    signs = {one.column: one.summary.sign for one in compare_rows(scores, "A", "B")}
    assert signs == {"one": 1, "two": 0, "three": -1}
    found = compare_all_rows(scores)
    said, count = [*map(str, select_significant(found))], describe_intervals(found)
    assert [line.split(":")[0] for line in said] == ["one", "three"]
    assert "A is above B" in said[0] and "+10.3 (+8.9 to +11.8)" in said[0] and "B is above A" in said[1]
    assert "Of 3 differences the intervals of 2 exclude 0" in count and "0.2" in count
    claim = claim_sentence(CLAIM, scores)
    assert "it shows on one +10.3" in claim and "the opposite shows on three" in claim
    assert "no significant difference on two" in claim
    assert claim_sentence(RecipeClaim(says="x", above="A", below="C"), scores) == ""


def test_two_seeds_say_nothing() -> None:
    scores = {"A": {"one": [0.9, 0.9]}, "B": {"one": [0.1, 0.1]}}
    assert describe_intervals(compare_all_rows(scores)) == TOO_FEW and not select_significant(compare_all_rows(scores))
    assert "2 of the 3 seeds" in claim_sentence(CLAIM, scores)
    assert format_mean([0.5, 0.7]) == "60.0" and all(one.summary.sign == 0 for one in compare_all_rows(scores))


def test_a_column_with_two_seeds_is_left_out_beside_one_with_three() -> None:
    scores = {
        "A": {"few": [0.9, 0.8], "one": [0.70, 0.72, 0.71]},
        "B": {"few": [0.1, 0.2], "one": [0.60, 0.61, 0.61]},
    }
    assert "Of 1 differences" in describe_intervals(compare_all_rows(scores))
    claim = claim_sentence(CLAIM, scores)
    assert "it shows on one +10.3" in claim and "too few seeds on few (2)" in claim and "nan" not in claim


def test_paired_runs_share_their_seed() -> None:
    """A difference that each seed shows is seen although the seeds differ by more."""
    scores = {"A": {"one": [0.51, 0.61, 0.71]}, "B": {"one": [0.50, 0.60, 0.70]}}
    [one] = compare_all_rows(scores)
    assert one.summary.sign == 1


def test_a_report_of_families_has_a_picture_for_each_column_and_says_what_shows(tmp_path: Path) -> None:
    printed = write_families_report(plan("families", tmp_path))
    page = (tmp_path / "report.html").read_text("utf-8")
    table = read_table("families")
    assert page.count("<svg") == len(table.columns)
    assert all(f"<td>{row.name}</td>" in page for row in table.rows)
    assert "mlm 5.1" in printed and "1,480,000" in printed
    assert "SST-2: albert is above bert" in printed and "it shows on" in printed and "the opposite shows on" in printed
    assert {claim.above for claim in table.claims} | {claim.below for claim in table.claims} <= {
        row.name for row in table.rows
    }


def test_runs_that_did_not_have_the_same_minutes_are_named(tmp_path: Path) -> None:
    found = plan("families", tmp_path)
    ends = {0: (121.0, False), 1: (131.0, False), 2: (60.0, True)}
    for seed, (seconds, resumed) in ends.items():
        path = run_folder("gpt", seed, "encoder", tmp_path) / "run.json"
        facts = json.loads(path.read_text())
        facts["finished"] |= {"wall_seconds": seconds, "resumed": resumed}
        path.write_text(json.dumps({**facts, "budget": {"minutes": 2.0}}))
    lines = [line for line in write_families_report(found).splitlines() if line.startswith("Time: ")]
    assert len(lines) == 2 and "131.0 s instead of 120 s" in lines[0] and "gpt, seed 2" in lines[1]


def test_a_report_of_a_figure_has_both_curves_and_their_intervals(tmp_path: Path) -> None:
    last, steps = read_table("figure5").rows, (200, 400, 600, 800)
    early = tuple(TableRow(name=f"{row.name}, step {s}", encoder=row.name, step=s) for s in steps for row in last)
    printed = write_figure_report(plan("figure5", tmp_path, (*last, *early)))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<polyline") == 2 + 2 * 5  # two curves, and an interval at each of their points
    assert "left to right at step 200 is above masked LM at step 200" in printed
    assert "masked LM at step 1,000 is above masked LM at step 400" in printed
    assert "almost 1.0% of accuracy" in printed and "almost 1.0% of accuracy" in page


class SettingsAlone(PretrainedEncoders):
    """Encoders whose protocol is their settings, without a corpus."""

    def protocol(self, rows: Sequence[TableRow], out: Path) -> dict[str, Any]:
        """Return the settings of each row."""
        return {"pretraining": {row.name: recipe.as_table(self.read(row)) for row in rows if not row.encoder}}


def begun(out: Path, *columns: TableColumn, **settings: Any) -> dict[str, Any]:
    """Return the protocol of a study of two families, which is written as `begin` does."""
    table = read_table("families")
    table = replace(table, rows=table.rows[:2], columns=columns)
    encoders = SettingsAlone(recipe="cpu", corpus=out, settings=settings, usual=table.usual)
    protocol = TablePlan(table=table, columns=columns, encoders=encoders, data=out, out=out)._protocol()
    (out / "protocol.json").write_text(json.dumps(protocol))
    return protocol


def test_a_study_of_an_earlier_version_goes_on_where_new_settings_are_at_their_defaults(tmp_path: Path) -> None:
    protocol = begun(tmp_path)
    earlier = json.loads(json.dumps(protocol))
    del earlier["pretraining"]["bert"]["mlm"]["later_rates"]
    del earlier["pretraining"]["bert"]["training"]["models_every"]
    earlier["pretraining"]["bert"]["training"]["log_every"] = 7
    (tmp_path / "protocol.json").write_text(json.dumps(earlier))
    assert begun(tmp_path) == protocol
    with refusal("begun-with-other-settings", "pretraining.bert.training.models_every: 0 -> 5"):
        begun(tmp_path, **{"training.models_every": 5})
    with refusal("begun-with-other-settings", "pretraining.bert-fast.data.batch: 32 -> 8"):
        begun(tmp_path, **{"data.batch": 8})


def test_data_sets_join_a_begun_study_and_stay_away_from_it(tmp_path: Path) -> None:
    columns = {column.name: column for column in read_table("families").columns}
    sst2, squad = columns["SST-2"], columns["SQuAD F1"]
    for folder, names in (("SST-2", ("train.tsv", "dev.tsv")), ("squad", ("train-v1.1.json", "dev-v1.1.json"))):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    begun(tmp_path, sst2)
    both = begun(tmp_path, sst2, squad)
    assert {*both["data"]} == {"SST-2", "SQuAD F1"} and {*both["finetuning_by_column"]} == {"SQuAD F1"}
    assert begun(tmp_path, sst2) == both
    with refusal("begun-with-other-settings", "finetuning_by_column.SQuAD F1"):
        begun(tmp_path, replace(squad, settings={"release": "1.1", "epochs": 9}))
