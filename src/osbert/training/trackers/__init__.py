"""Trackers, one in each file: programs that display runs (--track). They get the lines of metrics.jsonl."""
