(* Theorem 1 does not hold for Algorithm 1 as printed.

   Proved, over every ordered field F:
   - for p = (3/10, 4/10, 3/10) and q = (6/10, 3/10, 1/10), the operational marginal of Algorithm 1 with one
     candidate is (3/10, 141/290, 31/145), with two (3/10, 5583/11020, 2131/11020)  (worked_marginal_1, _2);
   - hence "for all laws p, q and all n the marginal is p", Theorem 1 as printed, is false    (theorem_1_false);
   - GetProxy's reserve has mass Z and stays below p, so its residual is a law        (reserve_mass, reserve_le,
     residual_law); with two tokens Algorithm 1 is exact for every n                             (two_tokens_exact);
   - with one candidate Algorithm 1 is biased for all laws p, q, of any finite V, for which q(x) > p(x) and
     q(y) >= p(y) > 0 at two tokens x <> y                                                    (resispec_biased);
   - for every V with at least 3 tokens there are laws p and q such that no round is exact whose residuals put mass
     on every y <> x with p(y), q(y) > 0. Algorithm 1 is such a round  (every_vocabulary).
   The values are computed over Q and carried to F by resispec.v. The reading is the default one (resispec.v).
   Left: that the seven other readings put mass on those y as well (they reserve at least min(Z q(y), p(y)) there with
   Z > 0; resispec.v models the default only), and the values for n >= 3. Two tokens are the type bool. *)

From Coq Require Import ZArith QArith.
From mathcomp Require Import all_ssreflect all_algebra ring ssrZ.
From Speculative Require Import laws exact_round resispec.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Worked.

Definition p_Q : 'I_3 -> Q := threeQ (Qmake 3 10) (Qmake 4 10) (Qmake 3 10).
Definition q_Q : 'I_3 -> Q := threeQ (Qmake 6 10) (Qmake 3 10) (Qmake 1 10).

Lemma computed_1 : tableQ (algorithm_1_Q 1 p_Q q_Q) = [:: Qmake 3 10; Qmake 141 290; Qmake 31 145].
Proof. by vm_compute. Qed.

Lemma computed_2 : tableQ (algorithm_1_Q 2 p_Q q_Q) = [:: Qmake 3 10; Qmake 5583 11020; Qmake 2131 11020].
Proof. by vm_compute. Qed.

Variable F : realFieldType.

