"""`resispec-verify rules`: the rules, what is claimed of them, and what is so."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from resispec_verify.catalogue.attack import Search, attack
from resispec_verify.catalogue.measured import CATALOGUE, rules_table
from resispec_verify.cli.options.group import Options, check_range, values_of
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.parameters import Count, Number, Text
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_lines, print_records
from resispec_verify.schema import envelope

TITLE = "measured: exact marginals in rational arithmetic on a fixed family of pairs"
# Columns that a narrow terminal can do without, in the order in which they go.
DISPENSABLE = ("source", "candidates")
LONGEST_BUDGET = 86_400  # seconds; more than a day is a slip of the keyboard


@dataclass(frozen=True, kw_only=True)
class AttackOptions(Options):
    """What a search looks through."""

    vocab: Count | None = None
    """For --attack: number of tokens, 2 to 8 (5)."""
    candidates: Count | None = None
    """For --attack: number of candidates, or length of a path; several are tried by default."""
    seed: Count | None = None
    """For --attack: of the random starts (0)."""
    budget: Number | None = None
    """For --attack: seconds to search (20), at most a day."""

    def check(self) -> None:
        """Refuse numbers that are out of range."""
        check_range(0, seed=self.seed)
        if self.budget is not None and not 0 < self.budget <= LONGEST_BUDGET:
            raise InputError(
                f"--budget must be above 0 and at most {LONGEST_BUDGET} seconds (a day), got {self.budget:g}"
            )


def rules(
    *, attack: Text | None = None, search: AttackOptions = AttackOptions(), output: JsonOption = JsonOption()
) -> int:
    """The rules: source, claimed exactness, and exactness measured by the rational oracle.

    Parameters
    ----------
    attack
        Instead of the table: search for the pair of laws on which this rule is most wrong (or, if none is
        found, falls furthest short of the acceptance limit), and print it in small fractions.
    """
    output.check()
    if attack is not None:
        search.check()
        return _attack(attack, search, output)
    if unused := [name for name, value in values_of(search).items() if value is not None]:
        raise InputError(f"--{unused[0]} is an option of --attack; give --attack NAME, or leave it out")
    results = rules_table()
    console = output.write(envelope("rules", results))
    records = [_record(r) for r in results]
    left = tuple(name for name in records[0] if name != "TV max")
    print_records(console, TITLE, records, dispensable=DISPENSABLE, left=left)
    print_lines(console, _remarks(results))
    return 0


def _record(r: dict[str, Any]) -> dict[str, str]:
    """One line of the table, by column."""
    return {
        "rule": r["rule"],
        "claimed": "exact" if r["claims_exact"] else "lossy",
        "measured": r["measured"],
        "TV max": "-" if r["tv_max"] is None else f"{r['tv_max']:.4f}",
        "candidates": (r["proposal"] or "-").partition(",")[0],  # of trees, how is in --json
        "source": r["source"] or "-",
    }


def _remarks(results: list[dict[str, Any]]) -> list[str]:
    lines = ["exact: on this family. inexact: see the witness, which can be checked by hand."]
    for r in results:
        if r["measured"] == "exact-if":
            lines.append(f"{r['rule']}: exact if {r['condition']}.")
        elif r["measured"] == "not measured":
            lines.append(f"{r['rule']}: not measured: {r['condition']}.")
    return lines + [f"{r['rule']}: {_emits(r['witness'])}" for r in results if r["witness"]]


def _emits(witness: dict[str, Any]) -> str:
    """A witness in words."""
    text = f"target ({', '.join(witness['target'])}), draft ({', '.join(witness['draft'])}), "
    emitted = "emits"
    if chain := witness.get("chain"):
        text += f"{chain} chain, {witness.get('tree') or 'paths of ' + str(witness['candidates'])}"
        emitted = "emits first"
    else:
        text += f"n = {witness['candidates']}"
    if options := witness.get("options"):
        text += ", " + ", ".join(f"{key} = {value}" for key, value in options.items())
    return f"{text} {emitted} ({', '.join(witness['marginal'])})"


def _attack(name: str, options: AttackOptions, output: JsonOption) -> int:
    breaking = CATALOGUE[name].inexact_with if name in CATALOGUE else None
    variants = [None] if breaking is None else [None, breaking]
    seed = options.seed or 0
    searches = [
        attack(
            name,
            vocab=5 if options.vocab is None else options.vocab,
            candidates=options.candidates,
            seed=seed,
            seconds=(20.0 if options.budget is None else options.budget) / len(variants),
            options=variant,
        )
        for variant in variants
    ]
    results = [_report(search, seed) for search in searches]
    console = output.write(envelope("rules", results, attack=name))
    for search, r in zip(searches, results, strict=True):
        print_lines(console, _found(search, r))
    return 0


def _report(search: Search, seed: int) -> dict[str, Any]:
    return {
        "rule": search.rule,
        "options": {key: str(value) for key, value in search.options.items()},
        "vocab": search.vocab,
        "seed": seed,
        "trials": search.trials,
        "seconds": search.seconds,
        "tv_max": float(search.best.value) if search.best else 0.0,
        "witness": search.witness,
        "shortfall_max": float(search.shortfall.value) if search.shortfall else None,
        "shortfall_witness": search.shortfall_witness,
    }


def _found(search: Search, r: dict[str, Any]) -> list[str]:
    """What a search found, in words."""
    options = ", ".join(f"{key} = {value}" for key, value in r["options"].items())
    name = f"{search.rule} ({options})" if options else search.rule
    if search.trials == 0:
        return [f"{name}: nothing tried: the budget ended before the first pair; raise --budget"]
    effort = f"{_pairs(search.trials)} of {search.vocab} tokens in {search.seconds:.1f} s"
    if search.best is not None and search.witness is not None:
        witness = {**search.witness, "options": None}
        return [
            f"{name}: inexact; TV {r['tv_max']:.6g} at the worst of {effort}",
            f"  witness in fractions: {_emits(witness)}; TV = {_number(search.witness['tv'])}",
        ]
    lines = [f"{name}: no witness against exactness among {effort}; that is no proof of it"]
    if search.shortfall_witness is not None:
        w = search.shortfall_witness
        lines += [
            f"  acceptance falls short of the limit by {r['shortfall_max']:.6g} at most",
            f"  in fractions: target ({', '.join(w['target'])}), draft ({', '.join(w['draft'])}), "
            f"n = {w['candidates']} accepts {_number(w['acceptance'])}, limit {_number(w['limit'])}",
        ]
    elif search.compared:
        lines.append(f"  acceptance met the limit on {_pairs(search.compared, 'each of ')}")
    return lines


def _pairs(count: int, several: str = "") -> str:
    return "1 pair" if count == 1 else f"{several}{count} pairs"


def _number(text: str) -> str:
    return f"{text} = {float(Fraction(text)):.6g}" if "/" in text else text
