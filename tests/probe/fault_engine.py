"""An engine of the tests' own: a bigram table for a model, and faults on demand.

`program:…/fault_engine.py?model=SEED&fault=NAME`. Two of the same seed agree to the last bit;
`shift=X` moves each log-probability up or down by X, without saying so.
"""

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import contract
import contract.tasks
import numpy as np

VOCABULARY = 32
CONTEXT = 512
END = 0


class FaultEngine:
    def __init__(self, model, options):
        self.model, self.options = model, options
        self.fault = options.get("fault", "")
        self.tasks = 0
        rng = np.random.default_rng(int(options.get("seed", 0)))
        logits = rng.normal(size=(VOCABULARY, VOCABULARY)) * 2
        if "perturb" in options:
            logits += np.random.default_rng(9).normal(size=logits.shape) * options["perturb"]
        self.table = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def describe(self):
        size = int(self.options.get("vocabulary", VOCABULARY))
        facts = {
            "name": "fault", "version": "1", "model": self.model, "dtype": "float64",
            "device": "cpu", "layout": {}, "vocab_size": size, "end_ids": [END], "begin_id": None,
            "context": int(self.options.get("context", CONTEXT)), "logprobs": "raw", "settings": {},
        }  # fmt: skip
        if self.fault == "says_nothing":
            del facts["vocab_size"]
        return facts

    def tokenise(self, prompts):
        self._fail("tokenise")
        return [[1 + byte % (VOCABULARY - 1) for byte in _text(each).encode()] for each in prompts]

    def sample(self, prompts, sampling, _want):
        self._fail("sample")
        longest = max(map(len, prompts))
        if longest > self.options.get("context", CONTEXT):
            raise contract.RefusalError(f"a prompt of {longest} tokens does not fit")
        rng = np.random.default_rng(sampling.seed)
        found = [
            self._response(ids, prompt, sample, sampling, rng)
            for prompt, ids in enumerate(prompts)
            for sample in range(sampling.samples)
        ]
        return found[:-1] if self.fault == "few" else found

    def _response(self, ids, prompt, sample, sampling, rng):
        tokens, last = [], ids[-1]
        while len(tokens) < sampling.max_tokens and (not tokens or tokens[-1] != END):
            last = int(rng.choice(VOCABULARY, p=np.exp(self.table[last])))
            tokens.append(last)
        if self.fault == "empty":
            tokens = []
        if self.fault == "beyond":
            tokens = [int(self.options.get("vocabulary", VOCABULARY)) + 5]
        logprobs = None if self.fault == "no_logprobs" else self._logprobs(ids, tokens)
        return contract.Response(ids, tokens, logprobs, prompt, sample, tokens[-1:] == [END])

    def score(self, responses, _processing, _want):
        self._fail("score")
        for each in responses:
            each.logprobs = self._logprobs(each.prompt_ids, each.response_ids)
            if self.fault == "other_tokens":
                each.response_ids = [*each.response_ids, 1]
                each.logprobs = [*each.logprobs, -1.0]
        return responses

    def _logprobs(self, ids, tokens):
        shift = float(self.options.get("shift", 0.0))
        before = [ids[-1], *tokens[:-1]]
        return [
            min(0.0, float(self.table[last % VOCABULARY, token % VOCABULARY]) + shift * (-1) ** at)
            for at, (last, token) in enumerate(zip(before, tokens, strict=False))
        ]

    def _fail(self, kind):
        if self.options.get("at", kind) != kind:
            return
        if self.options.get("once") and not _first_time(self.options["once"]):
            return
        if self.fault == "hang":
            time.sleep(600)
        if self.fault == "orphan":  # a child that leaves the process group, as torchrun's do
            child = [sys.executable, "-c", "import time; time.sleep(600)"]
            started = subprocess.Popen(child, start_new_session=True)
            Path(self.options["note"]).write_text(str(started.pid))
        if self.fault in ("die", "orphan"):
            print("RuntimeError: \x1b[31mthe devil is in the detail\x1b[0m", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "raise":
            raise ValueError("no such kernel")
        if self.fault == "worker":  # as vLLM's do
            stamp = "ERROR 11-21 18:42:38 [multiproc_executor.py:953]"
            for rank in range(2):
                print(f"(Worker_TP{rank} pid=2268{rank}) {stamp} ValueError: no such tensor")
            raise contract.RefusalError("it does not start: RuntimeError: see above", "look there")
        if self.fault == "refuse":
            raise contract.RefusalError("it does not like this", "ask otherwise")

    def close(self):
        pass


def _first_time(path):
    try:
        Path(path).open("x").close()
    except FileExistsError:
        return False
    return True


def _text(prompt):
    return prompt.get("text") or "".join(each["content"] for each in prompt["messages"])


def load(model, options):
    fault = options.get("fault", "")
    if fault == "silent_exit":
        sys.exit(0)
    if fault == "no_import":
        import a_package_that_nobody_has  # noqa: F401
    if fault == "garbage":
        contract.tasks.write_shard = _garbage
    if "stubborn" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "retitled" in options:  # a worker that has overwritten its environment, as vLLM's do
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
        Path(options["retitled"]).write_text(str(worker.pid))
    if "downloads" in options:
        _download(Path(options["downloads"]))
    print("loaded", flush=True)
    return FaultEngine(model, options)


def _download(cache):
    """As the hub's library keeps a model."""
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("abc")
    (cache / "snapshots" / "abc").mkdir(parents=True)


def _garbage(path, responses):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("prompt_B.npy", "response_ids_N.npy"):
            archive.writestr(name, b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fortran_order': False")
    contract.tasks._count = lambda *_: None


if __name__ == "__main__":
    if '"unwatched"' in Path(sys.argv[1]).read_text():  # it does not see that the probe ends
        contract.tasks.end_with_probe = lambda: None
    contract.serve(load)
