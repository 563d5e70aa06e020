"""The layers of recurrent backbones; the backbone is in models/families/."""
