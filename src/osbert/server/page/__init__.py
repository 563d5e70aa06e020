"""The page at /: plain HTML, JS modules and SVG, which ask the server and nobody else."""
