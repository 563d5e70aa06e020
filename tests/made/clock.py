"""What of a run depends on the clock."""

CLOCK = ("seconds", "tokens_per_second", "loader_share")
"""The values of a line of metrics.jsonl that do; all others are the same in every run of the same settings."""
