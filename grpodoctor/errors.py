"""The errors of the house.

    GrpodoctorError            every error we raise on purpose
    ├── InputError             the user's input cannot be used; the CLI exits with 2
    │   ├── RunError           a run on disk: missing, empty, of another kind, already being written
    │   ├── ConfigError        an unknown key, a value out of bounds, two settings that contradict
    │   ├── ModelError         a model that is missing, does not load or does not fit its tokenizer
    │   ├── DataError          prompts, answers or a reward function of the wrong shape
    │   └── EngineError        an engine that samples: unreachable, silent, or with another model
    ├── RankError              of several processes that train together, another one is gone
    ├── OutOfMemoryError       a training step does not fit the memory; the last whole step is kept
    └── MissingExtraError      a feature whose optional packages are not installed; exits with 2

A message is one line and has three parts: what is wrong, where, and what to do about it.
"""


class GrpodoctorError(Exception):
    """An error with its place and its remedy.

    Args:
        what: what is wrong, a clause without a full stop.
        where: the file, key or step it concerns; empty when there is no place to name.
        remedy: what the reader can do about it, in the imperative.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f" ({where})" if where else ""
        advice = f"; {remedy}" if remedy else ""
        super().__init__(" ".join(f"{what}{place}{advice}".split()))

    def __reduce__(self) -> tuple[object, ...]:
        """An error may have to be told to other processes, whatever its constructor asks for."""
        return _restored, (type(self), str(self)), self.__dict__


def _restored(kind: type[GrpodoctorError], message: str) -> GrpodoctorError:
    return kind.__new__(kind, message)


class InputError(GrpodoctorError):
    """The user's input cannot be used."""


class RunError(InputError):
    """A run on disk is missing, empty, of another kind, or being written by somebody else."""


class ConfigError(InputError):
    """A configuration key is unknown, a value is out of bounds, or two settings contradict."""


class ModelError(InputError):
    """A model is missing, does not load, or does not fit its tokenizer."""


class DataError(InputError):
    """Prompts, answers or a reward function have the wrong shape."""


class EngineError(InputError):
    """The engine that samples does not answer, or does not serve what the learner trains."""


class RankError(GrpodoctorError):
    """One of several processes that train together has lost another one."""

    exit_code = 1


class OutOfMemoryError(GrpodoctorError):
    """A training step does not fit the memory that there is."""


class MissingExtraError(GrpodoctorError):
    """A feature needs packages that are not installed.

    Args:
        feature: what was asked for.
        extra: the extra of the distribution that brings it.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed",
            remedy=f"run: pip install 'grpodoctor[{extra}]'",
        )


def name_some(names: list[str], most: int = 3) -> str:
    """The first few names of a list, for a message."""
    shown = [name[:40] for name in names[:most]]
    return ", ".join([*shown, "…"] if len(names) > len(shown) else shown)
