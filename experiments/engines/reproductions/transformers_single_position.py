"""transformers 5.24.0: SinglePositionMultiTokenCandidateGenerator takes the most probable token, also when
sampling, and declares the whole softmax. Draft and target are equal here; what is emitted is always token 0.
"""

import types

import torch
from transformers import GenerationConfig
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator
from transformers.generation.utils import _speculative_sampling

law = torch.tensor([[[0.5, 0.3, 0.2]]])
outputs = types.SimpleNamespace(hidden_states=[torch.zeros(1, 1, 2)], shared_kv_states={})


class Gemma4Assistant(torch.nn.Module):
    """A model of one law; the generator asks for its name."""

    device, generation_config = torch.device("cpu"), GenerationConfig(num_assistant_tokens=1)

    def forward(self, **given):
        """Logits of the law."""
        return types.SimpleNamespace(logits=law.log(), last_hidden_state=torch.zeros(1, 1, 2))


counts = torch.zeros(3)
for _ in range(1000):
    generator = SinglePositionMultiTokenCandidateGenerator(
        Gemma4Assistant(), torch.nn.Embedding(3, 2), GenerationConfig(max_length=9, do_sample=True)
    )
    ids, declared = generator.get_candidates(torch.tensor([[1]]), {}, outputs, False, 0)
    tokens, _ = _speculative_sampling(ids, declared, 1, law.log().repeat(1, 2, 1))
    counts[tokens[0, 0]] += 1
print("target", law[0, 0].tolist(), "emitted", (counts / counts.sum()).tolist())
