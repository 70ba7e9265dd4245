(* Which rounds of speculative sampling are exact.

   Proved, for every finite V and every ordered field F, for non-negative p and q (no normalisation is needed):
   a round that draws x ~ q, accepts it with probability min(1, p(x)/q(x)), and on its rejection emits from R^x
   - emits min(p, q)(y) + sum_x (q - p)_+(x) R^x(y)                            (round_marginal);
   - is exact iff sum_x (q - p)_+(x) R^x = (p - q)_+ at every token            (exact_round_iff);
   - if exact, with R^x >= 0: every R^x with q(x) > p(x) is 0 wherever q >= p  (exact_round_vanishes).
   The acceptance probability of a token with q(x) = 0 is left open: it is never drawn. R^x is any function. With
   more rounds it is the marginal of what follows the rejection of x: the same statement for the first round of
   any sequential rule is exact_rule_iff. So rounds that are each exact suffice.

   Corollary (reserving_rounds_are_biased): a round is not exact if some x can be rejected (q(x) > p(x)) and its
   residual puts mass on a y with q(y) >= p(y). Every reading of the paper's GetProxy puts mass on each y <> x with
   p(y), q(y) > 0, since it reserves at least min(Z q(y), p(y)) there, Z >= q(x) - p(x).
   Left: nothing. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section ExactRound.
Variables (F : realFieldType) (V : finType).
Variables (p q a : V -> F).
Hypothesis p_ge0 : nonneg p.
Hypothesis q_ge0 : nonneg q.
Hypothesis accept : forall x, q x != 0 -> a x = Num.min 1 (p x / q x).

(* x is drawn and accepted *)
Lemma accepted_mass x : q x * a x = Num.min (p x) (q x).
Proof.
have [q0 | q_neq0] := eqVneq (q x) 0.
  by rewrite q0 mul0r (min_idPr _) ?p_ge0.
have q_gt0 : 0 < q x by rewrite lt_neqAle eq_sym q_neq0 q_ge0.
rewrite accept //; case: (leP 1 (p x / q x)).
  by rewrite le_div // mul1r mulr1 => /min_idPr.
by rewrite lt_div // mul1r => /ltW/min_idPl ->; rewrite mulrC divfK.
Qed.

(* x is drawn and rejected *)
Lemma rejected_mass x : q x * (1 - a x) = pos (q x - p x).
Proof. by rewrite mulrBr mulr1 accepted_mass pos_min. Qed.

Section AnyRule.
Variable next : V -> rule F V.
Let t : rule F V := Round q a next.

Theorem rule_marginal y :
  marginal t y = Num.min (p y) (q y) + \sum_x pos (q x - p x) * marginal (next x) y.
Proof. by rewrite /= accepted_mass; congr (_ + _); apply: eq_bigr => x _; rewrite rejected_mass. Qed.

Theorem exact_rule_iff :
  (forall y, marginal t y = p y) <->
  (forall y, \sum_x pos (q x - p x) * marginal (next x) y = pos (p y - q y)).
Proof.
split=> exact y; last by rewrite rule_marginal exact min_pos; ring.
by apply: (addrI (Num.min (p y) (q y))); rewrite -rule_marginal exact min_pos; ring.
Qed.

(* Rounds that are each exact suffice: here what follows is exact for the standard residual of mass w. *)
Corollary exact_rule_suffices w :
  w = mass (fun x => pos (q x - p x)) ->
  (forall x y, q x > p x -> w * marginal (next x) y = pos (p y - q y)) ->
  mass p = mass q -> forall y, marginal t y = p y.
Proof.
move=> def_w exact_next pq; apply/exact_rule_iff => y.
have swap : mass (fun x => pos (p x - q x)) = w.
  apply/eqP; rewrite def_w -subr_eq0 -massB; apply/eqP.
  transitivity (mass p - mass q); last by rewrite pq subrr.
  by rewrite -massB; apply: eq_mass => x; apply: pos_diff.
have [w0 | w_neq0] := eqVneq w 0.
  have pos_pq0 := mass0 (fun x => pos_ge0 (p x - q x)) (etrans swap w0).
  have pos_qp0 := mass0 (fun x => pos_ge0 (q x - p x)) (etrans (esym def_w) w0).
  by rewrite pos_pq0 big1 // => x _; rewrite pos_qp0 mul0r.
apply: (mulfI w_neq0); rewrite mulr_sumr.
rewrite (eq_bigr (fun x => pos (q x - p x) * pos (p y - q y))); first by rewrite -mulr_suml -/(mass _) -def_w.
move=> x _; have [/pos_eq0 -> | x_gt] := leP (q x - p x) 0; first by rewrite !mul0r mulr0.
by rewrite mulrCA exact_next // -subr_gt0.
Qed.

End AnyRule.

(* One round: what follows the rejection of x is a draw from R^x. *)
Variable Rx : V -> V -> F.
Let emitted y : F := marginal (Round q a (fun x => Draw (Rx x))) y.

Theorem round_marginal y : emitted y = Num.min (p y) (q y) + \sum_x pos (q x - p x) * Rx x y.
Proof. exact: rule_marginal. Qed.

Theorem exact_round_iff :
  (forall y, emitted y = p y) <-> (forall y, \sum_x pos (q x - p x) * Rx x y = pos (p y - q y)).
Proof. exact: exact_rule_iff. Qed.

Hypothesis Rx_ge0 : forall x y, 0 <= Rx x y.

Theorem exact_round_vanishes :
  (forall y, emitted y = p y) -> forall x y, p x < q x -> p y <= q y -> Rx x y = 0.
Proof.
move=> /exact_round_iff exact x y x_over y_over; move: (exact y).
rewrite [RHS]pos_eq0 ?subr_le0 // => /psumr_eq0P sum0.
have /eqP : pos (q x - p x) * Rx x y = 0.
  by apply: sum0 => // x' _; apply: mulr_ge0; rewrite ?pos_ge0.
by rewrite mulf_eq0 pos_id ?subr_ge0 ?ltW // subr_eq0 gt_eqF //= => /eqP.
Qed.

Corollary reserving_rounds_are_biased x y :
  p x < q x -> p y <= q y -> 0 < Rx x y -> ~ (forall y, emitted y = p y).
Proof. by move=> x_over y_over + exact; rewrite (exact_round_vanishes exact) ?ltxx. Qed.

End ExactRound.
