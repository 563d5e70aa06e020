"""Generation: a model continues texts, or writes a target for each source text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer, PieceRun
from osbert.errors import Problems, UserError
from osbert.inference.model import LoadedModel
from osbert.models.forms import Writing
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert_lab.writing.contract import CachedDecoder
from osbert_lab.writing.decoder_inputs import decoder_prompt
from osbert_lab.writing.decoders import decoder_of
from osbert_lab.writing.gaps import encode_gaps
from osbert_lab.writing.generate import Generate
from osbert_lab.writing.generation_config import DecoderStart, writing_defaults
from osbert_lab.writing.modes import source_of, with_mask
from osbert_lab.writing.prompt_writer import PromptWriter
from osbert_lab.writing.settings import Generation, GenerationOptions, GivenOptions, WritingDefaults


@dataclass(frozen=True, kw_only=True)
class TextWriter:
    """A model that generates for texts: `prompt` turns them into sequences, which `writer` continues.

    `reads`: the number of texts in a sample. `goes_on`: whether the output continues the text (else it is a target).
    """

    writer: PromptWriter
    prompt: Callable[[Sequence[str]], Example]
    reads: int = 1
    goes_on: bool = True

    @classmethod
    def of(cls, engine: LoadedModel, given: GivenOptions) -> TextWriter:
        """Return a writer with these options. For a fine-tuned run, options left open take the run's own values.

        Raises UserError if the model cannot generate, or an option is invalid.
        """
        task = engine.task
        options = options_of(engine, given)
        options.require_possible()
        if isinstance(task, Generate):
            task_head = engine.learner.heads[task.name]
            assert isinstance(task_head, MaskedLanguageHead)
            writer = PromptWriter.of(
                engine.learner, shared_decoder(engine, task_head), task_head, engine.tokenizer, options
            )
            assert writer is not None  # else the task would have refused the model
            prompt = _sources(task.writing_by(options), engine.packer)
            return cls(writer=writer, prompt=prompt, reads=len(task.request_fields), goes_on=False)
        head = engine.pieces
        writer = None
        if head is not None:
            writer = PromptWriter.of(engine.learner, shared_decoder(engine, head), head, engine.tokenizer, options)
        if head is None or writer is None:
            raise UserError(
                "The model does not write texts: that needs one that was pretrained left to right, or from a source, "
                'with its language head (objectives = ["left_to_right"], ["unified"], ["spans"], ["denoise"], '
                '["fragment"] or ["translation"], or a GPT-2, T5 or BART folder), or a run of osbert finetune '
                "generate.",
                code="unsupported-model",
            )
        length, form = engine.learner.backbone.architecture.length, engine.tokenizer.form
        if writer.options.most >= length - len(form.before) - (len(form.between) if head.writes else 0):
            raise UserError(
                f"most is {writer.options.most:,}, but the model reads {length:,} tokens, and some are the text's.",
                code="invalid-value",
            )
        packer = Packer(tokenizer=engine.tokenizer, length=length)
        if engine.learner.backbone.architecture.has_decoder:
            # Targets that are no whole texts, T5's, name the gaps of the source.
            whole = engine.learner.backbone.architecture.writes_whole_texts
            writer = replace(writer, gaps=not whole)
            return cls(writer=writer, prompt=_make_source_prompts(packer, whole=whole), goes_on=False)
        if head.writes:
            prompt = _make_unilm_prompts(packer, writer.options.most, head.writes)
            return cls(writer=writer, prompt=prompt, goes_on=False)
        return cls(writer=writer, prompt=_beginnings(engine.tokenizer, length - writer.options.most))

    def unread(self, *texts: str) -> int:
        """Return the number of pieces of a sample that are truncated, to leave room for the output."""
        return self.prompt(texts).truncated

    def texts(self, samples: Sequence[Sequence[str]], *, first: int = 0) -> list[Generation]:
        """Return the generation for each sample (the texts that are read together), in the order given.

        `first`: the index of the first sample in the whole call, so that a seed gives each index the same text.
        """
        return self.writer.write(self.prompts(samples), first=first)

    def stream(self, *texts: str) -> Iterator[str]:
        """Yield the generation for one sample in parts that are final: later pieces do not change them."""
        [prompt] = self.prompts([texts])
        return self.writer.stream(prompt)

    def lack(self, prompt: Example) -> str:
        """Return a sentence that says why nothing can be generated for a prompt; "" if it can."""
        if not self.goes_on and (prompt.source or prompt).special.all():
            return "There is nothing in it to read."
        return "" if len(prompt) else "It is empty, and no piece of the model begins a text."

    def prompts(self, samples: Sequence[Sequence[str]]) -> list[Example]:
        """Return the prompt of each sample. Raises UserError that lists every sample without one."""
        problems = Problems(heading="Nothing can be written for these texts")
        prompts = []
        for index, texts in enumerate(samples):
            try:
                prompt = self.prompt(texts)
            except UserError as error:
                problems.add(f"texts[{index}]: {error}", code=error.code)
                continue
            if lack := self.lack(prompt):
                problems.add(f"texts[{index}]: {lack}", code="empty-text")
            prompts.append(prompt)
        problems.stop_if_any()
        return prompts


def options_of(engine: LoadedModel, given: GivenOptions) -> GenerationOptions:
    """Return the options of generation: the given ones, over those of the task or the folder, as they fit the model.

    Raises UserError for an exported model.
    """
    task, sizes = engine.task, engine.learner.backbone.architecture
    if isinstance(task, Generate):
        return given.over(task.writing).fitting(sizes.length)
    defaults = folder_defaults(engine).options
    # A folder's lengths give way to what the model reads, and to the most that is given.
    longest = sizes.length - len(engine.tokenizer.form.before) - 1
    defaults = replace(
        defaults, most=min(defaults.most, longest), least=min(defaults.least, given.most or defaults.most or longest)
    )
    return given.over(defaults).fitting(sizes.length)


def folder_defaults(engine: LoadedModel) -> WritingDefaults:
    """Return how the model of a folder writes if nothing is given: by its generation_config.json."""
    sizes, form = engine.backend.architecture, engine.tokenizer.form
    before = form.before if sizes.writes_whole_texts else ()
    start = DecoderStart(before=before, alone=not sizes.has_decoder, end=form.end)
    return writing_defaults(engine.generation_config, start)


def describe_remarks(engine: LoadedModel) -> list[str]:
    """Return the remarks on the folder of an opened model that writes."""
    defaults = folder_defaults(engine)
    return [f"{engine.folder}: {remark}" for remark in (*engine.remarks, *filter(None, [defaults.remark]))]


def shared_decoder(engine: LoadedModel, head: MaskedLanguageHead) -> CachedDecoder | None:
    """Return the decoder that generates with a head's logits, None if the model cannot.

    All calls share one: the weights that one has prepared for steps are kept.
    """
    decoders: dict[MaskedLanguageHead, CachedDecoder | None] = engine.prepared.setdefault("decoders", {})
    if head not in decoders:
        decoders[head] = decoder_of(engine.learner.backbone, head)
    return decoders[head]


def _sources(task: Task, packer: Packer) -> Callable[[Sequence[str]], Example]:
    """Return a function that encodes the texts of a source as the task does."""

    def prompt(texts: Sequence[str]) -> Example:
        [example] = task.encode(task.record_of(texts), packer)
        return example

    return prompt


def _make_unilm_prompts(packer: Packer, most: int, writes: Writing) -> Callable[[Sequence[str]], Example]:
    """Return a function that encodes a text as the source of UniLM's sequence-to-sequence mode.

    `most`: the pieces for which room is left behind the source.
    """

    def prompt(texts: Sequence[str]) -> Example:
        source = source_of(packer.tokenizer.encode(_single(texts)), packer, most=most)
        return with_mask(source, packer) if writes == "masked" else source

    return prompt


def _make_source_prompts(packer: Packer, *, whole: bool) -> Callable[[Sequence[str]], Example]:
    """Return a function that encodes a text as the source of an encoder-decoder, with the start of the target.

    [MASK] in the text is a gap, and so are the names of sentinels.
    `whole`: whether the decoder was trained on targets with the tokenizer's special tokens.
    """

    def prompt(texts: Sequence[str]) -> Example:
        run = PieceRun.of(encode_gaps(_single(texts), packer.tokenizer), packer.tokenizer)
        return decoder_prompt(packer.single(*run), packer.tokenizer, whole=whole)

    return prompt


def _beginnings(tokenizer: AnyTokenizer, length: int) -> Callable[[Sequence[str]], Example]:
    """Return a function that encodes a text as an open sequence: its last pieces, with at most `length` tokens."""
    form = tokenizer.form

    def prompt(texts: Sequence[str]) -> Example:
        text = _single(texts)
        # An empty text still needs a token to start from: the separator, if the form has no start token.
        before = form.before or (() if text else form.between[:1])
        ids = tokenizer.encode(text)
        last_ids = ids[max(len(ids) - (length - len(before)), 0) :]
        whole = np.concatenate([np.array(before, np.int32), last_ids.astype(np.int32)])
        special = np.arange(len(whole)) < len(before)
        return Example(
            ids=whole,
            segments=np.zeros(len(whole), np.int8),
            words=~special,
            special=special,
            truncated=len(ids) - len(last_ids),
        )

    return prompt


def _single(texts: Sequence[str]) -> str:
    """Return the one text of a sample. Raises UserError if there are more."""
    if len(texts) != 1:
        raise UserError(f"{len(texts)} texts, not one.", code="wrong-number-of-texts")
    return texts[0]
