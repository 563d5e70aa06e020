"""Object stores: the addresses of inputs and outputs, the cache of local copies, and output folders."""
