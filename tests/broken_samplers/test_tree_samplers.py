"""The tree style: exact samplers pass with every proposal, planted faults are found within stated draws."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import tree_samplers as s

from resispec_verify.errors import InputError
from resispec_verify.sampler_check.battery import Tree
from resispec_verify.sampler_check.battery.trees import depths, tree
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.sources import TreeSource

SEEDS = range(3)


def run(sampler, proposal="iid", inputs=None, **settings):
    chosen = {"style": "tree", "proposal": proposal, "draws": 20_000, "batches": (8,), **settings}
    return check_sampler(sampler, CheckSettings(**chosen), inputs=inputs)


@pytest.mark.parametrize(
    ("sampler", "proposal"),
    [
        (s.tree_speculative, "iid"),
        (s.sequoia_tree, "without-replacement"),
        (s.tree_match, "without-replacement"),
        (s.tree_match, "top"),
        (s.tree_match_with_lengths, "beams"),
    ],
)
def test_exact_samplers_are_not_rejected(sampler, proposal):
    result = run(sampler, proposal)
    assert (result.verdict, result.reasons) == ("not-rejected", [])
    assert 0 < result.detectable_tv < 0.1


# Sampler, proposal, input, most draws on it (median over seeds, error rate 1e-9 a run).
FAULTS = {
    "not-iid": (s.tree_speculative, "without-replacement", "siblings", 4000),
    "not-random": (s.tree_speculative, "top", "siblings", 1000),
    "beams-not-random": (s.tree_speculative, "beams", "binary", 2000),
    "residual": (s.residual_not_updated, "iid", "siblings", 1000),
    "residual-without-replacement": (s.residual_not_updated, "without-replacement", "siblings", 1000),
    "rejected-node": (s.children_of_a_rejected_node, "iid", "uneven", 2000),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_within_its_budget(name):
    sampler, proposal, on, budget = FAULTS[name]
    found = [run(sampler, proposal, [tree(on)], seed=seed, draws=100_000, boundary=False) for seed in SEEDS]
    assert {(one.verdict, one.witness["kind"]) for one in found} == {("rejected", "law")}
    assert statistics.median(one.witness["draws"] for one in found) <= budget


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (s.tree_match_counts_the_last, "1 tokens were accepted and emits 1"),
        (s.tree_match_names_another_path, "no path of the tree"),
    ],
)
def test_accepted_lengths_that_contradict_the_tokens_are_an_error(sampler, said):
    result = run(sampler, draws=2000)
    assert result.verdict == "error"
    assert said in result.reason


def test_an_acceptance_at_zero_is_found_at_the_ends():
    def at_zero(targets, drafts, tokens, parents, rng):
        out = s.tree_match(targets, drafts, tokens, parents, rng)
        zero = rng.random(len(out)) == 0.0
        out[zero, 0], out[zero, 1:] = tokens[zero, 0], -1
        return out

    result = run(at_zero, inputs=[tree("ends")], draws=4000)
    assert (result.verdict, result.witness["kind"]) == ("rejected", "boundary")


@pytest.mark.parametrize("proposal", ["iid", "without-replacement"])
def test_siblings_have_the_law_of_their_proposal(proposal):
    from resispec_verify.evidence.statistical import fit_test

    source = TreeSource(tree("ends"), proposal=proposal)
    draft = source.drafts[0, 0]
    law = np.outer(draft, draft)
    if proposal == "without-replacement":
        law = np.where(np.eye(5) > 0, 0.0, law / (1.0 - draft[:, None]))
    tests = []
    for due in (law, np.outer(draft, np.full(5, 0.2))):  # its twin, a law that is not theirs
        tests.append(fit_test(due.ravel()))
        drawn = source._tokens(np.random.default_rng(0), 20_000)
        tests[-1].update(drawn[:, 0] * 5 + drawn[:, 1])
    assert tests[0].log_evidence < 20.7 < tests[1].log_evidence


def test_children_are_drawn_after_their_parent():
    source = TreeSource(tree("uneven"))
    tokens = source._tokens(np.random.default_rng(0), 30_000)
    child, parent = 5, source.parents[5]
    for x in range(3):
        seen = np.bincount(tokens[tokens[:, parent] == x, child], minlength=3)
        due = source.drafts[source.depth[parent], x]
        # Five standard deviations of a frequency of at most 1/2.
        assert np.abs(seen / seen.sum() - due).max() < 5 * 0.5 / np.sqrt(seen.sum())


def test_the_top_tree_is_each_nodes_most_probable_children():
    source = TreeSource(tree("binary"), proposal="top")
    tokens = source._tokens(np.random.default_rng(0), 1)[0]
    laws = [source.drafts[0, 0], source.drafts[1, tokens[0]], source.drafts[1, tokens[1]]]
    due = [x for law in laws for x in np.argsort(-law, kind="stable")[:2]]
    assert tokens.tolist() == due


def test_beams_keep_the_most_probable_continuations_of_all():
    after = np.array([[0.5, 0.4, 0.1], [0.34, 0.33, 0.33], [1.0, 0.0, 0.0]])
    first = np.tile([0.6, 0.3, 0.1], (3, 1))
    one = Tree("beams", (-1, -1, 0, 1), *[np.stack([first, after, after])] * 2)
    source = TreeSource(one, proposal="beams")
    # .6 * .5 and .6 * .4 beat .3 * .34: both second tokens follow token 0.
    assert source.parents.tolist() == [-1, -1, 0, 0]
    assert source._tokens(np.random.default_rng(0), 2).tolist() == [[0, 1, 0, 1]] * 2
    assert depths((-1, -1, 0, 1, 2)) == (1, 1, 2, 2, 3)


def test_more_siblings_than_the_draft_has_tokens_are_refused():
    draft = np.array([[[0.5, 0.5, 0.0]] * 3] * 2)
    one = Tree("narrow", (-1, -1, -1), draft, draft)
    assert run(s.tree_match, inputs=[one], draws=600).verdict == "not-rejected"
    with pytest.raises(InputError, match="2 possible tokens has no 3 different candidates"):
        run(s.tree_match, "without-replacement", [one])


def test_a_tree_gets_uniforms_on_request():
    def sampler(targets, drafts, tokens, parents, uniforms):
        assert uniforms.shape == (len(tokens), tokens.shape[1] + 1)
        return s.tree_match(targets, drafts, tokens, parents, Served(uniforms))

    result = run(sampler, uniforms=True, draws=8000)
    assert (result.verdict, result.reasons) == ("not-rejected", [])


class Served:
    """A generator that hands out given uniforms, a column a call."""

    def __init__(self, uniforms):
        self.left = iter(uniforms.T)

    def random(self, rows):
        return next(self.left)
