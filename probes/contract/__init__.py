"""The contract between `grpodoctor probe` and its engine programs: a JSON request in, shards out.

An engine program is a file `engine_<name>.py` in this folder's parent. The probe runs it by path,
in the Python that has the engine (`python probes/engine_vllm.py REQUEST`, or under torchrun). That
Python may lack grpodoctor, so the contract needs only numpy and the standard library. The package
`grpodoctor` imports the same files (`grpodoctor/probe/contract.py`). The prefix `engine_`
matters: Python would import a program named `vllm.py` in place of vLLM.

A request is a JSON file:

    {"contract": 1, "model": "path or name", "options": {"dtype": "bfloat16", …},
     "answer": "/…/answer.json", "tasks": [TASK, …]}

The program loads the engine once and runs the tasks in order:

    {"kind": "tokenise", "name": …, "prompts": "/…/prompts.json", "output": "/…/folder"}
    {"kind": "sample",   "name": …, "prompts": "/…/prompts.json", "output": "/…/folder",
     "sampling": SAMPLING, "want": ["experts"], "shard_responses": 256}
    {"kind": "score",    "name": …, "inputs": "/…/folder of shards", "output": "/…/folder",
     "processing": PROCESSING, "want": ["entropy", "ranks", …], "order": "given" | "reversed",
     "prompts": "/…/prompts.json",  # optional: score after the engine's own prompt ids
     "replay": true,                # optional: force the experts recorded in the inputs
     "what_if": [["window", 16]]}   # optional: compute with these edits; see `AlterableEngine`
    {"kind": "what_ifs", "name": …, "output": "/…/folder"}
    {"kind": "sensitivities", "name": …, "inputs": "/…/folder of shards", "output": "/…/folder",
     "processing": PROCESSING, "tokens": 512, "what_if": […]}
    {"kind": "first_order", …}  # with the same keys

A prompts file is a list of `{"text": …}`, `{"messages": […]}` or `{"ids": […]}`. The answer
describes the engine and the result of each task. It is replaced after each task, and its `error`
gives the reason if the program refused. A shard is an `.npz` file with the arrays of `Shard`. It is
written under a temporary name and renamed, so an existing shard is always complete. A restarted
program skips the shards that exist. The result of a task whose edits do not fit the model is
`{"inapplicable": reason}`; the program continues with the next task.

A request may name a file as `next`. The program then keeps its engine loaded after the last task,
sets `waiting` in its answer, and runs the request that appears in that file, which has the same
model and options. It ends if that request is `{}`, if `idle_seconds` pass without one, or if its
parent ends. A program that ends after each request is loaded again. The environment variable
`GRPODOCTOR_PROBE_PID` holds the probe's process id, and standard input is a pipe that the probe
holds open, unless there is a launcher. Once the input ends or that process is gone, the program
kills its own process group, even in the middle of a task.

A program defines `load(model, options)`, which returns an `Engine`, and ends with `serve(load)`.
"""

from .datatypes import (
    CONTRACT_VERSION,
    LIKELIEST,
    PROCESSORS,
    REFUSED,
    SHARD_RESPONSES,
    TEMPERATURES,
    WANTS,
    InapplicableError,
    Processing,
    RefusalError,
    Response,
    Sampling,
    response_seed,
    with_defaults,
)
from .engine import (
    AlterableEngine,
    Engine,
    FirstOrderEngine,
    RecordedEngine,
    ReplayEngine,
    SensitiveEngine,
)
from .probe_watch import PROBE_PID
from .shards import Shard, read_responses, read_shard, shard_paths, write_shard
from .tasks import serve

__all__ = [
    "CONTRACT_VERSION",
    "LIKELIEST",
    "PROBE_PID",
    "PROCESSORS",
    "REFUSED",
    "SHARD_RESPONSES",
    "TEMPERATURES",
    "WANTS",
    "AlterableEngine",
    "Engine",
    "FirstOrderEngine",
    "InapplicableError",
    "Processing",
    "RecordedEngine",
    "RefusalError",
    "ReplayEngine",
    "Response",
    "Sampling",
    "SensitiveEngine",
    "Shard",
    "read_responses",
    "read_shard",
    "response_seed",
    "serve",
    "shard_paths",
    "with_defaults",
    "write_shard",
]
