"""Answer formats are read from the instructions of prompts."""

import pytest

from grpodoctor.preflight.answers.requested.requested_formats import requested_formats

REQUESTS = {
    "Conclude with the line Verdict: guilty or Verdict: innocent.": "Verdict: {answer}",
    "Your last line should be: FINAL ANSWER = <value>": "FINAL ANSWER = {answer}",
    "Write your choice as [[A]], [[B]] or [[C]].": "[[{answer}]]",
    "Put the result between <<< and >>>.": "<<<{answer}>>>",
    'End your response with "So the answer is X."': "So the answer is {answer}",
    "Write the solution inside [SOLUTION] and [/SOLUTION].": "[SOLUTION]{answer}[/SOLUTION]",
    "Use <plan> </plan> and then <move> </move>.": "<plan>I think.</plan>\n<move>{answer}</move>",
    'Respond with JSON having the key "city".': '{"city": "{answer}"}',
    'Return {"thought": string, "answer": integer}.': '{"thought": "I think.", "answer": {answer}}',
    "Use this form:\nWhy: ...\nMove: X\nConfidence: 0": (
        "Why: I think.\nMove: {answer}\nConfidence: 50"
    ),
    "Use this form:\nWhy: <text>\nFinal move: <move>\nConfidence: <number>": (
        "Why: I think.\nFinal move: {answer}\nConfidence: 50"
    ),
    "Put the query into a ```sql block.": "```sql\n{answer}\n```",
    "Finish with the marker @@@ followed by the number.": "@@@ {answer}",
    "Reply in the format ANSWER|<letter>": "ANSWER|{answer}",
    "Output the translation after `Translation:`.": "Translation: {answer}",
    "Your response must end with (answer: N).": "(answer: {answer})",
    "Finish with: The value of x is ___.": "The value of x is {answer}",
    "Termine par la ligne \u00ab R\u00e9ponse : X \u00bb.": "R\u00e9ponse : {answer}",
    "\u6700\u540e\u5199\u51fa\u300c\u7b54\u6848\uff1a\u2026\u300d": "\u7b54\u6848\uff1a{answer}",
}


@pytest.mark.parametrize(("request_text", "form"), REQUESTS.items())
def test_a_requested_format_is_read(request_text: str, form: str) -> None:
    prompts = [f"How many stairs has tower {number}? {request_text}" for number in range(9)]
    assert form in requested_formats(prompts)


def test_what_only_a_few_prompts_quote_is_no_request() -> None:
    prompts = [f"How many stairs has tower {number}?" for number in range(9)]
    assert requested_formats([*prompts, "Finish with 'Stairs: N'."]) == ()


def test_a_long_line_is_read_quickly() -> None:
    assert requested_formats(["a" * 200_000, "<" * 200_000, "a: " * 60_000]) == ()
