"""Views of run and sweep folders: terminal, TensorBoard, HTML, CSV."""
