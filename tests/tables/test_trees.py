"""Expected accepted length over recorded trees, against closed enumeration in fractions."""

import itertools
from fractions import Fraction as F
from functools import cache

import numpy as np
import pytest

from resispec_verify.dumps.kinds.tree import tree_from_mapping
from resispec_verify.errors import InputError
from resispec_verify.kernels.optimal.inclusion import included_without_replacement
from resispec_verify.kernels.optimal.weighted import longest_layout
from resispec_verify.oracle import PROPOSALS, block_law, limit_by_program, limit_without_replacement, marginal
from resispec_verify.rules import RULES, make_rule
from resispec_verify.rules.shipped.optimal_joint import OptimalJoint
from resispec_verify.tables.tree_sampling import how_drawn
from resispec_verify.tables.trees import add_trees, flat_acceptance
from resispec_verify.topology import Topology

# Laws after the prefix, and after each token: a chain of three tokens, of memory one.
TARGET = {
    (): (F(3, 10), F(4, 10), F(3, 10)),
    (0,): (F(1, 5), F(1, 5), F(3, 5)),
    (1,): (F(1, 2), F(1, 4), F(1, 4)),
    (2,): (F(1, 10), F(8, 10), F(1, 10)),
}
DRAFT = {
    (): (F(6, 10), F(3, 10), F(1, 10)),
    (0,): (F(1, 4), F(1, 2), F(1, 4)),
    (1,): (F(1, 5), F(1, 5), F(3, 5)),
    (2,): (F(1, 3), F(1, 3), F(1, 3)),
}
D3B2 = Topology.parse("d3b2")
# Walks of 3 nodes with a few roundings each over at most 729 trees whose weights sum to 1.
EPS = 1e-13


def dump_of(tokens, topology=D3B2, **meta):
    """A dump of the trees with these tokens ``(prefixes, nodes - 1)``, rows at all nodes."""
    tokens = list(tokens)

    def logs(law, row):
        path = []
        rows = []
        for node in range(topology.nodes):
            path = [] if node == 0 else [row[node - 1]]
            rows.append([float(x) for x in law[tuple(path)]])
        with np.errstate(divide="ignore"):
            return np.log(rows)

    return tree_from_mapping(
        "toy",
        {
            "parent": np.asarray(topology.parents),
            "tokens": np.asarray([[0, *row] for row in tokens]),
            "target_logits": np.stack([logs(TARGET, row) for row in tokens]),
            "draft_logits": np.stack([logs(DRAFT, row) for row in tokens]),
            "meta": meta,
        },
    )


def every_tree(siblings):
    """All trees of two levels of two candidates, and the probability of each."""
    pairs = {prefix: PROPOSALS[siblings](law, 2) for prefix, law in DRAFT.items()}
    tokens, weights = [], []
    for first, w1 in pairs[()].items():
        for (left, w2), (right, w3) in itertools.product(*(pairs[(x,)].items() for x in first)):
            tokens.append((*first, *left, *right))
            weights.append(w1 * w2 * w3)
    assert sum(weights) == 1
    return tokens, np.asarray([float(w) for w in weights])


ALL = {siblings: every_tree(siblings) for siblings in ("iid", "without-replacement", "fixed", "pairs")}


@cache
def row_of(name, topology=D3B2):
    """The row of a rule over every tree of its own candidates, and the probability of each."""
    tokens, weights = ALL[RULES[name].proposal.name]
    dump = dump_of(tokens, siblings=RULES[name].proposal.name)
    rows = {}
    add_trees(rows, [make_rule(name)], dump, how_drawn(dump, {}), [topology])
    (row,) = rows.values()
    return row, weights


def enumerated(name, siblings):
    """``1 + sum_tuples P(tuple) sum_i P(i emitted | tuple) (1 + A(x_i))``, A: acceptance at a node."""
    n = 1 if RULES[name].most_candidates == 1 else 2
    total = F(1)
    for drawn, weight in PROPOSALS[siblings](DRAFT[()], n).items():
        given = marginal(name, TARGET[()], DRAFT[()], n, proposal={drawn: F(1)})
        for token, emitted in zip(drawn, given.acceptance, strict=True):
            below = sum(marginal(name, TARGET[(token,)], DRAFT[(token,)], n).acceptance)
            total += weight * emitted * (1 + below)
    return total


