"""The work of each verb, as functions that print nothing."""
