"""The parts of recurrent backbones; no backbone itself."""
