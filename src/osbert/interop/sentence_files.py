"""Sentence models: reads and writes the files of sentence-transformers, from the prompts to the last normalisation.

In folder forms without such files, a field of the config stores the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from osbert import guarded
from osbert.data.late_interaction import DOCUMENT, QUERY, LateInteraction, TokenVectors
from osbert.errors import UserError, nearest
from osbert.files import write_json
from osbert.guarded import read_if_there, read_object, read_value
from osbert.interop import colbert_files
from osbert.interop.sentence_parts import TOKENS, VECTOR, Dense, Normalize, TokenMask, VectorPart, read_part
from osbert.models.forms import VectorKind, split_pooling, vector_kind

MODULES = "modules.json"
LENGTHS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
TOKENIZER = "tokenizer_config.json"
ENDLESS = 2**31
"""Above the length of any text: tokenizer files without a limit store a larger number."""
MATRYOSHKA = "matryoshka_dimensions"
"""The field of a config with the dimensions to which vectors may be cut."""
STATIC = "embeddings"
"""model2vec's name of a table of static vectors, which sentence-transformers' StaticEmbedding reads, too."""
FIELD = "osbert_sentences"
"""The field of a config."""
LIBRARY = "sentence_transformers."
PACKAGE = f"{LIBRARY}models"
SPARSE_PART, SPARSE_PACKAGE = "SpladePooling", "sentence_transformers.sparse_encoder.models"
SPARSE_TRANSFORMER = "MLMTransformer"
"""Their older name of a Transformer that computes logits of pieces, which newer versions read, too."""
SPARSE_TASK = "fill-mask"
"""Their name of what it computes, in the settings of a Transformer."""
SPARSE_POOLINGS = {
    "splade": ("max", "relu"),
    "splade_sum": ("sum", "relu"),
    "splade_log": ("max", "log1p_relu"),
    "splade_log_sum": ("sum", "log1p_relu"),
}
"""Our names of poolings, with their pooling_strategy and activation_function."""
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt",
    "pooling_mode_weightedmean_tokens": "weighted",
    "pooling_mode_lasttoken": "last",
}
"""Their names of poolings in older files, in the order in which several are concatenated."""
NAMES = {"weightedmean": "weighted", "mean_sqrt_len_tokens": "mean_sqrt", "lasttoken": "last"}
"""Their names in newer files that are not ours."""
DOCUMENTS = (DOCUMENT, "passage", "corpus")
"""Names of the prompt of a document: the first that a model has counts."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The prompts of a model by role: a prompt is put before each text of that role, such as "query: ".

    `texts`: prompts by name. `default`: the name of the prompt of texts without a role, "" for none. `pooled`: whether
    the tokens of a prompt are pooled with those of its text.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default: str = ""
    pooled: bool = True

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles: query, document, and the names of the prompts."""
        return tuple(dict.fromkeys((QUERY, DOCUMENT, *self.texts)))

    def of(self, role: str | None) -> str:
        """Return the prompt of a role, "" for none; of None, the default prompt.

        These are the rules of sentence-transformers' encode, encode_query and encode_document: a query or document
        without a prompt of its own gets none, not the default one. Raises UserError for an unknown role.

        >>> prompts = Prompts(texts={"query": "query: ", "passage": "passage: "})
        >>> prompts.of("query"), prompts.of("document"), prompts.of(None)
        ('query: ', 'passage: ', '')
        """
        if role is None:
            return self.texts.get(self.default, "")
        if role not in self.roles:
            raise UserError(
                f"The model has no role {role!r:.60}. Its roles are {', '.join(self.roles)}."
                f"{nearest(str(role), self.roles)}",
                code="invalid-value",
            )
        names = DOCUMENTS if role == DOCUMENT else (role,)
        return next((self.texts[name] for name in names if name in self.texts), "")

    def with_roles(self, prompts: Mapping[str | None, str]) -> Prompts:
        """Return the prompts with those of some roles replaced, and pooled. One for None also becomes the default.

        >>> Prompts(texts={"passage": "text: ", "topic": "on: "}).with_roles({"query": "query: ", "document": ""}).texts
        {'passage': 'text: ', 'topic': 'on: ', 'query': 'query: ', 'document': ''}
        """
        changed = {role: prompt for role, prompt in prompts.items() if self.of(role) != prompt}
        if None in changed:
            changed = dict.fromkeys((QUERY, DOCUMENT), changed[None])
        texts = {**self.texts, **{str(role): prompt for role, prompt in changed.items()}}
        # Texts without a role have the prompt of both roles, if it is one.
        default = self.default
        if changed and len({*prompts.values()}) == 1:
            default = QUERY if any(prompts.values()) else ""
        return Prompts(texts=texts, default=default)


@dataclass(frozen=True, kw_only=True)
class SentenceModel:
    """How a model computes the vector of a text: prompt, pooling, further parts, normalisation.

    `pooling`: one of models/forms.py, or several joined by "+". `length`: most tokens, 0 if not specified.
    `lower_case`: whether texts are read in lower case. `parts`: what is computed between pooling and normalisation.
    `similarity`: how sentence-transformers compares vectors. `dimensions`: how many of the first numbers of a vector
    are kept, 0 for all (its truncate_dim).
    """

    pooling: str
    normalize: bool
    length: int = 0
    lower_case: bool = False
    prompts: Prompts = Prompts()
    parts: tuple[VectorPart, ...] = ()
    similarity: str = "cosine"
    dimensions: int = 0
    late: LateInteraction | None = None
    """How queries are laid out, and scores made, by a model of many vectors a text; None for others."""

    def length_of(self, role: str | None) -> int:
        """Return the most tokens of a text of a role, 0 if not specified."""
        return self.late.query_length if self.late and role == QUERY else self.length

    def prompt(self, role: str | None) -> str:
        """Return the prompt of a role, or the default prompt for None; "" for none."""
        return self.prompts.of(role)

    @property
    def token_vectors(self) -> TokenVectors | None:
        """How the vectors of tokens are made (ColBERT); None for one vector a text.

        Raises UserError for what osbert computes, but does not train.
        """
        late = self.late
        if late is None:
            return None
        dense = [part for part in self.parts if isinstance(part, Dense)]
        masks = [part for part in self.parts if isinstance(part, TokenMask)]
        plain = (
            len(dense) == 1 and len(self.parts) == 1 + len(masks) and dense[0].is_linear and self.normalize
            and all(mask.roles == (DOCUMENT,) for mask in masks)
            and not late.piece and late.expansion in (0, late.query_length)
            and self.similarity == colbert_files.MAXSIM
        )  # fmt: skip
        if not plain:
            raise UserError(
                "Of models of many vectors a text, osbert trains those with one Dense part without bias and "
                "activation, queries filled up with [MASK], a skip list for documents, and MaxSim. Train dense vectors "
                "(--pooling mean).",
                code="unsupported-model",
            )
        skipped = tuple(word for mask in masks for word in mask.skipped)
        return TokenVectors(late=late, skipped=skipped, projection=dense[0].weights["linear.weight"])

    def after_training(
        self, prompts: Mapping[str | None, str], *, pooling: str, length: int, tokens: TokenVectors | None = None
    ) -> SentenceModel:
        """Return the model after a training by cosines, of sparse vectors by dot products, of many by MaxSim.

        `prompts`: those of the texts by role, all of which were pooled; prompts of further roles stay. Parts after the
        pooling are not trained, and are left out. `tokens`: how many vectors a text are made.
        """
        parts: tuple[VectorPart, ...] = ()
        if tokens:
            parts = Dense.linear(tokens.projection), TokenMask(skipped=tokens.skipped)
        similarities: dict[VectorKind, str] = {"sparse": "dot", "multi": colbert_files.MAXSIM}
        return replace(
            self,
            pooling=pooling,
            length=length,
            prompts=self.prompts.with_roles(prompts),
            normalize=vector_kind(pooling) != "sparse",
            parts=parts,
            late=tokens.late if tokens else None,
            similarity=similarities.get(vector_kind(pooling), "cosine"),
        )

    @property
    def kind(self) -> VectorKind:
        """The kind of the vectors: dense, sparse (SPLADE) or multi (ColBERT)."""
        return vector_kind(self.pooling)

    @property
    def is_plain(self) -> bool:
        """Whether vectors are the mean or the first of a text's states alone, but for their length."""
        further = any(part.kind != Normalize.kind for part in self.parts) or self.lower_case or self.prompts.of(None)
        return self.pooling in ("cls", "mean") and not further


