"""Programs that show runs as they train (--track), each a file: they get the lines of metrics.jsonl."""
