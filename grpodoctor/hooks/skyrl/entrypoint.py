"""SkyRL's entry point with grpodoctor attached to the trainer.

`trainer.override_entrypoint=grpodoctor.hooks.skyrl.entrypoint` selects it.
"""

from __future__ import annotations

import sys
from typing import Any

from grpodoctor.hooks.attach import attach

_THIS = "trainer.override_entrypoint="


def observed_experiment(config: Any) -> Any:
    """SkyRL's experiment, whose trainer is recorded.

    Args:
        config: SkyRL's configuration.
    """
    from skyrl.train.entrypoints.main_base import BasePPOExp

    class ObservedExperiment(BasePPOExp):  # type: ignore[misc]  # SkyRL is not typed
        def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
            trainer = super().get_trainer(*args, **kwargs)
            attach(trainer)
            return trainer

    return ObservedExperiment(config)


def run_experiment(config: Any) -> None:
    """Train; called in a process of Ray.

    Args:
        config: SkyRL's configuration.
    """
    observed_experiment(config).run()


def config_of(arguments: list[str]) -> Any:
    """SkyRL's configuration, checked.

    Args:
        arguments: those of the command line; SkyRL has no setting `trainer.override_entrypoint`.
    """
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils import validate_cfg

    own = [each for each in arguments if not each.startswith(_THIS)]
    config = SkyRLTrainConfig.from_cli_overrides(own)
    validate_cfg(config)
    return config


def main() -> None:
    """Train as `skyrl.train.entrypoints.main_base` does."""
    import ray
    from skyrl.train.utils.utils import initialize_ray

    config = config_of(sys.argv[1:])
    initialize_ray(config)
    ray.get(ray.remote(num_cpus=1)(run_experiment).remote(config))
