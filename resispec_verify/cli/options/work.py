"""Options of what is computed, where, and what is demanded of it."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from resispec_verify.cli.options.group import Options, check_range, check_share, numbers_in, refuse_beside
from resispec_verify.cli.options.outputs import CaseOptions
from resispec_verify.cli.parameters import Count, Flag, Names, Number, Text
from resispec_verify.cli.user_rules import choose_rules
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.inputs import MOST_CANDIDATES
from resispec_verify.rules import Rule
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.threads import cores


@dataclass(frozen=True, kw_only=True)
class RuleOptions(Options):
    """Which rules, and for how many candidates.

    Attributes
    ----------
    rule
        A rule, with options of its own as in resispec:budget=floor, or FILE.py:NAME or package.module:NAME,
        whose code is executed; repeat for several.
        Default: resispec and specinfer.
    candidates
        Candidates at each position (n).
    """

    rule: Names | None = None
    candidates: Count = 3

    def chosen(self, most: int = MOST_CANDIDATES) -> tuple[Rule, ...]:
        """The rules, checked for the number of candidates."""
        check_range(1, most, candidates=self.candidates)
        return choose_rules(self.rule or ["resispec", "specinfer"], self.candidates, **self._own())

    def _own(self) -> dict[str, str | None]:
        """Options of rules, for those that have them."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ShapedRuleOptions(RuleOptions):
    """Which rules, and what ResiSpec's paper leaves open, for all rules that have it.

    Attributes
    ----------
    redistribution
        ResiSpec: how the clipped mass is spread. Default: proportional.
    budget
        ResiSpec: the local gap (Algorithm 1, the default) or Eq. 13's floor.
    hole
        ResiSpec: whether the capacity leaves the rejected token out (the default), or includes it as line 21
        reads.
    """

    redistribution: Literal["proportional", "water-filling"] | None = None
    budget: Literal["local", "floor"] | None = None
    hole: Literal["excluded", "literal"] | None = None

    def _own(self) -> dict[str, str | None]:
        return {"redistribution": self.redistribution, "budget": self.budget, "hole": self.hole}


@dataclass(frozen=True, kw_only=True)
class WorkOptions(Options):
    """How far paths are followed.

    Attributes
    ----------
    gap
        Certified mass that may stay unexpanded at a position; 0 expands everything. Default: until decided
        and at most 1e-3.
    until
        Where a position is done: verdict stops as soon as that is certain, whatever the gap.
    max_expansions
        Budget of paths evaluated at a position.
    """

    gap: Number | None = None
    until: Literal["verdict"] | None = None
    max_expansions: Number | None = None

    def budget(self) -> Budget:
        """The same, checked."""
        check_share(gap=self.gap)
        if self.until is not None:
            refuse_beside("--until verdict", gap=self.gap)
        most = self.max_expansions
        check_range(1, max_expansions=most)
        work = Budget() if most is None else Budget(most_paths=most, most_states=most)
        if self.gap is None:
            return replace(work, until_verdict=self.until == "verdict")
        return Budget(self.gap, work.most_paths, work.most_states, until_decided=False)


@dataclass(frozen=True, kw_only=True)
class MarginalOptions(WorkOptions):
    """Which marginals, how far paths are followed, and the candidates of the path identity."""

    marginal: Literal["operational", "path-identity", "both"] = "both"
    """Which marginals to compute."""
    candidate_list: Text | None = None
    """Candidates "5,17,3" of the path identity, at every position. Default: the dump's, or drawn."""
    seed: Count | None = None
    """Seed of the drawn candidates."""

    def evaluation(self, rules: RuleOptions) -> Evaluation:
        """What to compute; raises on the first option that is out of range."""
        check_range(1, MOST_CANDIDATES, candidates=rules.candidates)
        budget = self.budget()
        check_range(0, seed=self.seed)
        if self.marginal == "operational":
            refuse_beside("--marginal operational", candidate_list=self.candidate_list, seed=self.seed)
        if self.marginal == "path-identity":
            refuse_beside(
                "--marginal path-identity", gap=self.gap, until=self.until, max_expansions=self.max_expansions
            )
        if self.candidate_list is not None:
            refuse_beside("--candidate-list", seed=self.seed)
        return Evaluation(
            rules=rules.chosen(),
            candidates=rules.candidates,
            operational=self.marginal != "path-identity",
            identity=self.marginal != "operational",
            budget=budget,
            seed=self.seed or 0,
            candidate_list=self._candidates(rules.candidates),
        )

    def _candidates(self, count: int) -> tuple[int, ...] | None:
        """The candidates of the path identity that were given."""
        if self.candidate_list is None:
            return None
        tokens = numbers_in(self.candidate_list, "--candidate-list", "token ids such as 5,17,3", int)
        if len(tokens) < count or min(tokens) < 0:
            raise InputError(
                f"--candidate-list has {len(tokens)} tokens; give at least {count}, none of them negative"
            )
        return tuple(tokens)


@dataclass(frozen=True, kw_only=True)
class VisitOptions(Options):
    """How many residuals are visited."""

    gap: Number = 1e-3
    """Mass that may stay unvisited at a position."""
    max_states: Number = 100
    """Residuals visited at a position, for rules where they depend on what was rejected."""

    def budget(self) -> Budget:
        """The same, checked."""
        check_share(gap=self.gap)
        check_range(1, max_states=self.max_states)
        return Budget(self.gap, most_paths=1e6, most_states=self.max_states, until_decided=False)


@dataclass(frozen=True, kw_only=True)
class BackendOption(Options):
    """Where to compute."""

    backend: Literal["auto", "numpy", "torch", "cupy"] = "auto"
    """Where arrays live."""


@dataclass(frozen=True, kw_only=True)
class JobsOption(Options):
    """How many threads."""

    jobs: Count | None = None
    """Threads that work on positions; results are the same for any number. Default: the cores at hand."""

    def threads(self) -> int:
        """The same, checked."""
        check_range(1, jobs=self.jobs)
        return self.jobs or cores()


@dataclass(frozen=True, kw_only=True)
class ArrayOptions(BackendOption):
    """Where and in what to compute."""

    precision: Literal["float64", "float32"] = "float64"
    """Working precision of the rounds."""


@dataclass(frozen=True, kw_only=True)
class DemandOptions(CaseOptions):
    """What the exit status is to say."""

    require_exact: Flag = False
    """Exit with 1 unless every rule is exact; undecided counts as not exact."""
    max_tv: Number | None = None
    """Exit with 1 if the total variation of any position may exceed this."""

    def check(self, marginal: str) -> None:
        """Refuse a demand on a marginal that cannot fail."""
        check_share(max_tv=self.max_tv)
        if marginal == "path-identity" and (self.require_exact or self.max_tv is not None):
            raise InputError(
                "the path identity cannot fail, so it meets no demand: --require-exact and --max-tv need "
                "--marginal operational or both"
            )

    def made(self) -> dict[str, Any]:
        """The demands by name."""
        return {"require_exact": self.require_exact, "max_tv": self.max_tv}
