"""CFG016."""

from __future__ import annotations

import math

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class BrokenGroups(ConfigRule):
    """The batch is no multiple of the group, so groups are cut or the trainer refuses to start.

    What it sees:
        A number of responses per process with which 1, 2, 4 or more processes, as machines have
        them, never fill whole groups: the number of processes must be a multiple of 3, 5, 7, …

    Why it matters:
        An advantage compares the responses of a whole group. TRL and ms-swift end with an error if
        the batch of all processes contains a part of a group.

    Evidence it needs:
        Settings: `group_size`, `responses_per_process`; better: `sampler_apart`.

    Remedies:
        Choose per_device_train_batch_size times the steps of a generation as a multiple of the
        group size, or a group size of 4, 8 or 16.

    When it is wrong:
        The run has a number of processes that completes the groups, such as 3 or 6. That is usual
        if vLLM runs as a server on some of the devices, so it is only a note then.

    References:
        TRL issue 2858 and open-r1 issue 249 (the batch must be a multiple of the group).
    """

    code = "CFG016"
    name = "broken-groups"
    explains = ()
    summary = "The batch is no multiple of the group size."
    needs = ("group_size", "responses_per_process")
    remedies = ()
    references = (
        "github.com/huggingface/trl/issues/2858",
        "github.com/huggingface/open-r1/issues/249",
    )

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Look for a factor of the group that neither the batch nor a power of two contains."""
        group = int(settings.amount("group_size"))
        responses = int(settings.amount("responses_per_process"))
        if group < 1 or responses < 1:
            return None
        processes = group // math.gcd(group, responses)
        if processes & (processes - 1) == 0:
            return None
        return ConfigFault(
            # Of eight devices, a server leaves seven or six to the trainer.
            "info" if settings.get("sampler_apart") is True else "warning",
            f"{responses} responses per process fill groups of {group} only if the number of "
            f"processes is a multiple of {processes}.",
        )
