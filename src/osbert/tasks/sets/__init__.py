"""Named data sets, a few lines each on a kind: a file with one has its name; those of one family share a file."""

FAMILIES = {
    "glue": ("ax", "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"),
    "entities": ("cluener", "conll2003", "weibo", "wnut17"),
}
"""The sets in each file that has several; each is the class whose `component` is its name."""
