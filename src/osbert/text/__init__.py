"""Characters -> pieces: normalisation, WordPiece training and encoding, sentences, offsets."""
