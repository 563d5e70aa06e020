"""Several runs: the runner of trials, the settings that a comparison tries, and its report."""
