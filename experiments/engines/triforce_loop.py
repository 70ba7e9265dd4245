"""TriForce: `TriForce`, whose draft for the target is itself written by speculation (`Middle_Spec`)."""

from types import SimpleNamespace

from survey import Configuration, Engine, Judgement
from toys import TEXT_SETTINGS, TEXTS, texts


class Graphs:
    """Its three models: a small one drafts for the target with part of its cache, and that for the target."""

    def __init__(self, target, draft):
        import torch

        cache = SimpleNamespace(
            seq_len=0, start_size=0, recent_size=0,
            reset=lambda: None, print_status=lambda: None, evict_for_spec=lambda _: None,
        )  # fmt: skip
        self.target = torch.from_numpy(target).float()
        self.middle = torch.from_numpy(draft).float()
        # A poor one, so that much of what it drafts is turned down.
        self.small = 0.1 * self.middle + 0.9 * torch.eye(len(draft))[-1]
        self.engine = SimpleNamespace(
            kv_cache=cache, graph_cache=cache, draft_cache=cache,
            model=SimpleNamespace(device=torch.device("cpu")),
        )  # fmt: skip
        self.graph_draft_prefill = self.update_graph_cache = lambda **_: None  # caches are not modelled

    def inference(self, input_ids):
        """Logits of the target."""
        return self.target.log()[input_ids]

    def graph_draft_inference(self, input_ids, gamma_offset):
        """The law of the small model after the last token."""
        # The last call of a round brings a row of fixed length, of which only its own cache has use.
        return self.small[input_ids[0, -1] % len(self.small)]

    def graph_verify(self, input_ids, position_ids):
        """The laws of the model in the middle; tokens not yet drafted are 100."""
        return self.middle[input_ids[0] % len(self.middle)]


def loop(target, draft, prompt, length):
    """It gives rates and no text, so that its tokens are taken where it prints them."""
    import torch
    from utils import decoding

    new = []
    decoding.spec_stream = lambda token, *_: new.append(int(token))
    nobody = SimpleNamespace(eos_token_id=-1)
    decoding.Middle_Spec.__globals__["spec_stream"] = decoding.spec_stream
    decoding.print = lambda *_, **__: None
    decoding.TriForce(
        nobody, Graphs(target, draft), torch.tensor([prompt]), gamma=2, max_len=length, top_k=0, top_p=0.0,
        temperature=1.0, verbose=True,
    )  # fmt: skip
    return new


NOTE = "three toy models, the smallest a poor one; tokens are taken where it prints them"
ENGINE = Engine(
    "TriForce",
    (
        Configuration(
            "loop", "gamma 2, temperature 1", texts(loop), "text", TEXT_SETTINGS, TEXTS, NOTE,
            Judgement(
                "fault",
                "Where the model in the middle turns a token down, the next one is drawn from its "
                "whole law and not from the residual, and that law is declared for it.",
                "triforce_middle",
                "none found",
            ),
        ),
    ),
    repository="Infini-AI-Lab/TriForce",
    commit="164c8c0131cf49951eefdea89a3fbcccb8ca326b",
    needs=("torch==2.13.0", "termcolor==3.3.0"),
)  # fmt: skip
