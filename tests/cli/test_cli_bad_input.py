"""Bad usage and bad input: status 2, one line that says what, where and the remedy, nothing half-written."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from cli_helpers import (
    EXAMPLE,
    assert_one_line,
    assert_refused,
    check_report,
    command,
    drawn,
    row,
    save,
    strict_json,
)

HAND = ("kl", "--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1")


class Bomb:
    """Touches a file when it is unpickled by something that runs code."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def changed(tensor: torch.Tensor, position: int, token: int | slice, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[position, token] = value
    return tensor


T, D = drawn(4, 6, seed=3), drawn(4, 6, seed=4)
BAD_VALUES = {
    "nan in the target": (changed(T, 2, 3, torch.nan), D, ["target_logits", "NaN", "position 2", "token 3"]),
    "nan in the draft": (T, changed(D, 1, 0, torch.nan), ["draft_logits", "NaN", "position 1", "token 0"]),
    "+inf": (changed(T, 3, 5, torch.inf), D, ["target_logits", "+inf", "position 3", "token 5"]),
    "only -inf": (T, changed(D, 1, slice(None), -torch.inf), ["draft_logits", "position 1", "-inf"]),
    "integers": (T.long(), D.long(), ["target_logits", "int64"]),
    "probabilities": (T.softmax(-1), D.softmax(-1), ["probabilities", "--input probabilities"]),
    "positions differ": (T, D[:3], ["target_logits", "[4, 6]", "draft_logits", "[3, 6]"]),
    "widths differ": (T, D[:, :5], ["6", "5", "--pad-vocab"]),
    "no positions": (T[:0], D[:0], ["target_logits", "[0, 6]"]),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_values_that_are_not_logits(cli, tmp_path, name):
    target, draft, words = BAD_VALUES[name]
    path, report = save(tmp_path / "bad.pt", target, draft), tmp_path / "report.json"
    report.write_text("untouched")
    assert_refused(cli("kl", "--logits", path, "--json", report), path, *words)
    assert report.read_text() == "untouched"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.pt", "report.json"]


def test_files_that_are_not_dumps(cli, tmp_path):
    good = save(tmp_path / "good.pt", T, D)
    missing, cut, text, empty, tensor, keys, folder = (
        tmp_path / f"{name}.pt" for name in ("missing", "cut", "text", "empty", "tensor", "keys", "folder")
    )
    cut.write_bytes(good.read_bytes()[:-900])
    text.write_text("target_logits: 1, 2, 3\n")
    empty.touch()
    torch.save(T, tensor)
    torch.save({"prompt": "Hello", "scores": T}, keys)
    folder.mkdir()
    suffix = tmp_path / "dump.txt"
    suffix.write_bytes(good.read_bytes())
    for path, words in (
        (missing, ["no such file"]),
        (cut, ["truncated", f"{cut.stat().st_size} bytes"]),
        (text, ["not a PyTorch zip file", "torch.save"]),
        (empty, ["0 bytes"]),
        (tensor, ["[4, 6]", "not a dict", "target_logits"]),
        (keys, ["no target_logits", "prompt, scores"]),
        (folder, ["directory"]),
        (suffix, [".txt", ".pt"]),
    ):
        for verb in (("kl", "--logits"), ("inspect",)):
            if path != keys or verb[0] == "kl":
                assert_refused(cli(*verb, path), path, *words)


def test_a_pipe_is_not_waited_for(cli, tmp_path):
    pipe = tmp_path / "pipe.pt"
    os.mkfifo(pipe)
    assert_refused(cli("kl", "--logits", pipe), pipe, "not a regular file")


@pytest.mark.parametrize("save_it", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_pickles_that_run_code_are_refused(cli, tmp_path, save_it):
    path, marker = tmp_path / "bomb.pt", tmp_path / "marker"
    save_it({"target_logits": T, "draft_logits": D, "meta": {"x": Bomb(marker)}}, path)
    assert_refused(cli("kl", "--logits", path), path)
    assert_refused(cli("inspect", path), path)
    assert not marker.exists()


BAD_OPTIONS = {
    "--temperature": ["-1", "nan", "inf", "-inf", "warm"],
    "--candidates": ["0", "-1", "abc", ""],
    "--rule": ["zzz", ""],
    "--positions": ["0:9", "4:3", "3:3", "-1:2", "a:b", "2", "", "1:2:3", "5:", "0:99999999999999999999"],
    "--top-k": ["0", "-1", "many"],
    "--top-p": ["0", "1.5", "-0.1", "nan"],
    "--min-p": ["-1", "1.5", "nan"],
    "--proposal-temperature": ["-1", "nan"],
    "--proposal-top-k": ["0"],
    "--proposal-top-p": ["0", "2"],
    "--gap": ["-1", "2", "nan", "wide"],
    "--max-expansions": ["0", "-1", "nan", "all"],
    "--batch": ["0", "-1", "two"],
    "--seed": ["-1", "seed"],
    "--candidate-list": ["a,b,c", "0,1", "0,1,6", "0,1,-2", "0,,1", "", "0 1 2"],
    "--max-tv": ["-1", "2", "nan", "x"],
    "--input": ["logit"],
    "--backend": ["jax"],
    "--precision": ["float16"],
    "--marginal": ["neither"],
    "--redistribution": ["x"],
    "--budget": ["x"],
    "--hole": ["x"],
    "--plot": ["plot.xyz", "plot"],
}


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_values_out_of_range(cli, dump, tmp_path, option):
    report = tmp_path / "report.json"
    for value in BAD_OPTIONS[option]:
        result = cli("kl", "--logits", dump, "--json", report, option, value)
        assert_refused(result, *([value] if value and option != "--candidate-list" else []))
        assert not report.exists()


@pytest.mark.parametrize("option", ["--temperature", "--proposal-temperature", "--top-k", "--proposal-top-k"])
def test_the_option_out_of_range_is_named(cli, dump, option):
    """With a temperature and a proposal temperature given, "temperature must be ..." leaves open which."""
    assert_refused(cli("kl", "--logits", dump, option, "-1"), option)


@pytest.mark.parametrize("option", ["--candidates", "--top-k", "--proposal-top-k", "--batch", "--seed"])
def test_whole_numbers_are_not_rounded(cli, dump, option):
    assert_refused(cli("kl", "--logits", dump, option, "2.5"), option, "2.5")


def test_a_list_that_begins_with_a_negative_token(cli, dump):
    assert_refused(cli("kl", "--logits", dump, "--candidate-list", "-1,2,3"), "--candidate-list", "negative")


def test_more_candidates_than_an_array_has_axes_for(cli):
    assert_refused(cli(*HAND, "--candidates", "99999999999999999999"), "--candidates")


def test_the_nearest_name_is_suggested(cli, dump):
    assert_refused(cli("kl", "--logits", dump, "--rule", "specinfr"), "specinfr", "did you mean 'specinfer'?")
    assert_refused(cli("kll"), "kll", "did you mean 'kl'?")
    assert_refused(cli("inspekt", dump), "inspekt", "did you mean 'inspect'?")
    assert_refused(
        cli("kl", "--logits", dump, "--temprature", "1"), "--temprature", "did you mean --temperature?"
    )
    assert_refused(
        cli("kl", "--logits", dump, "--marginal", "operatonal"), "operatonal", "did you mean 'operational'?"
    )


def test_usage(cli, dump):
    assert_refused(cli("kl"), "FILE", "--target", "--draft")
    assert_refused(cli("kl", "--logits", dump, *HAND[1:]), "FILE", "--target")
    assert_refused(cli("inspect"))
    assert_refused(cli("rules", "resispec"), "resispec")
    assert_refused(cli("kl", "--logits", dump, "--candidates"), "--candidates")


@pytest.mark.parametrize("arguments", [("--logits",), ("--logits", "--require-exact"), ("--empty-logits",)])
def test_no_paths_is_not_a_success(cli, arguments):
    """What `--logits $FILES` becomes when the variable is empty must not pass --require-exact."""
    none = arguments[0] == "--logits"
    assert_refused(
        cli("kl", *arguments), "nothing to verify: give FILE" if none else "unknown option --empty-logits"
    )


def test_inspect_without_paths(cli):
    assert_refused(cli("inspect", "--empty-paths"))


HAND_FAULTS = [
    ("0.3,0.4,0.3", None, ["--draft"]),
    (None, "0.3,0.4,0.3", ["--target"]),
    ("-0.3,1,0.3", "0.6,0.3,0.1", ["target", "token 0", "-0.3"]),
    ("0.3,0.4,0.3", "0.6,0.5,-0.1", ["draft", "token 2", "-0.1"]),
    ("0.3,0.4,0.4", "0.6,0.3,0.1", ["target", "1.1"]),
    ("0.3,0.4,0.3", "0.6,0.3,0.100001", ["draft", "1.000001"]),
    ("0.3,0.4,0.3", "0.6,0.4", ["target", "draft", "3", "2"]),
    ("", "1", ["--target"]),
    ("1", "", ["--draft"]),
    ("0.5,,0.5", "0.5,0.5", ["--target"]),
    ("a,b", "0.5,0.5", ["--target", "a,b"]),
    ("nan,1", "0.5,0.5", ["target", "token 0", "nan"]),
    ("inf,0", "0.5,0.5", ["target", "token 0", "inf"]),
]


@pytest.mark.parametrize(("target", "draft", "words"), HAND_FAULTS)
def test_values_by_hand(cli, target, draft, words):
    options = [*(["--target", target] if target is not None else [])]
    options += ["--draft", draft] if draft is not None else []
    assert_refused(cli("kl", *options), *words)


@pytest.mark.parametrize(
    "options",
    [
        ("--temperature", "2"),
        ("--top-k", "1"),
        ("--top-p", "0.5"),
        ("--proposal-top-k", "2"),
        ("--proposal-temperature", "0"),
        ("--positions", "5:9"),
        ("--input", "logits"),
    ],
)
def test_options_that_need_logits_are_not_ignored_by_hand(cli, options):
    """Either they act or they are refused; the same numbers as without them mislead."""
    plain = cli(*HAND, "--json", "-").json["results"]
    result = cli(*HAND, *options, "--json", "-")
    if result.status == 2:
        assert_refused(result, options[0])
    else:
        found = result.json["results"]
        keys = ("temperature", "tv_mean", "kl_mean", "limit_mean")
        assert [[r[key] for key in keys] for r in found] != [[r[key] for key in keys] for r in plain]


@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
def test_outputs_that_cannot_be_written(cli, tmp_path, option):
    for path, words in (
        (tmp_path / "none" / "x.svg", ["folder", tmp_path / "none"]),
        (tmp_path, ["folder"]),
    ):
        assert_refused(cli("kl", "--logits", tmp_path / "not read.pt", option, path), path, *words)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(cli, dump, tmp_path):
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    assert_refused(cli("kl", "--logits", dump, "--json", folder / "x.json"), folder)


def test_outputs_that_collide(cli, dump, tmp_path, monkeypatch):
    assert_refused(cli("kl", "--logits", dump, "--json", "-", "--csv", "-"), "standard output")
    monkeypatch.chdir(tmp_path)
    for other in ("out", "./out", tmp_path / "out"):
        assert_refused(cli("kl", "--logits", dump, "--json", "out", "--csv", other), "out")
    assert not Path("out").exists()


@pytest.mark.parametrize("verb", [("kl", "--logits"), ("inspect",)])
@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
def test_the_dump_is_never_overwritten(cli, dump, option, verb, tmp_path):
    if verb[0] == "inspect" and option != "--json":
        return
    picture = tmp_path / "dump.svg"
    os.link(dump, picture)
    before = dump.read_bytes()
    target = picture if option == "--plot" else dump
    result = cli(*verb, dump, option, target)
    assert dump.read_bytes() == before
    assert target.read_bytes() == before
    assert_refused(result, target)


def test_special_files_are_not_replaced(cli, dump, tmp_path):
    """As root an output such as /dev/null would be replaced by a regular file, for the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        result = cli("kl", "--logits", dump, "--json", pipe)
        written = os.read(reader, 1 << 16)
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    if result.status == 2:
        assert_refused(result, pipe)
    else:
        check_report(strict_json(written.decode()))


def test_a_link_to_an_output_stays_a_link(cli, dump, tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    assert cli("kl", "--logits", dump, "--json", link).status == 0
    assert link.is_symlink()
    check_report(strict_json(real.read_text()))


def test_names_that_are_too_long(cli, dump, tmp_path):
    assert_refused(cli("kl", "--logits", dump, "--json", tmp_path / ("x" * 300)), "x" * 20)
    assert_refused(cli("kl", "--logits", "x" * 300 + ".pt"), "x" * 20)
    longest = tmp_path / ("x" * 250)
    assert cli("kl", "--logits", dump, "--json", longest).status in (0, 2)


def test_a_good_file_is_reported_beside_a_bad_one(cli, dump, tmp_path):
    bad, report = save(tmp_path / "bad.pt", changed(T, 2, 3, torch.nan), D), tmp_path / "report.json"
    for paths in ((dump, bad), (bad, dump)):
        report.unlink(missing_ok=True)
        result = cli("kl", "--logits", *paths, "--json", report)
        assert result.status == 2
        assert_one_line(result.err, bad, "position 2")
        assert "resispec" in result.out
        found = strict_json(report.read_text())
        check_report(found)
        assert found["dump"]["paths"] == [str(dump)]
        assert found["dump"]["positions"] == row(found, "specinfer")["positions"] == 5


def test_every_bad_file_has_its_line(cli, dump, tmp_path):
    result = cli("kl", "--logits", tmp_path / "a.pt", dump, tmp_path / "b.pt")
    assert result.status == 2
    first, second = result.err.splitlines()
    assert_one_line(first, tmp_path / "a.pt")
    assert_one_line(second, tmp_path / "b.pt")


def test_two_beats_one(cli, dump, tmp_path):
    arguments = ("kl", "--logits", dump, tmp_path / "none.pt", "--rule", "resispec")
    assert cli(*arguments, "--require-exact").status == 2
    assert cli(*arguments, "--max-tv", "0.001").status == 2


BAD_CANDIDATES = {
    "too few": torch.tensor([[0, 1]] * 4),
    "not integers": torch.full((4, 3), 0.7),
    "one a position": torch.tensor([0, 1, 2, 3]),
    "a string": "0,1,2",
    "ragged": [[0], [1, 2], [3], [1]],
}


@pytest.mark.parametrize("name", BAD_CANDIDATES)
def test_candidates_of_a_dump(cli, tmp_path, name):
    path = save(tmp_path / "dump.pt", T, D, candidates=BAD_CANDIDATES[name])
    assert_refused(cli("kl", "--logits", path), path, "candidates")


def test_candidates_that_are_no_tokens(tmp_path):
    """In a process of its own: a kernel that uses them as indices writes beyond its arrays."""
    paths = [
        save(tmp_path / f"{i}.pt", T, D, candidates=torch.tensor([[0, 1, 2]] * 3 + last))
        for i, last in enumerate(([[0, 1, 6]], [[0, 1, -1]], []))
    ]
    result = command("kl", "--logits", *paths)
    assert (result.status, result.out) == (2, "")
    lines = result.err.splitlines()
    for line, path, where in zip(lines, paths, ("position 3", "position 3", "[3, 3]"), strict=True):
        assert_one_line(line, path, "candidates", where)


def test_log_probabilities_are_checked(cli, tmp_path):
    path = save(tmp_path / "dump.pt", T, D)
    arguments = ("kl", "--logits", path, "--input")
    assert_refused(cli(*arguments, "probabilities"), path, "target_logits", "position 0")
    assert_refused(cli(*arguments, "log-probabilities"), path, "position 0", "sum")


@pytest.mark.parametrize("demand", [("--require-exact",), ("--max-tv", "0.1")])
def test_the_path_identity_alone_meets_no_demand(cli, dump, demand):
    """It cannot fail, so it decides nothing: a demand that nothing can answer is not met."""
    result = cli("kl", "--logits", dump, "--marginal", "path-identity", *demand)
    assert result.status in (1, 2)


def test_the_real_command_ends_with_two():
    assert_refused(command("kl", "--logits", EXAMPLE, "--candidate-list", "0,1,49152"), "49152", EXAMPLE)


def test_bad_input_is_known_before_anything_is_compiled(cli, tmp_path, monkeypatch):
    """A mistyped path must not cost the compilation of the kernels, nor a second line about it."""

    def compiled(*arguments: object, **options: object) -> None:
        raise AssertionError("the kernels were needed")

    monkeypatch.setattr("resispec_verify.cli.over_dumps.transport_limit", compiled)
    assert_refused(cli("kl", "--logits", tmp_path / "none.pt"), "none.pt")
    assert_refused(cli("kl", "--target", "0.3,0.4,0.4", "--draft", "0.6,0.3,0.1"), "1.1")
