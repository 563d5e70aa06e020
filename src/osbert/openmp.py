"""The environment variable that says whether torch's threads sleep or spin while they wait."""

import os
import sys

VARIABLE = "OMP_WAIT_POLICY"


def let_threads_sleep() -> None:
    """Set OMP_WAIT_POLICY to PASSIVE, unless it is set, or torch is loaded: OpenMP reads it at that moment only.

    Threads that spin take cores from other processes, such as osbert's own loaders and workers.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(VARIABLE, "PASSIVE")
