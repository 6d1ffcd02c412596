"""Imported by the server that commands are forked from: what commands would import, without doing anything."""

from __future__ import annotations

import gc
import os
import pkgutil
from importlib import import_module

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import icalib

for _module in pkgutil.walk_packages(icalib.__path__, "icalib."):
    if not _module.name.startswith(("icalib.distributed", "icalib.__main__", "icalib.demo")):
        import_module(_module.name)
for _name in ("transformers.models.bert.modeling_bert", "safetensors.torch", "torch.utils.tensorboard", "plotly.io"):
    import_module(_name)
gc.freeze()  # so that forked processes don't copy the memory of modules when they collect garbage
