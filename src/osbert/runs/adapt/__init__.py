"""Adaptation: an encoder goes on with the texts of a domain, and is watched for what it forgets."""