@pytest.mark.parametrize("name", RULES)
def test_the_mean_over_the_candidates_is_the_enumerated_length(name):
    siblings = RULES[name].proposal.name
    row, weights = row_of(name)
    # The oracle finds the pieces of optimal-joint by 60 bisections: exact to about 2**-60.
    assert np.dot(weights, row.length) == pytest.approx(float(enumerated(name, siblings)), abs=EPS)
    reached = weights @ np.asarray(row.reached)
    assert reached.sum() == pytest.approx(np.dot(weights, row.length), abs=EPS)
    n = 1 if RULES[name].most_candidates == 1 else 2
    accepted = sum(marginal(name, TARGET[()], DRAFT[()], n).acceptance)
    assert reached[1] == pytest.approx(float(accepted), abs=EPS)


def test_the_check_catches_a_rule_that_is_credited_to_the_wrong_candidate():
    """The twin that must fail: candidates verified in the order of drawing, credited in the reverse one."""
    tokens, weights = ALL["iid"]
    swapped = [(row[1], row[0], *row[2:]) for row in tokens]
    dump = dump_of(swapped, siblings="iid")  # the children of a node now lie under its sibling
    with np.errstate(all="ignore"):
        rows = {}
        add_trees(rows, [make_rule("specinfer")], dump, how_drawn(dump, {}), [D3B2])
    (row,) = rows.values()
    assert abs(np.dot(weights, row.length) - float(enumerated("specinfer", "iid"))) > 0.01


def one_level(siblings, prefix):
    p, q = TARGET[prefix], DRAFT[prefix]
    if siblings == "iid":
        return limit_by_program(p, q, 2)
    if siblings == "without-replacement":
        return limit_without_replacement(p, q, 2)
    best = sorted(range(3), key=lambda x: (-q[x], x))[:2]
    return sum(p[x] for x in best)


@pytest.mark.parametrize("siblings", ["iid", "without-replacement", "fixed"])
def test_the_limit_is_estimated_without_bias(siblings):
    row, weights = row_of({"iid": "specinfer", "without-replacement": "sequoia", "fixed": "eagle"}[siblings])
    p, q = TARGET[()], DRAFT[()]
    expected = 1 + float(one_level(siblings, ()))
    held = {x: F(0) for x in range(3)}  # P(x among the candidates)
    for drawn, weight in PROPOSALS[siblings](q, 2).items():
        for x in set(drawn):
            held[x] += weight
    for x in range(3):
        expected += float(min(p[x], held[x])) * float(one_level(siblings, (x,)))
    # The program of the i.i.d. limit is solved in floating point, to about 1e-9; the others in fractions.
    assert np.dot(weights, row.limit) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("siblings", ["iid", "without-replacement", "fixed"])
def test_the_bounds_of_a_tree_whose_first_child_is_a_leaf(siblings):
    """A path below the second child is there if its first token came second: rarer than among the two."""
    name = {"iid": "specinfer", "without-replacement": "sequoia", "fixed": "eagle"}[siblings]
    row, weights = row_of(name, Topology((-1, 0, 0, 2, 2)))
    held = {}  # P(the path is in the tree)
    for (_, second, *_, left, right), weight in zip(*ALL[siblings], strict=True):
        for path in {(second, left), (second, right)}:
            held[path] = held.get(path, 0.0) + weight
    expected = 1 + float(one_level(siblings, ()))
    expected += sum(min(float(TARGET[()][x] * TARGET[(x,)][y]), mass) for (x, y), mass in held.items())
    assert np.dot(weights, row.limit_any) == pytest.approx(expected, abs=1e-8)
    comes = {x: F(0) for x in range(3)}  # P(the second candidate is x)
    for (_, x), weight in PROPOSALS[siblings](DRAFT[()], 2).items():
        comes[x] += weight
    if siblings == "fixed":  # the two that are there can each be accepted with all of p
        comes = {x: F(mass > 0) for x, mass in comes.items()}
    by_node = sum(float(min(TARGET[()][x], comes[x]) * one_level(siblings, (x,))) for x in range(3))
    assert np.dot(weights, row.limit) == pytest.approx(1 + float(one_level(siblings, ())) + by_node, abs=1e-8)


