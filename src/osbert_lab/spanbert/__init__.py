"""SpanBERT (Joshi et al. 2020): masked spans, predicted a second time from the tokens around them."""
