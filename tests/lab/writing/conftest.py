"""A server that serves tiny models of every kind."""

from serving import server, start

__all__ = ["server", "start"]
