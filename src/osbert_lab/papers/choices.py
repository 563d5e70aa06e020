"""Selects the recipes, data sets and steps of a table or comparison that the options name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from osbert import components, recipe
from osbert.errors import Problems, UserError
from osbert.tasks import Task
from osbert_lab.papers.data import TableColumn
from osbert_lab.papers.encoders import PretrainedEncoders, TableEncoders
from osbert_lab.papers.scale import RECIPE, TableScale
from osbert_lab.papers.tables import PaperTable, TableRow


def narrow_table(table: PaperTable, scale: TableScale, shared: str = RECIPE) -> PaperTable:
    """Return the table with only the recipes, data sets and widths that the options name; `shared`: the value of
    --recipe.

    A claim is kept if both its rows are the table's own.

    Raises UserError with all unknown recipes and tasks, and for options that the table does not have.
    """
    problems = Problems(heading=f"{table.name} cannot be run with these options")
    rows = _rows(table, scale.recipes, problems)
    if table.recipes and scale.jobs > 1:
        problems.add(
            f"--jobs {scale.jobs}: recipes are compared at equal times, so only one run can train at a time. "
            "Remove --jobs.",
            code="options-exclude-each-other",
        )
    if table.recipes and shared != RECIPE:
        problems.add(
            f"--recipe {shared}: each row of {table.name} has its own recipe. Use --recipes {shared}.",
            code="options-exclude-each-other",
        )
    if not table.curves and scale.points != TableScale.points:
        problems.add(
            f"--points {scale.points}: {table.name} has no intermediate points (figure5 has). Remove --points.",
            code="options-exclude-each-other",
        )
    if scale.tasks:
        columns = tuple(column for word in _words(scale.tasks) for column in _columns(table, word, problems))
        names = [column.name for column in columns]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            problems.add(f"--tasks names '{name}' twice.", code="duplicate-name")
    else:
        columns = table.columns
    problems.stop_if_any()
    own_names = {row.name for row in rows if row in table.rows}  # another recipe may have the name of a row
    claims = tuple(claim for claim in table.claims if {claim.above, claim.below} <= own_names)
    masks = table.masks if table.masks in own_names else ""
    return replace(table, rows=rows, columns=columns, claims=claims, masks=masks).shrink(scale.shrink)


def at_steps(table: PaperTable, encoders: TableEncoders, points: int) -> PaperTable:
    """Return the table with `points` rows per pretraining, one for each intermediate step; the last are its own rows.

    The pretrainings keep the models of these steps. Raises UserError if there are fewer steps, or --minutes is given.
    """
    if not table.curves:
        return table
    assert isinstance(encoders, PretrainedEncoders)  # rows that differ are pretrained
    settings = encoders.read(table.rows[0])
    steps = settings.training.steps
    if settings.minutes:
        raise UserError(
            "The points of the figure are steps, whose number --minutes leaves open. Give --steps instead.",
            code="options-exclude-each-other",
        )
    if points > steps:
        raise UserError(f"--points {points} is more than the {steps:,} steps of pretraining.", code="invalid-value")
    # The points are `every` steps apart. The last point is the final model, so it needs no row of its own here.
    every = steps // points
    keeping = {} if points == 1 else {"training.models_every": every}
    rows = [replace(row, pretraining={**row.pretraining, **keeping}) for row in table.rows]
    earlier = [
        TableRow(name=f"{row.name}, step {every * point}", encoder=row.name, step=every * point)
        for point in range(1, points)
        for row in table.rows
    ]
    return replace(table, rows=(*rows, *earlier))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _rows(table: PaperTable, recipes: str, problems: Problems) -> tuple[TableRow, ...]:
    """Return the rows that --recipes names: the table's own by name or by recipe, or any other recipe unchanged."""
    if not recipes:
        return table.rows
    if not table.recipes:
        problems.add(
            f"--recipes: the rows of {table.name} are not recipes. Use --recipe for the recipe that all rows share.",
            code="options-exclude-each-other",
        )
        return table.rows
    rows: dict[str, TableRow] = {}
    for name in _words(recipes):
        for row in _own_rows(table, name) or [_own_recipe(name, problems)]:
            if row.name in rows:
                problems.add(f"--recipes: '{row.name}' is named twice.", code="duplicate-name")
            rows[row.name] = row
    return tuple(rows.values())


def _own_rows(table: PaperTable, name: str) -> list[TableRow]:
    """Return the table's row of that name, else all of its rows that are pretrained with the recipe `name`."""
    return [row for row in table.rows if row.name == name] or [row for row in table.rows if row.recipe == name]


def _own_recipe(name: str, problems: Problems) -> TableRow:
    """Return a row with a recipe that the table does not know, unchanged; it is named after the recipe's file."""
    try:
        recipe.read(name)
    except UserError as error:
        problems.add_from("--recipes", error)
    return TableRow(name=Path(name).stem, recipe=name)


def _columns(table: PaperTable, word: str, problems: Problems) -> list[TableColumn]:
    """Return the columns that one word of --tasks names: `mrpc`, `squad=FOLDER`, or a task with the user's own data."""
    name, equals, path = word.partition("=")
    columns = (*table.columns, *table.more)
    matches = [column for column in columns if name.lower() in (column.set, column.name.lower())]
    if matches:
        return [replace(column, path=Path(path)) for column in matches] if equals else matches
    try:
        task = components.find("tasks", name, base=Task, trust=True)  # the user has typed the name
        if not equals:
            known = ", ".join(dict.fromkeys(column.set for column in columns))
            raise UserError(
                f"{table.name} has no data set '{name}', only {known}. Give its folder: {name}=FOLDER.",
                code="missing-file",
            )
    except UserError as error:
        problems.add_from(f"--tasks {word}", error)
        return []
    column_name = Path(path).stem
    criterion = task().criterion
    return [
        TableColumn(
            name=column_name, set=name, files=(), path=Path(path), scores={f"{column_name} ({criterion})": criterion}
        )
    ]
