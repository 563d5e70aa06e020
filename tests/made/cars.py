"""Settings to read: a car of two tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A table."""

    cylinders: int = 4
    """How many there are."""
    power: float = 1.5
    fuel: Literal["petrol", "diesel", "none"] = "petrol"
    """What it burns."""
    turbo: bool = False
    cross_country: bool = True
    limit: int | None = None
    gears: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        if self.cylinders < 1:
            raise ValueError(f"cylinders must be at least 1, not {self.cylinders}")


@dataclass(frozen=True, kw_only=True)
class Body:
    """Another table, one of whose settings has the same name as one of the engine's."""

    doors: int
    limit: int = 3
    made: int = field(init=False, default=0)


@dataclass(frozen=True, kw_only=True)
class Car:
    """The whole."""

    name: str = "car"
    parts: tuple[str, ...] = ()
    engine: Engine
    body: Body
