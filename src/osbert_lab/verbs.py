"""The verbs of the lab, which osbert finds by its entry point in the group `osbert.verbs`."""

from __future__ import annotations

from osbert.console.verbs import VerbPackage

LAB = VerbPackage(
    package="osbert_lab.commands",
    verbs={
        "demo": "Run the whole chain on text that this installation has: a few minutes on two cores, offline.",
        "adapt": "Adapt an encoder to the texts of your domain, without destroying what it knows.",
        "plan": "Show what a time budget can buy: a table of model sizes, and a recipe.",
        "bench": "Measure the speed of pretraining on this machine.",
        "mine": "Find hard negatives in a corpus, for contrastive training.",
        "distil": "Teach a smaller encoder what a fine-tuned run does.",
        "analyse": "Measure what a model has learnt: attention, syntax, geometry, as a report.",
        "reproduce": "Run a table or figure of the BERT paper, or compare families, at a size of your choosing.",
        "submit": "Write the predictions of fine-tuned runs as GLUE's evaluation server takes them.",
        "generate": "Generate text: continue prompts, or write a target for each source text.",
        "prune": "Write a fine-tuned run with fewer attention heads or layers.",
        "duplicates": "Find texts that nearly repeat another, by their vectors.",
        "topics": "Cluster texts by their vectors: topics with words, and a page.",
    },
    subverbs={
        "analyse": {
            "attention": "Show what each head attends to in a text or a pair, as one page that needs no network.",
            "compare": "Compare models on the same texts: layers, heads, and a run over its steps.",
        }
    },
    purposes={
        "Start": ("demo",),
        "Pretrain": ("adapt", "plan", "bench"),
        "Fine-tune": ("mine", "distil", "reproduce"),
        "Use a model": ("generate", "duplicates", "topics"),
        "Look into a model": ("analyse",),
        "Share a model": ("prune", "submit"),
    },
)
