"""Steps -> weights: optimiser, schedule, trainer, checkpoints, tracking."""
