"""Files -> token shards: readers, repairs, shards, the build and its report."""
