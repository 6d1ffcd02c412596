"""Views of run folders: terminal, TensorBoard, HTML."""
