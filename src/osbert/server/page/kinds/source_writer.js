// source_writer: the text that a pretrained encoder-decoder writes from a text, shown as that of a fine-tuned one.

export * from "./generate.js";
