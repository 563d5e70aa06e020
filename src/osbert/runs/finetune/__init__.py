"""Fine-tuning: settings and data -> a run folder with the best epoch's model."""
