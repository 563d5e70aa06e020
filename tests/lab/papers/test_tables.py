"""The tables of the paper as osbert runs them: their settings, and the rows that are drawn of their data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from osbert.recipe import as_table
from osbert.runs.pretrain.settings import read_settings
from osbert_lab.papers import tables as reproduce_tables
from osbert_lab.papers.choices import narrow_table
from osbert_lab.papers.encoders import PretrainedEncoders
from osbert_lab.papers.plan import TablePlan
from osbert_lab.papers.published import TABLE_8
from osbert_lab.papers.published import TABLES as PUBLISHED
from osbert_lab.papers.scale import TableScale
from osbert_lab.papers.tables import keywords, read_table, spread
from refusals import refusal

TABLES = {name: read_table(name) for name in PUBLISHED}
MNLI, QNLI, MRPC, SST2, _ = TABLES["table5"].columns


def test_the_mixes_of_table_8_are_mlm_settings() -> None:
    found = [read_settings("cpu", keywords(row.pretraining)).mlm for row in TABLES["table8"].rows]
    shares = [(mlm.mask, 1 - mlm.mask - mlm.random, mlm.random) for mlm in found]
    wanted = [tuple(int(share) / 100 for share in mix.split("/")) for mix in TABLE_8.figures]
    assert shares == [pytest.approx(mix) for mix in wanted]


def test_rows_are_drawn_and_a_missing_development_file_is_split_off(tmp_path: Path) -> None:
    lines = [f"{number}\tq{number}\ts{number}\tentailment" for number in range(50)]
    header = "index\tquestion\tsentence\tlabel"
    (tmp_path / "QNLI").mkdir()
    (tmp_path / "QNLI" / "dev.tsv").write_text("\n".join([header, *lines]) + "\n", "utf-8")
    QNLI.prepare(tmp_path, tmp_path / "out", rows=30)
    train, dev = ((tmp_path / "out" / name).read_text("utf-8").splitlines() for name in ("train.tsv", "dev.tsv"))
    assert train[0] == dev[0] == header and len(train) == 31 and len(dev) == 11
    assert not {*train[1:]} & {*dev[1:]} and {*train[1:], *dev[1:]} < {*lines}
    QNLI.prepare(tmp_path, tmp_path / "all", rows=0, dev_rows=4)
    train, few = ((tmp_path / "all" / name).read_text("utf-8").splitlines() for name in ("train.tsv", "dev.tsv"))
    assert len(train) == 41 and len(few) == 5 and {*few} < {*dev}


def test_the_official_training_rows_are_taken_where_they_are(tmp_path: Path) -> None:
    header, folder = "index\tquestion\tsentence\tlabel", tmp_path / "QNLI"
    folder.mkdir()
    for name in ("dev.tsv", "train.tsv"):
        assert QNLI.find(tmp_path) == ([folder / "dev.tsv"] if name == "train.tsv" else [])
        (folder / name).write_text(f"{header}\n1\t{name}\ts\tentailment\n", "utf-8")
    assert QNLI.find(tmp_path) == [folder / "train.tsv", folder / "dev.tsv"]
    QNLI.prepare(tmp_path, tmp_path / "out", rows=0)
    for name in ("train.tsv", "dev.tsv"):
        assert (tmp_path / "out" / name).read_text("utf-8") == (folder / name).read_text("utf-8")


def test_missing_files_are_all_told_when_there_are_none(tmp_path: Path) -> None:
    names = ("MNLI/train.tsv", "MNLI/dev_matched.tsv", "QNLI/dev.tsv", "MRPC/train.tsv", "SST-2/dev.tsv")
    with refusal("missing-split", *names):
        TABLES["table5"].present(tmp_path)
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).touch()
    assert TABLES["table5"].present(tmp_path) == (SST2,)


def test_spread_and_columns() -> None:
    assert spread([]) == "-" and spread([0.5]) == "50.0" and spread([0.4, 0.6]) == "50.0 +- 14.1"
    assert TABLES["table8"].headings == ("MNLI-m", "NER fine-tuned", "NER feature-based", "SST-2")
    assert TABLES["table5"].headings == TABLES["table5"].published.columns


def test_the_sizes_of_table_6_are_the_papers_and_can_be_shrunk() -> None:
    table = TABLES["table6"]
    sizes = [read_settings("bert-base", keywords(row.pretraining)).model for row in table.rows]
    assert [f"{one.layers}, {one.width}, {one.heads}" for one in sizes] == list(table.published.figures)
    small = [read_settings("bert-base", keywords(row.pretraining)).model for row in table.shrink(4).rows]
    assert [(one.layers, one.width, one.heads) for one in small][:2] == [(3, 192, 12), (6, 192, 3)]
    assert table.shrink(1) is table
    with refusal("invalid-value", "--shrink", "5", "12", "768"):
        table.shrink(5)
    with refusal("options-exclude-each-other"):
        TABLES["table8"].shrink(2)


def test_documents_of_tagged_words_are_drawn_whole(tmp_path: Path) -> None:
    folder = tmp_path / "conll2003"
    folder.mkdir()
    sentences = [f"word{number} NN B-NP O\n\n" for number in range(9)]
    documents = ["-DOCSTART- -X- O O\n\n" + "".join(sentences[at : at + 3]) for at in (0, 3, 6)]
    for name in ("eng.train", "eng.testa"):
        (folder / name).write_text("".join(documents), "utf-8")
    (dataset,) = TABLES["table7"].columns
    for rows, count in ((0, 3), (6, 2), (4, 1), (1, 1)):
        dataset.prepare(tmp_path, tmp_path / "out", rows=rows)
        drawn = (tmp_path / "out" / "eng.train").read_text("utf-8")
        assert drawn.count("-DOCSTART-") == count and drawn.count("word") == 3 * count
        assert all(document in drawn for document in documents if document.split("\n")[2] in drawn)
    assert (tmp_path / "out" / "eng.testa").read_bytes() == (folder / "eng.testa").read_bytes()


def test_a_misspelt_setting_of_a_table_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce_tables.tomllib, "loads", lambda text: {"rows": [{"nam": "x"}], "columns": []})
    with refusal("unknown-setting", "table5.toml", "rows.nam", "name"):
        read_table("table5")


def test_no_family_has_dropout_or_sees_the_same_masks_again() -> None:
    table = read_table("families")
    found = {row.name: read_settings(row.recipe, keywords(row.usual)) for row in table.rows}
    assert {(one.model.dropout, one.model.attention_dropout, one.data.duplicates) for one in found.values()} == {
        (0.0, 0.0, 0)
    }


@pytest.mark.parametrize("name", ["masking", "roberta"])
def test_ablations_differ_in_what_their_rows_name_and_are_scored_on_masks_of_one_row(name: str) -> None:
    table, differing = read_table(name), {"objectives", "mlm", "nsp", "data", "optimizer"}
    encoders = PretrainedEncoders(recipe="cpu", corpus=Path("corpus"), usual=table.usual)
    settings = {row.name: as_table(encoders.read(row)) for row in table.rows}
    assert len({str(settings[row.name]) + row.corpus for row in table.rows}) == len(table.rows) >= 4
    first, *others = ({key: one[key] for key in one.keys() - differing} for one in settings.values())
    assert all(other == first for other in others) and first["minutes"] == 2.0
    assert settings[table.masks]["objectives"] == ["mlm"] and {one["mlm"]["rate"] for one in settings.values()} == {
        0.15
    }
    assert {row for claim in table.claims for row in (claim.above, claim.below)} <= {*settings}
    assert not narrow_table(table, TableScale(recipes="gpt-small")).masks
    assert narrow_table(table, TableScale(recipes=table.masks)).masks == table.masks


def test_claims_are_of_the_tables_own_recipes(tmp_path: Path) -> None:
    table, other = read_table("families"), tmp_path / "gpt.toml"
    other.write_text('objectives = ["mlm"]\n', "utf-8")
    named = TableScale(recipes=f"bert-paper,modernbert-small,{other}")
    assert [(one.above, one.below) for one in narrow_table(table, named).claims] == [("modernbert", "bert")]


def test_rows_are_named_by_themselves_or_all_of_a_recipe_together() -> None:
    named = {
        ("writing", "unilm"): ["unilm"],
        ("writing", "unilm fresh,t5"): ["unilm fresh", "t5"],
        ("writing", "unilm-small"): ["unilm", "unilm fresh"],
        ("corruption", "mass-mini"): [
            f"mass {length}" for length in ("half", "a tenth", "a fifth", "four fifths", "nine tenths")
        ],
        ("corruption", "bart masking, mass half, gpt-small"): ["bart masking", "mass half", "gpt-small"],
    }
    for (table, recipes), names in named.items():
        found = narrow_table(read_table(table), TableScale(recipes=recipes))
        assert [row.name for row in found.rows] == names
        assert all(row in read_table(table).rows for row in found.rows if row.name != "gpt-small")
    with refusal("duplicate-name", "unilm"):
        narrow_table(read_table("writing"), TableScale(recipes="unilm,unilm-small"))
    with refusal("unknown-recipe", "unilmm"):
        narrow_table(read_table("writing"), TableScale(recipes="unilmm"))
    assert {"SciTLDR ROUGE-1", "SciTLDR ROUGE-L", "questions ROUGE-1"} <= {*read_table("writing").headings}


def test_a_column_of_ones_own_is_headed_by_what_it_holds_and_keeps_all_rows(tmp_path: Path) -> None:
    table = narrow_table(read_table("families"), TableScale(tasks=f"classify={tmp_path / 'mine'},sst2"))
    assert table.headings == ("mine (accuracy)", "SST-2")
    encoders = PretrainedEncoders(recipe="cpu", corpus=tmp_path)
    plan = TablePlan(table=table, columns=table.columns, encoders=encoders, data=tmp_path, out=tmp_path)
    assert "mine" in plan.whole and "SST-2" not in plan.whole
    assert not replace(plan, scale=TableScale(rows=0)).whole