def test_ranked_candidates_that_tie_may_stand_in_any_order():
    """The limit is the target's mass on the candidates that are there, at T = 0 too."""
    logits = {"target_logits": np.log([[[0.2, 0.7, 0.1]]]), "draft_logits": np.log([[[0.25, 0.25, 0.5]]])}
    for temperature, tokens, expected in ((1.0, (2, 1), 0.8), (1.0, (2, 0), 0.3), (0.0, (2, 1), 1.0)):
        dump = tree_from_mapping(
            "toy", {"parent": np.asarray([-1, 0, 0]), "tokens": np.asarray([[0, *tokens]]), **logits}
        )
        rows = {}
        drawn = how_drawn(dump, {"temperature": temperature}, "fixed")
        add_trees(rows, [make_rule("eagle")], dump, drawn, [Topology.parse("d2b2")])
        (row,) = rows.values()
        assert row.limit == row.limit_any == [pytest.approx(1 + expected)]
        assert row.length == [pytest.approx(1 + expected)]  # the rule accepts as much


def test_a_path_too_unlikely_for_a_float_has_no_bound_for_all_rules():
    chain = Topology((-1, *range(30)))
    logits = np.tile([0.0, -700.0], (1, 31, 1))
    rows = {}
    dump = tree_from_mapping(
        "toy",
        {"parent": np.asarray(chain.parents), "tokens": np.ones((1, 31), int), "target_logits": logits,
         "draft_logits": logits},
    )  # fmt: skip
    add_trees(rows, [make_rule("speculative")], dump, how_drawn(dump, {}), [chain])
    (row,) = rows.values()
    assert row.length == [31.0]  # p = q
    assert row.limit == [31.0]
    assert row.limit_any == [None]
    assert row.result()["limit_any_mean"] is None


@pytest.mark.parametrize("name", RULES)
def test_no_exact_rule_is_longer_than_the_limit(name):
    rule = make_rule(name)
    row, weights = row_of(name)
    mean = np.dot(weights, row.length)
    if row.limit[0] is None:
        assert rule.proposal.name == "pairs"
        return
    bounds = np.dot(weights, row.limit), np.dot(weights, row.limit_any)
    assert bounds[0] <= bounds[1] + EPS
    exact = {"specinfer", "k-seq", "sequoia", "optimal-joint", "optimal-sequential", "speculative"}
    if name in exact:
        assert mean <= bounds[0] + EPS
    if name == "eagle+resispec":
        assert mean > bounds[1] + 0.5  # no exact rule emits so much


def longest(topology):
    """The longest that rules are that decide by node, by backward induction over linear programs."""

    def below(children, prefix):
        counts = {len(topology.children[child]) for child in children}
        if not children:
            return 0.0
        assert len(counts) == 1
        values = [1.0 + below(topology.children[children[0]], (x,)) for x in range(3)]
        return limit_by_program(TARGET[prefix], DRAFT[prefix], len(children), values=values)

    return 1.0 + below(topology.children[0], ())


@pytest.mark.parametrize("name", ["d2b2", "d3b2", "d3b1", "-1,0,0,1,2"])
def test_the_limit_bounds_the_longest_step_that_decides_by_node(name):
    topology = Topology.parse(name)
    row, weights = row_of("specinfer", topology)
    bound = np.dot(weights, row.limit)
    assert bound >= longest(topology) - 1e-8
    if name in ("d2b2", "d3b1"):  # where one level is left, and on a path, it is attained
        assert bound == pytest.approx(longest(topology), abs=1e-8)


