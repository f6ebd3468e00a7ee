from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.plan import plan_from_options, read_plan

GRID = """
model = "org/name"
stale = "old"
limit = 16

[sampling]
samples = 4
max_tokens = [128, 512]
temperature = 0.7

[[sampler]]
engine = "vllm"
python = "env/python"
options = { dtype = ["bfloat16", "float32"], tensor_parallel_size = [1, 2] }

[[sampler]]
engine = "transformers"
timeout = 60

[[learner]]
engine = "transformers"
options = { dtype = ["float32", "bfloat16"], attention = "sdpa", weights = "./old" }
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


def test_lists_make_a_grid(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(
        ConfigError, match=r"old': the directory has no weights.*with its config\.json"
    ):
        read_plan(written(tmp_path, GRID))
    (tmp_path / "old" / "config.json").touch()
    (tmp_path / "old" / "model.safetensors").touch()
    plan = read_plan(written(tmp_path, GRID))
    labels = [spec.label for spec in plan.samplers]
    assert labels == [
        "vllm:name?dtype=bfloat16&tensor_parallel_size=1",
        "vllm:name?dtype=bfloat16&tensor_parallel_size=2",
        "vllm:name?dtype=float32&tensor_parallel_size=1",
        "vllm:name?dtype=float32&tensor_parallel_size=2",
        "transformers:name",
    ]
    assert {spec.python for spec in plan.samplers} == {"env/python", ""}
    assert plan.samplers[-1].timeout == 60
    assert [spec.options["dtype"] for spec in plan.learners] == ["float32", "bfloat16"]
    assert Path(str(plan.learners[0].options["weights"])) == tmp_path / "old"
    assert plan.stale == tmp_path / "old"
    assert plan.cells == 20
    assert plan.sampling.lengths() == (
        Sampling(samples=4, max_tokens=128, temperature=0.7),
        Sampling(samples=4, max_tokens=512, temperature=0.7),
    )


def test_the_same_engine_twice_is_one(tmp_path: Path) -> None:
    plan = plan_from_options(["vllm:m?a=1&b=2", "vllm:m?b=2&a=1"], ["transformers:m"])
    assert len(plan.samplers) == 1
    assert (plan.limit, plan.sampling.samples, plan.sampling.max_tokens) == (64, 4, (256,))


BAD = {
    "[sampling]\ntemprature = 1": "there is no setting sampling.temprature",
    "[sampling]\ntemperature = 0": "sampling.temperature cannot be '0'",
    "[sampling]\nmax_tokens = []": "the list is empty",
    "[[sampler]]\nengine = 'sglang'": "unknown engine; use one of vllm",
    "[[sampler]]\nengine = 'vllm'\ndtype = 'float32'": "sampler.2.dtype.*options = { … }",
    "nothing = 1": "there is no setting nothing",
    "budget = -1": "budget cannot be '-1'",
    "= 1": "not TOML",
    f"limit = {'9' * 5000}": "not TOML",
    "[[sampler]]\nengine = 'vllm'\noptions = { dtype = [] }": "dtype is an empty list",
    "[[sampler]]\nengine = 'vllm'\nmodel = []": "model is an empty list",
    "[[sampler]]\nengine = 'vllm'\noptions = { a = [['x'], 1] }": "a is not a string, .*or list",
    "[[sampler]]\nengine = 'vllm'\noptions = { a = { b = 1 } }": "as JSON in a string",
    "[[sampler]]\nengine = 'vllm'\nprocesses = 'two'": "sampler.2.processes cannot be 'two'",
    "[[sampler]]\nmodel = 'm'": "sampler.2.engine is missing.*add engine = …",
    "stale = 'no/such/folder'": "stale cannot be 'no/such/folder': the checkpoint does not exist",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_key_is_named(tmp_path: Path, text: str) -> None:
    before, after = ("", GRID) if not text.startswith("[[") else (GRID, "")
    grid = f"{before}\n{text}\n{after}"
    if text.startswith("stale"):
        grid = GRID.replace('stale = "old"', text)
    if text.startswith("[sampling]"):
        grid = GRID.replace("[sampling]\nsamples = 4\nmax_tokens = [128, 512]", text)
        grid = grid.replace("temperature = 0.7", "") if "temperature" in text else grid
    with pytest.raises(ConfigError, match=BAD[text]) as caught:
        read_plan(written(tmp_path, grid))
    assert "grid.toml" in str(caught.value)


def test_paths_are_those_beside_the_file_or_else_those_from_here(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("x")
    long = '{"a/b": "' + "x" * 5000 + '"}'
    options = "{ hf_overrides = '" + long + "' }"
    grid = f"[[sampler]]\nengine='vllm'\nmodel='m'\noptions = {options}\n"
    grid += "[[learner]]\nengine='vllm'\nmodel='m'\n"
    plan = read_plan(written(tmp_path, f"prompts = 'prompts.txt'\nstale = 'org/name'\n{grid}"))
    assert plan.prompts == tmp_path / "prompts.txt"
    assert plan.stale == Path("org/name"), "a name on the hub"
    assert plan.samplers[0].options["hf_overrides"] == long
    plan = read_plan(written(tmp_path, f"prompts = '~/elsewhere.txt'\n{grid}"))
    assert plan.prompts == Path.home() / "elsewhere.txt"


def test_a_grid_without_engines_or_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="learner is missing"):
        read_plan(written(tmp_path, "[[sampler]]\nengine='vllm'\nmodel='m'"))
    grid = "[[sampler]]\nengine='vllm'\n[[learner]]\nengine='vllm'\nmodel='m'"
    with pytest.raises(ConfigError, match=r"the engine vllm has no model.*grid\.toml"):
        read_plan(written(tmp_path, grid))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path / "no.toml")
    with pytest.raises(ConfigError, match=r"sampler cannot be 'x'.*write \[\[sampler\]\]"):
        read_plan(written(tmp_path, "sampler = 'x'"))


def test_a_grid_larger_than_anybody_means(tmp_path: Path) -> None:
    names = ("adapter", "batch_rows", "batch_tokens", "device", "perturb", "seed", "threads")
    options = ", ".join(f"{name} = {list(range(10))}" for name in names)
    grid = GRID.replace('dtype = ["float32", "bfloat16"]', options)
    with pytest.raises(ConfigError, match="at most 4096"):
        read_plan(written(tmp_path, grid))


def test_options_of_the_command_line() -> None:
    with pytest.raises(ConfigError, match="--learner is missing"):
        plan_from_options(["vllm:m"], [])
    with pytest.raises(ConfigError, match=r"sampling\.top_p cannot be '2'"):
        plan_from_options(["vllm:m"], ["vllm:m"], sampling={"top_p": 2})


def test_the_grid_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "probe.md").read_text()
    plan = read_plan(written(tmp_path, page.partition("```toml")[2].partition("```")[0]))
    assert (len(plan.samplers), len(plan.learners), plan.cells) == (4, 4, 32)
    assert {spec.engine for spec in plan.learners} == {"transformers", "fsdp"}
