"""GPT, GPT-2 and XLNet: their names in Hugging Face folders, and the permuted language model."""
