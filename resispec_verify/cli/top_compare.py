"""`compare` where a file lists the top k tokens: intervals for every completion of the tails."""

from pathlib import Path
from typing import Any

from resispec_verify.cli.options.group import refuse_beside, refuse_of_lists
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.output import open_dump, progress, say_notes
from resispec_verify.cli.top_files import A_FILE
from resispec_verify.dumps import FlatDump, TopPairsDump, open_top_pairs
from resispec_verify.logged.top_compare import compare_top, top_comparison_records, top_comparison_report
from resispec_verify.report.top import print_top_comparison


def compare_of_top(
    paths: tuple[Path, Path],
    tops: tuple[bool, bool],
    rows: Any,
    span: tuple[int | None, int | None],
    tail: int,
    demands: Any,
    output: OutputOptions,
) -> int:
    """`compare`; the options of rows, and demands, are those of the command.

    Parameters
    ----------
    tops
        Which of the paths lists the top k tokens.
    span
        First and last position.
    """
    refuse_of_lists(paths[tops.index(True)], temperature=rows.temperature)
    refuse_beside(A_FILE, batch=rows.batch, shards=rows.shards, pad_vocab=rows.pad_vocab)
    if all(tops):
        refuse_beside(A_FILE, input=rows.input)
    with progress(str(paths[1]), None) as advance:
        found = compare_top(*map(_opened, paths, tops), positions=span, kind=rows.input, advance=advance)
    report = top_comparison_report(found, tail)
    print_top_comparison(report, output.write(report, lambda: top_comparison_records(found)))
    return demands.judged(*paths, report["results"][0])


def _opened(path: Path, top: bool) -> TopPairsDump | FlatDump:
    if not top:
        return open_dump(path)
    dump = open_top_pairs(path)
    say_notes(dump)
    return dump
