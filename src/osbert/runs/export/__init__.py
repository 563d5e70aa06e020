"""Export of a run to ONNX, which is compared with the run before it gets its name."""
