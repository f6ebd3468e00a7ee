"""Frameworks that load a hook by their settings, and the lines that are printed for each."""

import re
from importlib import import_module
from importlib.util import find_spec

import pytest

import grpodoctor
from grpodoctor.errors import ConfigError
from grpodoctor.hooks.adapter import SettingsAdapter, adapter_for, adapter_named, adapters

BY_SETTINGS = sorted(name for name, kind in adapters().items() if issubclass(kind, SettingsAdapter))


def test_every_framework_with_a_trainer_of_its_own_has_an_adapter() -> None:
    assert set(adapters()) == {
        "ms-swift", "nemo-rl", "openrlhf", "prime-rl", "skyrl", "slime", "tinker-cookbook", "trl",
        "verl",
    }  # fmt: skip
    assert BY_SETTINGS == ["openrlhf", "prime-rl", "slime", "verl"]


@pytest.mark.parametrize("name", BY_SETTINGS)
def test_an_object_of_such_a_framework_is_refused_with_the_way_that_works(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    package = adapters()[name].package  # type: ignore[attr-defined]
    trainer = type("Trainer", (), {"__module__": f"{package}.trainer"})()
    assert adapter_for(trainer) is adapters()[name]
    assert not grpodoctor.attach(trainer).active
    (line,) = [each.getMessage() for each in caplog.records]
    assert f"grpodoctor attach --framework {name}" in line
    other = type("Trainer", (), {"__module__": f"{package}_extensions.trainer"})()
    assert adapter_for(other) is None


@pytest.mark.parametrize(
    ("alias", "name"), [("swift", "ms-swift"), ("ms_swift", "ms-swift"), ("nemo", "nemo-rl"),
                        ("Tinker", "tinker-cookbook"), ("prime_rl", "prime-rl")]
)  # fmt: skip
def test_an_adapter_is_found_by_the_other_names_of_its_framework(alias: str, name: str) -> None:
    assert adapter_named(alias) is adapters()[name]


def test_a_framework_without_an_adapter_is_one_line() -> None:
    with pytest.raises(ConfigError, match="AReaL has no hook; follow its log"):
        adapter_named("areal")
    with pytest.raises(ConfigError, match="unknown framework 'arael'"):
        adapter_named("arael")


@pytest.mark.parametrize("name", sorted(adapters()))
def test_what_is_printed_names_only_what_exists(name: str) -> None:
    text = adapters()[name].instructions
    for path in re.findall(r"grpodoctor\.hooks\.[\w.]+\w", text):
        module, _, attribute = path.rpartition(".")
        if find_spec(module) is not None and hasattr(import_module(module), attribute):
            continue
        assert find_spec(path) is not None, path
