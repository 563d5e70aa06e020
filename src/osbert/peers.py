"""What others call our settings: transformers' TrainingArguments, fairseq, sentence-transformers, spaCy and their like.

A name of the very thing is understood, on a command line and in Python alike. Where the thing is counted in another
unit, or is no setting here, an error says what to give in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from osbert.errors import UserError, nearest

Settings = Mapping[str, Any]
Advice = Callable[[str, Settings, Container[str]], str]
"""The value that was given, all settings that were given, and the settings that there are -> what to give instead."""

SAME: Mapping[tuple[str, ...], str] = {
    ("learning_rate",): "lr peak_lr learn_rate",
    ("batch",): "batch_size train_batch_size per_device_train_batch_size per_gpu_train_batch_size max_sentences bsz",
    ("epochs",): "num_epochs num_train_epochs n_epochs max_epochs max_epoch n_iter",
    ("steps",): "max_steps num_steps train_steps num_train_steps max_update total_num_update",
    ("data.length", "length"): "max_length max_len max_seq_length max_seq_len seq_length seq_len sequence_length "
    "max_sequence_length model_max_length tokens_per_sample block_size",
    ("model.length",): "max_position_embeddings max_positions n_positions n_ctx",
    ("width",): "hidden_size hidden_dim d_model n_embd embed_dim encoder_embed_dim",
    ("layers",): "num_hidden_layers num_layers n_layers n_layer encoder_layers depth",
    ("heads",): "num_attention_heads num_heads n_heads n_head encoder_attention_heads",
    ("feedforward",): "intermediate_size ffn_dim d_ff encoder_ffn_embed_dim",
    ("model.vocabulary", "vocabulary"): "vocab_size",
    ("segments",): "type_vocab_size",
    ("tasks",): "task_type_vocab_size",
    ("deviation",): "initializer_range",
    ("dropout",): "hidden_dropout_prob hidden_dropout dropout_rate",
    ("attention_dropout",): "attention_probs_dropout_prob",
    ("activation",): "hidden_act activation_fn",
    ("mlm.rate",): "mlm_probability mask_prob masked_lm_prob mask_ratio",
    ("warmup",): "warmup_ratio warmup_proportion warmup_fraction",
    ("beta1",): "adam_beta1",
    ("beta2",): "adam_beta2",
    ("optimizer.epsilon",): "adam_epsilon adam_eps",
    ("clip",): "max_grad_norm clip_norm grad_clip gradient_clip_val",
    ("method",): "optim optimizer",
    ("patience",): "early_stopping_patience early_stop_patience",
    ("track",): "report_to",
    ("schedule",): "lr_scheduler lr_scheduler_type lr_schedule",
    ("log_every",): "logging_steps log_steps log_interval log_every_n_steps",
    ("checkpoint_every",): "save_steps save_every checkpointing_steps save_interval_updates",
    ("training.evaluate_every",): "eval_steps evaluation_steps eval_every eval_frequency validate_interval_updates",
    ("training.keep",): "save_total_limit",
    ("focal",): "focal_loss focal_gamma",
    ("folds",): "cv k_folds num_folds n_folds n_splits",
    ("workers",): "num_workers dataloader_num_workers n_workers",
    ("micro_tokens",): "max_tokens",
    ("seed",): "random_state random_seed manual_seed",
    ("held_out",): "test_size val_size dev_size validation_split validation_fraction",
    ("frozen",): "freeze_layers num_frozen_layers",
    ("rank",): "lora_r lora_rank",
    ("label_smoothing",): "label_smoothing_factor",
    ("class_weights",): "class_weight",
    ("pooling",): "pooling_mode",
    ("text",): "text_column text_column_name text_col",
    ("label",): "label_column label_column_name label_col",
    ("--out",): "output output_dir output_path out_dir save_dir",
    ("--model",): "model_name model_name_or_path pretrained_model base_model",
    ("--data",): "train_file train_data dataset dataset_name data_dir",
    ("dev",): "validation_file validation_data eval_file eval_data dev_file dev_data valid_file",
}
"""Our names, the first that a verb has, and what others call the very thing. With hyphens: an option of a verb itself,
whose other names are answered, not understood."""

FLAGS: Mapping[str, tuple[str, str, str]] = {
    "bf16": ("precision", "bf16", "fp32"),
    "no_cuda": ("device", "cpu", "auto"),
    "use_cpu": ("device", "cpu", "auto"),
    "cpu": ("device", "cpu", "auto"),
    "fp32": ("precision", "fp32", "auto"),
    "no_fp16": ("precision", "fp32", "auto"),
    "use_lora": ("tuning", "lora", "full"),
    "lora": ("tuning", "lora", "full"),
    "load_best_model_at_end": ("scores.keep", "best", "last"),
    "keep_best": ("scores.keep", "best", "last"),
    "keep_last": ("scores.keep", "last", "best"),
}
"""What others switch on: our setting, its value where it is on, and where it is off."""


ON, OFF = {"", "true", "1", "yes", "on"}, {"false", "0", "no", "off"}
"""What a flag is given, in lower case; "" is the flag alone."""


def _number(value: object) -> float | None:
    try:
        return float(str(value).replace("_", ""))
    except ValueError:
        return None


def _number_of(settings: Settings, own_name: str) -> float | None:
    """Return the number that a setting of ours was given, under any of its names."""
    names = {name: (name.rpartition(".")[2], *_MEANT.get(_key(name), ())) for name in settings}
    return next((_number(settings[name]) for name, own_names in names.items() if own_name in own_names), None)


def _accumulation(value: str, settings: Settings, known: Container[str]) -> str:
    passes, batch = _number(value), _number_of(settings, "batch")
    explanation = "--batch counts the examples of a whole step, and --micro-tokens how much is in memory at once: "
    if passes and batch:
        return f"{explanation}give --batch {passes * batch:.0f}."
    return f"{explanation}give a --batch that is {f'{passes:g}' if passes else 'that many'} times as large."


def _warmup_steps(value: str, settings: Settings, known: Container[str]) -> str:
    climb, steps = _number(value), _number_of(settings, "steps")
    explanation = "--warmup is a fraction of the steps, not their number"
    if not climb or climb < 0:
        return f"{explanation}."
    if not steps:
        of = max(10_000, 10 * climb)
        return (
            f"{explanation}: divide {climb:,.0f} by the steps of the run; of {of:,.0f} it is --warmup {climb / of:.4g}."
        )
    if climb > steps:
        return (
            f"{explanation}, and {climb:,.0f} are more than the {steps:,.0f} of the run: give a smaller "
            "one (--warmup 0.1)."
        )
    return f"{explanation}: of {steps:,.0f} steps, {climb:,.0f} are --warmup {climb / steps:.4g}."


def _scores(value: str, settings: Settings, known: Container[str]) -> str:
    period = f"{value} steps" if value.isdigit() else "200 steps"
    return f'Give --evaluate-every "{period}".' if "scores.evaluate_every" in known else ""


def _advise(text: str, *, where: str = "") -> Advice:
    """Return advice for verbs that have the setting `where`, by default for all; {value} stands for what was given."""
    return lambda value, settings, known: text.format(value=value) if not where or where in known else ""


OTHER: Mapping[str, Advice] = {
    "gradient_accumulation gradient_accumulation_steps grad_accum accumulate_grad_batches update_freq": _accumulation,
    "warmup_steps num_warmup_steps warmup_updates": _warmup_steps,
    "fp16 half amp mixed_precision": lambda value, *_: (
        "Give --precision fp32."
        if value.lower() in ("no", "false", "off", "32", "fp32")
        else "Give --precision bf16, which has the range of fp32: there is no fp16."
    ),
    "gpu_id gpu": lambda value, *_: f"Give --device {'cpu' if value.startswith('-') else f'cuda:{value or 0}'}.",
    "steps max_steps num_steps train_steps num_train_steps max_update total_num_update": _advise(
        "Fine-tuning counts passes over the training rows: give --epochs.", where="epochs"
    ),
    "epochs num_epochs num_train_epochs max_epochs": _advise(
        "Pretraining and adapting count steps: give --steps, or --minutes.", where="steps"
    ),
    "eval_steps evaluation_steps eval_every eval_frequency validate_interval_updates": _scores,
    "eval_strategy evaluation_strategy save_strategy": _advise(
        'Leave it out: every epoch is scored on the development rows. --evaluate-every "200 steps" scores more often; '
        "--keep best or --keep last says which weights are kept.",
        where="scores.evaluate_every",
    ),
    "load_best_model_at_end metric_for_best_model": _advise(
        "Give --keep best: the weights with the best score by the task's criterion are then kept, however few rows.",
        where="scores.keep",
    ),
    "save_total_limit": _advise(
        "Leave it out: a finished run keeps one model, and no checkpoints.", where="scores.keep"
    ),
    "early_stopping early_stop use_early_stopping": _advise(
        "Give --patience 3: the run then ends after three scores in a row that are not higher than the best.",
        where="patience",
    ),
    "eval_batch_size per_device_eval_batch_size per_gpu_eval_batch_size": _advise(
        "Leave it out: rows are scored in passes with a bounded number of tokens."
    ),
    "logging_dir log_dir": _advise("Leave it out: --track tensorboard writes into the folder tensorboard of --out."),
    "cache_dir": _advise("Leave it out: models are kept in the hub's cache, which the variable HF_HUB_CACHE names."),
    "gradient_checkpointing": _advise("A lower --micro-tokens takes less memory and gives the same gradient."),
    "resume resume_from_checkpoint": _advise("Leave it out: the same command goes on from its last checkpoint."),
    "overwrite_output_dir": _advise(
        "Leave it out and name another --out, or remove the folder: nothing is overwritten."
    ),
    "do_train do_eval do_predict": _advise("These are verbs: osbert finetune, osbert evaluate, osbert predict."),
    "ema use_ema model_ema": _advise(
        "Leave it out: in fine-tuning a moving average of the weights did not pay (docs/results.md).",
        where="scores.keep",
    ),
    "freeze freeze_base freeze_encoder freeze_base_model": _advise(
        "Give --frozen N for the N lowest layers; with --tuning none all of them are frozen.", where="frozen"
    ),
    "keep_best keep_last": _advise("It is given alone, or true or false, not {value}.", where="scores.keep"),
    "lora use_lora": _advise("Give --tuning lora --rank {value}.", where="rank"),
    "num_labels": _advise("Leave it out: labels are learnt from the training rows."),
}
"""Names that stand for another unit, or for what is no setting here, and what to give in their place."""


UNKNOWN: Mapping[str, tuple[tuple[str, ...], str]] = {
    "data input input_file input_path test_file": (("file",), ""),
    "batch_size batch per_device_eval_batch_size": (
        ("batch-tokens",),
        "Leave it out: texts go through the model in passes with a bounded number of tokens.",
    ),
    "max_length max_len max_seq_length": (
        ("length", "most"),
        "Leave it out: the model's folder says how many tokens it reads.",
    ),
    "max_new_tokens": (("most",), ""),
}
"""Others' names for options of verbs that read rows: ours, the first that a verb has, and what a verb says that opens a
model and has none of them."""


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _key(name: str) -> str:
    """Return what spellings of a name have in common: "--Batch-Size" and "training.batch_size" are "batchsize"."""
    return name.rpartition(".")[2].replace("_", "").replace("-", "").casefold()


# Lookup tables by normalised spelling; see `_key`.
_MEANT = {_key(name): own_names for own_names, names in SAME.items() for name in names.split()}
_FLAGS = {_key(name): meaning for name, meaning in FLAGS.items()}
_UNKNOWN = {_key(name): options_and_advice for names, options_and_advice in UNKNOWN.items() for name in names.split()}
_OTHER = {_key(name): advice for names, advice in OTHER.items() for name in names.split()}


def translate(name: str, value: Any, known: Container[str]) -> tuple[str, Any] | None:
    """Return our name and value for a setting that is given by another's name, None where it is no such name.

    `known`: the settings that there are, by their whole and their short names.

    >>> translate("lr", 1e-4, {"learning_rate"}), translate("bf16", True, {"precision"})
    (('learning_rate', 0.0001), ('precision', 'bf16'))
    """
    if name in known:
        return None
    if own_name := next((own_name for own_name in _MEANT.get(_key(name), ()) if own_name in known), ""):
        return own_name, value
    setting, on, off = _FLAGS.get(_key(name), ("", "", ""))
    given = str(value).lower()
    if setting in known and given in ON | OFF:
        return setting, off if given in OFF else on
    return None


def refuse_other(name: str, value: Any, settings: Settings, known: Container[str]) -> None:
    """Raise UserError, saying what to give instead, at a name of others' that is no setting in this unit.

    >>> try:
    ...     refuse_other("update_freq", 4, {"batch": 8}, {"batch"})
    ... except UserError as error:
    ...     print(str(error).rpartition(": ")[2])
    give --batch 32.
    """
    if name in known:
        return
    advice = _OTHER.get(_key(name), _advise(""))(str(value), settings, known)
    if not advice and (own_names := _MEANT.get(_key(name))):
        own_name, is_option = own_names[0], own_names[0].startswith("--")
        advice = (
            f"Give {own_name}."
            if is_option
            else f"Here it is called {_option(own_name)}, which this command does not have."
        )
    if advice:
        raise UserError(f"Unknown setting {_option(name)}. {advice}", code="unknown-setting")


def option_meant(given: Iterable[str], option: str) -> str:
    """Return which of the words that were given is another's name for an option of a verb, "" for none.

    >>> option_meant(["--output_dir", "run"], "--out")
    '--output_dir'
    """
    return next((word for word in given if word[:2] == "--" and _MEANT.get(_key(word)) == (option,)), "")


def option_advice(word: str, options: Iterable[str]) -> str:
    """Return what to give in place of an option that a verb does not have, "" if no option is like it.

    >>> option_advice("--data", ["--file", "--abstain"]), option_advice("--data", ["--abstain"])
    ('Did you mean --file?', '')
    """
    names = [option[2:] for option in options if option.startswith("--")]
    own_names, advice = _UNKNOWN.get(_key(word), ((), ""))
    if own_name := next((own_name for own_name in own_names if own_name in names), ""):
        return f"Did you mean --{own_name}?"
    if advice and "verify" in names:  # the verb opens a model
        return advice
    return suggestion(word.lstrip("-"), names, "Did you mean --{}?")


def suggestion(name: str, known: Iterable[str], template: str = " Did you mean '{}'?") -> str:
    """Return `template` with the setting that a name stands for elsewhere, or that is spelt much like it.

    >>> suggestion("hidden_size", ["width", "heads"]), suggestion("patience", ["pair"])
    (" Did you mean 'width'?", '')
    """
    names = [*known]
    translation = translate(name, "", names)
    return template.format(translation[0]) if translation else nearest(name, names, template)
