"""Sentence models: reads and writes the files of sentence-transformers with pooling, length and normalisation.

In folder forms without such files, a field of the config stores the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from osbert import guarded
from osbert.errors import UserError
from osbert.files import write_json
from osbert.interop.files.json_files import read_if_there, read_object, read_value
from osbert.models.forms import Pooling

MODULES = "modules.json"
POOLING = "1_Pooling"
LENGTHS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
PROMPTS_NAMED = 3
"""Most prompts that a remark names: some models have one for each task."""
TOKENIZER = "tokenizer_config.json"
ENDLESS = 2**31
"""Above the length of any text: tokenizer files without a limit store a larger number."""
FIELD = "osbert_sentences"
"""The field of a config."""
OURS = get_args(Pooling)
PACKAGE = "sentence_transformers.models"
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weighted",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Their names of poolings in older files; ours are cls, mean, max and weighted."""
NAMED = {"weightedmean": "weighted"}
"""Their names in newer files that are not ours."""


@dataclass(frozen=True, kw_only=True)
class SentenceModel:
    """How a model computes the vector of a text. `length`: most tokens, 0 if not specified.

    `remarks`: settings in the files that osbert does not apply.
    """

    pooling: Pooling
    normalize: bool
    length: int = 0
    remarks: tuple[str, ...] = field(default=(), compare=False)


def read_sentence_model(folder: Path) -> SentenceModel | None:
    """Return the settings in the files beside a model; None if there are no such files.

    Raises UserError if a file is damaged, or has an unsupported pooling.
    """
    path = folder / MODULES
    if not path.is_file():
        return None
    parts = {_kind(part): part for part in _modules(path)}
    if "Pooling" not in parts:
        raise UserError(
            f"{path} names no Pooling, so it does not say how a text gets one vector.", code="unsupported-model"
        )
    part = parts["Pooling"].get("path", POOLING)
    if not guarded.leads_below(part):
        raise UserError(
            f"{path}: the path of a part must be a folder beside this file, not {part!r:.80}.", code="wrong-format"
        )
    pooling_at = folder / part / "config.json"
    files = {name: read_if_there(folder / name) for name in (LENGTHS, TOKENIZER, PROMPTS)}
    return SentenceModel(
        pooling=_pooling(read_object(pooling_at), pooling_at),
        normalize="Normalize" in parts,
        length=_length(files, folder),
        remarks=tuple(_not_applied(parts, files, folder)),
    )


def prompt_remarks(folder: Path) -> Iterator[str]:
    """Yield a remark if a model was trained with prompts, such as "query: ", of which none is the default.

    sentence-transformers puts one before a text if its caller names it. `SentenceModel.remarks` has a default one.
    """
    prompts, default = _prompts(read_if_there(folder / PROMPTS))
    if not prompts or default:
        return
    named = [f"{name[:60]}: {prompt[:60]!r}" for name, prompt in prompts.items()]
    others = f" and {len(named) - PROMPTS_NAMED} more" if len(named) > PROMPTS_NAMED else ""
    yield (
        f"{PROMPTS} has prompts that the model was trained with ({', '.join(named[:PROMPTS_NAMED])}{others}). osbert "
        "applies none: write the prompt that fits before each text."
    )


def write_sentence_model(folder: Path, model: SentenceModel, *, width: int) -> None:
    """Write the files with which sentence-transformers opens a folder and gives the same vectors."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if model.normalize else [])]
    paths = ["", POOLING, "2_Normalize"]
    for name in paths[1 : len(kinds)]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    modes = {mode: pooling == model.pooling for mode, pooling in MODES.items()}
    write_json(folder / POOLING / "config.json", {"word_embedding_dimension": width, **modes})
    write_json(folder / LENGTHS, {"max_seq_length": model.length or None, "do_lower_case": False})
    write_json(
        folder / MODULES,
        [
            {"idx": index, "name": str(index), "path": path, "type": f"{PACKAGE}.{kind}"}
            for index, (kind, path) in enumerate(zip(kinds, paths))
        ],
    )


def as_field(model: SentenceModel) -> dict[str, Any]:
    """Return the value of FIELD for a sentence model."""
    return {"pooling": model.pooling, "normalize": model.normalize, "length": model.length}


def of_field(config: Mapping[str, Any], *, where: str) -> SentenceModel | None:
    """Return the settings in FIELD of a config, or None. Raises UserError if the field is damaged."""
    settings = config.get(FIELD)
    if settings is None:
        return None
    kinds = {"pooling": str, "normalize": bool, "length": int}
    whole = isinstance(settings, dict) and {name: type(value) for name, value in settings.items()} == kinds
    if not whole or settings["pooling"] not in OURS or settings["length"] < 0:
        raise UserError(
            f"{where}: {FIELD} is damaged. It says how a text gets one vector: copy the file again.",
            code="damaged-file",
        )
    return SentenceModel(**settings)


def _modules(path: Path) -> list[Mapping[str, Any]]:
    parts = read_value(path)
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "type" in part for part in parts):
        raise UserError(f"{path}: expected a list of parts with their types.", code="wrong-format")
    return parts


def _kind(part: Mapping[str, Any]) -> str:
    return str(part["type"]).rpartition(".")[2]


def _length(files: Mapping[str, Mapping[str, Any]], folder: Path) -> int:
    """Return the most tokens of a text, from their own file, else from the tokenizer's."""
    length = files[LENGTHS].get("max_seq_length") or 0
    if not isinstance(length, int) or length < 0:
        raise UserError(
            f"{folder / LENGTHS}: max_seq_length must be a number of tokens, not {length!r}.", code="wrong-format"
        )
    bound = files[TOKENIZER].get("model_max_length")
    return length or (bound if isinstance(bound, int) and 0 < bound < ENDLESS else 0)


def _not_applied(parts: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[str]:
    """Yield a remark for each setting that sentence-transformers applies and osbert does not."""
    for kind in parts:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            yield f"{folder / MODULES} has a part {kind}, which osbert does not apply: the vectors are others"
    if files[LENGTHS].get("do_lower_case") and files[TOKENIZER].get("do_lower_case") is not True:
        yield f"{folder / LENGTHS} asks for texts in lower case: write them so, osbert leaves them as they are"
    if default := _prompts(files[PROMPTS])[1]:
        yield f"{folder / PROMPTS} puts {default!r} before every text: write it there, osbert does not"


def _prompts(settings: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Return the prompts of a model by name, without empty ones, and the default one ("" for none)."""
    found = settings.get("prompts")
    found = found if isinstance(found, dict) else {}
    prompts = {name: prompt for name, prompt in found.items() if isinstance(prompt, str) and prompt}
    return prompts, prompts.get(str(settings.get("default_prompt_name")), "")


def _pooling(config: Mapping[str, Any], path: Path) -> Pooling:
    """Return our name of the pooling in a file."""
    pooling_mode = config.get(
        "pooling_mode", [pooling for mode, pooling in MODES.items() if config.get(mode)] or "mean"
    )
    several = [str(name) for name in pooling_mode] if isinstance(pooling_mode, list) else [str(pooling_mode)]
    names = [NAMED.get(name, name) for name in several]
    if len(names) != 1 or names[0] not in OURS:
        raise UserError(
            f"{path} asks for the pooling {' and '.join(several)}; here are cls, mean, max and weighted. Give a "
            "pooling to take another one than the model was trained with; without modules.json it is a plain encoder.",
            code="unsupported-model",
        )
    return names[0]  # type: ignore[return-value]
