"""Text -> token shards: encoding, duplicates, filters, shards, the build and its report."""
