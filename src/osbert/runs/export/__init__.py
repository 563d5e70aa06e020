"""A run written as others run it: ONNX, compared with the run before it gets its name."""
