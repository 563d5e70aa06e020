"""The one machine of verbs on rows: rows in, results out, resumable; one file a verb, one file an output form."""
