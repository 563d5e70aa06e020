"""Pictures of numbers: curves, bars and pages of HTML."""
