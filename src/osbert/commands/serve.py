"""osbert serve: fine-tuned runs and encoders answer over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from osbert.console.opening_options import OpeningOptions, resolve_model
from osbert.console.output import Result, print_notices
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.server import check_libraries
from osbert.server.limits import ServerLimits

if TYPE_CHECKING:
    from osbert.server.wire import Orders


def serve(
    runs: list[str],
    /,
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    device: str = "auto",
    workers: int = 1,
    threads: int = 0,
    keys: Path | None = None,
    host_names: list[str] | None = None,
    cors: list[str] | None = None,
    limits: Annotated[ServerLimits | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Serve runs over HTTP: predictions, vectors, filled masks, answers to questions, entities.

    Concurrent requests are batched by tokens. Input that is too large or too long is refused with its own status, never
    truncated. SIGTERM and Ctrl-C finish what was accepted. /openapi.json describes the calls.

    Parameters
    ----------
    runs
        Run folders, exported ones, or Hugging Face BERT folders, as PATH or NAME=PATH; names of the hub in place of
        paths (docs/models-by-name.md).
    port
        The port to listen at; 0 for a free one.
    host
        The address to listen at; 0.0.0.0 is all of the machine's.
    device
        cpu, cuda, cuda:N, or auto for a GPU if there is one.
    workers
        Processes that each have all models.
    threads
        Threads of a worker; 0 divides the cores among the workers.
    keys
        A file with API keys, one a line; without it whoever reaches the server may ask.
    host_names
        Names by which clients may ask for the server, besides localhost, addresses and --host; * for any name.
    cors
        Origins, such as https://example.org, whose pages may ask from a browser.
    """
    check_libraries()
    from osbert.server.access import read_keys
    from osbert.server.serve import Address, run

    chosen = limits or ServerLimits()
    chosen.check()
    if workers < 1 or threads < 0:
        raise UserError(
            f"--workers {workers} --threads {threads}: at least 1 worker, and 0 threads or more.", code="invalid-value"
        )
    address = Address(
        host=host, port=port, names=tuple(host_names or ()), origins=tuple(cors or ()), keys=read_keys(keys)
    )
    address.hosts.check_names()
    orders = replace(_orders(runs, device, chosen, threads or _share(workers)), opening=opening)
    run(orders, chosen, address, workers=workers, watch=print_notices())


def _orders(runs: list[str], device: str, limits: ServerLimits, threads: int) -> Orders:
    from osbert.server.calls.models import WritingLimits, parse_models
    from osbert.server.wire import Orders

    if not runs:
        raise UserError("Give one run or more: osbert serve RUN", code="missing-option")
    return Orders(
        runs=parse_models([resolve_model(run) for run in runs]),
        device=device,
        threads=threads,
        batch_tokens=limits.batch_tokens,
        wait=limits.wait / 1000,
        writing=WritingLimits(limits.most_pieces, limits.most_beams),
    )


def _share(workers: int) -> int:
    """Return the threads of each of several workers; 0, torch's own choice, for one alone."""
    from osbert.corpus.task_options import cores

    return 0 if workers == 1 else max(1, cores() // workers)
