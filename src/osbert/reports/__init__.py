"""Numbers -> pictures: curves, strips and pages of HTML."""