def read_sentence_model(folder: Path, config: Mapping[str, Any] | None = None) -> SentenceModel | None:
    """Return the settings in the files beside a model; None if there are no such files.

    `config`: the content of its config.json, None to read it. Raises UserError if a file is damaged, or asks for
    something that osbert lacks.
    """
    path = folder / MODULES
    if not path.is_file():
        config = read_if_there(folder / "config.json") if config is None else config
        return _read_stanford(folder) if colbert_files.STANFORD in (config.get("architectures") or ()) else None
    modules = read_value(path)
    if not isinstance(modules, list) or not all(isinstance(part, dict) and "type" in part for part in modules):
        raise UserError(f"{path}: expected a list of parts with their types.", code="wrong-format")
    types = [str(part["type"]) for part in modules]
    if foreign := [name for name in types if "." in name and not name.startswith((LIBRARY, colbert_files.PYLATE))]:
        raise UserError(
            f"{path}: the part {foreign[0]!r:.80} is not one of sentence-transformers; osbert runs no such code.",
            code="unsupported-model",
        )
    kinds = [name.rpartition(".")[2] for name in types]
    default_paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds[1:], start=1))]
    paths = [part.get("path", default) for part, default in zip(modules, default_paths)]
    if unsafe := [part for part in paths if part != "" and not guarded.leads_below(part)]:
        raise UserError(
            f"{path}: the path of a part must be a folder beside this file, not {unsafe[0]!r:.80}.", code="wrong-format"
        )
    if kinds in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]) and paths[0] in ("", "."):
        return SentenceModel(pooling="mean", normalize=len(kinds) > 1)
    if kinds[1:2] == [SPARSE_PART] and paths[0] in ("", "."):
        return _read_sparse_model(folder, kinds, folder / paths[1])
    if kinds[:1] != ["Transformer"] or paths[0] not in ("", "."):
        raise UserError(
            f"{path}: the first part is {' '.join(map(str, (*kinds[:1], *paths[:1])))!r:.80}; osbert supports a "
            "Transformer in the folder itself.",
            code="unsupported-model",
        )
    if colbert_files.is_late(kinds, read_if_there(folder / PROMPTS)):
        return _read_multi_model(folder, kinds, [folder / part for part in paths])
    if kinds[1:2] != ["Pooling"]:
        after = f"a part {kinds[1]} follows the Transformer" if kinds[1:] else "there is no Pooling"
        raise UserError(f"{path}: {after}; osbert supports a Pooling there.", code="unsupported-model")
    pooling_path = folder / paths[1] / "config.json"
    pooling = read_object(pooling_path)
    pooling_name = _pooling(pooling, pooling_path)
    parts = [read_part(kind, folder / part) for kind, part in zip(kinds[2:], paths[2:])]
    chain = [part for part in parts if part is not None]
    files = {name: read_if_there(folder / name) for name in (LENGTHS, TOKENIZER, PROMPTS)}
    task = files[LENGTHS].get("transformer_task") or "feature-extraction"
    if task != "feature-extraction":
        raise UserError(
            f"{folder / LENGTHS}: the transformer_task {task!r:.80} gives no states to pool.", code="unsupported-model"
        )
    dimensions = files[PROMPTS].get("truncate_dim") or 0
    if type(dimensions) is not int or dimensions < 0:
        raise UserError(
            f"{folder / PROMPTS}: truncate_dim must be a whole number above 0, not {dimensions!r:.40}.",
            code="wrong-format",
        )
    # sentence-transformers cuts after all parts: Normalize before a cut does not give vectors of length 1.
    normalize = bool(chain) and chain[-1].kind == Normalize.kind and not dimensions
    return SentenceModel(
        pooling=pooling_name,
        normalize=normalize,
        length=_length(files, folder),
        lower_case=_lower_case(files),
        prompts=read_prompts(folder, pooled=pooling.get("include_prompt") is not False),
        parts=tuple(chain[:-1] if normalize else chain),
        similarity=str(files[PROMPTS].get("similarity_fn_name") or "cosine"),
        dimensions=dimensions,
    )


