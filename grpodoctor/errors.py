"""The error classes of the package.

    GrpodoctorError            every error raised on purpose
    ├── InputError             the user's input cannot be used; the CLI exits with 2
    │   ├── RunError           a run on disk: missing, empty, of another kind, being written
    │   │   ├── MixedRunsError a directory or a log that has several runs
    │   │   └── OtherTrainingError a log of another kind of training; `check` does not examine it
    │   ├── ConfigError        an unknown key, a value out of bounds, contradictory settings
    │   ├── ModelError         a model that is missing, does not load or does not fit its tokenizer
    │   ├── DataError          prompts, answers or a reward function of the wrong shape
    │   └── EngineError        a sampling engine: unreachable, silent, or with another model
    ├── RankError              another rank of a distributed training is gone
    ├── OutOfMemoryError       a training step does not fit into memory; the last full step is kept
    └── MissingExtraError      optional packages are not installed; the CLI exits with 2

A message is one line with three parts: what is wrong, where, and the remedy.
"""


class GrpodoctorError(Exception):
    """An error with its location and its remedy.

    Args:
        what: what is wrong, without a full stop.
        where: the file, key or step; empty if the place is unknown.
        remedy: what the user can do, in the imperative.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        location = f" ({where})" if where else ""
        advice = f"; {remedy}" if remedy else ""
        super().__init__(" ".join(f"{what}{location}{advice}".split()))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the constructor, whose arguments differ between subclasses."""
        return _restored, (type(self), str(self)), self.__dict__


def _restored(kind: type[GrpodoctorError], message: str) -> GrpodoctorError:
    return kind.__new__(kind, message)


class InputError(GrpodoctorError):
    """The user's input cannot be used."""


class RunError(InputError):
    """A run on disk is missing, empty, of another kind, or being written by another process."""


class NoLogError(RunError):
    """A path whose files are not logs."""


class MixedRunsError(RunError):
    """A directory holds the logs of several runs, or a log holds the rows of several."""


class OtherTrainingError(RunError):
    """A log of another kind of training than reinforcement learning of a language model."""


class ConfigError(InputError):
    """A configuration key is unknown, a value is out of bounds, or two settings contradict."""


class ModelError(InputError):
    """A model is missing, does not load, or does not fit its tokenizer."""


class DataError(InputError):
    """Prompts, answers or a reward function have the wrong shape."""


class EngineError(InputError):
    """The sampling engine does not respond, or serves a model other than the learner's."""


class RankError(GrpodoctorError):
    """A rank of a distributed training lost another rank."""

    exit_code = 1


class OutOfMemoryError(GrpodoctorError):
    """A training step does not fit into memory."""


class MissingExtraError(GrpodoctorError):
    """A feature needs packages that are not installed.

    Args:
        feature: the feature, as a noun or gerund.
        extra: the extra of the distribution that installs the packages.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed",
            remedy=f"run: pip install 'grpodoctor[{extra}]'",
        )


def name_some(names: list[str], most: int = 3, letters: int = 40) -> str:
    """Join the first few names of a list, for a message; longer names are cut."""
    shown = [name if len(name) <= letters else f"{name[: letters - 1]}…" for name in names[:most]]
    return ", ".join([*shown, "…"] if len(names) > len(shown) else shown)
