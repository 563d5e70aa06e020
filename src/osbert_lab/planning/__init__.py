"""osbert plan and bench: the model size for a time budget, and the speed of pretraining beside the machine's peak."""
