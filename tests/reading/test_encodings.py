from __future__ import annotations

import codecs

import pytest

from osbert.reading import encodings as decoding
from osbert.reading.documents import DocumentOptions, read_chunks
from osbert.reading.encodings import guess_encoding
from osbert.reading.inputs import Repairs
from refusals import refusal

SAMPLES = {
    "cp1252": "Le garçon a mangé près de l’hôtel où l’été était passé. Grüße aus München, schöne Straße.\n",
    "cp1251": "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n",
    "koi8_r": "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n",
    "gb18030": "我们在这里说的是中国人民的生活，他是一个好人。这个国家的人不少。\n",
    "big5": "我們在這裡說的是中國人民的生活，他是一個好人。這個國家的人不少。\n",
    "shift_jis": "これは日本語の文章です。彼はまだ東京にいると思う。\n",
    "euc_jp": "これは日本語の文章です。彼はまだ東京にいると思う。\n",
    "euc_kr": "나는 오늘 아침에 학교에 가지 않았다. 그는 이것을 사는 사람이다.\n",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_legacy_encodings_are_guessed_from_a_few_lines(encoding):
    assert guess_encoding((SAMPLES[encoding] * 3).encode(encoding)) == encoding


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("é è à ê ü", "cp1252"),
        ("Il a été là-bas à Noël.", "cp1252"),
        ("Über Öl", "cp1252"),
        ("text,label £ 5", "cp1252"),
        ("и в школе", "cp1251"),
        ("Москва", "koi8_r"),
        ("电影很好", "gb18030"),
        ("This 手机 works, 质量不错！", "gb18030"),
    ],
)
def test_short_texts_are_guessed(text, encoding):
    assert guess_encoding(text.encode(encoding)) == encoding


def test_short_korean_is_not_taken_for_chinese():
    assert guess_encoding("안녕".encode("euc_kr")) != "gb18030"


@pytest.mark.parametrize("text", ["plain words\n" * 20, "中文字\n" * 40])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_guessed(encoding, text):
    if text[0] == "中" and encoding in ("utf-16-le", "utf-16-be"):
        text = text.replace("\n", " and\n")
    assert guess_encoding(text.encode(encoding)) == encoding


def test_damaged_utf_8_and_noise_are_told_apart():
    assert guess_encoding("déjà vu, naïve café".encode() + b"\xff") == "utf-8"
    assert guess_encoding(bytes(range(128, 256)) * 3) is None


@pytest.mark.parametrize("encoding", SAMPLES)
def test_the_error_names_place_and_encoding_and_its_advice_works(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(b"First line.\n" * 5 + (SAMPLES[encoding] * 3).encode(encoding))
    with refusal("wrong-encoding", f"--encoding {encoding},", "line 6", "a.txt: byte 6"):
        list(read_chunks([path]))
    (chunk,) = read_chunks([path], encoding=encoding)
    assert SAMPLES[encoding].strip() in chunk.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_files_are_refused_with_advice_that_works(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes("One line.\r\nAnother.".encode(encoding))
    with refusal("wrong-encoding", "--encoding", encoding):
        list(read_chunks([path]))
    (chunk,) = read_chunks([path], encoding=encoding)
    assert chunk.text == "One line.\nAnother."


@pytest.mark.parametrize("place", [0, 99, 1000, 1023, 1024, 1025, 5000])
def test_offset_and_line_are_exact_across_blocks(tmp_path, monkeypatch, place):
    monkeypatch.setattr(decoding, "BLOCK", 1024)
    data = bytearray(("wörter hier\n" * 1000).encode())
    while data[place] >= 128 or data[place] == 10:
        place += 1
    data[place] = 0xFF
    (tmp_path / "a.txt").write_bytes(data)
    line = data.count(b"\n", 0, place) + 1
    with refusal("wrong-encoding", f"{place:,}", f"{line:,}", "8", "--errors"):
        list(read_chunks([tmp_path / "a.txt"]))


def test_replacing_counts_what_it_replaces_and_not_what_was_there(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one \xff two \xfe three " + "� kept".encode())
    repairs = Repairs()
    (chunk,) = read_chunks([tmp_path / "a.txt"], errors="replace", repairs=repairs)
    assert chunk.text == "one � two � three � kept"
    assert repairs.replaced == 2


def test_characters_and_line_ends_may_lie_across_blocks(tmp_path, monkeypatch):
    text = "größe 中文 😀\r\nline\rline\n" * 50
    (tmp_path / "a.txt").write_bytes(text.encode())
    for block in range(1, 40):
        monkeypatch.setattr(decoding, "BLOCK", block)
        (chunk,) = read_chunks([tmp_path / "a.txt"])
        assert chunk.text == text.replace("\r\n", "\n").replace("\r", "\n").strip()


def test_byte_order_marks_are_removed_and_counted(tmp_path):
    for name in ("a.txt", "b.jsonl"):
        (tmp_path / name).write_bytes(codecs.BOM_UTF8 + b'{"text": "x"}\n')
    repairs = Repairs()
    chunks = list(read_chunks([tmp_path / "a.txt", tmp_path / "b.jsonl"], repairs=repairs))
    assert [chunk.text for chunk in chunks] == ['{"text": "x"}', "x"]
    assert repairs.boms == 2


@pytest.mark.parametrize("encoding", ["utf-9", "hex", ""])
def test_an_encoding_that_does_not_exist_is_refused(encoding):
    with refusal("invalid-value"):
        DocumentOptions(encoding=encoding)
