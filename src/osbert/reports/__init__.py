"""Pictures of numbers: curves, strips and pages of HTML."""
