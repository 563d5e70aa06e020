"""osbert analyse: what a model has learnt, measured on texts and trees."""
