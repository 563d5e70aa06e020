"""Programs that display runs (`--track`). They get the lines of metrics.jsonl."""
