"""Published set-ups and small ones for the CPU, one TOML file each."""
