"""Work in tasks, by datatrove: on this machine, with Slurm or on Ray."""
