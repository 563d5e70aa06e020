"""Models as ONNX files: padded rectangles in, outputs out."""
