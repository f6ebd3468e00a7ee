"""Two ranks of a data-parallel training with `Doctor`, started by torchrun.

    torchrun --nproc-per-node 2 two_ranks.py RUN_DIR STEPS

The groups of four are spread over the ranks: each has two responses of every group.
"""

import hashlib
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from grpodoctor.hooks.torch_loop.doctor import Doctor
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request

ROWS, LENGTH, VOCABULARY = 8, 5, 8


def main() -> None:
    run_dir, steps = Path(sys.argv[1]), int(sys.argv[2])
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, VOCABULARY))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rates = []

    def set_rate(value: float) -> None:
        optimizer.param_groups[0]["lr"] = value

    doctor = Doctor(run_dir, model="linear")
    doctor.knob("learning_rate", lambda: optimizer.param_groups[0]["lr"], set_rate)
    generator = torch.Generator().manual_seed(rank)
    for number in range(steps):
        if rank == 0 and number == 2:
            change = Request("1", "apply", "t", "lower-learning-rate", {"learning_rate": 0.05})
            Mailbox(run_dir).send(change)
        with doctor.step(number) as step:
            states = torch.randn(ROWS, LENGTH, 4, generator=generator)
            logits = model(states)
            tokens = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=generator)
            # Every group has equal rewards on each rank and different rewards across the ranks.
            rewards = torch.full((ROWS,), float(rank))
            logprobs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
            loss = -(logprobs * (rewards[:, None] - 0.5)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step.rollouts(tokens=tokens, mask=torch.ones_like(tokens), rewards=rewards,
                          groups=[row // 2 for row in range(ROWS)], shared_groups=True,
                          advantages=rewards - 0.5)  # fmt: skip
            step.logits(logits)
            step.update(loss=loss, grad_norm=1.0)
        rates.append(optimizer.param_groups[0]["lr"])
    doctor.close()
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(f"rank {rank} {hashlib.sha256(weights).hexdigest()} {rates}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
