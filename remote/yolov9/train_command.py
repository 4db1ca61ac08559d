"""`gpucost-yolov9 train`: a training from the flags of the reference, in a run folder of its own.

Owns the flags, what they become, and the folder; the training itself is `train`'s. Several GPUs get a process each.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from remote.names import TaskPaths
from remote.yolov9 import train
from remote.yolov9.cfg import variant_of
from remote.yolov9.config import HYP_NAMES, ConfigError, TrainConfig
from remote.yolov9.flags import ignore, next_folder
from remote.yolov9.pretrained import read_pretrained
from remote.yolov9.recipe import LONG
from remote.yolov9.report import write_config

log = logging.getLogger("yolov9")

_OPTIMIZERS = {"sgd": "sgd", "adam": "adamw", "adamw": "adamw", "auto": "auto"}
_OF_THE_OPTIMIZER = (
    "lr0", "lrf", "momentum", "weight_decay", "warmup_epochs", "warmup_momentum", "warmup_bias_lr",
)  # fmt: skip
"""Hyper-parameters that belong to an optimiser."""
_ESTIMATE = -1
"""How the reference is asked for a batch that fits."""
_BUILT_IN = "hyp.scratch-high"
"""The file of the reference whose values are this trainer's for long runs."""
_AMP = {"": "auto", "true": "auto", "1": "auto", "false": "off", "0": "off"}
_WITHOUT_EFFECT = ("--image-weights", "--noautoanchor", "--nosave", "--quad", "--rect")
_WITHOUT_EFFECT_VALUED = (
    "--artifact_alias", "--bbox_interval", "--bucket", "--entity", "--label-smoothing", "--local-rank", "--local_rank",
)  # fmt: skip


def add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommand and its flags."""
    parser = commands.add_parser("train", help="train a detector")
    add = parser.add_argument
    add("--data", metavar="DATA.YAML", help="or the folder that it is in")
    add("--weights", default="", metavar="FILE.PT", help="weights to begin with; '' for none [%(default)r]")
    add(
        "--cfg",
        default="",
        metavar="MODEL",
        help="yolov9-t, -s, -m, -c, -e, gelan-t to -e, or a file that describes one",
    )
    add("--hyp", metavar="HYP.YAML", help="hyper-parameters over those of the recipe")
    add("--epochs", type=int, default=100, help="[%(default)s]")
    add(
        "--batch",
        "--batch-size",
        type=int,
        help="pictures a step over all GPUs; by the data set if not given",
    )
    add("--img", "--imgsz", "--img-size", type=int, default=640, metavar="PIXELS", help="longer side [%(default)s]")
    add("--device", default="", help="cpu, or GPUs as 0 or 0,1,2,3; '' for the first GPU where there is one")
    add("--workers", type=int, help="loader processes for each GPU")
    add("--optimizer", default="auto", help="auto, SGD, Adam, AdamW [%(default)s]")
    schedule = parser.add_mutually_exclusive_group()
    for flag, name in (("--cos-lr", "cosine"), ("--flat-cos-lr", "flat_cosine"), ("--fixed-lr", "constant")):
        schedule.add_argument(flag, dest="lr_schedule", action="store_const", const=name, default="auto")
    add("--accumulate", type=int, metavar="N", help="batches an optimiser step")
    add("--close-mosaic", type=int, metavar="N", help="the last so many epochs without mosaic")
    add("--amp", nargs="?", const="", default="", help="auto, off, bf16 or fp16 [auto]")
    add("--sync-bn", action="store_true", help="norm statistics over all GPUs")
    add("--multi-scale", action="store_true", help="batches from half to one and a half of --img")
    add("--freeze", type=int, nargs="+", default=[0], metavar="N", help="the first N layers, or a list of layers")
    add("--single-cls", action="store_true", help="all classes as one")
    add("--min-items", type=int, default=0, metavar="N", help="leave out pictures with fewer objects")
    add("--patience", type=int, default=100, metavar="EPOCHS", help="without anything better: end [%(default)s]")
    add("--noval", action="store_true", help="validate after the first and the last epoch alone")
    add("--noplots", action="store_true", help="no pictures of batches, labels and scores, no file for TensorBoard")
    add("--save-period", type=int, default=-1, metavar="EPOCHS", help="keep epochN.pt each so many epochs [none]")
    add("--seed", type=int, default=0)
    add(
        "--cache",
        nargs="?",
        const="ram",
        choices=["ram", "disk"],
        help="nothing: pictures that fit are kept in memory",
    )
    add("--resume", nargs="?", const="", metavar="LAST.PT", help="go on with a run, the newest one if none is named")
    add("--project", type=Path, default=Path("runs/train"))
    add("--name", default="exp", help="folder in the project; the next free one of exp, exp2, ...")
    add("--exist-ok", action="store_true", help="write into a folder that is there")
    add("--evolve", nargs="?", const="300", help=argparse.SUPPRESS)
    add("--upload_dataset", nargs="?", help=argparse.SUPPRESS)
    ignore(parser, _WITHOUT_EFFECT, _WITHOUT_EFFECT_VALUED)
    parser.set_defaults(command=train_command)


def train_command(asked: argparse.Namespace) -> int:
    """Train. Returns the exit code of the training. Raises ConfigError or CheckpointError before it begins."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("start this command once, without torchrun: --device 0,1 starts a process for each GPU")
    if asked.evolve:
        raise ConfigError("--evolve: hyper-parameters are not searched for here; give a job.yaml several trainings")
    gpus = _gpus(asked.device)
    if asked.resume is None:
        config = configuration(asked, gpus)
        folder = next_folder(asked.project, asked.name, exist_ok=asked.exist_ok)
    else:
        folder = _folder_to_resume(asked.resume, asked.project)
        config = replace(TrainConfig.from_file(TaskPaths(folder).settings), resume=True)
    write_config(TaskPaths(folder).settings, replace(config, output=folder))
    log.info("results in %s", folder)
    return _run(TaskPaths(folder).settings, gpus)


