"""The tables of the paper: their data, encoders, jobs and runs."""
