"""The task `choose`: one of several texts that goes best with a context (SWAG, Story Cloze)."""
