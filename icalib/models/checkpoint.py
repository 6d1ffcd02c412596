"""Checkpoints: self-contained folders with a configuration, weights and a posterior."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SerializeAsAny
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from icalib.core.component import Settings, validated_file, with_settings
from icalib.core.errors import DamagedFileError, PosteriorError, RunFolderError
from icalib.core.files import atomic_write, file_digest, read_json, write_json
from icalib.encoders.backbone import Tokenizer, load_config
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.heads.head import AbstractHead
from icalib.heads.linear import LinearHead
from icalib.losses.binary import Link

CHECKPOINT_VERSION = 4
WEIGHTS = "model.safetensors"
POSTERIOR = "posterior.safetensors"
RECOMPUTE = "Delete that folder and run the command again to recompute it."


class RankerConfig(Settings):
    """Configuration of a cross-encoder: its encoder, head and intents."""

    encoder: SerializeAsAny[AbstractEncoder.Config] = TransformerEncoder.Config()
    head: SerializeAsAny[AbstractHead.Config] = LinearHead.Config()
    starts_at_zero: bool = False  # start the head at 0, where it corrects the ranker's other parts
    intents: tuple[str, ...] = ()
    """The intent labels, in the order of the outputs of the intent head, or of the classifier in an encoder without a
    backbone; empty for a ranker without intents."""
    link: Link = "sigmoid"  # maps logits to probabilities; determined by the loss


def save_ranker(folder: Path, config: RankerConfig, state: dict[str, Tensor]) -> None:
    """Write a self-contained checkpoint: ranker.json, weights (not of pre-training's heads), backbone, tokenizer."""
    backbone = folder / "backbone"
    backbone.mkdir(parents=True, exist_ok=True)
    load_config(config.encoder.backbone).save_pretrained(backbone)
    Tokenizer(config.encoder.backbone).save(backbone)
    (folder / POSTERIOR).unlink(missing_ok=True)  # it was computed for the weights that are replaced here
    only_domain_pretraining = ("masked_word_head.", "task_heads.")
    save_weights(folder, {name: state[name] for name in state if not name.startswith(only_domain_pretraining)})
    write_json(folder / "ranker.json", {"version": CHECKPOINT_VERSION, **config.model_dump(mode="json")})


def save_weights(folder: Path, state: dict[str, Tensor]) -> None:
    """Write the weights of a checkpoint (safetensors) atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / WEIGHTS) as temporary:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, temporary)


def load_ranker_config(folder: Path) -> RankerConfig:
    """Read the configuration of a checkpoint, with its own backbone; a RunFolderError if it has none."""
    try:
        fields = dict(read_json(folder / "ranker.json"))
    except DamagedFileError as error:
        raise RunFolderError(
            f"{folder} is not the checkpoint of a ranker ({error}). Give the checkpoint folder of a run."
        ) from error
    version = fields.pop("version", None)
    if version != CHECKPOINT_VERSION:
        raise RunFolderError(
            f"{folder} is a checkpoint of version {version}; this icalib reads {CHECKPOINT_VERSION}. "
            "Use the icalib version that wrote it, or train again with --fresh."
        )
    config = validated_file(folder / "ranker.json", RankerConfig, fields)
    return with_settings(config, {"encoder.backbone": str((folder / "backbone").resolve())})


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a checkpoint, or raise a RunFolderError."""
    try:
        return load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"the weights in {folder} can't be read ({error}). {RECOMPUTE}") from error


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Copy the weights of the checkpoint in `folder` to a module, or raise a RunFolderError if they don't fit it."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise RunFolderError(f"the weights in {folder} don't fit its ranker.json ({reason}). {RECOMPUTE}") from error


def save_posterior(folder: Path, state: dict[str, Tensor]) -> None:
    """Write a posterior next to the weights that it was computed for."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with atomic_write(folder / POSTERIOR) as temporary:
        save_file(kept, temporary, metadata={"weights": file_digest(folder / WEIGHTS)})


def read_posterior(folder: Path) -> dict[str, Tensor]:
    """Read the posterior of a checkpoint; a PosteriorError if it is damaged or of other weights."""
    try:
        with safe_open(folder / POSTERIOR, framework="pt") as file:
            weights = (file.metadata() or {}).get("weights")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it isn't a dict
    except (OSError, SafetensorError) as error:
        raise PosteriorError(f"{folder / POSTERIOR} can't be read ({error}). {RECOMPUTE}") from error
    if weights != file_digest(folder / WEIGHTS):
        raise PosteriorError(
            f"the posterior in {folder} was computed for other weights than those in {WEIGHTS}: its probabilities "
            f"would be wrong. {RECOMPUTE}"
        )
    return state
