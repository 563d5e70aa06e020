"""The HTTP server: requests in, answers out, models in processes of their own."""
