"""Trials of sampler and learner: precision, stale weights, temperature, old log-probabilities."""

from grpodoctor.trials.trial import Arm, Treated, Trial

_INT4_AS_OLD = ("engine.precision=int4", "engine.old_logprobs=sampler")

_FLOAT16 = Treated(
    remedy="float16-engines",
    variant="the sampler; the learner computes in float32",
    removes_fault=True,
)

TRIALS = (
    Trial(
        name="quantized-old-policy",
        question="Is a sampler in int4 whose log-probabilities serve as the old policy reported, "
        "and which correction helps?",
        disease=Arm(settings=_INT4_AS_OLD),
        rules=("MIS001", "MIS002", "CFG030"),
        remedies=(
            Treated(remedy="recompute-old-logprobs"),
            Treated(
                remedy="tis",
                variant="with recomputed old log-probabilities",
                settings=("engine.old_logprobs=recompute", "correction.kind=tis_token"),
            ),
            Treated(
                remedy="tis",
                variant="per response, with recomputed old log-probabilities",
                settings=("engine.old_logprobs=recompute", "correction.kind=tis_sequence"),
            ),
            Treated(
                remedy="mis",
                variant="with recomputed old log-probabilities",
                settings=("engine.old_logprobs=recompute", "correction.kind=mis_sequence"),
            ),
            Treated(
                remedy="icepop",
                variant="with recomputed old log-probabilities",
                settings=(
                    "engine.old_logprobs=recompute",
                    "correction.kind=icepop",
                    "correction.floor=0.5",
                    "correction.cap=5",
                ),
            ),
            Treated(
                remedy="sequence-error-mask",
                variant="with recomputed old log-probabilities",
                settings=("engine.old_logprobs=recompute", "correction.kind=error_mask"),
            ),
            Treated(remedy="higher-precision-sampler", settings=("engine.precision=learner",)),
        ),
    ),
    Trial(
        name="noisy-sampler",
        question="Is a sampler with 20 % noise in its weights reported, and do importance weights "
        "help?",
        disease=Arm(fault="noisy_sampler"),
        rules=("MIS001", "SYN008"),
        remedies=(
            Treated(remedy="tis"),
            Treated(remedy="mis"),
            Treated(remedy="check-weight-sync", removes_fault=True),
        ),
    ),
    Trial(
        name="stale-sampler",
        question="Are samples from weights that are up to sixteen steps old reported, and does a "
        "sync at every step help?",
        disease=Arm(settings=("engine.sync_every=16",)),
        rules=("SYN001", "CFG033"),
        remedies=(
            Treated(remedy="sync-sampler"),
            Treated(remedy="tis"),
            Treated(remedy="m2po", preset="m2po"),
        ),
    ),
    Trial(
        name="weights-never-delivered",
        question="Is a sampler that keeps the weights of the start reported, and does delivering "
        "them help?",
        disease=Arm(fault="weights_never_delivered"),
        rules=("SYN002", "MIS004"),
        steps=90,
        remedies=(Treated(remedy="check-weight-sync", removes_fault=True),),
    ),
    Trial(
        name="temperature-mismatch",
        question="Is a sampler at temperature 0.7 with a loss at temperature 1 reported, and does "
        "one temperature help?",
        disease=Arm(settings=("engine.temperature=0.7",)),
        rules=("CFG020", "MIS003"),
        remedies=(
            Treated(
                remedy="one-temperature",
                variant="the learner scores at 0.7",
                settings=("rollout.temperature=0.7",),
            ),
        ),
    ),
    Trial(
        name="shifted-logprobs",
        question="Are log-probabilities of the next token reported, and does recomputation help?",
        disease=Arm(settings=("engine.old_logprobs=sampler",), fault="shifted_logprobs"),
        rules=("MIS001", "MIS002"),
        remedies=(Treated(remedy="recompute-old-logprobs"),),
    ),
    Trial(
        name="strong-quantization",
        question="Is a sampler with weights of three bits reported, and what helps: importance "
        "weights, masks, or a sampler in float16?",
        disease=Arm(fault="sampler_of_3_bits"),
        faults={_FLOAT16.name: "sampler_of_float16"},
        rules=("MIS001", "MIS003"),
        remedies=(
            Treated(remedy="tis"),
            Treated(remedy="mis"),
            Treated(remedy="sequence-error-mask", settings=("correction.kind=error_mask",)),
            _FLOAT16,
        ),
    ),
)