def _read_sparse_model(folder: Path, kinds: Sequence[str], pooling_folder: Path) -> SentenceModel:
    """Return the settings of a SparseEncoder (SPLADE), whose parts are of these kinds."""
    files = {name: read_if_there(folder / name) for name in (LENGTHS, TOKENIZER, PROMPTS)}
    task = files[LENGTHS].get("transformer_task") or SPARSE_TASK * (kinds[0] == SPARSE_TRANSFORMER)
    if kinds[0] not in ("Transformer", SPARSE_TRANSFORMER) or kinds[2:] or task != SPARSE_TASK:
        described = " -> ".join(kinds) + (f" with the transformer_task {task}" if task else "")
        raise UserError(
            f"{folder / MODULES}: {described[:120]!r} is not supported; osbert supports a Transformer with the "
            f"transformer_task {SPARSE_TASK}, and {SPARSE_PART} after it, as the last part.",
            code="unsupported-model",
        )
    settings = files[PROMPTS]
    if (similarity := settings.get("similarity_fn_name") or "dot") != "dot":
        raise UserError(
            f"{folder / PROMPTS}: the similarity_fn_name {similarity!r:.40} is not supported; osbert compares sparse "
            "vectors by their dot product.",
            code="unsupported-model",
        )
    if (largest := settings.get("max_active_dims")) is not None:
        raise UserError(
            f"{folder / PROMPTS}: max_active_dims {largest!r:.40} keeps the largest weights alone, which osbert does "
            "not do. Set it to null for all.",
            code="unsupported-model",
        )
    config = read_if_there(pooling_folder / "config.json")
    values = (config.get("pooling_strategy", "max"), config.get("activation_function", "relu"))
    pooling = next((name for name, known in SPARSE_POOLINGS.items() if known == values), None)
    if pooling is None:
        raise UserError(
            f"{pooling_folder / 'config.json'}: the pooling_strategy {values[0]!r:.40} with the activation_function "
            f"{values[1]!r:.40} is not supported; osbert has max and sum with relu and log1p_relu.",
            code="unsupported-model",
        )
    return SentenceModel(
        pooling=pooling,
        normalize=False,
        length=_length(files, folder),
        lower_case=_lower_case(files),
        prompts=read_prompts(folder),
        similarity="dot",
    )