@pytest.mark.parametrize("name", ["d2b2", "d3b2", "d3b1", "-1,0,0,2,2", "-1,0,0,1,1,2"])
def test_on_no_single_tree_is_the_limit_below_the_best_rule(name):
    topology = Topology.parse(name)
    row, _ = row_of("optimal-joint", topology)
    above = np.asarray(row.limit) - row.length
    assert (above >= -EPS).all()
    if name in ("d2b2", "d3b1"):  # one level and paths leave nothing between
        assert (above <= EPS).all()


def by_node(p, q, n):
    """The layout for what lies below each node of a tree of three levels: at the root, acceptance below."""
    root = np.allclose(p, [float(x) for x in TARGET[()]], rtol=0, atol=EPS)
    below = [1.0 + limit_by_program(TARGET[(x,)], DRAFT[(x,)], 2) if root else 1.0 for x in range(3)]
    return longest_layout(np.asarray(below))(p, q, n)


def test_the_race_for_weighted_tokens_is_the_longest_step_that_decides_by_node(monkeypatch):
    """A chain where all is accepted after token 0, and little after the others."""
    for laws, root, after, others in (
        (TARGET, (4, 1, 5), (6, 2, 2), (8, 1, 1)), (DRAFT, (2, 6, 2), (6, 2, 2), (1, 1, 8))
    ):  # fmt: skip
        for prefix, counts in (((), root), ((0,), after), ((1,), others), ((2,), others)):
            monkeypatch.setitem(laws, prefix, tuple(F(k, 10) for k in counts))
    tokens, weights = every_tree("iid")
    dump = dump_of(tokens)
    length = {}
    for name, rule in (("race", OptimalJoint(find_layout=by_node)), ("joint", make_rule("optimal-joint"))):
        rows = {}
        add_trees(rows, [rule], dump, how_drawn(dump, {}), [D3B2])
        (row,) = rows.values()
        length[name] = np.dot(weights, row.length)
    assert length["race"] == pytest.approx(longest(D3B2), abs=1e-8)
    # After token 0 a candidate is accepted for sure, after the others with 1 - .9**2 + .2 = .39; at the root
    # both accept with .74, token 0 with .36 or with .28.
    assert length["race"] == pytest.approx(1.74 + 0.36 + 0.38 * 0.39, abs=EPS)
    assert length["joint"] == pytest.approx(1.74 + 0.28 + 0.46 * 0.39, abs=EPS)
    assert length["race"] <= np.dot(weights, row.limit) + EPS


def chain_length(rule, target, draft):
    """Mean number of tokens that a path rule takes from a path of two, and the one of its own."""
    laws = block_law(rule, lambda s: target[s[-1:]], lambda s: draft[s[-1:]], 2)
    return sum(len(block) * mass for block, mass in laws.items())


def test_block_verification_may_pass_the_limit_of_rules_that_decide_by_node_but_not_that_of_all():
    chain = Topology.parse("d3b1")
    row, weights = row_of("speculative", chain)
    by_node, any_rule = np.dot(weights, row.limit), np.dot(weights, row.limit_any)
    block = float(chain_length("block", TARGET, DRAFT))
    assert block > by_node + 0.01
    assert block <= any_rule + EPS
    assert np.dot(weights, row.length) == pytest.approx(by_node, abs=EPS)


def test_on_a_path_the_limit_by_node_is_attained():
    """There is one way to accept min(p, q), so bound and length are equal, on every single path."""
    chain = Topology.parse("d4b1")
    dump = dump_of(itertools.product(range(3), repeat=3), chain)
    rows = {}
    add_trees(rows, [make_rule("speculative")], dump, how_drawn(dump, {}), [chain])
    (row,) = rows.values()
    weights = np.prod(
        [
            [float(DRAFT[tuple(path[:i][-1:])][path[i]]) for i in range(3)]
            for path in itertools.product(range(3), repeat=3)
        ],
        axis=1,
    )
    assert np.dot(weights, row.length) == pytest.approx(np.dot(weights, row.limit), abs=EPS)
    assert np.dot(weights, row.limit_any) > np.dot(weights, row.limit) + 0.01


