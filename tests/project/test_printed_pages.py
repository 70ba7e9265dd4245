"""How the commands are found that the pages print."""

from __future__ import annotations

import re
import runpy

import pytest
from printed_commands import FENCE, ROOT, SHELLS, pages, printed


def test_every_output_is_of_a_page_that_is_compared():
    maker = runpy.run_path(str(ROOT / "docs" / "regenerate.py"))
    with_outputs = [page for page in pages() if maker["BLOCK"].search(page.read_text(encoding="utf-8"))]
    assert set(with_outputs) <= set(maker["pages"]())


def test_no_command_hides_in_a_block_of_another_kind():
    for page in pages():
        for block in FENCE.finditer(page.read_text(encoding="utf-8")):
            if block["kind"].strip() not in (*SHELLS, "yaml"):
                hidden = re.findall(
                    r"^ *(?:\$ |resispec-verify (?!error|interrupted)).*$", block["text"], re.M
                )
                assert not hidden, f"{page}: make it ```console: {hidden[0]}"


PAGE = """
`resispec-verify check` and `resispec-verify kl
a.pt --json -` <!-- `resispec-verify no` -->

```console
$ resispec-verify kl a.pt \\
    --rule "x y"   # said
status of it
$ echo $?
1
$ A | B -c 3 > out 2>&1 &
$ resispec-verify engines --command-line 'one
  two'
```

    python a.py --b

```yaml
      - run: one && two
      - name: x
        run: |
          three 'a#b' \\
            4
      - run: five
```
"""


def test_how_commands_are_found():
    found = printed(PAGE, "p")
    assert [" ".join(command.words) for command in found] == [
        "resispec-verify kl a.pt --rule x y",
        "A",
        "B -c 3",
        "resispec-verify engines --command-line one\n  two",
        "one",
        "two",
        "three a#b 4",
        "five",
        "python a.py --b",
        "resispec-verify check",
        "resispec-verify kl a.pt --json -",
    ]
    assert (found[0].status, found[0].shown, found[0].where) == (1, "status of it", "p:5")
    assert [command.inline for command in found[-2:]] == [True, True]


@pytest.mark.parametrize("text", ["ls\n", "resispec-verify kl a.pt\n$ ls\n"])
def test_a_console_begins_with_a_prompt(text):
    with pytest.raises(AssertionError, match="begins with"):
        printed(f"```console\n{text}```\n", "p")


def test_status_that_nothing_precedes():
    with pytest.raises(AssertionError, match="follows a command"):
        printed("```sh\necho $?\n```\n", "p")
