(* Theorem 2, the smallest L1 distance of a shaped residual from the draft as a function of its mass Z.

   Proved, for every finite V, every ordered field F and laws p, q, with L(Z) = 2 sum_x (q(x) - p(x)/Z)_+ :
   - for 0 < Z <= 1, L(Z) is the minimum of sum_x |r(x)/Z - q(x)| over 0 <= r <= p, |r| = Z       (L_is_minimum);
   - Z* = min_{q>0} p/q exists (zstar_exists), and L(Z) = 0 iff Z <= Z*, for every Z > 0          (L_zero_iff);
   - L is non-decreasing on Z > 0                                                                 (L_mono);
   - for 0 < Z1 < Z2: L(Z1) < L(Z2) iff some token has p > 0 and q > p/Z2                         (L_strict_iff);
   - up to the smallest positive p/q, L is the constant 2 q(p = 0)                                (L_flat);
   - "strictly increasing on (Z*, 1]", as printed, holds iff q(x) > 0 implies p(x) > 0            (theorem_2_iff),
     and then it holds on all of [Z*, oo)                                                        (theorem_2_repaired);
   - p = (1/2, 1/2, 0), q = (2/5, 2/5, 1/5): L = 2/5 on (0, 1], so Theorem 2 as printed is false  (theorem_2_false).
   Left: the derivative of L, and the variant in which the reserve must vanish at the rejected token. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section TheoremTwo.
Variables (F : realFieldType) (V : finType) (p q : V -> F).
Hypothesis p_law : is_law p.
Hypothesis q_law : is_law q.
Implicit Types (Z : F) (r : V -> F).

Let p_ge0 := p_law.1.
Let q_ge0 := q_law.1.

Definition L Z : F := 2%:R * mass (fun x => pos (q x - p x / Z)).
Definition distance Z r : F := mass (fun x => `|r x / Z - q x|).
Definition feasible Z r : Prop := [/\ nonneg r, forall x, r x <= p x & mass r = Z].

(* |a| = a + 2 (-a)_+ *)
Lemma abs_pos (a : F) : `|a| = a + 2%:R * pos (- a).
Proof.
case: (ger0P a) => [a_ge0 | a_lt0]; first by rewrite pos_eq0 ?mulr0 ?addr0 // oppr_le0.
by rewrite pos_id ?oppr_ge0 ?ltW //; ring.
Qed.

Lemma distance_pos Z r : 0 < Z -> mass r = Z -> distance Z r = 2%:R * mass (fun x => pos (q x - r x / Z)).
Proof.
move=> Z_gt0 r_mass; rewrite /distance (eq_mass (fun x => abs_pos (r x / Z - q x))) massD massB massZ.
rewrite {1}/mass -mulr_suml -/(mass r) r_mass mulfV ?gt_eqF // q_law.2 subrr add0r.
by congr (_ * _); apply: eq_mass => x; rewrite opprB.
Qed.

Theorem L_lower_bound Z r : 0 < Z -> feasible Z r -> L Z <= distance Z r.
Proof.
move=> Z_gt0 [r_ge0 r_le r_mass]; rewrite distance_pos // /L ler_wpmul2l ?ler0n //.
by apply: le_mass => x; apply: pos_le; rewrite ler_add2l ler_opp2 ler_wpmul2r // invr_ge0 ltW.
Qed.

(* The bound is attained by the paper's reserve: clip Z q at p, and spread what was lost in proportion to p - r. *)
Lemma L_attained Z : 0 < Z -> Z <= 1 -> exists2 r, feasible Z r & distance Z r = L Z.
Proof.
move=> Z_gt0 Z_le1; pose m x := Num.min (p x) (Z * q x); pose c := (Z - mass m) / (1 - mass m).
have m_ge0 : nonneg m by move=> x; rewrite le_minr p_ge0 mulr_ge0 // ltW.
have m_le x : m x <= p x by rewrite le_minl lexx.
have m_leZ : mass m <= Z.
  by rewrite -[leRHS]mulr1 -q_law.2 -massZ; apply: le_mass => x; rewrite le_minl lexx orbT.
have m_le1 : mass m <= 1 by apply: le_trans Z_le1.
have c01 : 0 <= c <= 1.
  have [d0 | d_neq0] := eqVneq (1 - mass m) 0; first by rewrite /c d0 invr0 mulr0 lexx ler01.
  have d_gt0 : 0 < 1 - mass m by rewrite lt_neqAle eq_sym d_neq0 subr_ge0.
  by rewrite /c divr_ge0 ?subr_ge0 //= ler_pdivr_mulr // mul1r ler_add2r.
have [c_ge0 c_le1] := andP c01; pose r x := m x + c * (p x - m x).
have r_ge_m x : m x <= r x by rewrite ler_addl mulr_ge0 ?subr_ge0.
have r_mass : mass r = Z.
  rewrite massD massZ massB p_law.2 /c; have [d0 | d_neq0] := eqVneq (1 - mass m) 0.
    have m1 : mass m = 1 by apply/esym/eqP; rewrite -subr_eq0 d0.
    rewrite d0 mulr0 addr0 m1; apply/eqP; rewrite eq_le Z_le1 andbT.
    by rewrite -m1.
  by rewrite divfK // addrC subrK.
have r_feasible : feasible Z r.
  split=> // x; first exact: le_trans (m_ge0 x) (r_ge_m x).
  by rewrite -ler_subr_addl ler_pimull // subr_ge0.
exists r => //; rewrite distance_pos //; congr (_ * _); apply: eq_mass => x.
have Zinv : 0 < Z^-1 by rewrite invr_gt0.
have div_Zq : Z * q x / Z = q x by rewrite mulrAC mulfV ?mul1r ?gt_eqF.
have [p_le | q_lt] := leP (p x) (Z * q x).
  have m_def : m x = p x by apply/min_idPl.
  by rewrite /r m_def subrr mulr0 addr0.
have m_def : m x = Z * q x by apply/min_idPr/ltW.
rewrite !pos_eq0 // subr_le0; first by rewrite -[leLHS]div_Zq ler_wpmul2r // ltW.
by rewrite -[leLHS]div_Zq -m_def ler_wpmul2r // ltW.
Qed.

Theorem L_is_minimum Z : 0 < Z -> Z <= 1 ->
  (forall r, feasible Z r -> L Z <= distance Z r) /\ (exists2 r, feasible Z r & distance Z r = L Z).
Proof. by move=> Z_gt0 Z_le1; split; [move=> r; apply: L_lower_bound | apply: L_attained]. Qed.

(* One term of L. *)
Let term Z x : F := pos (q x - p x / Z).

Lemma term_mono Z1 Z2 x : 0 < Z1 -> Z1 <= Z2 -> term Z1 x <= term Z2 x.
Proof.
move=> Z1_gt0 le_Z; have Z2_gt0 := lt_le_trans Z1_gt0 le_Z.
by apply: pos_le; rewrite ler_add2l ler_opp2 ler_wpmul2l // lef_pinv ?posrE.
Qed.

Theorem L_mono Z1 Z2 : 0 < Z1 -> Z1 <= Z2 -> L Z1 <= L Z2.
Proof.
by move=> Z1_gt0 le_Z; rewrite ler_wpmul2l ?ler0n //; apply: le_mass => x; apply: term_mono.
Qed.

(* The token x is in the bottleneck set, q > p/Z, and has target mass. *)
Definition binding Z x : bool := (0 < p x) && (p x < Z * q x).

Lemma term_strict Z1 Z2 x : 0 < Z1 -> Z1 < Z2 -> binding Z2 x -> term Z1 x < term Z2 x.
Proof.
move=> Z1_gt0 lt_Z /andP[px_gt0 x_over]; have Z2_gt0 := lt_trans Z1_gt0 lt_Z.
have over : 0 < q x - p x / Z2 by rewrite subr_gt0 lt_div // mulrC.
rewrite /term [X in _ < X]pos_id ?ltW // /pos lt_maxl over andbT.
by rewrite ltr_add2l ltr_opp2 ltr_pmul2l // ltf_pinv ?posrE.
Qed.

(* Other tokens do not change. *)
Lemma term_flat Z1 Z2 x : 0 < Z1 -> Z1 < Z2 -> ~~ binding Z2 x -> term Z1 x = term Z2 x.
Proof.
move=> Z1_gt0 lt_Z; have Z2_gt0 := lt_trans Z1_gt0 lt_Z.
have [px0 | px_neq0] := eqVneq (p x) 0; first by rewrite /term px0 !mul0r.
have px_gt0 : 0 < p x by rewrite lt_neqAle eq_sym px_neq0 p_ge0.
rewrite /binding px_gt0 /= -leNgt => x_under; have term2 : term Z2 x = 0.
  by rewrite /term pos_eq0 // subr_le0 le_div // mulrC.
by rewrite term2; apply/eqP; rewrite eq_le pos_ge0 andbT -term2 term_mono // ltW.
Qed.

Theorem L_strict_iff Z1 Z2 : 0 < Z1 -> Z1 < Z2 -> (L Z1 < L Z2) = [exists x, binding Z2 x].
Proof.
move=> Z1_gt0 lt_Z; rewrite /L ltr_pmul2l ?ltr0n //; apply/idP/existsP => [lt_L | [x x_binding]].
  apply/existsP; apply: contraLR lt_L; rewrite negb_exists -leNgt => /forallP none.
  by rewrite le_eqVlt (eq_mass (fun x => term_flat Z1_gt0 lt_Z (none x))) eqxx.
rewrite /mass (bigD1 x) //= [ltRHS](bigD1 x) //=.
by apply: ltr_le_add; [apply: term_strict | apply: ler_sum => y _; apply: term_mono => //; apply: ltW].
Qed.

Theorem L_flat Z : 0 < Z -> (forall x, 0 < p x -> Z * q x <= p x) ->
  L Z = 2%:R * \sum_(x | p x == 0) q x.
Proof.
move=> Z_gt0 below; congr (_ * _); rewrite [RHS]big_mkcond; apply: eq_bigr => x _.
have [px0 | px_neq0] := eqVneq (p x) 0; first by rewrite px0 mul0r subr0 pos_id.
rewrite pos_eq0 // subr_le0 le_div // mulrC below //.
by rewrite lt_neqAle eq_sym px_neq0 p_ge0.
Qed.

(* Z* = min_{q>0} p/q *)
Definition is_zstar zs : Prop :=
  (exists2 x, 0 < q x & p x / q x = zs) /\ (forall x, 0 < q x -> zs <= p x / q x).

Lemma zstar_exists : exists zs, is_zstar zs.
Proof.
have [x0 x0_gt0] : exists x, 0 < q x.
  apply/existsP; apply: contraT; rewrite negb_exists => /forallP none.
  have := q_law.2; rewrite /mass big1 => [/eqP | x _]; first by rewrite eq_sym oner_eq0.
  by apply/eqP; rewrite eq_le q_ge0 andbT leNgt none.
have [x x_gt0 x_min] := @arg_minP _ _ V x0 (fun x => 0 < q x) (fun x => p x / q x) x0_gt0.
by exists (p x / q x); split; [exists x | move=> y y_gt0; apply: x_min].
Qed.

Theorem L_zero_iff zs Z : is_zstar zs -> 0 < Z -> (L Z == 0) = (Z <= zs).
Proof.
move=> [[x0 x0_gt0 def_zs] zs_min] Z_gt0.
rewrite /L mulf_eq0 pnatr_eq0 /=; apply/eqP/idP => [L0 | Z_le].
  rewrite -def_zs le_div // mulrC -le_div // -subr_le0.
  have <- : pos (q x0 - p x0 / Z) = 0 := mass0 (fun x => pos_ge0 (q x - p x / Z)) L0 x0.
  exact: le_pos.
rewrite /mass big1 // => x _; rewrite pos_eq0 // subr_le0 le_div //.
have [-> | q_neq0] := eqVneq (q x) 0; first by rewrite mul0r.
have q_gt0 : 0 < q x by rewrite lt_neqAle eq_sym q_neq0 q_ge0.
by rewrite mulrC -le_div // (le_trans Z_le) ?zs_min.
Qed.

Theorem theorem_2_repaired zs Z1 Z2 : is_zstar zs -> (forall x, 0 < q x -> 0 < p x) ->
  zs <= Z1 -> Z1 < Z2 -> L Z1 < L Z2.
Proof.
move=> [[x0 x0_gt0 def_zs] _] support Z1_ge lt_Z.
have Z1_gt0 : 0 < Z1 by apply: lt_le_trans Z1_ge; rewrite -def_zs divr_gt0 ?support.
rewrite L_strict_iff //; apply/existsP; exists x0; rewrite /binding support //=.
by rewrite -lt_div // def_zs (le_lt_trans Z1_ge).
Qed.

(* Some Z in (0, 1] lies below every positive p/q. *)
Lemma exists_flat : exists2 Z, 0 < Z <= 1 & forall x, 0 < p x -> Z * q x <= p x.
Proof.
suff [Z Z01 below] : exists2 Z, 0 < Z <= 1 & forall x, x \in enum V -> 0 < p x -> Z * q x <= p x.
  by exists Z => // x; apply: below; rewrite mem_enum.
elim: (enum V) => [|x s [Z /andP[Z_gt0 Z_le1] below]]; first by exists 1; rewrite ?ltr01 ?lexx.
have q_le1 y : q y <= 1 by rewrite -q_law.2 /mass (bigD1 y) //= ler_addl sumr_ge0.
pose Z' := if 0 < p x then Num.min Z (p x) else Z.
have Z'_le : Z' <= Z by rewrite /Z'; case: ifP => // _; rewrite le_minl lexx.
exists Z'; first by rewrite (le_trans Z'_le) // andbT /Z'; case: ifP => // p_gt0; rewrite lt_minr Z_gt0.
move=> y; rewrite inE => /orP[/eqP -> p_gt0 | y_in p_gt0]; last first.
  by apply: le_trans (below y y_in p_gt0); rewrite ler_wpmul2r.
have Z'_p : Z' <= p x by rewrite /Z' p_gt0 le_minl lexx orbT.
by rewrite -[leRHS]mulr1 ler_pmul // /Z' p_gt0 le_minr !ltW.
Qed.

Theorem theorem_2_iff zs : is_zstar zs ->
  (forall Z1 Z2, zs < Z1 -> Z1 < Z2 -> Z2 <= 1 -> L Z1 < L Z2) <-> (forall x, 0 < q x -> 0 < p x).
Proof.
move=> zs_min; split=> [strict x x_gt0 | support Z1 Z2 /ltW Z1_ge lt_Z _]; last first.
  exact: theorem_2_repaired zs_min support Z1_ge lt_Z.
rewrite lt_neqAle p_ge0 andbT eq_sym; apply/negP => /eqP p0.
have [Z /andP[Z_gt0 Z_le1] below] := exists_flat; pose Z1 := Z / 2%:R.
have Z1_gt0 : 0 < Z1 by rewrite divr_gt0 // ltr0n.
have lt_Z : Z1 < Z by rewrite lt_div ?ltr0n // mulr_natr mulr2n ltr_addr.
have zs_lt : zs < Z1 by apply: le_lt_trans Z1_gt0; rewrite -(mul0r (q x)^-1) -p0; apply: zs_min.2.
have := strict _ _ zs_lt lt_Z Z_le1; rewrite L_strict_iff // => /existsP[y /andP[py_gt0]].
by rewrite ltNge below.
Qed.

End TheoremTwo.

Section Counterexample.
Variable F : realFieldType.

Definition three (a b c : F) (i : 'I_3) : F := nth 0 [:: a; b; c] i.
Definition p_flat : 'I_3 -> F := three (1 / 2%:R) (1 / 2%:R) 0.
Definition q_flat : 'I_3 -> F := three (2%:R / 5%:R) (2%:R / 5%:R) (1 / 5%:R).

Lemma three_law a b c : 0 <= a -> 0 <= b -> 0 <= c -> a + b + c = 1 -> is_law (three a b c).
Proof.
move=> a_ge0 b_ge0 c_ge0 sum1; split=> [[[|[|[|]]] //]|].
by rewrite /mass !big_ord_recl big_ord0 /three /= addr0 addrA.
Qed.

Lemma p_flat_law : is_law p_flat.
Proof. by apply: three_law; rewrite ?divr_ge0 ?ler0n ?ler01 //; field. Qed.

Lemma q_flat_law : is_law q_flat.
Proof. by apply: three_law; rewrite ?divr_ge0 ?ler0n ?ler01 //; field. Qed.

Theorem L_flat_constant Z : 0 < Z -> Z <= 1 -> L p_flat q_flat Z = 2%:R / 5%:R.
Proof.
move=> Z_gt0 Z_le1; rewrite (L_flat p_flat_law q_flat_law Z_gt0).
  rewrite big_mkcond !big_ord_recl big_ord0 /p_flat /q_flat /three /= eqxx.
  by rewrite mulf_eq0 oner_eq0 invr_eq0 pnatr_eq0 /=; field.
have bound : Z * (2%:R / 5%:R) <= 1 / 2%:R :> F.
  apply: (@le_trans _ _ (2%:R / 5%:R)); first by rewrite ler_pimull // divr_ge0 ?ler0n.
  by apply: (@le_of_diff _ _ _ (1 / 10%:R)); [rewrite divr_ge0 ?ler0n // ler01 | field].
by case=> [[|[|[|]]]] //= ?; rewrite /p_flat /q_flat /three /= ?ltxx.
Qed.

(* Theorem 2 as printed: strictly increasing on (Z*, 1]. *)
Definition theorem_2_as_printed : Prop :=
  forall (V : finType) (p q : V -> F) zs, is_law p -> is_law q -> is_zstar p q zs ->
  forall Z1 Z2, zs < Z1 -> Z1 < Z2 -> Z2 <= 1 -> L p q Z1 < L p q Z2.

Theorem theorem_2_false : ~ theorem_2_as_printed.
Proof.
move=> printed; have zs_min : is_zstar p_flat q_flat 0.
  split; first by exists (@Ordinal 3 2 isT); rewrite /= /three /= ?mul0r // divr_gt0 ?ltr0n // ltr01.
  by move=> x _; rewrite divr_ge0 ?p_flat_law.1 ?q_flat_law.1.
have half_gt0 : 0 < 1 / 2%:R :> F by rewrite divr_gt0 ?ltr01 ?ltr0n.
have half_lt1 : 1 / 2%:R < 1 :> F by rewrite lt_div ?ltr0n // mul1r ltr1n.
have := printed _ _ _ _ p_flat_law q_flat_law zs_min _ _ half_gt0 half_lt1 (lexx 1).
by rewrite !L_flat_constant ?ltxx ?lexx ?ltr01 // ltW.
Qed.

End Counterexample.
