"""kill -9 and a full disk while a checkpoint is written in the background: the end is the same."""

from __future__ import annotations

import signal
from pathlib import Path

from harness import EVERY, Site, compare, sample

from osbert.training.run_folder import RunFolder

BEHIND = ("--training.checkpoint-writing", "background")


def test_a_kill_while_training_goes_on_beside_a_write(site: Site) -> None:
    """The write may have been any number of steps behind, but the next one waits for it: two intervals at most."""
    for number in sample(len(site.moments), 2, many=100):
        out = site.fresh()
        ended = site.run(out, *BEHIND, kind="send", folder=str(out), number=number, signals=[signal.SIGKILL], torn=True)
        assert ended.status in (0, -signal.SIGKILL), f"moment {number}: {ended}"
        if RunFolder(out).facts.get("finished"):  # the kill came after the last step: its recipe stays
            again = site.run(out)
            assert again.status == 0, again
            require_same("kill -9 while a checkpoint is written in the background", site, out)
        else:
            site.complete("kill -9 while a checkpoint is written in the background", out, most=2 * EVERY)


def test_a_disk_that_is_full_for_the_first_checkpoint_in_the_background(site: Site) -> None:
    """It is reported with the next one, and the run ends in the same bits."""
    out = site.fresh()
    number = site.moment("save", "step-4", "weights")
    ended = site.run(out, *BEHIND, kind="full", folder=str(out), number=number, until=number + 1)
    assert ended.status == 0, ended
    require_same("a full disk while a checkpoint is written in the background", site, out)


def require_same(kind: str, site: Site, out: Path) -> None:
    """The folder is that of an undisturbed run but for its recipe, which has the option `BEHIND`. Counts a fault."""
    differences = [line for line in compare(site.undisturbed, out) if line != "recipe.toml differs"]
    site.tally.count(kind, wrong=bool(differences))
    assert not differences