def _read_multi_model(folder: Path, kinds: Sequence[str], paths: Sequence[Path]) -> SentenceModel:
    """Return the settings of a model of many vectors, of PyLate or of sentence-transformers' MultiVectorEncoder."""
    files = {name: read_if_there(folder / name) for name in (LENGTHS, TOKENIZER, PROMPTS)}
    settings, path = files[PROMPTS], folder / PROMPTS
    parts = [read_part(kind, part, vector=TOKENS) for kind, part in zip(kinds[1:], paths[1:])]
    chain = [part for part in parts if part is not None]
    prompts = read_prompts(folder)
    if any(isinstance(part, TokenMask) for part in chain):
        late, length = colbert_files.read_lengths(files[LENGTHS], folder / LENGTHS)
        prefixes = colbert_files.find_prefixes(prompts.texts, settings, folder)
    else:
        late, mask, length = colbert_files.read_pylate(settings, path)
        chain += [mask, Normalize()]
        prefixes = late.prefixes
        texts = {role: prefix + prompts.of(role).removeprefix(prefix) for role, prefix in prefixes.items()}
        prompts = replace(prompts, texts={**prompts.texts, **texts})
    normalize = chain[-1].kind == Normalize.kind
    return SentenceModel(
        pooling=colbert_files.POOLING,
        normalize=normalize,
        length=length or _length(files, folder),
        lower_case=_lower_case(files),
        prompts=prompts,
        parts=tuple(chain[:-1] if normalize else chain),
        similarity=colbert_files.read_similarity(settings, path),
        late=replace(late, prefixes=prefixes),
    )


def _read_stanford(folder: Path) -> SentenceModel:
    """Return the settings of a folder of Stanford's ColBERT."""
    late, parts, length = colbert_files.read_stanford(folder)
    return SentenceModel(
        pooling=colbert_files.POOLING,
        normalize=True,
        length=length,
        prompts=Prompts(texts=late.prefixes),
        parts=parts,
        similarity=colbert_files.MAXSIM,
        late=late,
    )


