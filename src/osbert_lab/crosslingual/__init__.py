"""Models of several languages: pretraining on translations (XLM, Lample and Conneau 2019)."""
