"""Fixtures of an object store on this machine."""

from object_store import s3, server

__all__ = ["s3", "server"]