def test_sub_trees_are_the_first_children():
    tokens, weights = ALL["iid"]
    dump = dump_of(tokens)
    rows = {}
    trees = [D3B2, Topology.parse("d2b2"), Topology.parse("d3b1"), Topology((-1,))]
    add_trees(rows, [make_rule("specinfer"), make_rule("optimal-joint")], dump, how_drawn(dump, {}), trees)
    means = {(r.rule.name, str(r.topology)): np.dot(weights, r.length) for r in rows.values()}
    assert means["specinfer", "d1b1"] == pytest.approx(1.0)
    for name in ("specinfer", "optimal-joint"):
        once = sum(marginal(name, TARGET[()], DRAFT[()], 2).acceptance)
        assert means[name, "d2b2"] == pytest.approx(1 + float(once), abs=EPS)
        assert means[name, "d3b1"] == pytest.approx(float(enumerated("speculative", "iid")), abs=EPS)
        assert means[name, "d3b2"] == pytest.approx(float(enumerated(name, "iid")), abs=EPS)


def test_acceptance_by_candidate_and_by_count():
    tokens, _ = ALL["iid"]
    tokens = sorted({(*row[:2], 0, 0, 0, 0) for row in tokens})
    dump = dump_of(tokens)
    rows = {}
    add_trees(rows, [make_rule("k-seq")], dump, how_drawn(dump, {}), [Topology.parse("d2b2")], by_count=True)
    (row,) = rows.values()
    # Each tree counts once here, whatever its probability: the mean over all pairs of tokens.
    means = {}
    for n in (1, 2):
        drawn = [r[:n] for r in tokens]
        found = [marginal("k-seq", TARGET[()], DRAFT[()], n, proposal={d: F(1)}).acceptance for d in drawn]
        means[n] = np.mean(np.asarray(found, float), axis=0)
    assert row.acceptance() == pytest.approx(means[2], abs=EPS)
    assert row.acceptance_by_count()[0] == pytest.approx(means[1], abs=EPS)
    assert row.acceptance_by_count()[1] == pytest.approx(means[2], abs=EPS)
    result = row.result()
    assert result["accepted_length_se"] == pytest.approx(result["accepted_length_sd"] / len(tokens) ** 0.5)


def test_how_candidates_were_drawn():
    tokens = ALL["without-replacement"][0][:2]
    plain = dump_of(tokens)
    assert how_drawn(plain, {}).siblings == "iid"
    assert how_drawn(plain, {"temperature": 0.5}, kind="logits").samplings[1].temperature == 0.5
    words = dump_of(tokens, sampling="iid at T = 1")
    assert how_drawn(words, {}).samplings[0].temperature == 1.0
    stated = dump_of(tokens, sampling={"temperature": [1.0, 0.6]}, siblings="without-replacement")
    found = how_drawn(stated, {}, kind="logits")
    assert found.siblings == "without-replacement"
    assert [s.temperature for s in found.samplings] == [1.0, 0.6]
    with pytest.raises(
        InputError, match=r"drawn with temperature 0\.6, so they tell nothing of temperature 1"
    ):
        how_drawn(stated, {"temperature": 1.0}, kind="logits")
    with pytest.raises(InputError, match="drawn without top-k"):
        how_drawn(stated, {"top_k": 5})
    with pytest.raises(InputError, match="leave --siblings iid out"):
        how_drawn(stated, {}, "iid", "logits")
    with pytest.raises(InputError, match="candidates after node 0 repeat"):
        how_drawn(dump_of([(1, 1, 0, 1, 0, 1)]), {}, "without-replacement")
    with pytest.raises(InputError, match="must be a name"):
        how_drawn(dump_of(tokens, siblings=3), {})
    with pytest.raises(InputError, match="prefix 0: temperature"):
        how_drawn(dump_of(tokens, sampling={"temperature": -1.0}), {})


