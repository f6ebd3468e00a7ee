"""Logs through tinker-cookbook's own loggers, with grpodoctor attached.

Run by path in the environment that has tinker-cookbook. The rows are those of `rl.train`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tinker_cookbook.utils import ml_log

import grpodoctor


def row(step: int, **more: float) -> dict[str, Any]:
    return {
        "progress/batch": step, "progress/done_frac": step / 4, "optim/lr": 1e-5,
        "env/all/reward/total": 0.5, "env/all/by_group/frac_mixed": 0.75,
        "env/all/by_group/frac_all_good": 0.25, "env/all/by_group/frac_all_bad": 0.0,
        "optim/kl_sample_train_v1": 0.001 * step, "time/total": 3.0, **more,
    }  # fmt: skip


def main(folder: Path) -> None:
    config = {"model_name": "tiny", "learning_rate": 1e-5, "group_size": 8}
    logger = ml_log.setup_logging(str(folder), config=config, do_configure_logging_module=False)
    attachment = grpodoctor.attach(logger)
    logger.enable_event_steps()
    for step in range(4):
        logger.log_metrics(row(step), step=step)
        logger.log_summary({"cost/total": 1.0})
        logger.log_long_text("text", "any")
    logger.log_metrics_event({"test/env/all/reward/total": 0.6}, 1, "eval/snapshot/training_step")
    logger.sync()
    store = logger.store is not None
    logger.close()
    distilled = ml_log.MultiplexLogger([])
    grpodoctor.attach(distilled, run_dir=folder / "distilled", config=config)
    for step in range(2):
        distilled.log_metrics({**row(step, teacher_kl=0.4), "env/all/reward/total": 0.0}, step)
    distilled.close()
    print(json.dumps({"missing": list(attachment.missing), "store": store}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
