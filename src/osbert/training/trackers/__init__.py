"""Programs that display runs (--track). They get the lines of metrics.jsonl."""

FAMILIES = {"programs": ("mlflow", "tensorboard", "wandb")}
"""A file that has several components, with their names."""
