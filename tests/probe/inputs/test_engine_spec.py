import ast
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.probe.inputs.engine_kinds import ENGINES
from grpodoctor.probe.inputs.engine_spec import EngineSpec

PROBES = Path(__file__).parents[3] / "probes"
parse = EngineSpec.parse


def test_options_are_typed_and_launch_options_removed() -> None:
    spec = parse("vllm:a/b?x=1&y=0.5&z=true&w=int8&timeout=60&processes=2&python=/bin/python")
    assert spec.options == {"x": 1, "y": 0.5, "z": True, "w": "int8"}
    assert (spec.model, spec.timeout, spec.processes, spec.python) == ("a/b", 60, 2, "/bin/python")


def test_plus_signs_are_kept_and_a_tilde_is_expanded() -> None:
    spec = parse("vllm:~/model?python=/opt/py+cpu/bin/python&sync=~/new")
    assert spec.python == "/opt/py+cpu/bin/python"
    assert spec.model == str(Path.home() / "model")
    assert spec.options["sync"] == str(Path.home() / "new")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vllm", "does not start with a known engine"),
        ("sglang:m", "does not start with a known engine.*openai_server"),
        ("vllm:", "has no model"),
        ("vllm:?dtype=float32", "has no model"),
        ("vllm:m?dtype", "cannot be read"),
        ("vllm:m?dtype=float32&dtype=bfloat16", "dtype= occurs twice.*repeat --sampler"),
        ("vllm:m?timeout=soon", "must be numbers"),
        ("vllm:m?timeout=nan", "above zero"),
        ("vllm:m?timeout=-1", "above zero"),
        ("vllm:m?processes=inf", "must be numbers"),
        ("vllm:m?processes=0", "above zero"),
        ("transformers:m?dtyp=float32", "unknown transformers option 'dtyp'.*did you mean dtype"),
        ("fsdp:m?quantise=int8", "unknown fsdp option"),
        ("recorded:m?sied=learner", "unknown recorded option 'sied'.*did you mean side"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(text)


def test_the_key_is_of_what_bears_on_the_answer() -> None:
    assert parse("vllm:m?a=1&b=2").key == parse("vllm:m?b=2&a=1").key
    assert parse("vllm:m?timeout=5").key == parse("vllm:m").key
    others = ("vllm:n", "fsdp:m", "vllm:m?a=1", "vllm:m?python=p", "vllm:m?processes=2")
    assert len({parse(text).key for text in ("vllm:m", *others)}) == 6


def _literal(program: str, name: str) -> list[object]:
    """The keys of a dictionary, or the items of a tuple, that a program defines."""
    tree = ast.parse((PROBES / program).read_text())
    (value,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and any(
            getattr(to, "id", "") == name for to in getattr(node, "targets", None) or [node.target]
        )
    ]
    nodes = value.keys if isinstance(value, ast.Dict) else list(ast.walk(value))
    return [node.value for node in nodes if isinstance(node, ast.Constant)]


def test_the_known_options_are_those_of_the_programs() -> None:
    for engine in ("openai_server", "recorded", "llama_cpp"):
        assert ENGINES[engine].options == set(_literal(f"engine_{engine}.py", "_DEFAULTS")), engine
    (settings,) = [
        node
        for node in ast.parse((PROBES / "hf" / "loading.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    ]
    fields = {ast.unparse(node.target) for node in settings.body if isinstance(node, ast.AnnAssign)}
    changes = set(_literal("engine_fsdp.py", "_WEIGHT_CHANGES"))
    assert ENGINES["fsdp"].options == fields - {"device"} - changes
    assert ENGINES["transformers"].options == fields - {"fsdp", "tensor_parallel"}
    assert ENGINES["vllm"].own_options == set(_literal("vllm_options.py", "_OWN_OPTIONS"))
