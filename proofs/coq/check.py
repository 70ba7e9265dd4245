"""Check the Coq proofs: they compile, rest on no axiom, and their mutated twins fail where they should.

Four checks. (1) No source contains a word that leaves something unproved. (2) Every file compiles, and Coq's
independent checker accepts the compiled files. (3) ``Print Assumptions`` of every theorem and lemma says
"Closed under the global context". (4) Each twin in ``TWINS``, a file with one hypothesis weakened or one sign
or number changed, is rejected inside the named statement, and not for a slip of syntax. That such mutated
statements are false, and not only beyond the script, is proved in ``mutants.v``.

The checks are themselves checked first, on files that must not pass. Works in ``build/`` beside this file.
Run ``python3 proofs/coq/check.py``; needs ``coqc`` and ``coqchk``. The exit status is 1 if anything fails.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
LAYERS = (
    ("laws",),
    ("piecewise", "path_identity", "exact_round", "token_free", "resispec", "theorem_2"),
    ("optimal_sequential", "theorem_1"),
    ("mutants", "specinfer_bound"),
)
MODULES = tuple(module for layer in LAYERS for module in layer)
PREFIX = "Speculative"
WORKERS = 2
FORBIDDEN = re.compile(
    r"\b(Admitted|admit|Abort|Axioms?|Parameters?|Conjecture|Primitive|Declare|give_up|"
    r"bypass_check|Guard\s+Checking|Positivity\s+Checking|Universe\s+Checking)\b"
)
STATEMENT = re.compile(r"^(?:Theorem|Lemma|Corollary|Fact|Proposition|Remark)\s+(\w+)", re.MULTILINE)
CLOSED = re.compile(r"^(Closed under the global context|Axioms:)", re.MULTILINE)
SLIPS = (
    "Syntax error",
    "was not found in the current environment",
    "Cannot find a physical path",
    "Illegal begin",
)


@dataclass(frozen=True)
class Twin:
    """One mutation of one file: `old` becomes `new`, and the proof of `statement` must fail."""

    module: str
    statement: str
    old: str
    new: str


TWINS = (
    Twin("path_identity", "path_identity_any", "m i x <= R i x.", "m i x <= m i x."),
    Twin(
        "path_identity", "residual_mass", "(R i x - m i x) / (1 - beta i).", "(R i x + m i x) / (1 - beta i)."
    ),
    Twin("exact_round", "accepted_mass", "a x = Num.min 1 (p x / q x).", "a x = Num.min 1 (q x / p x)."),
    Twin(
        "exact_round",
        "exact_rule_iff",
        "* marginal (next x) y = pos (p y - q y)).",
        "* marginal (next x) y = pos (q y - p y)).",
    ),
    Twin(
        "exact_round",
        "exact_round_vanishes",
        "forall x y, p x < q x -> p y <= q y ->",
        "forall x y, p x <= q x -> p y <= q y ->",
    ),
    Twin("token_free", "accepted_weight", "pos (R x - w * q x) <= r x;", "0 <= r x;"),
    Twin("token_free", "accepted_weight", "a x = (R x - r x) / (w * q x)", "a x = (r x - R x) / (w * q x)"),
    Twin(
        "token_free",
        "shaped_exact",
        "shaped (scale (mass r) r) (next x)) :",
        "shaped (scale 1 r) (next x)) :",
    ),
    Twin("piecewise", "intermediate_value", "f a <= y <= f b -> exists2", "f a <= y -> exists2"),
    Twin("optimal_sequential", "level_ge0", "Hypothesis T_last : T n = 0.", "Hypothesis T_last : T n = T n."),
    Twin(
        "optimal_sequential",
        "optimal_round",
        "(k < n)%N -> 0 <= T k - T k.+1 <= looked_at k.",
        "(k < n)%N -> 0 <= T k - T k.+1 <= T k - T k.+1.",
    ),
    Twin("optimal_sequential", "accepted_from", "A k x <= W k * q x.", "A k x <= W k.+1 * q x."),
    Twin("optimal_sequential", "accepted_from", "A k x <= p x.", "A k x <= p x + 1."),
    Twin(
        "optimal_sequential",
        "rule_bound",
        "levels n T -> iid t -> rounds_le n t ->",
        "levels n T -> iid t -> rounds_le n.+1 t ->",
    ),
    Twin("optimal_sequential", "level_at_1", "level 1 n.+1 <= 0.", "level 1 n <= 0."),
    Twin(
        "specinfer_bound",
        "transport_bound",
        "iid q t -> rounds_le n t ->\n  acceptance",
        "iid q t -> rounds_le n.+1 t ->\n  acceptance",
    ),
    Twin("specinfer_bound", "specinfer_below", "<= mass_q (S n) ^+ n * (", "<= mass_q (S n) ^+ n.+1 * ("),
    Twin("specinfer_bound", "mass_q_gt0", "1 <= s -> 0 < mass_q s.", "0 <= s -> 0 < mass_q s."),
    Twin(
        "specinfer_bound",
        "specinfer_accepts",
        "(specinfer (nseq n.+1 q) p) = phi p q (S n).",
        "(specinfer (nseq n q) p) = phi p q (S n).",
    ),
    Twin("specinfer_bound", "pos_further", "0 <= w * y ->", "0 <= w ->"),
    Twin("theorem_1", "computed_1", "Qmake 141 290; Qmake 31 145]", "Qmake 142 290; Qmake 31 145]"),
    Twin("theorem_1", "computed_2", "Qmake 2131 11020]", "Qmake 2132 11020]"),
    Twin(
        "theorem_1",
        "resispec_puts_mass_back",
        "p x < q x -> y != x -> 0 < p y ->",
        "p x < q x -> y == y -> 0 < p y ->",
    ),
    Twin("theorem_1", "every_vocabulary", "(2 < #|V|)%N ->", "(1 < #|V|)%N ->"),
    Twin("theorem_2", "term_strict", "(0 < p x) && (p x < Z * q x).", "(0 <= p x) && (p x < Z * q x)."),
    Twin(
        "theorem_2",
        "theorem_2_repaired",
        "is_zstar zs -> (forall x, 0 < q x -> 0 < p x) ->",
        "is_zstar zs -> (forall x, 0 < q x -> 0 <= p x) ->",
    ),
    Twin("theorem_2", "L_zero_iff", "(L Z == 0) = (Z <= zs).", "(L Z == 0) = (Z < zs)."),
    Twin("theorem_2", "L_mono", "Z1 <= Z2 -> L Z1 <= L Z2.", "Z1 <= Z2 -> L Z2 <= L Z1."),
    Twin("theorem_2", "L_attained", "0 < Z -> Z <= 1 -> exists2 r", "0 < Z -> Z <= 2%:R -> exists2 r"),
    Twin("theorem_2", "L_flat_constant", "L p_flat q_flat Z = 2%:R / 5%:R.", "L p_flat q_flat Z = 1 / 5%:R."),
)


def strip_comments(source: str) -> str:
    """Remove Coq comments, which may be nested."""
    kept, depth = [], 0
    for part in re.split(r"(\(\*|\*\))", source):
        if part == "(*":
            depth += 1
        elif part == "*)":
            depth -= 1
        elif depth == 0:
            kept.append(part)
    return "".join(kept)


def coqc(path: Path) -> tuple[bool, str]:
    """Compile one file against the compiled files in ``build/``; return success and what Coq said."""
    options = ["-w", "none", "-Q", str(BUILD), PREFIX]
    done = subprocess.run(["coqc", *options, str(path)], capture_output=True, text=True, timeout=600)
    return done.returncode == 0, done.stdout + done.stderr


def in_scratch(name: str, source: str) -> tuple[bool, str]:
    """Compile a source of its own folder below ``build/``."""
    folder = BUILD / "scratch" / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scratch.v"
    path.write_text(source)
    return coqc(path)


def assumptions(require: str, names: list[str]) -> list[str]:
    """Names whose ``Print Assumptions`` is not closed; all of them if the question itself fails.

    All names are asked about together, which is quick, and one by one only if that answer is not closed.
    """
    listed = ", ".join(f"@{name}" for name in names)
    together = f"Definition together := ({listed}, tt).\nPrint Assumptions together.\n"
    compiled, said = in_scratch("assumptions", f"{require}\n{together}")
    if compiled and CLOSED.findall(said) == ["Closed under the global context"]:
        return []
    asked = "\n".join(f"Print Assumptions {name}." for name in names)
    compiled, said = in_scratch("assumptions", f"{require}\n{asked}\n")
    answers = CLOSED.findall(said)
    if not compiled or len(answers) != len(names):
        return names
    return [name for name, answer in zip(names, answers, strict=True) if answer == "Axioms:"]


def explain_twin(twin: Twin, compiled: bool, said: str, source: str) -> str:
    """Say what is wrong with the way in which a twin failed, or nothing."""
    if compiled:
        return "it compiles"
    if any(slip in said for slip in SLIPS):
        return f"it fails for a slip: {said.strip().splitlines()[-1]}"
    line = re.search(r"line (\d+), characters [^\n]*\nError", said)
    if not line:
        return f"no error message: {said.strip()[:200]}"
    before = "\n".join(source.splitlines()[: int(line[1])])
    found = STATEMENT.findall(before)
    return "" if found and found[-1] == twin.statement else f"it fails in {found[-1:]}"


def check_twin(index: int) -> str:
    """Compile a twin; return what is wrong, or nothing."""
    twin = TWINS[index]
    source = (HERE / f"{twin.module}.v").read_text()
    if source.count(twin.old) != 1:
        return f"the text to change occurs {source.count(twin.old)} times"
    mutated = source.replace(twin.old, twin.new)
    return explain_twin(twin, *in_scratch(f"twin_{index}", mutated), mutated)


def check_checks() -> list[str]:
    """Run the checks on files that must not pass."""
    problems = [
        f"the word check misses: {text}"
        for text in ("Admitted.", "Axiom a : False.", "Proof. admit. Qed.", "Unset Guard Checking.")
        if not FORBIDDEN.search(strip_comments(f"(* a (* nested *) comment *) {text}"))
    ]
    if FORBIDDEN.search(strip_comments("(* Admitted *) Lemma admitted : True.")):
        problems.append("the word check reads comments or parts of names")
    cheat = "Axiom cheat : False. Theorem good : True. exact I. Qed. Theorem bad : False. exact cheat. Qed."
    if assumptions(cheat, ["good", "bad"]) != ["bad"]:
        problems.append("the check of assumptions misses an axiom")
    twin = Twin("", "t", "", "")
    scripts = {"exact I": "a slip", "exact nothing.": "a slip", "exact I.": "compiles"}
    for script, name in (*scripts.items(), ("exact 0.", "fails")):
        text = f"Theorem t : True.\nProof. {script}\nQed.\n"
        wrong = explain_twin(twin, *in_scratch("slip", text), text)
        if bool(wrong) == (name == "fails"):
            problems.append(f"the check of twins misjudges '{script}'")
    elsewhere = "Theorem other : True.\nProof. exact 0. Qed.\n"
    if not explain_twin(twin, *in_scratch("slip", elsewhere), elsewhere):
        problems.append("the check of twins misses a failure elsewhere")
    return problems


def say(passed: bool, what: str) -> None:
    """Print the outcome of one check."""
    print(f"[{'ok' if passed else 'FAILED'}] {what}", flush=True)


def main() -> int:
    """Run all checks and print one line each."""
    if not (shutil.which("coqc") and shutil.which("coqchk")):
        print("check.py: coqc and coqchk are needed; see proofs/coq/README.md", file=sys.stderr)
        return 2
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir()
    sources = {path.stem: path.read_text() for path in sorted(HERE.glob("*.v"))}
    problems = check_checks()
    if set(sources) != set(MODULES):
        problems.append(f"LAYERS and the folder differ: {sorted(set(sources) ^ set(MODULES))}")
    for module, source in sources.items():
        problems += [f"{module}.v contains {word}" for word in FORBIDDEN.findall(strip_comments(source))]
        (BUILD / f"{module}.v").write_text(source)

    with ThreadPoolExecutor(WORKERS) as pool:
        for layer in LAYERS:
            for module, (compiled, said) in zip(
                layer, pool.map(lambda m: coqc(BUILD / f"{m}.v"), layer), strict=True
            ):
                say(compiled, f"{module}.v compiles")
                if not compiled:
                    print(said)
                    return 1

        kernel = ["coqchk", "-silent", "-Q", str(BUILD), PREFIX]
        for module in MODULES:
            kernel += ["-norec", f"{PREFIX}.{module}"]
        done = subprocess.run(kernel, capture_output=True, text=True, timeout=600)
        say(done.returncode == 0, f"coqchk accepts {len(MODULES)} compiled files")
        if done.returncode:
            problems.append(f"coqchk: {(done.stdout + done.stderr).strip()[-500:]}")

        names = [
            f"{module}.{name}"
            for module in MODULES
            for name in STATEMENT.findall(strip_comments(sources[module]))
        ]
        require = f"From {PREFIX} Require {' '.join(MODULES)}."
        opened = assumptions(require, names)
        say(not opened, f"{len(names)} statements closed under the global context")
        problems += [f"{name} is not closed under the global context" for name in opened]

        for twin, wrong in zip(TWINS, pool.map(check_twin, range(len(TWINS))), strict=True):
            say(not wrong, f"{twin.module}.v with '{twin.new}' fails in {twin.statement}")
            problems += [f"twin of {twin.statement}, {twin.new}: {wrong}"] if wrong else []

    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
