"""Batch sizes that can be divided into updates, devices and passes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Readings, Remedy, number
from grpodoctor.vocabulary.knobs import Setting

_FACTS = ("batch_responses", "update_responses", "learner_devices", "device_responses")


class DivisibleBatch(Remedy):
    """Set the nearest batch that its updates, devices and passes divide.

    What it does:
        An update of a whole number of groups that the devices share evenly, each in whole passes,
        and a batch of a whole number of updates. The sizes are the nearest to those of the config.

    When it applies:
        The config has sizes that do not divide each other, so the trainer stops at the first step
        or fills an update up.

    What it costs:
        Somewhat larger or smaller batches.

    What it overlaps:
        `larger-batch` and `fewer-updates`, which change the same sizes.

    How it is judged:
        By a person: the first step ends without an error about the batch.

    References:
        verl, validate_config: train_batch_size must be at least ppo_mini_batch_size, and its
        responses a multiple of the devices.
    """

    id = "divisible-batch"
    title = "Choose a batch that updates and devices divide"
    applicability = "suggest"
    in_flight = False
    slots = ("step-size",)
    target = Criterion("optimizer/grad_norm", "down")
    paper = "verl, validate_config"
    how = (
        "Choose the batch as a multiple of the mini-batch, and the mini-batch times the responses "
        "per prompt as a multiple of the devices times the micro-batch."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set the prompts and the updates of a batch, if the config gives the other sizes.

        Both are set, since most frameworks give the size of an update instead of their number.
        """
        batch, update, devices, single = (int(number(knobs, name) or 0) for name in _FACTS)
        group = int(number(knobs, "group_size") or 0)
        if not batch or not update or group < 1:
            return {}
        whole = math.lcm(group, max(devices, 1) * max(single, 1))
        divided = max(1, round(min(update, batch) / whole)) * whole
        updates = max(1, round(batch / divided))
        if (divided, updates * divided) == (update, batch):
            return {}
        return {"prompts_per_batch": updates * divided // group, "updates_per_batch": updates}

    def title_for(
        self,
        change: Mapping[str, Setting],
        known: Readings,  # noqa: ARG002 - the sizes are in the change
    ) -> str:
        """The title with the sizes."""
        if not change:
            return self.title
        prompts, updates = change["prompts_per_batch"], change["updates_per_batch"]
        count = "one update" if updates == 1 else f"{updates} updates"
        return f"Use batches of {prompts} prompts, divided into {count}"
