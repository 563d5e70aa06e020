"""Read generation_config.json: how a published model generates text, as options of ours, and what is not applied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osbert_lab.writing.settings import (
    MOST_BEAMS,
    MOST_PENALTY,
    MOST_PIECES,
    GenerationOptions,
    GenerationRules,
    WritingDefaults,
)

NAMES = {"num_beams": "beams", "max_new_tokens": "most", "min_new_tokens": "least", "no_repeat_ngram_size": "no_repeat"}
"""Their settings of a number of pieces -> our options."""
LENGTHS = {"max_length": "most", "min_length": "least"}
"""The same, of the decoder's whole sequence: with its first pieces, and with the text that a decoder alone goes on."""
PENALTY, EARLY, FIRST, LAST = "length_penalty", "early_stopping", "forced_bos_token_id", "forced_eos_token_id"
STOPS = {False: "now", True: "first", "never": "bound"}
"""Values of early_stopping, by which False is the default, and our rules for the end of a search."""
SUPPRESSED = {"suppress_tokens": "never", "begin_suppress_tokens": "never_first"}
IGNORED = (
    "_from_model_config", "transformers_version", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id",
    "decoder_start_token_id", "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores",
    "output_logits", "temperature", "top_k", "top_p",
)  # fmt: skip
"""Fields that change nothing here: the tokenizer has the special pieces, and sampling has options of its own."""
OFF: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "encoder_no_repeat_ngram_size": (0,),
    "num_return_sequences": (1,),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False,),
    "typical_p": (1, 1.0),
    "is_assistant": (False,),
}
"""Values with which a setting does nothing."""


@dataclass(frozen=True, kw_only=True)
class DecoderStart:
    """How a model's decoder begins: `before`: the special pieces before a text that the prompt has after its first one.

    `alone`: whether the decoder goes on with a text instead of writing from a source.
    """

    before: tuple[int, ...] = ()
    alone: bool = False
    end: int | None = None


def writing_defaults(config: Mapping[str, Any], start: DecoderStart) -> WritingDefaults:
    """Return the defaults in the fields of generation_config.json; without fields there are none.

    A value of another type or out of range is not applied.

    >>> found = writing_defaults({"num_beams": 4, "max_length": 20, "do_sample": True}, DecoderStart())
    >>> found.options.beams, found.options.most, found.left
    (4, 19, ('do_sample = True',))
    """
    settings = {name: value for name, value in config.items() if name not in IGNORED and value is not None}
    settings = {name: value for name, value in settings.items() if not any(value == off for off in OFF.get(name, ()))}
    options, used = _numbers(settings, start)
    rules, ruled = _rules(settings, start)
    used |= ruled
    if options.get("beams", 1) > 1:
        penalty = settings.get(PENALTY, 1.0)
        if _is_number(penalty) and abs(penalty) <= MOST_PENALTY / 2:  # their base is larger than ours
            options["length_penalty"] = float(penalty)
            rules["scoring"], rules["counted"] = "pieces", len(start.before)
            used.add(PENALTY)
        early = settings.get(EARLY) or False
        if isinstance(early, bool | str) and early in STOPS:
            rules["stops"] = STOPS[early]
            used.add(EARLY)
    else:  # these do nothing without beams
        settings = {name: value for name, value in settings.items() if name not in (PENALTY, EARLY)}
    if options.get("least", 0) > options.get("most", MOST_PIECES):
        options["least"] = options["most"]  # as transformers, which ends such texts at the largest length
    return WritingDefaults(
        options=GenerationOptions(**options, rules=GenerationRules(**rules)),
        applied=tuple(f"{name} = {settings[name]}" for name in settings if name in used),
        left=tuple(f"{name} = {settings[name]!r:.60}" for name in settings if name not in used),
    )


def _numbers(settings: Mapping[str, Any], start: DecoderStart) -> tuple[dict[str, Any], set[str]]:
    """Return our options by name, and the names of their settings that became them."""
    options: dict[str, Any] = {}
    used = set()
    # Theirs count the pieces before a text as written; max_length also counts the decoder's first piece.
    for names, first in ((LENGTHS, 1 + len(start.before)), (NAMES, len(start.before))):
        if first and names is LENGTHS and start.alone:
            continue  # counts the text that is gone on with, which is not known yet
        for setting, option in names.items():
            value, most = settings.get(setting), MOST_BEAMS if option == "beams" else MOST_PIECES
            if type(value) is int and 0 <= value <= most and (option != "most" or value > first):
                options[option] = (
                    max(value - first, 0) if option in ("most", "least") else max(value, option == "beams")
                )
                used.add(setting)
    return options, used


def _rules(settings: Mapping[str, Any], start: DecoderStart) -> tuple[dict[str, Any], set[str]]:
    """Return our rules by name, and the names of their settings that became them, or hold here anyway."""
    rules: dict[str, Any] = {}
    used = set()
    if settings.get(FIRST) in start.before[-1:]:
        used.add(FIRST)
    if LAST in settings and settings[LAST] == start.end:
        rules["closed"] = True
        used.add(LAST)
    for setting, rule in SUPPRESSED.items():
        ids = settings.get(setting)
        if isinstance(ids, list) and all(type(piece_id) is int for piece_id in ids):
            rules[rule] = tuple(ids)
            used.add(setting)
    return rules, used


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
