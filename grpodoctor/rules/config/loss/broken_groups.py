"""CFG016."""

from __future__ import annotations

import math

from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings


class BrokenGroups(ConfigRule):
    """The batch is no multiple of the group, so groups are cut or the trainer refuses to start.

    What it sees:
        A number of responses per process with which 1, 2, 4 or more processes, as machines have
        them, never fill whole groups: the number of processes must be a multiple of 3, 5, 7, …
        Also a batch of all processes that is no multiple of the group.

    Why it matters:
        An advantage compares the responses of a whole group. TRL and ms-swift end with an error if
        the batch of all processes contains a part of a group.

    Evidence it needs:
        Settings: `group_size`, and `responses_per_process` or `batch_responses`; better:
        `sampler_apart`.

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
    needs = ("group_size",)
    remedies = ()
    references = (
        "github.com/huggingface/trl/issues/2858",
        "github.com/huggingface/open-r1/issues/249",
    )

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Compare the group with the batch of a process, and with that of all."""
        group = int(settings.amount("group_size"))
        if text := _of_all(group, int(settings.amount("batch_responses"))):
            return ConfigFault("warning", text)
        if text := _of_process(group, int(settings.amount("responses_per_process"))):
            # A server with one or two of eight devices leaves seven or six to the trainer.
            is_apart = settings.get("sampler_apart") is True
            return ConfigFault("info" if is_apart else "warning", text)
        return None


def _of_all(group: int, responses: int) -> str:
    if group < 1 or responses < 1 or responses % group == 0:
        return ""
    return f"A batch of {responses} responses is no multiple of the group of {group}."


def _of_process(group: int, responses: int) -> str:
    """Look for a factor of the group that neither the batch nor a power of two contains."""
    if group < 1 or responses < 1:
        return ""
    processes = group // math.gcd(group, responses)
    if processes & (processes - 1):
        return (
            f"{responses} responses per process fill groups of {group} only if the number of "
            f"processes is a multiple of {processes}."
        )
    return ""
