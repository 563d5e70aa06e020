"""Programs that display runs (--track), which other packages add."""
