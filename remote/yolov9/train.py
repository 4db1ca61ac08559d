"""Entry point: `python -m remote.yolov9.train CONFIG`, JSON or YAML. Whatever goes wrong: one line, an exit code."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import torch

from remote.dataset import DatasetError, open_dataset
from remote.protocol import EXIT_BAD_INPUT, EXIT_DONE, EXIT_INTERRUPTED
from remote.yolov9 import data, engine, recipe, restore, snapshot
from remote.yolov9.checkpoint import CheckpointError
from remote.yolov9.config import ConfigError, TrainConfig
from remote.yolov9.distributed import Ranks, choose_device
from remote.yolov9.interrupt import Interrupt
from remote.yolov9.pretrained import Pretrained, read_pretrained
from remote.yolov9.report import log_notes, write_config, write_hyp
from remote.yolov9.run import Job, build_run
from remote.yolov9.selection import Selection, select

EXIT_FAILED = 1

log = logging.getLogger("yolov9")


def main(argv: list[str]) -> int:
    """Train as the configuration file says. Returns the exit code."""
    interrupt = Interrupt()
    interrupt.install()
    ranks = Ranks.from_environment(os.environ)
    logging.basicConfig(level=logging.INFO if ranks.leads else logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        if len(argv) != 1:
            raise ConfigError("usage: python -m remote.yolov9.train CONFIG.json")
        return _train(TrainConfig.from_file(Path(argv[0])), ranks, interrupt)
    except (ConfigError, DatasetError, CheckpointError) as error:
        log.error("error: %s", error)
        return EXIT_BAD_INPUT
    except torch.cuda.OutOfMemoryError as error:
        log.error("error: out of GPU memory, lower batch or image_size: %s", str(error).splitlines()[0])
        return EXIT_FAILED
    except (snapshot.NonFiniteLoss, OSError) as error:
        log.error("error: %s", error)
        return EXIT_FAILED
    finally:
        ranks.close()


def _train(config: TrainConfig, ranks: Ranks, interrupt: Interrupt) -> int:
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = choose_device(config.device, ranks.local)
    if config.multi_scale:
        torch.backends.cudnn.benchmark = False  # it tries all algorithms at each new size: 3 img/s on an H200
    weights = read_pretrained(config.weights) if config.weights else None
    dataset = open_dataset(config.data)
    log_notes(dataset.notes)
    chosen = select(dataset, config)
    ranks.open(device)
    run = build_run(make_job(config, chosen, weights, ranks, device, interrupt))
    if ranks.leads:
        write_config(run.paths.settings, config)
        write_hyp(run.paths.hyper_parameters, run.job.recipe)
    if config.resume:
        restore.resume(run)
    if not run.batches_done:
        run.gallery.labels(chosen.train)
    return EXIT_INTERRUPTED if engine.fit(run) is engine.Ending.INTERRUPTED else EXIT_DONE


def make_job(
    config: TrainConfig,
    chosen: Selection,
    weights: Pretrained | None,
    ranks: Ranks,
    device: torch.device,
    interrupt: Interrupt,
) -> Job:
    """A job from what was read for it: the recipe chosen, the pictures at hand."""
    plan = recipe.choose(config, len(chosen.train), len(chosen.val))
    log.info("%s, %d + %d pictures, %s", config.model, len(chosen.train), len(chosen.val), recipe.describe(plan))
    budget = int(data.available_memory() * data.CACHE_SHARE) // ranks.world
    train, val = (data.Pictures(split, config.image_size, budget // 2) for split in (chosen.train, chosen.val))
    return Job(config, plan, chosen.names, train, val, ranks, device, interrupt, weights)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
