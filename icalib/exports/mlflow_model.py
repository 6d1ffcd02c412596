"""A folder that `mlflow.pyfunc.load_model` loads, around an exported graph; icalib isn't needed there."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from icalib.core.errors import SettingError

_PACKAGES = ("numpy", "onnxruntime", "pandas", "tokenizers")
"""What the loader imports; the model requires the versions that are installed here."""
_LOADER = Path(__file__).with_name("icalib_pyfunc.py")
_EXAMPLE: dict[str, list[Any]] = {
    "context": [["My printer hums.", "Which model is it?", "The big one."]] * 2,
    "candidate": ["Restart it.", "Hello!"],
}


def check_mlflow() -> None:
    """Check that MLflow is installed.

    Raises:
        SettingError: it is missing.
    """
    if find_spec("mlflow") is None:
        raise SettingError(
            "--format mlflow needs the package mlflow, which is not installed. Run `pip install 'icalib[mlflow,onnx]'`."
        )


def write_pyfunc(folder: Path, graph: Path, about: dict[str, Any]) -> None:
    """Write an MLflow model: `MLmodel`, its environment, signature, example, loader and a copy of the graph's folder.

    Args:
        folder: empty.
        graph: folder of an exported graph.
        about: facts for the model's metadata.
    """
    import pandas as pd
    from mlflow.models import ModelSignature  # pyright: ignore[reportMissingImports]
    from mlflow.pyfunc import save_model  # pyright: ignore[reportMissingImports]
    from mlflow.types.schema import Array, ColSpec, DataType, Schema  # pyright: ignore[reportMissingImports]

    outputs = [ColSpec(DataType.double, name) for name in ("logit", "probability", "variance")]
    signature = ModelSignature(
        Schema([ColSpec(Array(DataType.string), "context"), ColSpec(DataType.string, "candidate")]), Schema(outputs)
    )
    save_model(
        path=str(folder),
        loader_module=_LOADER.stem,
        data_path=str(graph),
        code_paths=[str(_LOADER)],
        pip_requirements=[f"{name}=={version(name)}" for name in _PACKAGES],
        signature=signature,
        input_example=pd.DataFrame(_EXAMPLE),
        metadata=about,
    )


def usage(name: str) -> str:
    """Return how the model is used, in Markdown."""
    return f"""```python
import mlflow
import pandas as pd

model = mlflow.pyfunc.load_model("{name}")
rows = pd.DataFrame({_EXAMPLE})
model.predict(rows)  # logit, probability, variance
```

A row is a pair: `context` are the last utterances of a dialogue, oldest first, and `candidate` is a possible answer.
Rank the candidates of a context by `logit`; `probability` is calibrated, and `variance` is that of the logit, 0 without
a posterior. `mlflow models serve -m {name}` answers the same rows over HTTP."""
