"""Apple's recurrent drafter (PyTorch): one round with its beam search, one drafted token deep."""

from types import SimpleNamespace

from survey import Configuration, Engine, Judgement
from toys import INPUTS, SETTINGS, randomness


def _sampler(width):
    def sampler(target, draft, rng):
        import torch
        from recurrent_drafting import modeling_drafter, recurrent_drafting

        rows, vocab = target.shape
        with randomness(rng):
            p, q = (torch.from_numpy(law).log().float().clamp(min=-50_000.0) for law in (target, draft))
            head = SimpleNamespace(
                config=SimpleNamespace(rnn=False), compute_logits=lambda _: q[:, None].expand(-1, width, -1)
            )
            states, roots = torch.zeros(rows, 1), torch.zeros(rows, dtype=torch.long)
            beams, drafted = modeling_drafter.Drafter.beam_search_candidates(
                head, states, roots, torch.nn.Embedding(vocab, 1), modeling_drafter.BeamShape(width, 2)
            )
            by_llm = p[:, None, None].expand(rows, width, 2, vocab)
            accepted, beam = recurrent_drafting._choose_from_candidates(beams, by_llm, drafted)
            _, last = recurrent_drafting._prepare_next_input(
                drafted, by_llm, torch.zeros(rows, width, 2, 1), beam, accepted
            )
            chosen = beams[torch.arange(rows), beam, 1]
            return torch.where(accepted > 0, chosen, last)

    return sampler


def _row(name, what, width):
    return Configuration(name, what, _sampler(width), "tokens", SETTINGS, INPUTS, NOTE, JUDGEMENT)


NOTE = "the head's logits are toys; its top 50 of the vocabulary are all of it"
JUDGEMENT = Judgement(
    "fault",
    "The best beams are verified as if they had been drawn from the draft. Its README "
    "says that sampling may not match the distribution.",
    "recurrent_drafter_beam",
    "apple/ml-recurrent-drafter#6",
)
ENGINE = Engine(
    "recurrent drafter",
    (_row("one-beam", "one beam", 1), _row("three-beams", "three beams", 3)),
    repository="apple/ml-recurrent-drafter",
    commit="bd8586bb9bbfa761644c36f932a0cd1eb3f1cdf9",
    needs=("torch==2.13.0", "transformers==4.57.6", "jsonlines==4.0.0", "tabulate==0.10.0"),
)
