"""Loading and converting weights: one adapter per format, the hub, ONNX export, shipped models."""
