(* Rules that reserve mass independently of the rejected token are exact, for any number of rounds.

   Proved, for every finite V, every ordered field F and every n. A rule is shaped if each of its rounds, with the
   current target R and the draft q, chooses some r with (R - q)_+ <= r <= R, accepts x with probability
   (R(x) - r(x)) / q(x), and whatever token was rejected goes on with the target r / |r|; where it stops it draws
   from the current target. r and q may depend on everything that happened in earlier rounds, and branches may
   differ in length. If R is a law, and so is each q, then
   - the rule emits exactly R                                           (shaped_exact);
   - acceptance probabilities lie in [0, 1]                             (shaped_accepts);
   - SpecInfer is the case r = (R - q)_+, so it is exact for every n    (specinfer_exact).
   The same with unnormalised targets, |R| = w, (R - w q)_+ <= r <= R and acceptance (R - r) / (w q), after which r
   itself is the target: w times the marginal is R                      (shaped_weighted_exact).
   Divisions by zero: acceptance of a token with q(x) = 0 (or w = 0) is left open, as it is never drawn; what
   follows the rejection of x is left open where that has probability 0, which covers |r| = 0.
   Left: nothing. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section TokenFree.
Variables (F : realFieldType) (V : finType).
Implicit Types (R r q a : V -> F).

Definition scale c R : V -> F := fun x => R x / c.

(* A round with target R of mass w, draft q, reserve r and acceptance a. *)
Record shaped_round w R q a r : Prop := ShapedRound {
  draft_law : is_law q;
  reserve_ge : forall x, pos (R x - w * q x) <= r x;
  reserve_le : forall x, r x <= R x;
  accept_def : forall x, w * q x != 0 -> a x = (R x - r x) / (w * q x)
}.

(* A rule with normalised targets. *)
Inductive shaped : (V -> F) -> rule F V -> Prop :=
  | ShapedDraw R R' of R =1 R' : shaped R (Draw R')
  | ShapedStep R q a r next of shaped_round 1 R q a r &
      (forall x, q x * (1 - a x) != 0 -> shaped (scale (mass r) r) (next x)) : shaped R (Round q a next).

(* A rule with weighted targets: R is not normalised, and emits R / |R|. *)
Inductive shaped_weighted : (V -> F) -> rule F V -> Prop :=
  | WeightedDraw R R' of (forall x, R x = mass R * R' x) : shaped_weighted R (Draw R')
  | WeightedStep R q a r next of shaped_round (mass R) R q a r &
      (forall x, q x * (1 - a x) != 0 -> shaped_weighted r (next x)) : shaped_weighted R (Round q a next).

Section OneRound.
Variables (w : F) (R q a r : V -> F).
Hypothesis R_ge0 : nonneg R.
Hypothesis R_mass : mass R = w.
Hypothesis shape : shaped_round w R q a r.

Lemma w_ge0 : 0 <= w.
Proof. by rewrite -R_mass; apply: mass_ge0. Qed.

Lemma draft_ge0 x : 0 <= q x.
Proof. by case: shape => -[]. Qed.

Lemma reserve_ge0 : nonneg r.
Proof. by move=> x; apply: le_trans (reserve_ge shape x); rewrite ?pos_ge0. Qed.

(* The candidate is x and is accepted. *)
Lemma accepted_weight x : w * (q x * a x) = R x - r x.
Proof.
have [wq0 | wq_neq0] := eqVneq (w * q x) 0.
  rewrite mulrA wq0 mul0r; apply/esym/eqP; rewrite subr_eq0 eq_le (reserve_le shape) andbT.
  by have := reserve_ge shape x; rewrite wq0 subr0 pos_id.
by rewrite (accept_def shape) // mulrA mulrC divfK.
Qed.

Lemma rejected_weight_ge0 x : 0 <= w * (q x * (1 - a x)).
Proof.
rewrite mulrBr mulr1 mulrBr accepted_weight.
have := le_trans (le_pos _) (reserve_ge shape x).
by rewrite -[_ <= r x]subr_ge0; congr (0 <= _); ring.
Qed.

(* In all, r is rejected. *)
Lemma rejected_weight : \sum_x w * (q x * (1 - a x)) = mass r.
Proof.
transitivity (mass (fun x => w * q x - (R x - r x))).
  by apply: eq_bigr => x _; rewrite mulrBr mulr1 mulrBr accepted_weight.
by rewrite !massB massZ R_mass (draft_law shape).2; ring.
Qed.

Lemma accept_in_01 x : w * q x != 0 -> 0 <= a x <= 1.
Proof.
move=> wq_neq0; have wq_gt0 : 0 < w * q x.
  by rewrite lt_neqAle eq_sym wq_neq0 mulr_ge0 ?w_ge0 ?draft_ge0.
have def_a : w * q x * a x = R x - r x by rewrite -mulrA accepted_weight.
rewrite -(pmulr_rge0 (a x) wq_gt0) def_a subr_ge0 (reserve_le shape) /=.
rewrite -subr_ge0 -(pmulr_rge0 (1 - a x) wq_gt0).
by have := rejected_weight_ge0 x; rewrite mulrA.
Qed.

(* One step of the induction: what follows x emits r / |r|, whenever x can be rejected. *)
Lemma round_exact (next : V -> rule F V) :
  (forall x y, w * (q x * (1 - a x)) != 0 -> mass r * marginal (next x) y = r y) ->
  forall y, w * marginal (Round q a next) y = R y.
Proof.
move=> exact_next y; rewrite /= mulrDr accepted_weight mulr_sumr.
suff -> : \sum_x w * (q x * (1 - a x) * marginal (next x) y) = r y by rewrite subrK.
have [r0 | r_neq0] := eqVneq (mass r) 0.
  have none x : w * (q x * (1 - a x)) = 0.
    by apply: (mass0 rejected_weight_ge0); rewrite /mass rejected_weight.
  rewrite (mass0 reserve_ge0 r0) big1 // => x _.
  by rewrite mulrA none mul0r.
apply: (mulfI r_neq0); rewrite mulr_sumr.
rewrite (eq_bigr (fun x => w * (q x * (1 - a x)) * r y)); first by rewrite -mulr_suml rejected_weight.
move=> x _; have [none | some] := eqVneq (w * (q x * (1 - a x))) 0.
  by rewrite [w * _]mulrA none !mul0r mulr0.
by rewrite -(exact_next x y some); ring.
Qed.

End OneRound.

Lemma scale_law r : nonneg r -> mass r != 0 -> is_law (scale (mass r) r).
Proof.
move=> r_ge0 r_neq0; split=> [x |]; first by rewrite divr_ge0 ?mass_ge0.
by rewrite /mass -mulr_suml mulfV.
Qed.

Theorem shaped_weighted_exact R t :
  shaped_weighted R t -> nonneg R -> forall y, mass R * marginal t y = R y.
Proof.
elim=> {R t} [R R' eq_R R_ge0 y | R q a r next shape _ IH R_ge0]; first by rewrite /= -eq_R.
apply: (round_exact R_ge0 erefl shape) => x y some.
by apply: IH => //; [move: some; rewrite mulf_eq0 => /norP[] | apply: reserve_ge0 shape].
Qed.

Theorem shaped_exact R t : shaped R t -> is_law R -> forall y, marginal t y = R y.
Proof.
elim=> {R t} [R R' eq_R _ y | R q a r next shape _ IH [R_ge0 R_mass] y]; first by rewrite /= eq_R.
rewrite -[LHS]mul1r; apply: (round_exact R_ge0 R_mass shape) => {}y z.
rewrite mul1r => some; have r_neq0 : mass r != 0.
  apply: contraNneq some => r0; apply/eqP; move: r0; rewrite -(rejected_weight R_ge0 R_mass shape).
  move=> /(mass0 (rejected_weight_ge0 R_ge0 shape)) none.
  by rewrite -[LHS]mul1r none.
rewrite IH //; last exact: scale_law (reserve_ge0 shape) r_neq0.
by rewrite /scale mulrC divfK.
Qed.

Theorem shaped_accepts R q a r x :
  is_law R -> shaped_round 1 R q a r -> q x != 0 -> 0 <= a x <= 1.
Proof. by case=> R_ge0 R_mass shape q_neq0; apply: (accept_in_01 R_ge0 R_mass shape); rewrite mul1r. Qed.

(* SpecInfer with n candidates drawn from q_n, ..., q_1. *)
Fixpoint specinfer (qs : seq (V -> F)) R : rule F V :=
  if qs is q :: qs' then
    let r x := pos (R x - q x) in
    Round q (fun x => Num.min 1 (R x / q x)) (fun=> specinfer qs' (scale (mass r) r))
  else Draw R.

Fixpoint all_laws (qs : seq (V -> F)) : Prop := if qs is q :: qs' then is_law q /\ all_laws qs' else True.

Theorem specinfer_exact qs R : all_laws qs -> is_law R -> forall y, marginal (specinfer qs R) y = R y.
Proof.
move=> q_laws R_law; apply: shaped_exact (R_law).
elim: qs R R_law q_laws => [|q qs IH] R [R_ge0 R_mass] /=; first by left.
move=> [q_law q_laws].
set r := fun x => pos (R x - q x); set a := fun x => Num.min 1 (R x / q x).
have r_ge0 : nonneg r by move=> x; apply: pos_ge0.
have shape : shaped_round 1 R q a r.
  split=> // x; rewrite ?mul1r //.
    by rewrite /r /pos le_maxl R_ge0 andbT ler_subl_addr ler_addl q_law.1.
  move=> q_neq0; have q_gt0 : 0 < q x by rewrite lt_neqAle eq_sym q_neq0 q_law.1.
  apply: (mulIf q_neq0); rewrite divfK // -min_pos /a.
  case: (leP 1 (R x / q x)); first by rewrite le_div // mul1r => /min_idPr ->.
  by rewrite lt_div // mul1r divfK // => /ltW/min_idPl.
apply: (ShapedStep shape) => x some; apply: IH => //; apply: scale_law => //.
apply: contraNneq some => r0; rewrite -(rejected_weight R_ge0 R_mass shape) in r0.
by have := mass0 (rejected_weight_ge0 R_ge0 shape) r0 x; rewrite mul1r => ->.
Qed.

End TokenFree.
