"""What a model prefers and knows: equal to scores and fills one by one, from files of pairs and facts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import osbert
from osbert.inference.engine import Engine, load
from osbert.inference.pieces import language_model
from osbert_lab.analysis.coreference_files import LinkedText, MentionLink
from osbert_lab.analysis.judgements import find_shared_pieces
from osbert_lab.analysis.kinds import pronouns
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.model_analysis import ModelAnalysis
from osbert_lab.analysis.sample import ItemSample, LinkedItem
from refusals import refusal
from tiny_runs import WORDS, write_run

ARTICLES, ADJECTIVES, NOUNS = ("a", "the"), ("good", "fine", "bad", "poor"), ("film", "play", "actor", "actors")
PATTERNS = ["the [X] is a [Y] .", "[X] , a [Y]", "a [Y] [X]"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "model", None, masks=True, layers=2)


@pytest.fixture(scope="module")
def engine(model: Path) -> Engine:
    return load(model, device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data")
    sentences = [" ".join(words) + " ." for words in itertools.product(ARTICLES, ADJECTIVES, NOUNS)]
    shuffled = [" ".join(reversed(one.split())) for one in sentences]
    for name, term in (("order", "syntax"), ("articles", "syntax"), ("nouns", "words")):
        other = shuffled if name == "order" else [one.replace("a ", "the ", 1) for one in sentences]
        other = [one.replace("film", "actors") for one in other] if name == "nouns" else other
        rows = [
            {"sentence_good": good, "sentence_bad": bad, "UID": name, "linguistics_term": term}
            for good, bad in zip(sentences, other, strict=True)
            if good != bad
        ]
        (made / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kinds = ["age", "work"]
    pairs = [
        (one, one.replace("good", "poor").replace("fine", "bad"), kinds[place % 2])
        for place, one in enumerate(sentences)
    ]
    lines = [f"{place},{more},{less},{kind}" for place, (more, less, kind) in enumerate(pairs)]
    (made / "crows.csv").write_text(",sent_more,sent_less,bias_type\n" + "\n".join(lines) + "\n")
    for name in ("facts", "patterns"):
        (made / name).mkdir()
    facts = [
        {"sub_label": one, "obj_label": two} for one, two in itertools.product(ADJECTIVES, ("film", "play", "x y"))
    ]
    (made / "facts" / "P1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in facts))
    (made / "patterns" / "P1.jsonl").write_text("".join(json.dumps({"pattern": one}) + "\n" for one in PATTERNS))
    return made


@pytest.fixture(scope="module")
def found(model: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelAnalysis:
    return osbert.analyse(model, data=folder, out=tmp_path_factory.mktemp("out") / "analysis", device="cpu")


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("masking", "end"), [("piece", ""), ("word", "_word")])
def test_the_preferred_sentence_is_that_of_the_higher_score(
    found: ModelAnalysis, engine: Engine, folder: Path, masking: str, end: str
) -> None:
    rates = {}
    for name in ("order", "articles", "nouns"):
        pairs = rows(folder / f"{name}.jsonl")
        good, bad = (
            [one.log_likelihood for one in engine.score([pair[key] for pair in pairs], masking=masking)]
            for key in ("sentence_good", "sentence_bad")
        )
        rates[name] = sum(one > two for one, two in zip(good, bad, strict=True)) / len(pairs)
        figure = found.figure(f"minimal_pairs{end}", paradigm=name)
        assert figure.value == pytest.approx(rates[name]) and figure.n == len(pairs) and figure.interval
    syntax = found.figure(f"phenomenon{end}", phenomenon="syntax")
    assert syntax.value == pytest.approx((rates["order"] + rates["articles"]) / 2, rel=1e-5)
    mean = found.figure(f"minimal_pairs_mean{end}")
    assert mean.value == pytest.approx(sum(rates.values()) / 3, rel=1e-5) and mean.baselines["guessing"] == 0.5


def test_pairs_that_change_places_change_the_rate(
    found: ModelAnalysis, model: Path, folder: Path, tmp_path: Path
) -> None:
    swapped = [
        {**row, "sentence_good": row["sentence_bad"], "sentence_bad": row["sentence_good"]}
        for row in rows(folder / "order.jsonl")
    ]
    (tmp_path / "order.jsonl").write_text("".join(json.dumps(row) + "\n" for row in swapped))
    other = osbert.analyse(model, data=tmp_path / "order.jsonl", out=tmp_path / "out", device="cpu")
    before = found.figure("minimal_pairs", paradigm="order").value
    assert other.figure("minimal_pairs", paradigm="order").value == pytest.approx(1 - before, rel=1e-5)


def test_stereotypes_are_scored_on_the_pieces_that_both_sentences_have(found: ModelAnalysis, engine: Engine) -> None:
    more, less = engine.score(["the good film .", "the poor film ."])
    kept = [0, 2, 3]
    margin = sum(
        (more.pieces[place].log_probability or 0) - (less.pieces[place].log_probability or 0) for place in kept
    )
    ids = [engine.tokenizer.encode(one.text).tolist() for one in (more, less)]
    assert [part.tolist() for part in find_shared_pieces(*ids)] == [[place in kept for place in range(4)]] * 2
    every = found.figure("stereotypes")
    assert every.n == 16 and every.baselines == {"no preference": 0.5}  # pairs that are the same have no preference
    assert (margin > 0) in (every.value > 0, every.value == 1)


def test_facts_are_answered_by_the_likeliest_object(found: ModelAnalysis, engine: Engine) -> None:
    answers = {
        adjective: [
            max(
                (one for one in engine.fill(pattern.replace("[X]", adjective).replace("[Y]", "[MASK]"), top=100)[0]
                 if one.piece in ("film", "play")),
                key=lambda one: one.probability,
            ).piece
            for pattern in PATTERNS
        ]
        for adjective in ADJECTIVES
    }  # fmt: skip
    facts = [(adjective, noun) for adjective in ADJECTIVES for noun in ("film", "play")]
    right = [[one == noun for one in answers[adjective]] for adjective, noun in facts]
    assert found.figure("facts", relation="P1").value == pytest.approx(sum(one[0] for one in right) / 8)
    assert found.figure("facts_always_right", relation="P1").value == pytest.approx(sum(map(all, right)) / 8)
    alike = [sum(one == two for one, two in itertools.combinations(answers[key], 2)) / 3 for key in ADJECTIVES]
    assert found.figure("facts_consistent", relation="P1").value == pytest.approx(sum(alike) / 4)
    assert found.figure("facts", relation="P1").baselines == {"most frequent object": 0.5, "guessing": 0.5}
    assert any("4 have an object" in note for note in found.notes)


def test_the_report_has_a_picture_of_each_with_a_caution(found: ModelAnalysis) -> None:
    page = (found.folder / "report.html").read_text()
    assert all(word in page for word in ("minimal pairs", "stereotypes", "What it knows: facts", "Blodgett"))
    assert page.count("<figure") == page.count('<p class="soft">')


def test_models_that_predict_no_pieces_say_so(runs: dict[str, Path], model: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "texts.txt").write_text("the good film .\n\na bad play .\n\n" * 12)
    other = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", device="cpu", shortest=3)
    assert {"minimal_pairs", "stereotypes", "facts"}.isdisjoint(other.figures)
    [mute] = [note for note in other.notes if "no language head" in note]
    assert {*mute.partition(":")[0].split(", ")} >= {"minimal_pairs", "stereotypes", "facts"}
    causal = write_run(tmp_path / "causal", None, masks=True, direction="left_to_right")
    read = osbert.analyse(causal, data=folder, out=tmp_path / "read", device="cpu", shortest=3)
    assert read.figure("minimal_pairs", paradigm="order").n == 32 and "stereotypes" not in read.figures


def test_rows_that_cannot_be_used_are_named_and_left_out_where_that_is_said(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    good = {"sentence_good": "a film", "sentence_bad": "film a"}
    bad = [{**good, "sentence_bad": ""}, {**good, "sentence_good": "a film " * 12}]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*bad, *[good] * 3]))
    with refusal("unusable-row", "pairs.jsonl, line 1", "line 2", 24, 22):
        osbert.analyse(model, data=path, out=tmp_path / "out", device="cpu")
    found = osbert.analyse(model, data=path, out=tmp_path / "out", device="cpu", errors="replace")
    assert found.figure("minimal_pairs", paradigm="pairs").n == 3
    assert sum("left out:" in note for note in found.notes) == 2


def write_occupations(folder: Path, **others: str) -> Path:
    folder.mkdir()
    sentences = [f"[the {adjective} actor] , [{{}}] {noun} ." for adjective in ADJECTIVES for noun in NOUNS]
    for name, genders in (("pro", ("he", "she")), ("anti", ("she", "he"))):
        lines = [f"{n} {one.format(genders[n % 2])}\n" for n, one in enumerate(sentences, 1)]
        (folder / f"{name}_stereotyped_type1.txt.dev").write_text("".join(lines) + others.get(name, ""))
    (folder / "male_occupations.txt").write_text("driver\nguard\n")
    return folder


def test_the_pronoun_of_a_stereotype_is_likelier_where_its_sentence_scores_higher(tmp_path: Path) -> None:
    model = write_run(tmp_path / "model", None, masks=True, layers=2, words=[*WORDS, "he", "she", ","])
    engine = load(model, device="cpu")
    folder = write_occupations(tmp_path / "data")
    found = osbert.analyse(model, data=folder, out=tmp_path / "out", device="cpu")
    assert list(found.counts) == ["occupations"] and any("16 pairs of sentences on" in note for note in found.notes)
    texts = [
        [line.split(" ", 1)[1].replace("[", "").replace("]", "") for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*.dev"), reverse=True)
    ]
    pro, anti = ([one.log_likelihood for one in engine.score(part)] for part in texts)
    right = [one > two for one, two in zip(pro, anti, strict=True)]
    assert found.figure("occupations").n == 16
    assert found.figure("occupations").value == pytest.approx(sum(right) / 16, rel=1e-5)
    page = (found.folder / "report.html").read_text()
    assert page.count("<figure") == page.count('<p class="soft">') == 1


def test_sentences_without_a_partner_are_named(model: Path, tmp_path: Path) -> None:
    folder = write_occupations(
        tmp_path / "data", pro="17 [a] [he] film\nfilm\n18 [a] [it] film\n", anti="18 [a] [it] .\n"
    )
    with refusal("unusable-row", "pro_stereotyped_type1.txt.dev, line 17", "line 18", "line 19", "hers"):
        osbert.analyse(model, data=folder, out=tmp_path / "out", device="cpu")
    (folder / "anti_stereotyped_type1.txt.dev").unlink()
    with refusal("missing-file", "anti_stereotyped_type1.txt.dev"):
        osbert.analyse(model, data=folder, out=tmp_path / "out", device="cpu")


def test_the_gender_of_a_masked_pronoun_is_that_of_the_likelier_forms(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pronouns, "FORMS", {"masculine": ("film", "actor"), "feminine": ("play", "good")})
    link = MentionLink(mention=1, candidates=(0, 4), right=frozenset({0}), kind="ambiguous pronouns")
    items = []
    for article, word in itertools.product(ARTICLES, ("film", "play")):
        words = (article, word, "bad", "the", "poor")
        text = LinkedText(words=words, links=(link,), path=Path("gap.tsv"), line=2)
        items += 10 * [LinkedItem(text=text, part="select")]
    model = AnalysedModel(
        learner=engine.learner, packer=engine.packer, signs=np.zeros(16, bool), seed=0, masks=engine.masks,
        language=language_model(engine),
    )  # fmt: skip
    found = pronouns.Pronouns().measure(model, ItemSample(items=items), lambda _: None)
    right = []
    for article, gender in itertools.product(ARTICLES, (False, True)):
        [fills] = engine.fill(f"{article} [MASK] bad the poor", top=100)
        chances = {fill.piece: fill.probability for fill in fills}
        right.append((chances["play"] + chances["good"] > chances["film"] + chances["actor"]) == gender)
    assert [one.n for one in found] == [40, 20, 20]
    assert [one.value for one in found] == [np.mean(right), np.mean(right[1::2]), np.mean(right[::2])]
    assert "of the feminine" in pronouns.Pronouns.section(found).html()
    assert pronouns.Pronouns().measure(model, ItemSample(items=items[:4]), lambda _: None) == []