def configuration(asked: argparse.Namespace, gpus: Sequence[str]) -> TrainConfig:
    """What the flags ask for, checked; its output is still the present folder. Raises ConfigError, CheckpointError."""
    if not asked.data:
        raise ConfigError("--data is missing: a data.yaml, or the folder that it is in")
    if asked.batch and asked.batch % max(len(gpus), 1):
        raise ConfigError(f"--batch {asked.batch}: not a multiple of the {len(gpus)} GPUs of --device {asked.device}")
    optimizer, hyp = _optimizer_and_hyp(asked)
    return TrainConfig.from_dict(
        {
            "data": str(Path(asked.data).absolute()),
            "output": ".",
            "model": _model(asked),
            "weights": str(Path(asked.weights).absolute()) if asked.weights else None,
            "epochs": asked.epochs,
            "image_size": asked.img,
            "batch": None if asked.batch == _ESTIMATE else asked.batch,
            "hyp": hyp,
            "optimizer": optimizer,
            "lr_schedule": asked.lr_schedule,
            "accumulate": asked.accumulate,
            "freeze": asked.freeze if len(asked.freeze) > 1 else asked.freeze[0],
            "multi_scale": asked.multi_scale,
            "sync_bn": asked.sync_bn,
            "single_cls": asked.single_cls,
            "min_items": asked.min_items,
            "save_period": max(asked.save_period, 0),
            "seed": asked.seed,
            "device": "cuda" if gpus else asked.device or "auto",
            "amp": _AMP.get(asked.amp.lower(), asked.amp.lower()),
            "workers": asked.workers,
            "patience": asked.patience,
            "close_mosaic": asked.close_mosaic,
            "val_interval": asked.epochs if asked.noval else None,
            "plots": not asked.noplots,
            "resume": False,
        }
    )


def _gpus(device: str) -> list[str]:
    """Numbers of the GPUs that are asked for; none where the trainer is to choose, or for the CPU."""
    if device in ("", "auto", "cpu", "cuda"):
        return []
    gpus = device.removeprefix("cuda:").replace(" ", "").split(",")
    if not all(gpu.isdigit() for gpu in gpus) or len(set(gpus)) < len(gpus):
        raise ConfigError(f"--device {device}: expected cpu, or numbers of GPUs as 0 or 0,1,2,3")
    return gpus


def _model(asked: argparse.Namespace) -> str:
    """As named; that of the weights where it is not."""
    if asked.cfg:
        return variant_of(asked.cfg)
    if asked.weights:
        return read_pretrained(Path(asked.weights)).model
    raise ConfigError("--cfg is missing: which model, such as yolov9-s")


def _optimizer_and_hyp(asked: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """A file whose optimiser values are not the usual ones is meant for SGD, the optimiser of the reference.

    Where they are the usual ones and no optimiser is asked for, both are left to the recipe.
    """
    optimizer = _OPTIMIZERS.get(asked.optimizer.lower())
    if optimizer is None:
        raise ConfigError(f"--optimizer {asked.optimizer}: expected auto, SGD, Adam or AdamW")
    hyp = _hyp_file(Path(asked.hyp)) if asked.hyp else {}
    if optimizer != "auto":
        return optimizer, hyp
    own = [key for key in hyp if key in _OF_THE_OPTIMIZER and hyp[key] != getattr(LONG, key)]
    if own:
        log.info("note: SGD, which %s in %s is taken to be meant for; --optimizer says otherwise", own[0], asked.hyp)
        return "sgd", hyp
    return "auto", {key: value for key, value in hyp.items() if key not in _OF_THE_OPTIMIZER}


def _hyp_file(path: Path) -> dict[str, Any]:
    """What has an effect here; the other names are told. Raises ConfigError."""
    if path.stem == _BUILT_IN and not path.exists():
        return asdict(LONG)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--hyp {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--hyp {path}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"--hyp {path}: expected lines of `name: number`")
    values = {str(name): _number(value) for name, value in raw.items()}
    kept = {name: value for name, value in values.items() if name in HYP_NAMES or (name == "fl_gamma" and value)}
    if len(kept) < len(values):
        log.warning("warning: without effect here: %s", ", ".join(name for name in values if name not in kept))
    return kept


def _number(value: object) -> object:
    """YAML takes 1e-3, without a point, for text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _folder_to_resume(named: str, project: Path) -> Path:
    """The run folder of a last.pt, or of the newest one in the project. Raises ConfigError."""
    if named:
        path = Path(named)
        folder = path if path.is_dir() else path.parent.parent
    else:
        found = sorted(project.glob("*/weights/last.pt"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise ConfigError(f"--resume: there is no last.pt in {project}; name one, or the --project it is in")
        folder = found[-1].parent.parent
    paths = TaskPaths(folder)
    for needed in (paths.last, paths.settings):
        if not needed.is_file():
            raise ConfigError(f"--resume: {needed} is not there")
    return folder


def _run(settings: Path, gpus: Sequence[str]) -> int:
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if len(gpus) > 1:
        _become_torchrun(settings, len(gpus))
    return train.main([str(settings)])


def _become_torchrun(settings: Path, processes: int) -> NoReturn:
    """One process for each GPU, in the place of this one: signals reach them, and theirs is the exit code."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    sys.stderr.flush()
    os.execv(sys.executable, [*argv, "-m", "remote.yolov9.train", str(settings)])  # noqa: S606 - our own interpreter
