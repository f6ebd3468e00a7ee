import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.errors import DataError
from grpodoctor.probe.inputs.prompts import read_prompts, shown
from grpodoctor.probe.inputs.prompts_builtin import BASE, builtin_prompts, has_chat_template

CHAT = [{"role": "user", "content": "hi"}]
ROWS = {
    '"a text"': {"text": "a text"},
    '{"prompt": "p", "question": "q"}': {"text": "p"},
    '{"question": "q"}': {"text": "q"},
    '{"problem": "p"}': {"text": "p"},
    json.dumps({"messages": CHAT, "prompt": "p"}): {"messages": CHAT},
    json.dumps({"prompt": CHAT}): {"messages": CHAT},
    '{"prompt_token_ids": [1, 2]}': {"ids": [1, 2]},
}


def test_rows_of_every_form(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\ufeff" + "\n\n".join(ROWS) + "\n", encoding="utf-8")
    assert read_prompts(path, 100) == list(ROWS.values())
    assert read_prompts(path, 2) == list(ROWS.values())[:2]
    whole = tmp_path / "prompts.json"
    whole.write_text(f"[{','.join(ROWS)}]")
    assert read_prompts(whole, 100) == list(ROWS.values())
    lines = tmp_path / "lines.json"
    lines.write_text("\n".join(ROWS))
    assert read_prompts(lines, 100) == list(ROWS.values())


def test_text_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("one\n\ntwo\n")
    assert shown(read_prompts(tmp_path / "p.txt", 9)) == ["one", "two"]
    (tmp_path / "p.csv").write_text(f'id;prompt\n1;"one; 1"\n2;"{CHAT}"\n')
    assert read_prompts(tmp_path / "p.csv", 9) == [{"text": "one; 1"}, {"messages": CHAT}]
    table = pa.table({"prompt": [CHAT, CHAT], "other": [1, 2]})
    pq.write_table(table, tmp_path / "p.parquet")
    assert read_prompts(tmp_path / "p.parquet", 1) == [{"messages": CHAT}]


def _saved(path: Path, text: str) -> None:
    """A file as `Dataset.save_to_disk` writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"prompt": [text]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def test_folders_of_data_sets(tmp_path: Path) -> None:
    saved, hub, plain = (tmp_path / name for name in ("saved", "hub", "plain"))
    _saved(saved / "train" / "data-00000-of-00001.arrow", "a")
    _saved(saved / "train" / "cache-1.arrow", "old")
    _saved(saved / "test" / "data-00000-of-00001.arrow", "t")
    (saved / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert shown(read_prompts(saved, 9)) == ["a"]
    (hub / "data").mkdir(parents=True)
    for name, text in (("train-00000-of-00002", "a"), ("train-00001-of-00002", "b"), ("test", "t")):
        pq.write_table(pa.table({"prompt": [text]}), hub / "data" / f"{name}.parquet")
    (hub / "README.md").write_text("about")
    assert shown(read_prompts(hub, 9)) == ["a", "b"]
    plain.mkdir()
    for name in ("part", "validation"):
        (plain / f"{name}.jsonl").write_text(json.dumps({"prompt": name}))
    assert shown(read_prompts(plain, 9)) == ["part"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file with rows"):
        read_prompts(tmp_path / "empty", 9)
    (tmp_path / "bad.arrow").write_text("no arrow")
    with pytest.raises(DataError, match="not an Arrow file"):
        read_prompts(tmp_path / "bad.arrow", 9)


BAD = {
    "{": "not JSON.*line 2",
    "[1]": "neither a string nor an object.*line 2",
    '{"other": 1}': "has no prompt.*line 2.*question",
    '{"prompt": " "}': "not a non-empty string.*line 2",
    '{"prompt": 3}': "not a non-empty string.*line 2",
    '{"messages": []}': "not a list of messages.*line 2",
    '{"messages": [{"role": "user", "content": null}]}': "no role or content string.*line 2",
    '{"prompt_token_ids": [1, -2]}': "not a list of token ids.*line 2",
    '{"prompt_token_ids": [true]}': "not a list of token ids.*line 2",
}


@pytest.mark.parametrize("row", BAD)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "good"}}\n{row}\n')
    with pytest.raises(DataError, match=BAD[row]) as error:
        read_prompts(path, 100)
    assert error.value.remedy


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("p.txt", b"", "the file has no prompts"),
        ("p.txt", b"\xff\xfe", "not UTF-8"),
        ("p.csv", b"a,b", "the file has no prompts"),
        ("p.csv", b"prompt\n\xff", "not UTF-8"),
        ("p.csv", b"other,b\n1,2", "has no prompt.*question"),
        ("p.xlsx", b"PK", "unknown suffix '.xlsx'"),
        ("p.parquet", b"PAR1", "not a Parquet file"),
        ("p.json", b"[" * 5000, "not JSON"),
        ("p.jsonl", b'"' + b"x" * 1_000_001 + b'"', "longer than 1,000,000"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_prompts(tmp_path / name, 10)


def test_a_missing_file_and_a_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_prompts(tmp_path / "no.jsonl", 1)
    pq.write_table(pa.table({"other": [1]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"has no prompt.*row 1.*question"):
        read_prompts(tmp_path / "p.parquet", 1)


def test_built_in_prompts_are_many_and_of_all_kinds() -> None:
    assert len(set(BASE)) == 64
    prompts = builtin_prompts(512, chat=False)
    assert len({each["text"] for each in prompts}) == 512
    assert prompts == builtin_prompts(512, chat=False)
    assert prompts[:16] == builtin_prompts(16, chat=False)
    assert not any(re.search(r"\{(a|b|c|d|at|name|things)\}", each["text"]) for each in prompts)
    lengths = [len(each["text"]) for each in prompts]
    assert min(lengths) < 20
    assert max(lengths) > 4000
    assert any("\u4e00" < letter < "\u9fff" for each in prompts[:16] for letter in each["text"])


def test_half_of_them_are_chat_where_there_is_a_template() -> None:
    prompts = builtin_prompts(512, chat=True)
    assert sum("messages" in each for each in prompts) == 256
    texts = shown(prompts)
    assert sum(text.startswith("user: ") for text in texts) == 256


def test_whether_a_model_has_a_template(tmp_path: Path) -> None:
    assert not has_chat_template(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert has_chat_template(str(tmp_path))
    assert not has_chat_template("http://127.0.0.1:8000")
