"""CFG017."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class IndivisibleBatch(ConfigRule):
    """The batch cannot be divided into updates, devices and passes.

    What it sees:
        Responses of one optimizer step that are more than a rollout batch has, or do not divide
        it; that the devices cannot share evenly; or whose share is no multiple of the responses
        that a device takes in one pass.

    Why it matters:
        The trainer stops with an error at the first step, often after the rollout. If it does
        not, an update has fewer responses than its settings say.

    Evidence it needs:
        Settings: `update_responses`, and `batch_responses` or `learner_devices`; better:
        `device_responses`.

    Remedies:
        Choose the batch as a multiple of the mini-batch, and the mini-batch times the responses
        per prompt as a multiple of the devices times the micro-batch (`divisible-batch`).

    When it is wrong:
        A version of the trainer may fill the last update or pass up.

    References:
        verl, validate_config: train_batch_size must be at least ppo_mini_batch_size.
    """

    code = "CFG017"
    name = "indivisible-batch"
    explains = ()
    summary = "The batch cannot be divided into updates, devices and passes."
    needs = ("update_responses",)
    remedies = ("divisible-batch",)
    references = ("verl.readthedocs.io/en/latest/examples/config.html",)

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Follow the batch from the rollout to one pass of a device."""
        text = next(_faults(settings), "")
        return ConfigFault("warning", text) if text else None


def _faults(settings: Settings) -> Iterator[str]:
    update = int(settings.amount("update_responses"))
    batch = int(settings.amount("batch_responses"))
    devices = int(settings.amount("learner_devices"))
    single = int(settings.amount("device_responses"))
    if batch and update > batch:
        yield (
            f"One optimizer step needs {update} responses, but a rollout batch has only {batch}: "
            "lower the mini-batch."
        )
    elif batch and batch % update:
        yield f"A rollout batch of {batch} responses is no multiple of the {update} of an update."
    elif batch and devices and batch % devices:
        yield f"A rollout batch of {batch} responses cannot be divided by {devices} devices."
    elif devices and update % devices:
        yield f"The {update} responses of an update cannot be divided by {devices} devices."
    elif devices and single and (update // devices) % single:
        yield (
            f"Each device has {update // devices} responses of an update, no multiple of the "
            f"{single} of one pass."
        )