def write_sentence_model(folder: Path, model: SentenceModel, *, width: int) -> None:
    """Write the files with which sentence-transformers opens a folder and gives the same vectors."""
    is_sparse, late = model.kind == "sparse", model.late
    usual = model.normalize and model.similarity == colbert_files.MAXSIM
    if late and usual and (settings := colbert_files.pylate_config(late, model.parts, model.length)):
        _write_pylate(folder, model, settings)
        return
    parts = [*model.parts, *([Normalize()] if model.normalize else [])]
    kinds = ["Transformer", *([] if late else ["Pooling"]), *(part.kind for part in parts)]
    if is_sparse:
        kinds = [SPARSE_TRANSFORMER, SPARSE_PART]
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds[1:], start=1))]
    for name in paths[1:]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for part, name in zip(parts, paths[1 if late else 2 :]):
        part.write(folder / name, vector=TOKENS if late else VECTOR)
    lengths: dict[str, Any] = {"max_seq_length": model.length or None, "do_lower_case": model.lower_case}
    optional: dict[str, Any] = {"truncate_dim": model.dimensions} if model.dimensions else {}
    if late:
        lengths |= colbert_files.lengths_config(late, model.length)
        optional |= colbert_files.folder_config(late)
    else:
        if is_sparse:
            pooling: dict[str, Any] = dict(
                zip(("pooling_strategy", "activation_function"), SPARSE_POOLINGS[model.pooling])
            )
            optional["model_type"] = "SparseEncoder"
        else:
            pooling = _pooling_config(model, width)
        write_json(folder / paths[1] / "config.json", pooling)
    write_json(folder / LENGTHS, lengths)
    if model.prompts.texts or model.prompts.default or model.similarity != "cosine" or optional:
        settings = optional | {
            "prompts": dict(model.prompts.texts),
            "default_prompt_name": model.prompts.default or None,
            "similarity_fn_name": model.similarity,
        }
        write_json(folder / PROMPTS, settings)
    package = SPARSE_PACKAGE if is_sparse else PACKAGE
    packages = colbert_files.PACKAGES if late else {}
    write_modules(folder / MODULES, [f"{packages.get(kind, package)}.{kind}" for kind in kinds], paths)


def _write_pylate(folder: Path, model: SentenceModel, settings: dict[str, Any]) -> None:
    """Write the files of PyLate; `settings`: those of many vectors a text."""
    names = {role: settings.get(f"{role}_prefix", "") for role in model.prompts.texts}
    prompts = {role: prompt.removeprefix(names[role]) for role, prompt in model.prompts.texts.items()}
    others = {"default_prompt_name": model.prompts.default or None, "similarity_fn_name": "MaxSim"}
    model.parts[0].write(folder / "1_Dense")
    write_json(folder / LENGTHS, {"max_seq_length": model.length, "do_lower_case": model.lower_case})
    write_json(folder / PROMPTS, settings | others | {"prompts": prompts})
    write_modules(folder / MODULES, ["Transformer", f"{colbert_files.PYLATE}Dense.Dense"], ["", "1_Dense"])


def write_modules(path: Path, kinds: Sequence[str], paths: Sequence[str]) -> None:
    """Write the list of a model's parts: their kinds, or classes by their modules, and the folder of each."""
    write_json(
        path,
        [
            {"idx": index, "name": str(index), "path": part, "type": kind if "." in kind else f"{PACKAGE}.{kind}"}
            for index, (kind, part) in enumerate(zip(kinds, paths, strict=True))
        ],
    )


def as_field(model: SentenceModel) -> dict[str, Any]:
    """Return the value of FIELD for a sentence model. Raises UserError if it has parts with weights."""
    if kinds := ", ".join(part.kind for part in model.parts if not (model.dimensions and part.kind == Normalize.kind)):
        raise UserError(
            f"The sentence model has further parts ({kinds}), for which this form has no files. Write another form.",
            code="not-convertible",
        )
    prompts = {"texts": dict(model.prompts.texts), "default": model.prompts.default, "pooled": model.prompts.pooled}
    optional_fields = {
        "lower_case": (model.lower_case, False),
        "similarity": (model.similarity, "cosine"),
        "dimensions": (model.dimensions, 0),
        "prompts": (prompts, {"texts": {}, "default": "", "pooled": True}),
    }
    normalize = model.normalize or bool(model.parts)
    fields = {"pooling": model.pooling, "normalize": normalize, "length": model.length}
    return fields | {name: value for name, (value, default) in optional_fields.items() if value != default}


def of_field(config: Mapping[str, Any], *, where: str) -> SentenceModel | None:
    """Return the settings in FIELD of a config, or None. Raises UserError if the field is damaged."""
    settings = config.get(FIELD)
    if settings is None:
        return None
    try:
        prompts = dict(settings.get("prompts", {}))
        types = {"pooling": str, "normalize": bool, "length": int, "lower_case": bool, "similarity": str}
        types |= {"dimensions": int}
        prompt_types = {"texts": dict, "default": str, "pooled": bool}
        for values, kinds in ((settings, types | {"prompts": dict}), (prompts, prompt_types)):
            if wrong := [name for name, value in values.items() if type(value) is not kinds.get(name)]:
                raise ValueError(f"unexpected value of {wrong[0]}")
        if not all(isinstance(text, str) for text in prompts.get("texts", {}).values()) or settings["length"] < 0:
            raise ValueError("unexpected value")
        if vector_kind(settings["pooling"]) != "sparse":
            split_pooling(settings["pooling"])
        model = SentenceModel(**{**settings, "prompts": Prompts(**prompts)})
        # As in a folder: a cut follows all parts.
        return replace(model, parts=(Normalize(),), normalize=False) if model.normalize and model.dimensions else model
    except (AttributeError, TypeError, ValueError, KeyError, UserError) as error:
        raise UserError(
            f"{where}: {FIELD} is damaged ({error}). It says how a text gets one vector: copy the file again.",
            code="damaged-file",
        ) from error


