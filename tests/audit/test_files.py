"""Two files of completions: what is read of them, what is refused, and the verdicts."""

import json

import numpy as np
import pytest

from resispec_verify.audit.files import LONGEST_LINE, audit_files, read_stream
from resispec_verify.errors import InputError

LAW = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
OTHER = np.array([0.1, 0.1, 0.1, 0.2, 0.2, 0.3])


def written(path, lines):
    """A file of JSON lines; texts are written as they are."""
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def completions(seed, count=400, law=LAW, length=3):
    """Token ids, the first of which always has the same law."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(law), size=(count, length), p=law)
    rows[:, 0] = rng.choice(len(LAW), size=count, p=LAW)
    return rows.tolist()


@pytest.fixture
def audited(tmp_path):
    """Audit of lines of ON and lines of OFF."""

    def audit(on, off, **settings):
        settings = {"first": 2, **settings}
        a, b = written(tmp_path / "on.jsonl", on), written(tmp_path / "off.jsonl", off)
        found = audit_files(a, b, **settings)
        json.dumps(found, allow_nan=False)
        return found

    return audit


def test_streams_that_are_alike_are_not_rejected(audited):
    found = audited(completions(0), completions(1))
    assert found["verdict"] == "not-rejected"
    assert found["pairs"] == 400
    assert found["found_at"] is None
    assert 0.1 < found["detectable_tv"] < 0.6
    assert found["detectable_of"]["first_tokens"] == 2
    assert found["control"]["pairs"] == 200
    assert not any(one["beyond_noise"] for one in found["witness"])
    assert any("no proof" in note for note in found["notes"])


def test_another_law_is_rejected_with_its_tokens(audited):
    found = audited(completions(0, law=OTHER), completions(1))
    assert found["verdict"] == "rejected"
    assert found["found_at"] < 400
    assert found["control"]["found_at"] is None
    best = found["witness"][0]
    assert abs(best["frequency_on"] - best["frequency_off"]) > 0.03


def test_lines_may_be_lists_or_objects_with_prompts_and_seeds(tmp_path):
    lines = [{"tokens": [1, 2, 3], "prompt": "a", "seed": 0}, {"tokens": [4, 5], "prompt": 7, "extra": None}]
    stream = read_stream(written(tmp_path / "x", lines), 2)
    assert dict(stream.completions) == {"a": [(1, 2)], 7: [(4, 5)]}
    assert read_stream(written(tmp_path / "y", [[1, 2], "", [3, 4]]), 2).completions[None] == [(1, 2), (3, 4)]


def test_texts_are_compared_by_words_with_the_white_space_before_them(tmp_path):
    lines = [{"text": " The  cat\nsat"}, {"text": "x \n"}, {"text": ""}]
    stream = read_stream(written(tmp_path / "x", lines), 3)
    assert stream.completions[None] == [(" The", "  cat", "\nsat"), ("x", " \n"), ()]
    assert stream.kind == "pieces of text"


def test_the_kth_completion_of_a_prompt_meets_the_kth(audited):
    """In whatever order the prompts come: the law of each prompt is its own."""
    rows = {name: [completions((i, side)) for side in (0, 1)] for i, name in enumerate("ab")}
    shifted = [[token + 10 for token in row] for row in rows["b"][0]]
    shifted_off = [[token + 10 for token in row] for row in rows["b"][1]]
    on = [{"prompt": "a", "tokens": row} for row in rows["a"][0]]
    on += [{"prompt": "b", "tokens": row} for row in shifted]
    off = [
        {"prompt": name, "tokens": row}
        for pair in zip(rows["a"][1], shifted_off, strict=True)
        for name, row in zip("ab", pair, strict=True)
    ]
    found = audited(on, off)
    assert found["verdict"] == "not-rejected"
    assert (found["prompts"], found["pairs"]) == (2, 800)


def test_a_reference_that_drifts_is_no_reference(audited):
    off = completions(1, 600) + completions(2, 600, law=OTHER)
    found = audited(completions(0), off)
    assert found["verdict"] == "reference-mismatch"
    assert any("unlike its second" in note for note in found["notes"])


@pytest.mark.parametrize(("side", "verdict"), [("on", "rejected"), ("off", "reference-mismatch")])
def test_repeated_seeds_are_found_and_named(audited, side, verdict):
    twice = [row for row in completions(1, 100, length=6) for _ in range(2)]
    streams = {"on": completions(0, 200, length=6), "off": completions(2, 200, length=6)} | {side: twice}
    found = audited(streams["on"], streams["off"], first=6)
    assert found["verdict"] == verdict
    assert found["repeated"][side]["found_at"] <= 100
    assert any(f"in {side} equal" in note and "repeated seeds" in note for note in found["notes"])


def test_completions_that_are_all_equal_are_remarked(audited):
    found = audited([[1, 2]] * 100, [[1, 2]] * 100)
    assert found["verdict"] == "not-rejected"
    assert sum("all completions of a prompt are equal" in note for note in found["notes"]) == 2


def test_completions_without_a_partner_are_counted(audited):
    found = audited(completions(0, 120), completions(1, 100))
    assert found["pairs"] == 100
    assert any(note.startswith("20 completions have no partner") for note in found["notes"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "x:2: not JSON"),
        ("3", "x:2: no tokens and no text"),
        ({"token": [1]}, "x:2: no tokens and no text"),
        ({"text": "a b"}, "x:2: pieces of text after lines of ids"),
        ({"tokens": "a"}, "x:2: tokens is 'a'"),
        ([1, 2.0], "x:2: token 2.0 is no id"),
        ([1, True], "x:2: token True is no id"),
        ([1, -1], "x:2: token -1 is no id"),
        ("[1, NaN]", "x:2: token nan is no id"),
        ({"tokens": [1, 2], "prompt": 1.5}, "x:2: prompt is 1.5"),
        ({"tokens": [1, 2], "prompt": True}, "x:2: prompt is True"),
        ({"tokens": [1, 2], "prompt": "a"}, "x:2: some lines name a prompt and some do not"),
        ({"tokens": [1, 2], "seed": "0"}, "x:2: seed is '0'"),
        ({"tokens": [1, 2], "seed": 5}, "x:2: seed 5 was that of line 1"),
        ("[1, 2]" + " " * LONGEST_LINE, f"x:2: longer than {LONGEST_LINE} bytes"),
        ("[" * 100_000, "x:2: not JSON"),
    ],
)
def test_a_line_that_is_no_completion_is_refused_with_its_place(tmp_path, line, message):
    path = written(tmp_path / "x", [{"tokens": [1, 2], "seed": 5}, line])
    with pytest.raises(InputError) as error:
        read_stream(path, 2)
    assert message in str(error.value)


def test_a_text_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="x:1: text is 3"):
        read_stream(written(tmp_path / "x", [{"text": 3}]), 1)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"[1]\n\xff\xfe\n")
    with pytest.raises(InputError, match="x:2: not JSON"):
        read_stream(tmp_path / "x", 1)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    (tmp_path / "x").write_text(content)
    with pytest.raises(InputError, match="no completions"):
        read_stream(tmp_path / "x", 2)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_stream(tmp_path / "none", 2)


@pytest.mark.parametrize(
    ("on", "off", "message"),
    [
        ([[1, 2]] * 50, [{"text": "a b"}] * 50, "on.jsonl has ids but"),
        ([[1, 2]] * 50, [{"tokens": [1, 2], "prompt": "a"}] * 50, "on.jsonl has lines without a prompt"),
        (
            [{"tokens": [1, 2], "prompt": "a"}] * 50,
            [{"tokens": [1, 2], "prompt": name} for name in "ab"] * 50,
            "off.jsonl has prompt 'b'",
        ),
        ([[1, 2]] * 20, [[1, 2]] * 50, "20 pairs of completions"),
        ([[1]] * 50, [[1, 2]] * 50, "on.jsonl: no completion has more than 1 tokens"),
        (
            [{"tokens": [1, 2], "seed": i} for i in range(50)],
            [{"tokens": [1, 2], "seed": i} for i in range(49, 99)],
            "on.jsonl:50 and",
        ),
    ],
)
def test_files_that_cannot_be_compared_are_refused(audited, on, off, message):
    with pytest.raises(InputError) as error:
        audited(on, off)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings", [{"first": 0}, {"first": 1.0}, {"alpha": 0.0}, {"alpha": 1}, {"power": 1.0}, {"power": "x"}]
)
def test_settings_that_mean_nothing_are_refused(audited, settings):
    with pytest.raises(InputError):
        audited(completions(0, 50), completions(1, 50), **settings)


def test_clean_files_are_rarely_rejected(audited):
    rows = [audited(completions((i, 0), 60), completions((i, 1), 60), alpha=0.05) for i in range(60)]
    assert sum(found["verdict"] != "not-rejected" for found in rows) < 6  # two errors of .05 each
