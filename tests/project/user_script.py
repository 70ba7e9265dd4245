"""What a user writes in ten lines; it must pass a type checker in strict mode (test_types.py)."""

import resispec_verify as rv

report = rv.verify([0.3, 0.4, 0.3], [0.6, 0.3, 0.1], rule="specinfer", candidates=2)
verdict: rv.Verdict = report.verdict
low, high = report.tv_bounds
accepted: float = report.acceptance
limit: float | None = rv.limits([0.3, 0.4, 0.3], [0.6, 0.3, 0.1], candidates=2).limit
for one in rv.verify("dump.pt", rule=["resispec", rv.SpecInfer()], sampling=rv.Sampling(0.7)):
    print(one.verdict.value, one.to_dict()["results"], one.positions[0]["tv"], high - low, accepted, limit)
print(rv.replay("rounds.pt", rule="block").verdict, verdict)