def test_what_does_not_fit_is_refused():
    dump = dump_of(ALL["iid"][0][:2])
    drawn = how_drawn(dump, {})
    for rules, tree, words in (
        (["sequoia"], D3B2, "rule 'sequoia' is for candidates drawn 'without-replacement'"),
        (["specinfer"], Topology.parse("d4b2"), "recorded tree d3b2"),
    ):
        with pytest.raises(InputError, match=words):
            add_trees({}, [make_rule(name) for name in rules], dump, drawn, [tree])
    pairs = dump_of(ALL["pairs"][0][:2], siblings="pairs")
    with pytest.raises(InputError, match="needs 2 candidates, and node 0 of the tree has 1"):
        add_trees({}, [make_rule("spechub")], pairs, how_drawn(pairs, {}), [Topology.parse("d3b1")])
    fixed = dump_of([(1, 0, 1, 0, 1, 0)], siblings="fixed")
    with pytest.raises(InputError, match="after node 0 are not the draft's best"):
        add_trees({}, [make_rule("eagle")], fixed, how_drawn(fixed, {}), [D3B2])
    greedy = how_drawn(dump, {"temperature": 0.0})
    with pytest.raises(InputError, match="draft probability 0, so it was not drawn from this draft"):
        add_trees({}, [make_rule("specinfer")], dump_of([(2, 1, 0, 0, 0, 0)]), greedy, [D3B2])


def test_the_acceptance_of_flat_dumps():
    from resispec_verify.dumps.kinds.flat import flat_from_mapping
    from resispec_verify.tables.reading import Reading

    prefixes = [(), (0,), (1,), (2,)]
    with np.errstate(divide="ignore"):
        mapping = {
            f"{name}_logits": np.log([[float(x) for x in law[s]] for s in prefixes])
            for name, law in (("target", TARGET), ("draft", DRAFT))
        }
    dump = flat_from_mapping("flat", mapping)
    rules = [make_rule("speculative"), make_rule("optimal-sequential"), make_rule("spechub")]
    found = {rule.name: rows for rule, _, rows in flat_acceptance([dump], Reading(), rules, 2)}
    for name, counts in (("speculative", (1, 1)), ("optimal-sequential", (1, 2)), ("spechub", (None, 2))):
        for m, n in enumerate(counts):
            if n is None:
                assert found[name][m] is None
                continue
            means = [marginal(name, TARGET[s], DRAFT[s], n).acceptance for s in prefixes]
            expected = [*np.mean(np.asarray(means, float), axis=0), 0.0][: m + 1]
            assert found[name][m] == pytest.approx(expected, abs=EPS)


@pytest.mark.parametrize(
    "law", [(F(9, 10), F(1, 20), F(1, 20)), (F(1, 4), F(1, 4), F(1, 4), F(1, 8), F(1, 8))]
)
def test_who_is_among_the_first_without_replacement(law):
    draft = np.asarray([float(x) for x in law])
    for token in range(len(law)):
        found = included_without_replacement(draft, token, 3)
        for m in (1, 2, 3):
            drawn = PROPOSALS["without-replacement"](law, m)
            expected = sum(weight for tokens, weight in drawn.items() if token in tokens)
            assert found[m - 1] == pytest.approx(float(expected), abs=1e-12)  # the quadrature's error


def test_among_more_tokens_than_have_clocks_it_is_a_lower_bound():
    weights = np.arange(1, 201, dtype=float)
    draft = weights / weights.sum()
    for token in (0, 100, 199):
        found = included_without_replacement(draft, token, 2)
        others = np.delete(draft, token)
        expected = draft[token] * np.asarray([1.0, 1.0 + np.sum(others / (1 - others))])
        assert (found <= expected + 1e-12).all()
        above = included_without_replacement(draft, token, 2, above=True)
        assert (above >= expected - 1e-12).all()
        assert found == pytest.approx(expected, rel=1e-2)
        assert (
            found >= 1 - (1 - draft[token]) ** np.arange(1, 3) - 1e-12
        ).all()  # what n independent draws hold
