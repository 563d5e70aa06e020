"""osbert serve: fine-tuned runs and encoders answer over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions
from osbert.console.model_downloads import resolve_model
from osbert.console.output import Result, print_notices
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.runs.similarity.settings import Backend, RankingOptions  # noqa: F401  (types of fields)
from osbert.server import check_libraries
from osbert.server.limits import ServerLimits


def serve(
    runs: list[str] | None = None,
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
    vectors: InputFile | None = None,
    also: tuple[InputFile, ...] = (),
    model: ModelFolder | None = None,
    ranking: Annotated[RankingOptions | None, Parameter(name="*")] = None,
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
    vectors
        A file that `osbert embed` wrote, to be searched (/v1/search); its model is served, too.
    also
        A further file of vectors of the same texts, whose ranking is fused; may be repeated.
    model
        The model of --vectors, if it has moved: a folder, or a name (docs/models-by-name.md).
    """
    check_libraries()
    from osbert.corpus.task_options import cores
    from osbert.runs.similarity.served_search import read_searched
    from osbert.server.access import read_keys
    from osbert.server.calls.models import WritingLimits, include_folder, parse_models
    from osbert.server.serve import Address, run
    from osbert.server.wire import Orders

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
    searched = read_searched(vectors, also, model, ranking or RankingOptions())
    folders = parse_models([resolve_model(run) for run in runs or ()])
    orders = Orders(
        runs=include_folder(folders, searched.folder if searched else None),
        searched=searched, opening=opening, device=device,
        threads=threads or (0 if workers == 1 else max(1, cores() // workers)),  # 0: torch's own choice
        batch_tokens=chosen.batch_tokens, wait=chosen.wait / 1000,
        writing=WritingLimits(chosen.most_pieces, chosen.most_beams),
    )  # fmt: skip
    run(orders, chosen, address, workers=workers, watch=print_notices())
