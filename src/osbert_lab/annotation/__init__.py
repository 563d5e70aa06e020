"""Forms of annotation tools: brat, WebAnno, doccano, Label Studio, Prodigy and spaCy."""
