"""The keywords of the public functions, for type checkers and editors: written by `make keywords`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

class OpeningKeywords(TypedDict, total=False):
    """Settings of osbert.interop.opening.Opening."""

    trust: bool
    verify: bool

class TextKeywords(TypedDict, total=False):
    """Settings of osbert.runs.file_options.TextOptions."""

    text: str
    pair: str
    delimiter: str
    header: Literal["auto", "yes", "no"]
    quotes: Literal["auto", "yes", "no"]
    encoding: str

class TaskKeywords(TypedDict, total=False):
    """Settings of osbert.corpus.task_options.TaskOptions."""

    executor: Literal["local", "slurm", "ray"] | None
    workers: int | None
    tasks: int
    partition: str
    time: str

class OptimizerKeywords(TypedDict, total=False):
    """Settings of osbert.training.optimizer.OptimizerSettings."""

    method: Literal["adamw", "muon"]
    learning_rate: float
    muon_rate: float
    muon_iterations: int
    beta1: float
    beta2: float
    epsilon: float
    bias_correction: bool
    weight_decay: float
    clip: float
    warmup: float
    schedule: Literal["linear", "cosine", "constant", "trapezoid"]
    decay: float

class TrainingKeywords(TypedDict, total=False):
    """Settings of osbert.runs.finetune.settings.FinetuneSettings."""

    epochs: int
    few_shot: Literal["auto", "none", "linear", "linear-first", "contrastive"]
    batch: int
    micro_tokens: int
    seed: int
    dropout: float
    recurrent: int
    tuning: Literal["full", "none", "adapters", "lora"]
    rank: int
    merge: bool
    auxiliary: float
    frozen: int
    precision: Literal["auto", "fp32", "bf16"]
    device: str
    deduplicate: bool
    log_every: int
    checkpoint_every: int
    track: str | Sequence[str]

class LikelihoodKeywords(TypedDict, total=False):
    """Settings of Engine.score."""

    masking: Literal["piece", "word"]

class NamingKeywords(TypedDict, total=False):
    """Settings of Engine.predict."""

    multi: bool
    template: str
    calibrate: bool | None

class ExtendTokenizerKeywords(TypedDict, total=False):
    """Settings of osbert.extend_tokenizer."""

    field: str
    encoding: str
    errors: Literal["strict", "replace"]
    pieces: int
    minimum: int

class AttributionKeywords(TypedDict, total=False):
    """Settings of Engine.explain."""

    method: Literal["gradients", "occlusion"]
    baseline: Literal["auto", "mask", "pad", "zero"]
    points: int
    tolerance: float
    check: bool
    check_words: int

class VectorKeywords(TypedDict, total=False):
    """Settings of Engine.embed."""

    role: str | None
    pooling: (
        Literal[
            "cls",
            "mean",
            "max",
            "weighted",
            "mean_sqrt",
            "last",
            "pooler",
            "tokens",
            "splade",
            "splade_sum",
            "splade_log",
            "splade_log_sum",
            "colbert",
        ]
        | None
    )
    normalize: bool | None
    length: int
    long: Literal["truncate", "head+tail", "window", "error"]
    overlap: int
    dimensions: int

class TrainTokenizerKeywords(TypedDict, total=False):
    """Settings of osbert.train_tokenizer."""

    field: str
    encoding: str
    errors: Literal["strict", "replace"]
    kind: Literal["wordpiece", "bpe", "unigram", "words"]
    vocabulary: int
    sentinels: int
    lowercase: bool | None
    alphabet: int
    minimum: int

class NearestKeywords(OpeningKeywords, total=False):
    """Settings of osbert.search."""

    above: float
    backend: Literal["auto", "exact", "binary", "faiss", "usearch", "plaid", "plaid-2bit"]
    hybrid: bool
    weights: str
    rerank: str
    role: str | None
    top: int
    device: str

class EvaluateKeywords(TextKeywords, OpeningKeywords, total=False):
    """Settings of osbert.compare and osbert.evaluate."""

    columns: Mapping[str, str]
    label: str
    decimal: Literal["auto", "point", "comma"]

class ExportKeywords(EvaluateKeywords, total=False):
    """Settings of osbert.export."""

    int8: bool
    tolerance: float
    data: str | Path | None
    unchecked: bool

class ScoreKeywords(TextKeywords, TaskKeywords, OpeningKeywords, LikelihoodKeywords, total=False):
    """Settings of osbert.score."""

    device: str

class BuildCorpusKeywords(TaskKeywords, total=False):
    """Settings of osbert.build_corpus."""

    documents: Literal["file", "blank-line", "line"]
    field: str
    encoding: str
    errors: Literal["strict", "replace"]
    deduplicate: bool
    words: Literal["characters", "segmented", "rjieba"]
    phrases: str
    capitals: bool
    shard_tokens: int
    language: Literal["", "en", "de", "fr", "es", "it", "pt", "nl", "ru", "uk", "zh", "ja", "ko", "el", "he", "th"]
    quality: bool
    near_duplicates: bool

class EvaluateRetrievalKeywords(VectorKeywords, OpeningKeywords, total=False):
    """Settings of osbert.evaluate_retrieval."""

    layers: str
    bm25: bool
    allow_unknown: bool
    encoding: str
    tokens: int
    device: str
    measures: str
    depth: int
    fuse: bool

class ExplainKeywords(TextKeywords, AttributionKeywords, TaskKeywords, OpeningKeywords, total=False):
    """Settings of osbert.explain."""

    columns: Mapping[str, str]

class PredictKeywords(TextKeywords, TaskKeywords, NamingKeywords, OpeningKeywords, total=False):
    """Settings of osbert.predict."""

    top_k: int
    probabilities: bool | None
    abstain: float
    form: str
    out_form: str
    spreadsheet_safe: bool
    columns: Mapping[str, str]
    labels_column: str

class EmbedKeywords(VectorKeywords, TextKeywords, TaskKeywords, OpeningKeywords, total=False):
    """Settings of osbert.embed."""

    layers: str
    tokens: int
    device: str
    dtype: Literal["float32", "int8", "binary"]
    update: bool
    out_form: str
    keep_columns: bool

class FinetuneKeywords(TrainingKeywords, OptimizerKeywords, OpeningKeywords, total=False):
    """Settings of osbert.finetune."""

    evaluate_every: str
    patience: int
    keep: Literal["best", "last", "better"]
    data_map: bool
    seeds: int
    search: Literal["none", "paper", "glue", "optuna"]
    trials: int
    folds: int
    group: str
    learning_curve: bool
    features: Literal[
        "none",
        "last",
        "second-to-last",
        "sum-last-four",
        "concat-last-four",
        "concat-ends",
        "sum-all",
        "embeddings",
        "mix",
    ]
    dev: Any
    length: int
    delimiter: str
    header: Literal["auto", "yes", "no"]
    quotes: Literal["auto", "yes", "no"]
    encoding: str
    held_out: float
    skip_empty: bool
    skip_unlabelled: bool
    text: str | Sequence[str]
    pair: str
    label: str
    long: Literal["truncate", "head+tail", "window", "error"]
    overlap: int
    class_weights: str
    weights: str | Sequence[float]
    both_orders: bool
    apart: bool
    temperature: float | None
    labels: str | Sequence[str]
    label_smoothing: float
    focal: float
    robust: float
    ordered: str | Sequence[str]
    label_columns: str | Sequence[str]
    confidence: str
    normalize: bool
    aggregation: Literal["auto", "dawid-skene", "votes"]
    targets: Literal["auto", "soft", "hard"]
    from_scratch: bool
    context: str | Sequence[str] | Literal["sentence", "document"]
    choices: str | Sequence[str]
    prefix: str
    counting: Literal["auto", "0", "1", "A", "text"]
    types: str | Sequence[str]
    scheme: Literal["bio", "bioes", "words"]
    pieces: Literal["first", "all"]
    decoder: Literal["linear", "crf"]
    legal: bool
    split: Literal["words", "hyphenated", "characters"]
    column: int
    token_width: int
    query_length: int
    query_expansion: Literal["auto", "unseen", "attended", "none"]
    skipped: str
    lower_case: bool
    rows: Literal["auto", "texts", "pairs", "graded", "judged", "distilled"]
    negative: str | Sequence[str]
    sts: str
    decimal: Literal["auto", "point", "comma"]
    pooling: str
    query_flops: float
    document_flops: float
    projection: Literal["auto", "yes", "no"]
    dimensions: str | Sequence[int]
    distillation: Literal["kl", "margin_mse"]
    query_prompt: str
    document_prompt: str
    target: str
    sight: Literal["auto", "left_to_right", "prefix", "source"]
    prediction: Literal["auto", "next", "masked", "shifted"]
    masked: float
    most: int
    least: int
    beams: int
    length_penalty: float
    no_repeat: int
    kept_by: Literal["rougeL", "bleu", "exact_match"]
    separator: str
    threshold: str | float
    thresholds: str | Sequence[float]
    center: float
    scale: float
    training_range: str | Sequence[float]
    query: str
    document: str
    positive: str
    loss: Literal["softmax", "bce"]
    candidates: int
    cutoff: int
    highest: float
    prompt: str
    stride: int
    question_length: int
    answer_length: int
    unanswerable: Literal["auto", "yes", "no"]
    scoring: Literal["auto", "words", "characters"]
    question: str
    paragraph: str
    answer: str
    answer_start: str
    training_recurrent: int
    descriptions: str | Sequence[str]
    type_names: str | Sequence[str]
    width: int
    nested: bool
    most_types: int
    hidden: int
    spans_recurrent: bool
    pooled: bool
    spaced: bool
    entity_id: int
    separator_id: int
    release: Literal["any", "1.1", "2.0"]
    data_sets: str | Sequence[str]
    mixing_limit: int
    data_set: Literal["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"]
    rule: Literal["majority", "model"]
    majority: str

class PretrainKeywords(OptimizerKeywords, total=False):
    """Settings of osbert.pretrain."""

    objectives: str | Sequence[str]
    family: str | None
    minutes: float
    trained: Literal["heads"] | None
    forgetting: float | None
    layers: int
    distinct: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    feedforward: int
    vocabulary: int
    model_length: int
    segments: int
    tasks: int
    direction: Literal["both", "left_to_right"]
    window: int
    global_every: int
    memory: int
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"]
    gated: bool
    normalization: Literal["post", "pre"]
    first_norm: bool
    model_epsilon: float
    root_norm: bool
    biases: bool
    norm_biases: bool
    positions: Literal["learned", "rotary", "disentangled", "distances", "none"]
    first_position: int
    rotary_base: float
    local_base: float
    buckets: int
    farthest: int
    distance_projections: bool
    distance_norm: bool
    segment_scores: bool
    distance_scores: int
    embedding: int
    project_first: bool
    embedding_norm: bool
    query_vector: bool
    summary: Literal["token", "first", "last", "mean", "late"]
    model_pooling: Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "none", "unit"]
    head_transform: bool
    head_biases: bool
    piece_transform: bool
    piece_activation: Literal["", "gelu", "gelu_tanh", "relu", "silu"]
    piece_biases: bool
    tied: bool
    scaled_pieces: bool
    dropout: float
    attention_dropout: float
    deviation: float
    scaled_outputs: bool
    neighbours: float
    adapters: int
    recurrent: int
    batch: int
    micro_tokens: int | Literal["auto"]
    pool: int
    held_out: float
    held_out_of: Literal["parts", "whole"]
    duplicates: int
    workers: int
    data_seed: int
    data_length: int
    short: float
    cross_documents: bool
    streams: bool
    curriculum: Literal["together", "at_once", "one_by_one", "continual"]
    long_share: float
    long_length: int
    both_ways_weight: float
    both_ways_unigram_start: bool
    capitals_weight: float
    denoise_weight: float
    infilling: float
    denoise_span: float
    masking: float
    deletion: float
    permutation: float
    rotation: float
    denoise_random: float
    languages: str | Sequence[str]
    dialogue_weight: float
    fake: float
    discourse_weight: float
    connectives: str | Sequence[str]
    distance_weight: float
    document_words_weight: float
    fragment_weight: float
    share: float
    edges: float
    fragment_mask: float
    fragment_random: float
    left_to_right_weight: float
    left_to_right_unigram_start: bool
    mlm_weight: float
    mlm_rate: float
    mlm_later_rates: str | Sequence[float]
    mlm_later_from: str | Sequence[float]
    mlm_mask: float
    mlm_random: float
    mlm_limit: int
    mlm_unit: Literal["pieces", "words", "ngrams"]
    mlm_unit_from: float
    mlm_ngrams: str | Sequence[float]
    mlm_unigram_start: bool
    nsp_weight: float
    nsp_random: float
    permuted_weight: float
    permuted_rate: float
    longest: int
    context: int
    reorder_weight: float
    parts: int
    cuts: Literal["sentences", "words"]
    replaced_weight: float
    replaced_rate: float
    replaced_later_rates: str | Sequence[float]
    replaced_later_from: str | Sequence[float]
    replaced_mask: float
    replaced_random: float
    replaced_limit: int
    replaced_unit: Literal["pieces", "words", "ngrams"]
    replaced_unit_from: float
    replaced_ngrams: str | Sequence[float]
    replaced_unigram_start: bool
    generator: float
    same_text_weight: float
    same_text_pooling: Literal["cls", "mean", "max", "weighted", "mean_sqrt", "last"]
    same_text_temperature: float
    sentence_order_weight: float
    swapped: float
    soft_pieces_weight: float
    soft_pieces_rate: float
    soft_pieces_later_rates: str | Sequence[float]
    soft_pieces_later_from: str | Sequence[float]
    soft_pieces_mask: float
    soft_pieces_random: float
    soft_pieces_limit: int
    soft_pieces_unit: Literal["pieces", "words", "ngrams"]
    soft_pieces_unit_from: float
    soft_pieces_ngrams: str | Sequence[float]
    soft_pieces_unigram_start: bool
    teacher: str
    start: Literal["layers", "random"]
    soft: float
    soft_pieces_temperature: float
    states: float
    attentions: float
    span_boundary_weight: float
    span_boundary_rate: float
    span_boundary_later_rates: str | Sequence[float]
    span_boundary_later_from: str | Sequence[float]
    span_boundary_mask: float
    span_boundary_random: float
    span_boundary_limit: int
    span_boundary_unit: Literal["pieces", "words", "ngrams"]
    span_boundary_unit_from: float
    span_boundary_ngrams: str | Sequence[float]
    span_boundary_unigram_start: bool
    reach: int
    position_width: int
    spans_weight: float
    spans_rate: float
    spans_span: float
    tlm_weight: float
    tlm_rate: float
    tlm_later_rates: str | Sequence[float]
    tlm_later_from: str | Sequence[float]
    tlm_mask: float
    tlm_random: float
    tlm_limit: int
    tlm_unit: Literal["pieces", "words", "ngrams"]
    tlm_unit_from: float
    tlm_ngrams: str | Sequence[float]
    tlm_unigram_start: bool
    single: float
    reset_positions: bool
    language_embeddings: bool
    translation_weight: float
    vectors: str
    unified_weight: float
    unified_rate: float
    unified_later_rates: str | Sequence[float]
    unified_later_from: str | Sequence[float]
    unified_mask: float
    unified_random: float
    unified_limit: int
    unified_unit: Literal["pieces", "words", "ngrams"]
    unified_unit_from: float
    unified_ngrams: str | Sequence[float]
    unified_unigram_start: bool
    both: float
    left_to_right: float
    right_to_left: float
    sequence_to_sequence: float
    prediction: Literal["masked", "shifted"]
    sources: bool
    word_order_weight: float
    word_order_rate: float
    size: int
    optimizer_epsilon: float
    steps: int
    precision: Literal["auto", "fp32", "bf16"]
    device: str
    compile: Literal["auto", "yes", "no"]
    training_seed: int
    log_every: int
    checkpoint_every: int
    evaluate_every: int
    keep: int
    checkpoint_writing: Literal["auto", "foreground", "background"]
    models_every: int
    track: str | Sequence[str]
    parallel: Literal["ddp", "fsdp"]
    pooling: (
        Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "none", "unit"]
        | Literal["cls", "mean", "max", "weighted", "mean_sqrt", "last"]
    )
    weight: float
    unigram_start: bool
    span: float
    random: float
    mask: float
    rate: float
    later_rates: str | Sequence[float]
    later_from: str | Sequence[float]
    limit: int
    unit: Literal["pieces", "words", "ngrams"]
    unit_from: float
    ngrams: str | Sequence[float]
    temperature: float
    cells: int
    model_clip: float
    spelling: int
    characters: int
    filters: int
    highways: int
    optimizer_clip: float
    decoder_layers: int
    reading: Literal["encoder", "both"]
    own_tables: bool
