"""Published data sets, a few lines each on a kind of task; found by the entry points of `osbert.tasks`."""