def matryoshka(config: Mapping[str, Any]) -> Sequence[int]:
    """Return the numbers of dimensions to which a model's vectors may be cut (Matryoshka), by its config.json.

    Fields as vLLM reads them: `matryoshka_dimensions`, a list, or `is_matryoshka` for any number up to the width.

    >>> list(matryoshka({"matryoshka_dimensions": [64, 128]})), 7 in matryoshka({"is_matryoshka": True})
    ([64, 128], True)
    """
    sizes = config.get(MATRYOSHKA)
    if isinstance(sizes, list) and all(type(size) is int and size > 0 for size in sizes):
        return sizes
    return range(1, ENDLESS) if config.get("is_matryoshka") is True else ()


def _lower_case(files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether texts are put in lower case before the tokenizer reads them."""
    return files[LENGTHS].get("do_lower_case") is True and files[TOKENIZER].get("do_lower_case") is not True


def _length(files: Mapping[str, Mapping[str, Any]], folder: Path) -> int:
    """Return the most tokens of a text, from their own file, else from the tokenizer's."""
    length = files[LENGTHS].get("max_seq_length") or 0
    if not isinstance(length, int) or length < 0:
        raise UserError(
            f"{folder / LENGTHS}: max_seq_length must be a number of tokens, not {length!r}.", code="wrong-format"
        )
    return length or token_bound(files[TOKENIZER])


def token_bound(settings: Mapping[str, Any]) -> int:
    """Return the most tokens of a text that a tokenizer_config.json states, 0 for any number."""
    bound = settings.get("model_max_length")
    return bound if isinstance(bound, int) and 0 < bound < ENDLESS else 0


def read_prompts(folder: Path, *, pooled: bool = True) -> Prompts:
    """Return the prompts of a folder of sentence-transformers, a reranker's too.

    Raises UserError if they are no texts by name, or the default is none of them.
    """
    path = folder / PROMPTS
    settings = read_if_there(path)
    texts = settings.get("prompts")
    texts = {} if texts is None else texts
    if not isinstance(texts, dict) or not all(text is None or isinstance(text, str) for text in texts.values()):
        raise UserError(f"{path}: prompts must be texts by name, not {texts!r:.80}.", code="wrong-format")
    prompts = Prompts(
        texts={name: text or "" for name, text in texts.items()},
        default=str(settings.get("default_prompt_name") or ""),
        pooled=pooled,
    )
    if prompts.default and prompts.default not in prompts.roles:
        raise UserError(
            f"{path}: default_prompt_name is {prompts.default!r:.60}, which is not the name of a prompt: "
            f"{', '.join(texts) or 'there are none'}.",
            code="wrong-format",
        )
    return prompts


def _pooling(config: Mapping[str, Any], path: Path) -> str:
    """Return our name of the pooling in a file."""
    names: Any = config.get("pooling_mode") or [name for mode, name in MODES.items() if config.get(mode)] or "mean"
    pooling_names: Sequence[str] = [str(name) for name in names] if isinstance(names, list) else [str(names)]
    try:
        return "+".join(split_pooling("+".join(NAMES.get(name, name) for name in pooling_names)))
    except UserError as error:
        raise UserError(
            f"{path} asks for the pooling {' and '.join(pooling_names)!r:.80}. {error} To use the encoder alone, "
            "give a pooling.",
            code="unsupported-model",
        ) from error


def _pooling_config(model: SentenceModel, width: int) -> dict[str, Any]:
    """Return the settings of a pooling, as sentence-transformers reads them."""
    names = split_pooling(model.pooling)
    modes: dict[str, Any] = {mode: name in names for mode, name in MODES.items()}
    if names != [name for name in MODES.values() if name in names]:  # older files have no other order
        foreign = {name: other for other, name in NAMES.items()}
        modes = {"pooling_mode": [foreign.get(name, name) for name in names]}
    excluded = {} if model.prompts.pooled else {"include_prompt": False}
    return {"word_embedding_dimension": width, **modes, **excluded}
