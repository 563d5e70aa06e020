"""Forms of annotation tools: brat's standoff files and WebAnno's TSV."""
