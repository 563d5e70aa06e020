"""osbert adapt: an encoder goes on with the texts of a domain."""
