"""The settings of text generation, a folder's defaults for them, and the result. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from osbert.errors import Problems
from osbert.models.sizes import Precision

MOST_PIECES = 100_000
MOST_BEAMS = 64
MOST_PENALTY = 64.0
"""Beyond it, the power of a length of MOST_PIECES leaves the range of floating-point numbers."""
DEFAULT_MOST = 64


@dataclass(frozen=True, kw_only=True)
class DrawingOptions:
    """The length of a generated text, and the sampling of its pieces."""

    most: int = 0
    """Most pieces that are written; 0 for a run's own number, else 64, or half of what the model reads where that is
    less."""
    sample: bool = False
    """Draw each piece by its probability, instead of taking the likeliest."""
    temperature: float = 1.0
    """With sample: the scores are divided by this; below 1 for likelier pieces, above 1 for more surprising ones."""
    top_k: int = 0
    """With sample: draw from this many of the most probable pieces; 0 for all."""
    top_p: float = 1.0
    """With sample: draw from the fewest likeliest pieces whose probabilities reach this (Holtzman et al. 2020)."""
    seed: int = 0
    """With sample: of all draws; the same seed gives the same texts for the same list. A text's draws depend on its
    place in the list, so that the same text twice is drawn twice."""
    precision: Precision = "fp32"
    """Precision of the products of a step; bf16 reads half as many bytes, and may choose other pieces."""


@dataclass(frozen=True, kw_only=True)
class GenerationRules:
    """Rules of generation that a model's folder sets, and no option does.

    `scoring`: by what power a text's log-probability is divided in beam search: of (5 + pieces) / 6, or of the number
    of pieces, `counted` pieces of the prompt included. `stops`: when a search ends: once no open text can surpass the
    best one; with its first `beams` finished texts; or once the best open text, at its length now, is not better than
    the worst of the `beams` best finished ones. `closed`: whether a text of `most` pieces ends with the end piece.
    `never`, `never_first`: ids of pieces that no text has, or that no text begins with.
    """

    scoring: Literal["wu", "pieces"] = "wu"
    counted: int = 0
    stops: Literal["bound", "first", "now"] = "bound"
    closed: bool = False
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(DrawingOptions):
    """How text is written."""

    least: int = 0
    """Pieces that are written before the text may end."""
    beams: int = 1
    """Beginnings that are followed side by side; the likeliest text that ends is the answer. 1: no search."""
    length_penalty: float = 0.0
    """With beams: the log-probability is divided by ((5 + pieces) / 6) to this power (Wu et al. 2016, equation 14)."""
    no_repeat: int = 0
    """So many pieces in a row are written only once; 0 for any repetition."""
    rules: GenerationRules = field(default_factory=GenerationRules)
    """Rules that the model's folder sets, and no option of a command."""

    def score(self, total: float, pieces: int) -> float:
        """Return the score of a text in beam search: its log-probability, normalised by its number of pieces.

        By default log-probability / ((5 + pieces) / 6)^length_penalty (Wu et al. 2016, equation 14).

        >>> GenerationOptions().score(-6.0, 7), GenerationOptions(length_penalty=1.0).score(-6.0, 7)
        (-6.0, -3.0)
        """
        if self.rules.scoring == "wu":
            return total / ((5 + pieces) / 6) ** self.length_penalty
        return total / max(pieces + self.rules.counted, 1) ** self.length_penalty

    def fitting(self, length: int) -> Self:
        """Return the options with `most` filled in for a model that reads `length` tokens."""
        return replace(self, most=self.most or min(DEFAULT_MOST, length // 2))

    @property
    def costliest(self) -> str:
        """The setting to lower if memory does not suffice."""
        return "beams" if self.beams > 1 else "most"

    def require_possible(self) -> None:
        """Raise UserError with all values out of range and all settings that contradict each other."""
        problems = Problems(heading="The text cannot be written so")
        for _, problem in self._impossible():
            problems.add(problem, code="invalid-value")
        for _, problem in self._contradictions():
            problems.add(problem, code="invalid-setting")
        problems.stop_if_any()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (setting, problem) for each value out of range and each contradiction."""
        yield from self._impossible()
        yield from self._contradictions()

    def _impossible(self) -> Iterator[tuple[str, str]]:
        bounds = {
            "most": (0, MOST_PIECES),
            "least": (0, MOST_PIECES),
            "beams": (1, MOST_BEAMS),
            "no_repeat": (0, MOST_PIECES),
            "top_k": (0, None),
            "seed": (0, None),
        }
        for name, (lowest, highest) in bounds.items():
            value = getattr(self, name)
            if value < lowest or (highest is not None and value > highest):
                bounds_in_words = f"{lowest:,} {'or more' if highest is None else f'to {highest:,}'}"
                yield name, f"{name} must be {bounds_in_words}, not {value:,}"
        if not 0 < self.temperature < float("inf"):
            yield (
                "temperature",
                f"temperature must be a finite number above 0, not {self.temperature}; for the likeliest pieces leave "
                "sample off",
            )
        if not 0 < self.top_p <= 1:
            yield "top_p", f"top_p must be above 0, and 1 at most, not {self.top_p}"
        if not abs(self.length_penalty) <= MOST_PENALTY:
            yield (
                "length_penalty",
                f"length_penalty must be between {-MOST_PENALTY:g} and {MOST_PENALTY:g}, not {self.length_penalty}",
            )

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.least > self.most > 0:
            yield "least", f"least is {self.least:,}, but most is {self.most:,}"
        if self.sample and self.beams > 1:
            yield "sample", f"sample draws pieces, and beams = {self.beams} searches for the likeliest text: choose one"
        fresh = type(self)()
        needed = {"sample": ("temperature", "top_k", "top_p", "seed"), "beams above 1": ("length_penalty",)}
        for setting, names in needed.items():
            if self.sample if setting == "sample" else self.beams > 1:
                continue
            for name in names:
                if getattr(self, name) != getattr(fresh, name):
                    yield name, f"{name} = {getattr(self, name)} does nothing without {setting}"


@dataclass(frozen=True, kw_only=True)
class GivenOptions(DrawingOptions):
    """The settings of generation as a user gives them; None leaves a setting to the run, or to its default."""

    least: int | None = None
    """Pieces that are written before the text may end; left open, a run's own number, else 0."""
    beams: int | None = None
    """Beginnings that are followed side by side; the likeliest text that ends is the answer. 1: no search. Left open, a
    run's own number, else 1."""
    length_penalty: float | None = None
    """With beams: the log-probability is divided by ((5 + pieces) / 6) to this power (Wu et al. 2016, equation 14).
    Left open, a run's own, else 0."""
    no_repeat: int | None = None
    """So many pieces in a row are written only once; 0 for any repetition. Left open, a run's own number, else 0."""

    def over(self, options: GenerationOptions) -> GenerationOptions:
        """Return a run's options, overridden by the given ones. With `sample`, or one beam, there is no beam search.

        >>> own = GenerationOptions(most=20, beams=4, no_repeat=2)
        >>> chosen = GivenOptions(most=9, no_repeat=0).over(own)
        >>> chosen.most, chosen.beams, chosen.no_repeat
        (9, 4, 0)
        """
        overrides = {option.name: value for option in fields(self) if (value := getattr(self, option.name)) is not None}
        if not self.most:
            del overrides["most"]
        if self.length_penalty is not None:  # given: by the documented equation
            options = replace(options, rules=replace(options.rules, scoring="wu"))
        return replace(
            replace(options, beams=1, length_penalty=0.0) if self.sample or self.beams == 1 else options, **overrides
        )


FILE = "generation_config.json"
"""The file of a folder that has these defaults."""


@dataclass(frozen=True, kw_only=True)
class WritingDefaults:
    """How a folder's model writes if nothing is given: `options`, the settings `applied`, and those `left` out."""

    options: GenerationOptions
    applied: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """Return a sentence on what is applied and what is not; "" if the file asks for nothing."""
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (("applied", self.applied), ("not applied", self.left))
            if names
        ]
        return f"{FILE}: {'; '.join(parts)}." if parts else ""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The text that a model generated for a given text.

    `text`: starts with a space if one belongs between it and the given text. `pieces`: its number of pieces.
    `log_probability`: the sum over all pieces, and the end piece if the model predicted it, in nats. `ended`: "end" if
    the model ended the text; "most" if it reached the largest number of pieces. `truncated`: number of pieces of the
    given text that were not read: its first ones if the model continues the text, else its last ones.
    """

    text: str
    pieces: int
    log_probability: float
    ended: Literal["end", "most"]
    truncated: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)
