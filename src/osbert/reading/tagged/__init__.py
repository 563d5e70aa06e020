"""Files in which every word has a tag: their columns and marks, the schemes of tags, and scores of entities."""