Definition worked_p (x : 'I_3) : F := ofQ F (p_Q x).
Definition worked_q (x : 'I_3) : F := ofQ F (q_Q x).

Lemma ofQ_law (g : 'I_3 -> Q) :
  (forall x, Qle_bool (Qmake 0 1) (g x)) -> Qred (sumQ g) = Qmake 1 1 -> is_law (fun x => ofQ F (g x)).
Proof.
have ofQ0 : ofQ F (Qmake 0 1) = 0 by rewrite /ofQ /ofZ /= mul0r.
have ofQ1 : ofQ F (Qmake 1 1) = 1 by rewrite /ofQ /ofZ /= divr1.
move=> g_ge0 g_sum; split=> [x|]; first by rewrite -ofQ0 ofQ_le.
rewrite -ofQ1 -g_sum ofQ_red /sumQ ofQ_red !ofQD /mass !big_ord_recl big_ord0 addr0.
by do ![congr (_ + _)]; congr (ofQ _ (g _)); apply: val_inj.
Qed.

Lemma worked_p_law : is_law worked_p.
Proof. by apply: ofQ_law => // -[[|[|[|]]]]. Qed.

Lemma worked_q_law : is_law worked_q.
Proof. by apply: ofQ_law => // -[[|[|[|]]]]. Qed.

Lemma worked_marginal n a b c : tableQ (algorithm_1_Q n p_Q q_Q) = [:: a; b; c] ->
  forall y, marginal (resispec n worked_p worked_q) y = ofQ F (threeQ a b c y).
Proof.
move=> [def_a def_b def_c] y; rewrite computed_law /threeQ -def_a -def_b -def_c; congr ofQ.
by case: y => [[|[|[|]]]] //= lt_y3; congr algorithm_1_Q; apply: val_inj.
Qed.

Theorem worked_marginal_1 y : marginal (resispec 1 worked_p worked_q) y =
  ofQ F (threeQ (Qmake 3 10) (Qmake 141 290) (Qmake 31 145) y).
Proof. exact: worked_marginal computed_1 y. Qed.

Theorem worked_marginal_2 y : marginal (resispec 2 worked_p worked_q) y =
  ofQ F (threeQ (Qmake 3 10) (Qmake 5583 11020) (Qmake 2131 11020) y).
Proof. exact: worked_marginal computed_2 y. Qed.

(* The first of these in plain numbers of F. *)
Corollary worked_marginal_1_plain :
  marginal (resispec 1 worked_p worked_q) (token (isT : 1 < 3)%N) = 141%:R / 290%:R.
Proof. by rewrite worked_marginal_1. Qed.

(* Theorem 1 as printed. *)
Definition theorem_1_as_printed : Prop :=
  forall (V : finType) (p q : V -> F) n, is_law p -> is_law q -> forall y, marginal (resispec n p q) y = p y.

Theorem theorem_1_false : ~ theorem_1_as_printed.
Proof.
move=> /(_ _ _ _ 1%N worked_p_law worked_q_law (token (isT : 1 < 3)%N)).
by rewrite worked_marginal_1 => /ofQ_inj.
Qed.

End Worked.

Section EveryVocabulary.
Variables (F : realFieldType) (V : finType).
Implicit Types p q : V -> F.

(* Residuals R^x of a round: non-negative, and positive on every other token that has target and draft mass. *)
Definition puts_mass_back p q (res : V -> V -> F) : Prop :=
  (forall x y, 0 <= res x y) /\ (forall x y, p x < q x -> y != x -> 0 < p y -> 0 < q y -> 0 < res x y).

Lemma excess_ge0 p q x y : 0 <= excessF p q x y.
Proof. by rewrite excessFE pos_ge0. Qed.

(* What GetProxy reserves when x was rejected. *)
Section Reserve.
Variables p q : V -> F.
Hypothesis p_law : is_law p.
Hypothesis q_law : is_law q.
Variable x : V.
Hypothesis x_over : p x < q x.
Let p_ge0 := p_law.1.
Let q_ge0 := q_law.1.
Let Z : F := q x - p x.
Let m : V -> F := clippedF p q x.

Lemma Z_gt0 : 0 < Z.
Proof. by rewrite subr_gt0. Qed.

Lemma clipped_le y : m y <= Z * q y /\ m y <= p y.
Proof.
rewrite /m clippedFE; case: eqP => _; last by rewrite !le_minl !lexx orbT.
by rewrite p_ge0 mulr_ge0 // ltW ?Z_gt0.
Qed.

Lemma clipped_ge0 y : 0 <= m y.
Proof. by rewrite /m clippedFE; case: eqP => // _; rewrite le_minr p_ge0 mulr_ge0 // ltW ?Z_gt0. Qed.

Lemma capacity_ge0 y : 0 <= capacityF p q x y.
Proof. by rewrite capacityFE; case: eqP => // _; rewrite subr_ge0 (clipped_le y).2. Qed.

Lemma delta_ge0 : 0 <= Z - mass m.
Proof.
by rewrite subr_ge0 -[leRHS]mulr1 -q_law.2 -massZ; apply: le_mass => y; apply: (clipped_le y).1.
Qed.

Lemma capacity_mass : mass (capacityF p q x) = 1 - p x - mass m.
Proof.
have cap y : capacityF p q x y = p y - m y - (if y == x then p x else 0).
  by rewrite capacityFE /m; case: eqP => [->|_]; rewrite ?clippedFE ?eqxx ?subr0 ?subrr.
rewrite (eq_mass cap) !massB p_law.2.
have -> : mass (fun y => if y == x then p x else 0) = p x by rewrite /mass -big_mkcond big_pred1_eq.
by ring.
Qed.

Lemma reserve_ge_clipped y : m y <= reserveF p q x y.
Proof.
rewrite reserveFE ler_addl mulr_ge0 ?capacity_ge0 // divr_ge0 ?delta_ge0 //.
by apply: mass_ge0 => z; apply: capacity_ge0.
Qed.

(* Line 21: the sum of r is Z. *)
Lemma reserve_mass : mass (reserveF p q x) = Z.
Proof.
rewrite (eq_mass (reserveFE p q x)) massD massZ; have [cap0 | cap_neq0] := eqVneq (mass (capacityF p q x)) 0.
  rewrite cap0 mulr0 addr0; apply/eqP; rewrite eq_le -subr_ge0 delta_ge0 /=.
  have -> : mass m = 1 - p x by apply/esym/eqP; rewrite -subr_eq0 -capacity_mass cap0.
  by rewrite ler_add2r -q_law.2 /mass (bigD1 x) //= ler_addl sumr_ge0.
by rewrite divfK // addrC subrK.
Qed.

(* and r <= p. *)
Lemma reserve_le y : reserveF p q x y <= p y.
Proof.
have room : m y + capacityF p q x y <= p y.
  by rewrite capacityFE /m; case: eqP => [->|_]; rewrite ?clippedFE ?eqxx ?addr0 ?p_ge0 // addrC subrK.
apply: le_trans room; rewrite reserveFE ler_add2l ler_pimull ?capacity_ge0 //.
have [-> | cap_neq0] := eqVneq (mass (capacityF p q x)) 0; first by rewrite invr0 mulr0 ler01.
have cap_gt0 : 0 < mass (capacityF p q x).
  by rewrite lt_neqAle eq_sym cap_neq0 mass_ge0 // => z; apply: capacity_ge0.
rewrite ler_pdivr_mulr // mul1r capacity_mass ler_add2r ler_add2r -q_law.2.
by rewrite /mass (bigD1 x) //= ler_addl sumr_ge0.
Qed.

Lemma excess_reserve y : excessF p q x y = reserveF p q x y.
Proof.
have m_ge0 := le_trans (clipped_ge0 y) (reserve_ge_clipped y).
rewrite excessFE; have [-> | y_neq] := eqVneq y x; last by rewrite opprB addrC subrK pos_id.
by rewrite pos_eq0 ?subr_le0 ?ltW // reserveFE capacityFE clippedFE eqxx mulr0 addr0.
Qed.

Lemma residual_reserve y : residualF p q x y = reserveF p q x y / Z.
Proof. by rewrite residualFE excess_reserve (eq_mass excess_reserve) reserve_mass. Qed.

Lemma residual_law : is_law (residualF p q x).
Proof.
split=> [y |]; first by rewrite residualFE divr_ge0 ?excess_ge0 ?mass_ge0 // => z; apply: excess_ge0.
rewrite (eq_mass residual_reserve) /mass -mulr_suml -/(mass _) reserve_mass.
by rewrite mulfV // gt_eqF // Z_gt0.
Qed.

Lemma residual_hole : residualF p q x x = 0.
Proof. by rewrite residual_reserve reserveFE capacityFE clippedFE eqxx mulr0 addr0 mul0r. Qed.

End Reserve.

(* Algorithm 1 does so: off x0 it reserves at least min(Z q, p), with Z = q(x0) - p(x0). *)
Lemma resispec_puts_mass_back p q : is_law p -> is_law q -> puts_mass_back p q (residualF p q).
Proof.
move=> p_law q_law; split=> x y.
  by rewrite residualFE divr_ge0 ?excess_ge0 ?mass_ge0 // => z; apply: excess_ge0.
move=> x_over y_neq py_gt0 qy_gt0; have Zx_gt0 := Z_gt0 x_over.
rewrite residual_reserve // divr_gt0 //; apply: lt_le_trans (reserve_ge_clipped p_law q_law x_over y).
by rewrite clippedFE (negPf y_neq) lt_minr py_gt0 mulr_gt0.
Qed.

Theorem resispec_biased p q x y : is_law p -> is_law q ->
  p x < q x -> y != x -> p y <= q y -> 0 < p y -> ~ (forall z, marginal (resispec 1 p q) z = p z).
Proof.
move=> p_law q_law x_over y_neq y_over py_gt0.
have [res_ge0 res_gt0] := resispec_puts_mass_back p_law q_law.
apply: (@reserving_rounds_are_biased _ _ p q (acceptF p q) _ _ _ (residualF p q) res_ge0 x y) => //.
- exact: p_law.1.
- exact: q_law.1.
- by move=> z _; apply: acceptFE.
by apply: res_gt0 => //; apply: lt_le_trans y_over.
Qed.

(* A law on three tokens. *)
Definition on_three (a b c : V) (fa fb fc : F) (x : V) : F :=
  if x == a then fa else if x == b then fb else if x == c then fc else 0.

Lemma on_three_law a b c fa fb fc : b != a -> c != a -> c != b ->
  0 <= fa -> 0 <= fb -> 0 <= fc -> fa + fb + fc = 1 -> is_law (on_three a b c fa fb fc).
Proof.
move=> ba ca cb fa_ge0 fb_ge0 fc_ge0 sum1; split=> [x|]; first by rewrite /on_three; do !case: ifP.
rewrite /mass (bigD1 a) //= (bigD1 b) //= (bigD1 c) ?ca //= big1 => [|x /andP[/andP[xa xb] xc]].
  by rewrite /on_three !eqxx (negPf ba) (negPf ca) (negPf cb) addr0 addrA.
by rewrite /on_three (negPf xa) (negPf xb) (negPf xc).
Qed.

Theorem every_vocabulary : (2 < #|V|)%N ->
  exists p q, [/\ is_law p, is_law q &
    forall a res, (forall x, q x != 0 -> a x = Num.min 1 (p x / q x)) -> puts_mass_back p q res ->
    ~ (forall z, marginal (Round q a (fun x => Draw (res x))) z = p z)].
Proof.
move=> V_ge3; have [a [b [c [ba ca cb]]]] : exists a b c : V, [/\ b != a, c != a & c != b].
  move: V_ge3 (enum_uniq V); rewrite cardE; case: (enum V) => [|a [|b [|c s]]] // _ /=.
  rewrite !inE !negb_or => /andP[/and3P[ab ac _] /andP[/andP[bc _] _]].
  by exists a, b, c; rewrite ![_ == a]eq_sym [c == b]eq_sym.
pose p := on_three a b c (1 / 4%:R) (1 / 4%:R) (2%:R / 4%:R).
pose q := on_three a b c (2%:R / 4%:R) (1 / 4%:R) (1 / 4%:R).
have quarter_gt0 : 0 < 1 / 4%:R :> F by rewrite divr_gt0 ?ltr01 ?ltr0n.
have p_law : is_law p by apply: on_three_law; rewrite ?divr_ge0 ?ler0n ?ler01 //; field.
have q_law : is_law q by apply: on_three_law; rewrite ?divr_ge0 ?ler0n ?ler01 //; field.
have pb : p b = 1 / 4%:R by rewrite /p /on_three (negPf ba) eqxx.
have qb : q b = 1 / 4%:R by rewrite /q /on_three (negPf ba) eqxx.
have a_over : p a < q a.
  by rewrite /p /q /on_three eqxx; apply: (lt_of_diff quarter_gt0); field.
exists p, q; split=> // acc res acc_def [res_ge0 res_gt0].
apply: (reserving_rounds_are_biased p_law.1 q_law.1 acc_def res_ge0 a_over (y := b)); first by rewrite pb qb.
by apply: res_gt0; rewrite ?pb ?qb.
Qed.

End EveryVocabulary.

Section TwoTokens.
Variable F : realFieldType.

Let mass_bool (f : bool -> F) : mass f = f true + f false.
Proof. exact: big_bool. Qed.

(* With two tokens the residual is the other token, whatever GetProxy does. *)
Theorem two_tokens_exact n (p q : bool -> F) :
  is_law p -> is_law q -> forall y, marginal (resispec n p q) y = p y.
Proof.
elim: n p => [//|n IH] p p_law q_law; pose w := mass (fun x => pos (q x - p x)).
apply: (@exact_rule_suffices _ _ p q (acceptF p q) p_law.1 q_law.1 _ _ w) => // [x _|x y x_over|].
- exact: acceptFE.
- have [_ res_mass] := residual_law p_law q_law x_over; have hole := residual_hole p_law q_law x_over.
  rewrite IH //; last exact: residual_law.
  have [-> | y_neq] := eqVneq y x; first by rewrite hole mulr0 pos_eq0 // subr_le0 ltW.
  have def_y : y = ~~ x by case: (x) (y) y_neq => -[].
  have res1 : residualF p q x (~~ x) = 1.
    by rewrite -res_mass mass_bool; case: (x) hole => /= ->; rewrite ?addr0 ?add0r.
  have diff : p (~~ x) - q (~~ x) = q x - p x.
    have := etrans p_law.2 (esym q_law.2); rewrite !mass_bool => /eqP; rewrite -subr_eq0 => /eqP eq0.
    by apply/eqP; rewrite -subr_eq0 -eq0; apply/eqP; case: (x) => /=; ring.
  have -> : w = q x - p x; last by rewrite def_y res1 mulr1 diff pos_id // subr_ge0 ltW.
  have other : pos (q (~~ x) - p (~~ x)) = 0 by rewrite pos_eq0 // -opprB diff oppr_le0 subr_ge0 ltW.
  have this : pos (q x - p x) = q x - p x by rewrite pos_id // subr_ge0 ltW.
  by rewrite /w mass_bool; case: (x) this other => /= -> ->; rewrite ?addr0 ?add0r.
by rewrite p_law.2 q_law.2.
Qed.

End TwoTokens.
